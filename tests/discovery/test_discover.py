"""`sptnet discover` from a folder to a report: the plan it tells, what it finds, going on, another round, mistakes."""

import csv
import json
import shutil
import sys
import webbrowser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Call
from helpers.digit_folders import fill
from sptnet.cli import main
from sptnet.config import Config
from sptnet.config.recipes import epoch_settings
from sptnet.discovery import discover, pace
from sptnet.discovery.estimator import CategoryDiscoverer
from sptnet.discovery.lengths import STAGES
from sptnet.discovery.settings import DEFAULT_BACKBONE, make_settings
from sptnet.model.backbone import EMBEDDED
from sptnet.model.vit import timm_vit
from sptnet.results.edits.log import CarryNames, current, read_edits
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import read_result
from sptnet.training.experiment import Experiment
from sptnet.training.trainer import StageTrainer

SMALL = ["--backbone", EMBEDDED, "--set", "backbone.image_size=32", "--device", "cpu"]
QUICK = [*SMALL, "--no-report"]


@pytest.fixture
def call(call: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setattr(pace, "SECONDS", 0.005)
    return call


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("discover") / "photos")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fill(tmp_path_factory.mktemp("discover") / "pile", known=0, per_class=5)


@pytest.fixture(scope="module")
def finished(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of SimGCD for tests that copy it."""
    run = tmp_path_factory.mktemp("runs") / "first"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pace, "SECONDS", 0.005)
        options = ["--method", "simgcd", "--epochs", "2", "--categories", "6", "--seed", "3"]
        patch.setattr(sys, "argv", ["sptnet", "discover", str(images), "--out", str(run), *QUICK, *options])
        with pytest.raises(SystemExit) as stop:
            main()
    assert stop.value.code == 0
    return run


@pytest.fixture
def first(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished, tmp_path / "first")
    return tmp_path / "first"


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_the_plan_is_told_before_anything_is_done(call: Call, images: Path, tmp_path: Path) -> None:
    answer = call("discover", images, "--out", tmp_path / "run", *QUICK, "--dry-run")
    assert answer.code == 0
    lines = answer.out.splitlines()
    assert lines[:3] == [
        "images: 48 in photos; 12 labelled of 3 known categories (0, 1, 2), 36 unsorted",
        f"backbone: {EMBEDDED}; device: cpu",
        "plan:",
    ]
    assert lines[-1] == "nothing was started. Leave --dry-run out to begin."
    steps = [line.split("  about ")[0].strip() for line in lines if "  about " in line]
    assert steps[:2] == ["compute features of all images", "count the categories"]
    assert steps[-2:] == ["sort all images", "in all"]
    assert not (tmp_path / "run").exists()


def test_a_plan_is_shown_whatever_exists(call: Call, images: Path, first: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("x")
    reasons = {
        first: "is not empty. Go on with --resume, replace it with --overwrite, or give another --out.",
        tmp_path / "file": "is a file or a link. Give a folder that does not exist yet with --out.",
        tmp_path / "notes": "holds other files than a run, such as mine.txt, which sptnet never deletes.",
    }
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for out, reason in reasons.items():
        answer = call("discover", images, "--out", out, *QUICK, "--dry-run")
        assert (answer.code, "plan:" in answer.out) == (0, True), answer.err
        assert answer.err.startswith(f"before it can begin: {out} ") and reason in answer.err
    assert call("edit", first, "move", "3-7.png", "--to", "three", "--create").code == 0
    again = call("discover", "--continue", first, "--out", tmp_path / "notes", "--no-report", "--dry-run")
    assert (again.code, "plan:" in again.out) == (0, True), again.err
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "edits.jsonl"}
    assert after == before
    with RunFolder(first).lock():
        answer = call("discover", images, "--out", first, *QUICK, "--dry-run", "--json")
    refusal = json.loads(answer.out)["refusal"]
    assert answer.code == 0 and "is being written by process" in refusal, (answer.out, answer.err)


def test_without_labels_it_says_that_it_clusters(call: Call, bare: Path, tmp_path: Path) -> None:
    answer = call("discover", bare, "--out", tmp_path / "run", *QUICK, "--categories", "5")
    assert answer.code == 0, answer.err
    assert "images: 30 in pile; 0 labelled, 30 unsorted" in answer.out
    assert "No image has a label, so k-means groups the images by their looks." in answer.out
    found = read_result(tmp_path / "run")
    assert (found.names, found.n_known) == (("new-1", "new-2", "new-3", "new-4", "new-5"), 0)
    assert set(found.part) == {"unlabelled"}
    assert "found: 30 images, 0 known categories, 5 new, " in answer.out
    assert RunFolder(tmp_path / "run").config().data.known_classes == 0
    assert call("discover", "--resume", "--out", tmp_path / "run", "--no-report").code == 0


def test_without_labels_categories_are_counted_too(call: Call, bare: Path, tmp_path: Path) -> None:
    answer = call("discover", bare, "--out", tmp_path / "run", *QUICK)
    assert answer.code == 0, answer.err
    estimate = json.loads((tmp_path / "run" / "estimate.json").read_text())
    assert len(read_result(tmp_path / "run").names) == estimate["n_categories"] >= 1


# --- from a folder to a report ----------------------------------------------------------------------------------------


def test_a_whole_discovery(
    call: Call, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda page: bool(shown.append(page)))
    monkeypatch.chdir(tmp_path)
    answer = call("discover", images, *SMALL, "--method", "simgcd", "--epochs", "2", "--open")
    assert answer.code == 0, answer.err
    run = Path("runs/photos")
    assert "  SimGCD for 2 epochs." in answer.out
    assert "categories of runs/photos" in answer.out
    assert "found: 48 images, 3 known categories, " in answer.out
    assert "report: runs/photos/report.html" in answer.out
    assert "  sptnet discover --continue runs/photos --out runs/photos-2\n" in answer.out
    assert "  sptnet export runs/photos --as links --to runs/photos-sorted\n" in answer.out
    assert answer.err.splitlines()[-1] == "no browser was found. Open the report by hand."
    assert shown == [(tmp_path / run / "report.html").as_uri()]
    assert "<html" in (run / "report.html").read_text()[:400]
    assert not (run / "tokens").exists(), "the token bank has served"
    config = RunFolder(run).config()
    assert (config.method, config.simgcd.epochs, config.training.evaluate_every) == ("simgcd", 2, 2)
    assert config.views.bank > 0
    assert RunFolder(run).facts()["command"][:2] == ["sptnet", "discover"]
    again = call("discover", images, *SMALL)
    assert (again.code, again.err) == (
        2,
        "error: runs/photos is not empty. Go on with --resume, replace it with --overwrite, or give another --out.\n",
    )
    replaced = call("discover", images, *QUICK, "--method", "kmeans", "--categories", "4", "--overwrite")
    assert replaced.code == 0, replaced.err
    assert not (run / "report.html").exists()


def test_options_reach_the_settings(call: Call, images: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("path,label\n0/0-0.png,nought\n1/1-0.png,one\n1/1-1.png,one\n")
    options = ["--labels", labels, "--categories", "4", "--seed", "5", "--method", "kmeans"]
    answer = call("discover", images, "--out", tmp_path / "run", *QUICK, *options, "--set", "kmeans.n_init=2")
    assert answer.code == 0, answer.err
    config = RunFolder(tmp_path / "run").config()
    assert (config.n_categories, config.seed, config.kmeans.n_init) == (4, 5, 2)
    assert read_result(tmp_path / "run").names == ("nought", "one", "new-1", "new-2")


def test_a_method_may_be_set_like_anything_else(call: Call, images: Path, tmp_path: Path) -> None:
    words = ["--set", "method=gcd", "--set", "gcd.epochs=3", "--dry-run"]
    answer = call("discover", images, "--out", tmp_path / "run", *QUICK, *words)
    assert "  GCD for 3 epochs." in answer.out


@pytest.mark.parametrize("method", ["orca", "mugcd"])
def test_a_system_of_the_paper_sorts_a_folder_too(method: str, call: Call, images: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = [*QUICK, "--method", method, "--epochs", "2", "--set", "gcd.output=16", "--categories", "6", "--out", out]
    answer = call("discover", images, *words)
    assert answer.code == 0, answer.err
    config = RunFolder(out).config()
    assert config.method == method and config.orca.epochs == config.mugcd.epochs == 2
    assert config.head.start == "random"
    assert RunFolder(out).facts()["status"] == "finished"


def test_unsorted_images_may_lie_in_another_folder(call: Call, images: Path, tmp_path: Path) -> None:
    answer = call("discover", images, "--out", tmp_path / "run", *QUICK, "--unlabelled", "2", "--dry-run")
    assert "of 3 known categories (0, 1, unlabelled)" in answer.out


def test_sub_folders_may_be_no_categories(call: Call, images: Path, tmp_path: Path) -> None:
    run, second = tmp_path / "run", tmp_path / "second"
    words = [*QUICK, "--no-folder-labels", "--categories", "4"]
    answer = call("discover", images, "--out", run, *words)
    assert answer.code == 0, answer.err
    assert "images: 48 in photos; 0 labelled, 48 unsorted" in answer.out
    config = RunFolder(run).config()
    assert (config.data.folder_labels, config.data.known_classes) == (False, 0)
    assert set(read_result(run).names) == {"new-1", "new-2", "new-3", "new-4"}
    assert call("discover", "--resume", "--out", run, "--no-report").code == 0
    assert call("edit", run, "confirm", "new-1", "new-2").code == 0
    again = call("discover", "--continue", run, "--out", second, "--no-report", "--method", "sskmeans")
    assert again.code == 0, again.err
    assert "of 2 known categories (new-1, new-2)" in again.out
    assert not RunFolder(second).config().data.folder_labels


def test_the_estimator_reads_such_folders_too(images: Path) -> None:
    settings = {"data.folder_labels": False, "backbone.image_size": 32}
    found = CategoryDiscoverer("kmeans", 4, EMBEDDED, "cpu", settings=settings).fit(images)
    assert (found.n_known_, len(found.labels_)) == (0, 48)


def test_a_folder_called_unlabelled_is_unlabelled(call: Call, images: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    answer = call("discover", images / "unlabelled", "--out", run, *QUICK, "--categories", "3")
    assert answer.code == 0, answer.err
    assert "0 labelled" in answer.out and "the names of its sub-folders are not labels" in answer.err
    assert not RunFolder(run).config().data.folder_labels
    assert call("discover", "--resume", "--out", run, "--no-report").code == 0


def test_any_number_of_unreadable_images_is_skipped_when_asked(call: Call, images: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(images, broken)
    for i in range(60):
        (broken / "unlabelled" / f"bad-{i:02d}.png").write_bytes(b"")
    run, words = tmp_path / "run", [*QUICK, "--method", "sskmeans"]
    refused = call("discover", broken, "--out", run, *words)
    assert (refused.code, run.exists()) == (1, False)
    assert refused.err.endswith("or skip them all with --skip-unreadable.\n")
    answer = call("discover", broken, "--out", run, *words, "--skip-unreadable")
    assert answer.code == 0, answer.err
    assert answer.err.count("skipped unlabelled/bad-") == 10, "the first few"
    assert "skipped 60 unreadable of 108 images\n" in answer.err
    assert f"the unreadable images are listed in {run / 'unreadable.csv'}\n" in answer.err
    rows = list(csv.DictReader((run / "unreadable.csv").read_text().splitlines()))
    assert (len(rows), rows[0]) == (60, {"image": "unlabelled/bad-00.png", "reason": "empty file"})
    assert call("discover", broken, "--out", run, *words, "--skip-unreadable", "--overwrite").code == 0, "its own file"


def test_what_cannot_be_fetched_is_a_choice_for_the_user(
    call: Call, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timm_vit, "try_to_load_from_cache", lambda repository, file: None)
    monkeypatch.setattr(timm_vit, "hub_is_reachable", lambda: False)
    answer = call("discover", images, "--out", tmp_path / "run")
    assert answer.code == 1
    assert answer.err == (
        f"error: the weights of {DEFAULT_BACKBONE} could not be downloaded. Ways out: connect to the network and try "
        "again; give a local weights file with --weights FILE; or, for small drawings, take the backbone that comes "
        f"with sptnet: --backbone {EMBEDDED}.\n"
    )
    assert not (tmp_path / "run").exists()


def test_a_weights_file_is_used(call: Call, images: Path, tmp_path: Path, tiny_weights: Path) -> None:
    answer = call(
        *("discover", images, "--out", tmp_path / "run", *QUICK),
        *("--weights", tiny_weights, "--method", "kmeans", "--categories", "4"),
    )
    assert answer.code == 0, answer.err
    assert RunFolder(tmp_path / "run").config().backbone.weights == str(tiny_weights)


# --- stopped and going on ---------------------------------------------------------------------------------------------


def test_a_stopped_discovery_goes_on(call: Call, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = StageTrainer.run_epoch

    def stop_in_the_second(self: StageTrainer, *arguments: Any) -> Any:
        if self.epoch == 1:
            raise KeyboardInterrupt
        return whole(self, *arguments)

    monkeypatch.setattr(StageTrainer, "run_epoch", stop_in_the_second)
    run = tmp_path / "my run"
    options = ["--method", "simgcd", "--epochs", "3", "--categories", "6"]
    stopped = call("discover", images, "--out", run, *QUICK, *options)
    assert stopped.code == 130
    go_on = f"sptnet discover --resume --out '{run}'"
    assert stopped.err.endswith(f"stopped; whole epochs are kept. Resume with: {go_on}\n")
    assert (run / "tokens").is_dir()
    again = call("discover", "--resume", "--out", run, "--no-report")
    assert (again.code, again.err.endswith(f"Resume with: {go_on}\n")) == (130, True)
    monkeypatch.setattr(StageTrainer, "run_epoch", whole)
    finished = call("discover", "--resume", "--out", run, "--no-report")
    assert finished.code == 0, finished.err
    assert "found: 48 images" in finished.out
    assert [line["epoch"] for line in RunFolder(run).metrics()] == [1, 2, 3]
    assert not (run / "tokens").exists()


def test_a_discovery_stopped_while_its_report_is_written_has_sorted_the_images(
    call: Call, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"

    def stop(*words: Any) -> None:
        assert (run / "predictions.csv").is_file()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(discover, "finish", stop)
        stopped = call("discover", images, "--out", run, *QUICK, "--method", "sskmeans", "--categories", "6")
    told = f"stopped; the images are sorted. Write the report with: sptnet discover --resume --out {run}\n"
    assert (stopped.code, stopped.err.endswith(told)) == (130, True), stopped.err
    assert not (run / "report.html").exists()
    again = call("discover", "--resume", "--out", run)
    assert (again.code, (run / "report.html").is_file()) == (0, True), again.err


# --- another round ----------------------------------------------------------------------------------------------------


def test_another_round_learns_from_the_edits(call: Call, first: Path, tmp_path: Path) -> None:
    moved = ["3-7.png", "unlabelled/3-0.png"]
    assert call("edit", first, "move", *moved, "--to", "three", "--create").code == 0
    assert call("edit", first, "rename", "0", "nought").code == 0
    answer = call("discover", "--continue", first, "--out", tmp_path / "second", "--no-report")
    assert answer.code == 0, answer.err
    labels = {
        row["path"]: row["label"] for row in csv.DictReader((tmp_path / "second/labels.csv").read_text().splitlines())
    }
    assert "  SimGCD for 2 epochs, 30 min at most in all." in answer.out
    assert f"another round on {first}: it starts with {len(labels):,} labels\n" in answer.out
    assert {label for path, label in labels.items() if path.startswith("0/")} == {"nought"}
    assert set(labels.values()) == {"nought", "1", "2", "three"}
    assert len(labels) == 12 + len(moved), "the rename of nought adds no label"
    before, after = RunFolder(first).config(), RunFolder(tmp_path / "second").config()
    assert after.simgcd.minutes is not None and 29 < after.simgcd.minutes <= 30, "the limit holds in every round"
    unlimited = after.simgcd.model_copy(update={"minutes": None})
    assert (after.method, unlimited, after.views) == (before.method, before.simgcd, before.views)
    state = current(first)
    assert after.n_categories == len(state.names) == 7, "the six that were given, and the one that was made"
    assert all(labels[image] == "three" for image in moved)
    found = read_result(tmp_path / "second")
    assert found.names[: found.n_known] == ("1", "2", "nought", "three")
    assert {id_ for id_, part in zip(found.ids, found.part, strict=True) if part == "labelled"} == set(labels)
    told = call(
        *("discover", "--continue", first, "--out", tmp_path / "third", "--no-report"),
        *("--method", "kmeans", "--categories", "5"),
    )
    assert told.code == 0, told.err
    config = RunFolder(tmp_path / "third").config()
    assert (config.method, config.n_categories) == ("kmeans", 5)


def test_the_limit_of_a_round_holds_in_the_next(
    call: Call, first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier round had two minutes; now the features alone take three."""
    facts = RunFolder(first).facts()
    assert facts["plan"]["minutes"] is None, "none was given"
    RunFolder(first).write_facts(facts | {"plan": facts["plan"] | {"minutes": 2.0}})
    assert call("edit", first, "move", "3-7.png", "--to", "three", "--create").code == 0
    words = ["discover", "--continue", first, "--out", tmp_path / "second", "--no-report", "--dry-run"]
    kept = call(*words)
    assert "  SimGCD for 2 epochs, 2 min at most in all." in kept.out, kept.err
    slow = pace.Pace("cpu", read=0.01, forward=4.0, step=1.0)
    monkeypatch.setattr(discover, "measure_pace", lambda *_: slow)
    changed = call(*words)
    assert changed.code == 0, changed.err
    assert "  SimGCD needs about " in changed.out and "; the time is 2 min." in changed.out
    assert "  Without any training that takes about 3 min 1" in changed.out
    assert "train SimGCD" not in changed.out
    assert ", 60 min at most in all." in call(*words, "--method", "simgcd", "--minutes", "60").out


def test_a_clustered_pile_gets_a_method_that_learns(call: Call, bare: Path, tmp_path: Path) -> None:
    first = tmp_path / "first"
    assert call("discover", bare, "--out", first, *QUICK, "--categories", "4").code == 0
    for old, name in (("new-1", "a"), ("new-2", "b")):
        assert call("edit", first, "rename", old, name).code == 0
    words = ["discover", "--continue", first, "--out", tmp_path / "second", "--dry-run", "--minutes", "6000"]
    assert (
        f"sptnet edit {first} confirm new-4, or move what is wrong: sptnet edit {first} move IMAGE" in call(*words).err
    )
    assert call("edit", first, "confirm", "a", "b").code == 0
    answer = call(*words)
    assert answer.code == 0, answer.err
    assert "of 2 known categories (a, b)" in answer.out
    assert "  SimGCD for 22 epochs" in answer.out, "150 steps, seven per epoch"


def test_new_categories_keep_their_names_in_the_next_round(
    call: Call, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert call("discover", images, "--out", first, *QUICK, "--method", "sskmeans").code == 0
    found = read_result(first)
    new = [name for name in found.names[found.n_known :] if len(found.members(name))]
    assert len(new) >= 2, "or this test shows nothing"
    for name in new[1:]:
        assert call("edit", first, "rename", name, f"{name} as it was").code == 0
    assert call("edit", first, "confirm", new[0]).code == 0

    def stop(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Experiment, "_write_results", stop)
        assert call("discover", "--continue", first, "--out", second, "--no-report").code == 130
    resumed = call("discover", "--resume", "--out", second)
    assert resumed.code == 0, resumed.err
    assert json.loads((second / "estimate.json").read_text())["n_categories"] >= found.n_known + 1, "counted again"
    before, plain, after = current(first), read_result(second), current(second)
    assert new[0] in after.names[: after.n_known], "a confirmed category is known"
    carried = [name for name in after.names if name.endswith(" as it was")]
    assert carried
    for name in carried:
        shared = set(before.members(name)) & set(after.members(name))
        assert 2 * len(shared) >= min(len(before.members(name)), len(after.members(name)))
    assert np.array_equal(plain.category, after.category), "names alone have changed"
    (edit,) = read_edits(second)
    assert isinstance(edit, CarryNames)
    assert carried[0] in resumed.out and carried[0] in (second / "report.html").read_text()
    assert call("discover", "--resume", "--out", second, "--no-report").code == 0
    assert read_edits(second) == [edit]
    assert call("predict", second, images, "--out", tmp_path / "all.csv", "--device", "cpu").code == 0
    assert {row["category"] for row in csv.DictReader((tmp_path / "all.csv").read_text().splitlines())} & set(carried)
    assert call("edit", second, "undo").code == 0
    assert current(second).names == plain.names


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no images given. Give a folder: sptnet discover FOLDER --out RUN"),
        (["--resume"], "--resume goes on with the settings of the run. Give --resume and --out alone."),
        (["IMAGES", "--resume", "--out", "OUT"], "--resume goes on with the settings of the run."),
        (["--resume", "--out", "OUT", "--overwrite"], "--resume goes on with the settings of the run."),
        (["--resume", "--out", "OUT"], "is not a run: it has no config.toml."),
        (["IMAGES", "--continue", "FIRST"], "--continue takes the images of the earlier run. Leave the folder out."),
        (["--continue", "FIRST"], "where is the new round to be written? Give another run directory with --out."),
        (
            ["--continue", "FIRST", "--out", "OUT", "--labels", "x.csv"],
            "another round takes its labels from the edits of the earlier run. Leave --labels out.",
        ),
        (
            ["--continue", "FIRST", "--out", "FIRST", "--overwrite"],
            "which it builds on. Give another --out.",
        ),
        (
            ["--continue", "FIRST", "--out", "OUT"],
            "has been confirmed or moved, so another round would learn nothing new.",
        ),
        (["IMAGES", "--out", "OUT", "--open", "--no-report"], "--open shows the report, which --no-report leaves out."),
        (["IMAGES", "--out", "IMAGES/run"], "lies inside the data folder"),
        (["IMAGES", "--out", "FILE"], "is a file or a link. Give a folder that does not exist yet with --out."),
        (["IMAGES", "--out", "OUT", "--method", "magic"], "unknown method 'magic'. Use auto or one of:"),
        (["IMAGES", "--out", "OUT", "--minutes", "-1"], "minutes is -1. Give a number above 0."),
        (["IMAGES", "--out", "OUT", "--categories", "many"], "n_categories: "),
        (["IMAGES", "--out", "OUT", "--categories", "2"], "--categories is 2, but 3 categories are known already."),
        (["BARE", "--out", "OUT", "--method", "sptnet"], "no image has a label, but SPTNet learns from labels."),
        (["nowhere", "--out", "OUT"], "there is no folder"),
        (["SORTED", "--out", "OUT"], "every image is labelled, so there is nothing to discover. Put the unsorted"),
    ],
)
def test_mistakes_end_with_a_way_out(
    call: Call, words: list[str], message: str, images: Path, bare: Path, finished: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    places = {"IMAGES": images, "BARE": bare, "FIRST": finished, "OUT": tmp_path / "out", "FILE": tmp_path / "file"}
    if "SORTED" in words:
        places["SORTED"] = fill(tmp_path / "sorted", known=6, labelled=8, per_class=9)
        for stray in (tmp_path / "sorted").glob("*.png"):
            stray.unlink()
    for name, place in places.items():
        words = [word.replace(name, str(place)) if word.startswith(name) else word for word in words]
    extra = [] if "--resume" in words or "--continue" in words else QUICK
    answer = call("discover", *words, *extra)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
    assert not (tmp_path / "out").exists()


# --- settings ---------------------------------------------------------------------------------------------------------


def test_the_embedded_backbone_brings_its_learning_rates() -> None:
    plain = make_settings("auto", {})
    assert plain == Config(n_categories="auto")
    small = make_settings(EMBEDDED, {"simgcd.learning_rate": 0.5})
    assert (small.backbone.name, small.simgcd.learning_rate, small.sptnet.learning_rate) == (EMBEDDED, 0.5, 0.02)
    assert (small.data, small.method) == (Config().data, Config().method)
    assert make_settings("auto", {"backbone.name": EMBEDDED}) == make_settings(EMBEDDED, {})
    assert make_settings(EMBEDDED, {"backbone.name": "vit_tiny_patch16_224"}).simgcd == Config().simgcd


def test_epochs_are_those_of_every_stage() -> None:
    settings = epoch_settings(3)
    assert set(settings.values()) == {3}
    assert set(settings) == {f"{stage}.epochs" for stages in STAGES.values() for stage in stages}
