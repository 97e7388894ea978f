"""Trial of the training on hidden labels: what is hidden, what is compared, and what follows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from conftest import Call
from helpers.digit_folders import fill
from helpers.trained_runs import assert_same_weights
from sptnet.config import Config
from sptnet.data.load import SplitImages
from sptnet.data.split import Split
from sptnet.discovery import pace, trial
from sptnet.discovery.discover import Wishes, first_round, resume_round
from sptnet.discovery.trial import Verdict, can_try, hide_labels
from sptnet.model.backbone import EMBEDDED, build_backbone
from sptnet.results.run_folder import RunFolder
from sptnet.training.experiment import Experiment

SETTINGS = {
    "backbone.name": EMBEDDED,
    "backbone.image_size": 32,
    "device": "cpu",
    "n_categories": 6,
    "simgcd.epochs": 2,
    "training.batch_size": 8,
}
EQUAL = Verdict(images=20, clustering=12, training=12, only_clustering=3, only_training=3)
WORSE = Verdict(images=20, clustering=15, training=8, only_clustering=8, only_training=1)


def labelled_split(n_known: int = 6, each: int = 6) -> Split:
    target = np.r_[np.repeat(np.arange(n_known), each), np.full(10, -1)]
    nothing = np.zeros(0, np.int64)
    names = tuple(f"c{i}" for i in range(n_known))
    return Split(names, n_known, target, np.arange(n_known * each), n_known * each + np.arange(10), nothing, nothing)


@pytest.mark.parametrize("n_known", [2, 3, 6, 10])
def test_some_categories_become_new_and_others_lose_some_labels(n_known: int) -> None:
    split = labelled_split(n_known)
    hidden = hide_labels(split, seed=1)
    n_hidden = min(n_known - 1, max(1, round(n_known / 3)))
    assert hidden.n_known == n_known - n_hidden
    assert sorted(hidden.classes) == sorted(split.classes)
    assert set(hidden.labelled) < set(split.labelled)
    counts = np.bincount(hidden.target[hidden.labelled], minlength=n_known)
    assert counts.tolist() == [4] * hidden.n_known + [0] * n_hidden
    for image in range(len(split.target)):  # every image is still of its class
        before, after = split.target[image], hidden.target[image]
        assert (before, after) == (-1, -1) or split.classes[before] == hidden.classes[after]
    assert sorted(np.r_[hidden.labelled, hidden.unlabelled]) == list(range(len(split.target)))


def test_the_seed_decides_what_is_hidden() -> None:
    split = labelled_split()
    first, again, other = (hide_labels(split, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.labelled, again.labelled) and not np.array_equal(first.labelled, other.labelled)


def test_a_single_label_is_not_lost_in_a_category_that_stays() -> None:
    hidden = hide_labels(labelled_split(each=1), seed=0)
    assert (np.bincount(hidden.target[hidden.labelled]) == 1).all()


@pytest.mark.parametrize(("n_known", "each", "able"), [(1, 30, False), (2, 2, False), (2, 6, True), (6, 6, True)])
def test_few_labels_show_nothing(n_known: int, each: int, able: bool) -> None:
    assert can_try(labelled_split(n_known, each)) is able


@pytest.mark.parametrize(
    ("only_clustering", "only_training", "prefers"),
    [(0, 0, False), (3, 3, False), (1, 0, False), (2, 0, True), (5, 3, False), (9, 3, True), (3, 9, False)],
)
def test_the_clustering_is_kept_if_it_is_better(only_clustering: int, only_training: int, prefers: bool) -> None:
    verdict = Verdict(30, 10 + only_clustering, 10 + only_training, only_clustering, only_training)
    assert verdict.prefers_clustering is prefers
    assert str(verdict).endswith("the clustering is kept" if prefers else "training goes on")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(pace, "SECONDS", 0.005)
    return fill(tmp_path / "photos", per_class=12, labelled=8)


def discover(folder: Path, out: Path, tries: bool = True) -> tuple[dict[str, object], str]:
    """Run a discovery with a trial; return run.json and the method."""
    found = first_round(out, {**SETTINGS, "data.folder": str(folder)}, Wishes("simgcd", given=frozenset(SETTINGS)))
    found.plan = replace(found.plan, tries=tries)
    found.train(False, ["sptnet", "discover"], lambda line: None)
    run = RunFolder(out)
    return run.facts(), run.config().method


def test_a_trial_leaves_backbone_and_training_as_they_are(folder: Path, tmp_path: Path) -> None:
    """With and without a trial, the trained weights are the same.

    The trial stores tokens that the training reads. Computed in other batches they differ by rounding.
    """
    facts, method = discover(folder, tmp_path / "with")
    plain, _ = discover(folder, tmp_path / "without", tries=False)
    trial = facts["trial"]
    assert isinstance(trial, dict) and "trial" not in plain
    assert trial["images"] > 0 and 0 <= trial["clustering"] <= trial["images"] >= trial["training"]
    assert method == ("sskmeans" if trial["prefers_clustering"] else "simgcd")
    if method == "simgcd":
        assert_same_weights(tmp_path / "with", tmp_path / "without", build_backbone(EMBEDDED).vit.state_dict())
    assert not (tmp_path / "with" / "trial").exists()


def test_a_run_stopped_in_its_trial_keeps_its_time_limit(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> Verdict:
        raise KeyboardInterrupt

    monkeypatch.setattr(trial, "try_training", stopped)
    settings = {key: value for key, value in SETTINGS.items() if key != "simgcd.epochs"} | {"data.folder": str(folder)}
    found = first_round(tmp_path / "run", settings, Wishes("simgcd", 3.0, frozenset(settings)))
    found.plan = replace(found.plan, tries=True)
    with pytest.raises(KeyboardInterrupt):
        found.train(False, ["sptnet", "discover"], lambda line: None)
    limit = RunFolder(tmp_path / "run").config().simgcd.minutes
    assert limit is not None and 0 < limit < 3


def test_the_trial_has_half_of_the_time_that_is_left(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float | None] = []

    def seen(config: Config, *_: object) -> None:
        limits.append(config.simgcd.minutes)
        raise KeyboardInterrupt

    monkeypatch.setattr(trial, "prepare", seen)
    for number, minutes in enumerate((3.0, None)):
        keys = [key for key in SETTINGS if minutes is None or key != "simgcd.epochs"]
        settings = {key: SETTINGS[key] for key in keys} | {"data.folder": str(folder)}
        found = first_round(tmp_path / f"run{number}", settings, Wishes("simgcd", minutes, frozenset(settings)))
        found.plan = replace(found.plan, tries=True)
        with pytest.raises(KeyboardInterrupt):
            found.train(False, ["sptnet", "discover"], lambda line: None)
    timed, free = limits
    assert timed is not None and 0 < timed < 1.5
    assert free is None, "epochs were given instead of a time"


@pytest.mark.parametrize(("verdict", "method"), [(EQUAL, "simgcd"), (WORSE, "sskmeans")])
def test_the_better_one_is_kept_and_recorded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: Verdict, method: str
) -> None:
    monkeypatch.setattr(trial, "try_training", lambda *_: verdict)
    facts, used = discover(folder, tmp_path / "run")
    assert used == method
    assert facts["trial"] == verdict.as_dict() and facts["status"] == "finished"
    assert (tmp_path / "run" / "predictions.csv").is_file() and (tmp_path / "run" / "model" / "model.json").is_file()


@pytest.mark.parametrize(("verdict", "method"), [(EQUAL, "simgcd"), (WORSE, "sskmeans")])
@pytest.mark.parametrize("moment", ["in the trial", "after its verdict"])
def test_a_round_stopped_in_its_trial_ends_like_one_that_was_left_alone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: Verdict, method: str, moment: str
) -> None:
    def stop(*_: object, **__: object) -> Verdict:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trial, "try_training", lambda *_: verdict)
        discover(folder, tmp_path / "whole")
        if moment == "in the trial":
            patch.setattr(trial, "try_training", stop)
        else:
            patch.setattr(Experiment, "complete", stop)
            patch.setattr(trial, "without_training", stop)
        with pytest.raises(KeyboardInterrupt):
            discover(folder, tmp_path / "stopped")
    tried: list[int] = []
    monkeypatch.setattr(trial, "try_training", lambda *_: tried.append(1) or verdict)
    told: list[str] = []
    resume_round(tmp_path / "stopped", told.append)
    whole, stopped = (RunFolder(tmp_path / name) for name in ("whole", "stopped"))
    assert stopped.config().method == whole.config().method == method
    assert len(tried) == (moment == "in the trial")
    assert stopped.facts()["trial"] == whole.facts()["trial"] == verdict.as_dict()
    assert stopped.facts()["status"] == "finished"
    assert stopped.predictions_file.read_bytes() == whole.predictions_file.read_bytes()
    resume_round(tmp_path / "stopped", told.append)  # of a finished round: no other trial
    assert len(tried) == (moment == "in the trial")
    assert stopped.predictions_file.read_bytes() == whole.predictions_file.read_bytes()


def test_the_trial_sees_no_hidden_label(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels of the images that lose theirs may be shuffled: the trial finds the same categories."""
    seen: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    original = trial.try_training

    def shuffled(config: object, images: SplitImages, *rest: object) -> Verdict:
        def recorded(truth: object, found: np.ndarray[tuple[int], np.dtype[np.int64]], n_known: int) -> object:
            seen.append(found)
            return np.zeros(len(found), bool)

        monkeypatch.setattr(trial, "rightly_sorted", recorded)
        original(config, images, *rest)  # type: ignore[arg-type]
        hide = trial.hide_labels

        def scrambled(split: Split, seed: int) -> Split:
            hidden = hide(split, seed)
            lost = np.setdiff1d(split.labelled, hidden.labelled)
            target = hidden.target.copy()
            target[lost] = np.roll(target[lost], 1)
            return replace(hidden, target=target)

        monkeypatch.setattr(trial, "hide_labels", scrambled)
        original(config, images, *rest)  # type: ignore[arg-type]
        return EQUAL

    monkeypatch.setattr(trial, "try_training", shuffled)
    discover(folder, tmp_path / "run")
    assert len(seen) == 4
    assert np.array_equal(seen[0], seen[2]) and np.array_equal(seen[1], seen[3])


def test_the_printed_result_names_the_trial(
    call: Call, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "try_training", lambda *_: WORSE)
    options = ["--backbone", EMBEDDED, "--set", "backbone.image_size=32", "--device", "cpu", "--no-report"]
    answer = call("discover", folder, "--out", tmp_path / "run", *options, "--categories", 6, "--minutes", 9)
    assert answer.code == 0
    printed = " ".join((answer.err + answer.out).split())
    assert "A trial on hidden labels first shows whether training helps." in printed
    assert "the clustering sorts 15 rightly, a short training 8; the clustering is kept" in printed
