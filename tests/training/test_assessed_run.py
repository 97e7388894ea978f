"""The assessment of a finished run in its files, also after a kill while they are written."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file

from sptnet.config import Config
from sptnet.data.load import SplitImages
from sptnet.inference.assess import assess
from sptnet.model.calibrator import Calibrator, Line
from sptnet.model.model_folder import load_model
from sptnet.results.assessment import NOT_CALIBRATED, Assessment, read_expectation
from sptnet.results.expected_accuracy import ExpectedAccuracy
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import read_result
from sptnet.results.scores import score_sets

CALIBRATOR = Calibrator(Line(0.5, 1.0), Line(0.25, -1.0))
EXPECTED = ExpectedAccuracy(0.6, 0.5, 0.7, {"0": 0.9, "new-1": 0.4})
RunIt = Callable[..., Path]


@pytest.fixture
def clustering(tiny_config: Config) -> Config:
    """Nothing trains, so a run takes a second."""
    return tiny_config.changed(sskmeans={"n_init": 1}).model_copy(update={"method": "sskmeans"})


def calibrated(*given: Any) -> Assessment:
    return replace(assess(*given), expected=EXPECTED, reason="", calibrator=CALIBRATOR)


def rows_of(run: Path) -> list[dict[str, str]]:
    with (run / "predictions.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_run_without_calibration_says_why(
    clustering: Config, few_digits: SplitImages, run_it: RunIt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sptnet.training.experiment.assess",
        lambda *given: replace(assess(*given), expected=None, reason="there are too few labels.", calibrator=None),
    )
    facts = RunFolder(run_it(tmp_path / "run", clustering, few_digits)).facts()
    assert facts["expected_accuracy"] is None
    assert facts["expected_accuracy_reason"] == "there are too few labels."
    assert "calibrator" not in json.loads((tmp_path / "run" / "model" / "model.json").read_text())


def test_the_files_of_a_calibrated_run(
    clustering: Config, few_digits: SplitImages, run_it: RunIt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run_it(tmp_path / "plain", clustering, few_digits)
    monkeypatch.setattr("sptnet.training.experiment.assess", calibrated)
    run = run_it(tmp_path / "run", clustering, few_digits)
    assert read_expectation(RunFolder(run).facts()) == (EXPECTED, "")
    assert "expected_accuracy_reason" not in RunFolder(run).facts()
    assert load_model(run)[1].calibrator == CALIBRATOR
    one, other = (load_file(folder / "model" / "model.safetensors") for folder in (plain, run))
    assert all((one[name] == other[name]).all() for name in one)


def test_the_scores_are_those_of_the_guesses(
    clustering: Config, few_digits: SplitImages, run_it: RunIt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that contradicts every label: categories of labelled images are the labels, and no score knows them."""
    split = few_digits.split

    def contrary(*given: Any) -> Assessment:
        found = assess(*given)
        return replace(found, guess=(found.guess + 1) % 10)

    monkeypatch.setattr("sptnet.training.experiment.assess", contrary)
    run = run_it(tmp_path / "run", clustering, few_digits)
    rows, names = rows_of(run), load_model(run)[1].categories
    guess = np.array([names.index(row["guess"]) for row in rows])
    category = np.array([names.index(row["category"]) for row in rows])
    assert (category[split.labelled] == split.target[split.labelled]).all()
    assert (guess[split.labelled] != category[split.labelled]).any()
    assert (category == guess)[split.unlabelled].all()
    assert RunFolder(run).facts()["scores"] == score_sets(few_digits.image_set, split, guess)
    result = read_result(run)
    assert np.array_equal(result.category, category)
    assert np.array_equal(result.guess, guess)
    assert (result.certainty[split.labelled] == 1).all()


@pytest.mark.parametrize("writer", ["update_card", "write_predictions", "write_contact_sheets"])
@pytest.mark.parametrize("method", ["sskmeans", "simgcd"])
def test_a_run_killed_while_it_writes_its_results_ends_as_it_would_have(
    writer: str,
    method: str,
    clustering: Config,
    few_digits: SplitImages,
    run_it: RunIt,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    assert_same_result: Callable[[Path, Path], None],
) -> None:
    config = clustering.changed(simgcd={"epochs": 1}).model_copy(update={"method": method})
    monkeypatch.setattr("sptnet.training.experiment.assess", calibrated)
    whole = run_it(tmp_path / "whole", config, few_digits)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(f"sptnet.training.experiment.{writer}", killed)
        with pytest.raises(KeyboardInterrupt):
            run_it(tmp_path / "run", config, few_digits)
    assert RunFolder(tmp_path / "run").facts()["status"] == "stopped"
    assert load_model(tmp_path / "run")[1].calibrator == (None if writer == "update_card" else CALIBRATOR)
    run_it(tmp_path / "run", data=few_digits, resume=True)
    assert_same_result(tmp_path / "run", whole)
    assert (tmp_path / "run" / "model" / "model.json").read_text() == (whole / "model" / "model.json").read_text()
    assert read_expectation(RunFolder(tmp_path / "run").facts()) == (EXPECTED, "")


def test_a_run_that_ends_anew_forgets_its_earlier_reason(
    clustering: Config, few_digits: SplitImages, run_it: RunIt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    for expected, reason in ((None, NOT_CALIBRATED), (EXPECTED, ""), (None, "there are too few labels.")):
        given = {"expected": expected, "reason": reason, "calibrator": CALIBRATOR if expected else None}
        monkeypatch.setattr(
            "sptnet.training.experiment.assess", lambda *parts, given=given: replace(assess(*parts), **given)
        )
        run_it(folder, None if folder.exists() else clustering, few_digits, resume=folder.exists())
        facts = RunFolder(folder).facts()
        assert read_expectation(facts) == (expected, reason)
        assert ("expected_accuracy_reason" in facts) == (expected is None)
        assert load_model(folder)[1].calibrator == given["calibrator"]
