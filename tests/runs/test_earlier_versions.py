"""Folders that sptnet 0.1.0 wrote still load, resume, report, and serve as a start.

`fixtures/v0.1.0` holds 24 digits, a finished and edited SimGCD run, an SPTNet run that was stopped after two of four
epochs, an imported checkpoint, a model of centroids, and what 0.1.0 itself made of them.
"""

import csv
import json
import shutil
from pathlib import Path

import pytest

from conftest import Call
from helpers.rounding import certainty_rounding, terms_of, training_rounding
from sptnet.head import CentroidHead
from sptnet.inference.predictor import load

WRITTEN = Path(__file__).parents[1] / "fixtures" / "v0.1.0"
Rows = list[dict[str, str]]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy whose runs know where their images are now."""
    folder = tmp_path / "v0.1.0"
    shutil.copytree(WRITTEN, folder)
    for config in folder.glob("*/config.toml"):
        config.write_text(config.read_text().replace("PHOTOS", str(folder / "photos")))
    return folder


def rows_of(file: Path) -> Rows:
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def certainty_tolerance(folder: Path) -> float:
    """Rounding on the way through a model."""
    model = load(folder, "cpu").model
    return certainty_rounding(terms_of(model), size=2.0 if isinstance(model.head, CentroidHead) else 1.0)


def assert_same_answers(found: Rows, expected: Rows, tolerance: float) -> None:
    assert [row["image"].rpartition("photos/")[2] for row in found] == [row["image"] for row in expected]
    assert [float(row["certainty"]) for row in found] == pytest.approx(
        [float(row["certainty"]) for row in expected], abs=tolerance
    )
    assert [row.get("guess", row["category"]) for row in found] == [row["category"] for row in expected]


@pytest.mark.parametrize("model", ["finished", "imported", "centroids"])
def test_a_model_gives_the_answers_of_then(old: Path, tmp_path: Path, call: Call, model: str) -> None:
    answer = call("predict", old / model, old / "photos", "--out", tmp_path / "found.csv", "--device", "cpu")
    assert answer.code == 0, answer.err
    expected = rows_of(WRITTEN / "expected" / f"predict-{model}.csv")
    for row in expected:
        row["image"] = row["image"].removeprefix("photos/")
    assert_same_answers(rows_of(tmp_path / "found.csv"), expected, certainty_tolerance(old / model))


def test_a_stopped_run_ends_as_it_would_have(old: Path, call: Call) -> None:
    """Two views of six images are a batch, and what enters the last block comes from a bank.

    The logarithm of a certainty is a loss, so it moves with the weights as the losses do.
    """
    run = old / "stopped"
    answer = call("train", "--resume", "--out", run)
    assert answer.code == 0, answer.err
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    wanted = [json.loads(line) for line in (WRITTEN / "expected" / "metrics.jsonl").read_text().splitlines()]
    assert [(line["stage"], line["epoch"]) for line in lines] == [(line["stage"], line["epoch"]) for line in wanted]
    trained = training_rounding(rows=12, banked=terms_of(load(run, "cpu").model.backbone))
    for line, then in zip(lines, wanted, strict=True):
        for phase, parts in then["losses"].items():
            assert line["losses"][phase] == pytest.approx(parts, abs=trained)
    found, expected = (rows_of(folder / "predictions.csv") for folder in (run, WRITTEN / "expected"))
    assert_same_answers(found, expected, certainty_tolerance(run) + trained)
    facts = json.loads((run / "run.json").read_text())
    before = json.loads((WRITTEN / "stopped" / "run.json").read_text())["data"]
    assert facts["status"] == "finished"
    assert facts["data"]["fingerprint"] == before["fingerprint"] and facts["data"]["fingerprint_version"] == 1
    flags, earlier = ((folder / "tokens" / "filled.bin").read_bytes() for folder in (run, WRITTEN / "stopped"))
    assert sum(flags) > sum(earlier) and not (run / "tokens" / "sums.bin").exists(), "the bank keeps its layout"


def test_a_stopped_run_still_notices_other_images(old: Path, call: Call) -> None:
    image = min((old / "photos").rglob("*.png"))
    image.write_bytes(image.read_bytes() + b"\0")
    answer = call("train", "--resume", "--out", old / "stopped")
    assert (answer.code, "the images are not those this run began with" in answer.err) == (2, True)


def test_the_setting_that_is_gone_is_named_once(old: Path, call: Call) -> None:
    """Every config.toml of 0.1.0 has views.cutting and training.compile; the one that was set is told of."""
    answer = call("train", "--resume", "--out", old / "stopped")
    told = [line for line in answer.err.splitlines() if "views.cutting" in line]
    assert len(told) == 1
    assert "training.compile" not in answer.err


def test_a_finished_run_is_edited_reported_and_exported(old: Path, tmp_path: Path, call: Call) -> None:
    run = old / "finished"
    listed = call("edit", run, "list")
    assert listed.code == 0 and set(listed.table) == {"digit-0", "digit-1", "new-1", "new-2"}
    assert "move 1 image to digit-0" in call("edit", run, "log").out
    assert call("edit", run, "rename", "new-1", "two").code == 0
    assert call("report", run).code == 0
    assert "two" in (run / "report.html").read_text()
    assert call("export", run, "--as", "csv", "--to", tmp_path / "sorted.csv").code == 0
    exported = {row["image"]: row["category"] for row in rows_of(tmp_path / "sorted.csv")}
    assert len(exported) == 24 and exported["unlabelled/002.png"] == "digit-0"
    assert {"two", "digit-1"} <= set(exported.values())


def test_a_finished_run_is_a_start_for_sptnet(old: Path, call: Call) -> None:
    settings = ["sptnet.epochs=1", "sptnet.k=1", "sptnet.prompt_warm_up=1", "prompt.border=13", "training.batch_size=6"]
    words = [word for setting in [*settings, "n_categories=4", "device=cpu"] for word in ("--set", setting)]
    answer = call(
        *("train", "sptnet", "--data", old / "photos", "--start-from", old / "finished", "--out", old / "next"), *words
    )
    assert answer.code == 0, answer.err
    assert json.loads((old / "next" / "model" / "model.json").read_text())["prompt"]["kind"] == "spatial+global"


def test_a_finished_run_is_a_start_for_another_round(old: Path, call: Call) -> None:
    answer = call("discover", "--continue", old / "finished", "--out", old / "round", "--method", "sskmeans")
    assert answer.code == 0, answer.err
    labels = {row["path"]: row["label"] for row in rows_of(old / "round" / "labels.csv")}
    assert labels["unlabelled/002.png"] == "digit-0", "a person moved it"
