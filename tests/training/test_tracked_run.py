"""Tracked runs: everything is in the track once, resumed or not, and the run is that of one without a track."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conftest import Call
from helpers.tracks import ReadTrack, read_tensorboard, read_wandb
from sptnet.config import Config
from sptnet.data.load import SplitImages
from sptnet.errors import Failure
from sptnet.results import track as module
from sptnet.results.run_folder import RunFolder
from sptnet.results.track import RunTrack, flattened, scalars_of
from sptnet.training.checkpoint import newest_checkpoint
from sptnet.training.experiment import Experiment
from sptnet.training.trainer import StageTrainer

READERS: dict[str, Callable[[Path], ReadTrack]] = {"tensorboard": read_tensorboard, "wandb": read_wandb}
BATCHES = 5  # sixty images in batches of twelve


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep Weights & Biases from the settings and the home folder of the user."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def tracked(config: Config, kind: str) -> Config:
    return config.changed(training={"track": kind})


def assert_whole(found: ReadTrack, run: Path) -> None:
    """Assert that the track holds every number of metrics.jsonl at its step, and the final scores."""
    lines = RunFolder(run).metrics()
    expected: dict[str, list[tuple[int, float]]] = {}
    for step, line in enumerate(lines, start=1):
        for name, value in scalars_of(line).items():
            expected.setdefault(name, []).append((step, value))
    assert found.scalars.keys() == expected.keys()
    for name, values in expected.items():
        assert [step for step, _ in found.scalars[name]] == [step for step, _ in values], name
        assert [v for _, v in found.scalars[name]] == pytest.approx([v for _, v in values], rel=1e-6), name
    scores = json.loads((run / "run.json").read_text())["scores"]
    assert found.scores == pytest.approx(flattened(scores, "final"), rel=1e-6)


@pytest.fixture(scope="module")
def untracked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Path], None]], Path]:
    """The run without a track, made once."""
    made: list[Path] = []

    def get(make: Callable[[Path], None]) -> Path:
        if not made:
            made.append(tmp_path_factory.mktemp("untracked") / "run")
            make(made[0])
        return made[0]

    return get


@pytest.mark.parametrize("kind", READERS)
def test_a_tracked_run_that_is_stopped_and_resumed(
    kind: str,
    tiny_config: Config,
    few_digits: SplitImages,
    run_it: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    untracked: Callable[..., Path],
    assert_same_result: Callable[[Path, Path], None],
) -> None:
    whole = untracked(lambda folder: run_it(folder, tiny_config, few_digits))
    assert not (whole / "track").exists()
    run, inner, done = tmp_path / "run", StageTrainer.train_step, []

    def step(self: StageTrainer, *given: Any) -> Any:
        done.append(given)
        if len(done) == 4 * BATCHES + 2:
            raise KeyboardInterrupt
        return inner(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(StageTrainer, "train_step", step)
        with pytest.raises(KeyboardInterrupt):
            run_it(run, tracked(tiny_config, kind), few_digits)
    before = READERS[kind](run)
    assert [at for at, _ in before.scalars["loss/simgcd/raw/total"]] == [1, 2, 3]
    assert [at for at, _ in before.scalars["learning_rate/sptnet/prompt"]] == [4]
    assert before.scores == {}
    experiment = Experiment(RunFolder(run).config(), RunFolder(run), few_digits, tell=lambda line: None)
    experiment.run(resume=True)
    experiment.end_track()
    found = READERS[kind](run)
    assert_whole(found, run)
    scored = [i for i, line in enumerate(RunFolder(run).metrics(), start=1) if "scores" in line and i > 3]
    assert found.pictures == {f"prompts/{title}": scored for title in ("spatial", "global", "composed")}
    assert_same_result(run, whole)
    if kind == "wandb":
        assert len(found.ids) == 1, "one run for Weights & Biases"


class FakeTracker:
    """Tracker that keeps everything in a list for all of its instances."""

    added: list[Any]

    def __init__(self, *given: Any) -> None:
        self.added.append("opened")

    def add_epoch(self, step: int, scalars: dict[str, float], pictures: dict[str, bytes]) -> None:
        self.added.append((step, scalars["loss/s/model/total"], sorted(pictures)))

    def add_scores(self, step: int, scores: dict[str, float]) -> None:
        self.added.append(("scores", step, scores))

    def add_report(self, step: int, page: Path) -> None:
        self.added.append(("report", step, page.name))

    def close(self) -> None:
        self.added.append("closed")


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(FakeTracker, "added", [], raising=False)
    monkeypatch.setitem(module.TRACKERS, "tensorboard", FakeTracker)
    return FakeTracker.added


def line_of(epoch: int, **more: Any) -> dict[str, Any]:
    losses = {"model": {"total": epoch / 2}}
    return {"stage": "s", "stage_number": 0, "epoch": epoch, "losses": losses, "learning_rates": {}, **more}


@pytest.fixture
def folder(tiny_config: Config, tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    run.create(tiny_config)
    return run


def test_epochs_are_added_once_and_missing_ones_later(folder: RunFolder, added: list[Any]) -> None:
    first = RunTrack("tensorboard", folder)
    for epoch in (1, 2):
        folder.add_metrics(line_of(epoch))
        first.add_epoch(line_of(epoch))
    folder.add_metrics(line_of(3))  # the process was killed before the track had it
    RunTrack("tensorboard", folder).add_epoch(line_of(4, scores={}), lambda: {"prompts/global": b"png"})
    assert added == ["opened", (1, 0.5, []), (2, 1.0, []), "opened", (3, 1.5, []), (4, 2.0, ["prompts/global"])]


def test_epochs_that_are_trained_again_are_not_added_again(folder: RunFolder, added: list[Any]) -> None:
    track = RunTrack("tensorboard", folder)
    for epoch in (1, 2, 3):
        folder.add_metrics(line_of(epoch))
        track.add_epoch(line_of(epoch))
    folder.forget_metrics_after(0, 1)  # the newest checkpoints were deleted
    again = RunTrack("tensorboard", folder)
    for epoch in (2, 3, 4):
        again.add_epoch(line_of(epoch))
    assert [entry[0] for entry in added if entry != "opened"] == [1, 2, 3, 4]


def test_a_track_with_gaps_is_written_again(
    folder: RunFolder, added: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.TRACKERS, "wandb", FakeTracker)
    part = folder.path / "track" / "wandb" / "offline-run-1"

    def train(epoch: int) -> RunTrack:
        track = RunTrack("wandb", folder)
        folder.add_metrics(line_of(epoch))
        track.add_epoch(line_of(epoch))
        return track

    train(1).close()
    part.mkdir(parents=True)
    train(2)  # killed
    assert part.exists()
    train(3).close()
    assert not part.exists(), "it may lack epochs that the killed process had not written yet"
    assert [entry if isinstance(entry, str) else entry[0] for entry in added] == [
        *("opened", 1, "closed"),
        *("opened", 2),
        *("opened", 1, 2, 3, "closed"),
    ]


def test_scores_and_report_are_added_once(folder: RunFolder, added: list[Any]) -> None:
    scores = {"test": {"all": 0.5, "new": math.nan, "balanced": {"old": 1}, "ari": None}}
    for _ in range(2):
        track = RunTrack("tensorboard", folder)
        track.add_scores(scores)
        track.add_report(folder.path / "report.html")
        track.close()
    assert added == [
        *("opened", ("scores", 0, {"final/test/all": 0.5, "final/test/balanced/old": 1.0})),
        *(("report", 0, "report.html"), "closed", "opened", "closed"),
    ]


def test_only_rank_0_opens_a_track(
    tiny_config: Config, few_digits: SplitImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, added: list[Any]
) -> None:
    config = tracked(tiny_config, "tensorboard").model_copy(update={"method": "kmeans"})
    experiment = Experiment(config, RunFolder(tmp_path / "run"), few_digits, tell=lambda line: None)
    experiment.begin()
    monkeypatch.setattr(Experiment, "_complete", lambda self, resume: {})
    with monkeypatch.context() as patch:
        patch.setattr(type(experiment.state.world), "do_first", lambda self, work: None)  # as on the other ranks
        experiment.complete()
    assert experiment.track is None
    assert added == []
    experiment.complete()
    assert experiment.track is not None
    experiment.end_track()
    assert added == ["opened", "closed"]


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "[" * 100_000, '{"id": "x"}'),
        '{"id": "x", "epochs": "many", "scores": true, "report": false, "open": false}',
        '{"id": "x", "epochs": -1, "scores": true, "report": false, "open": false}',
        '{"id": "x", "epochs": 1, "scores": "false", "report": false, "open": false}',
    ],
)
def test_a_damaged_count_of_epochs(folder: RunFolder, added: list[Any], text: str) -> None:
    (folder.path / "track").mkdir()
    (folder.path / "track" / "tensorboard.json").write_text(text)
    with pytest.raises(Failure, match=r"tensorboard\.json is damaged .* Delete .*track to track the run anew\."):
        RunTrack("tensorboard", folder)


@pytest.mark.parametrize("kind", READERS)
def test_a_missing_package_is_named_with_its_extra(
    kind: str, call: Call, train_words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    found = call(*train_words, "--track", kind, "--out", tmp_path / "run")
    assert (found.code, found.out) == (2, "")
    assert f"tracking with {kind} needs a package of that name. Install it with: pip install 'sptnet[{kind}]', or " in (
        found.err
    )
    assert "leave --track out." in found.err
    assert not (tmp_path / "run").exists()


def test_an_unknown_kind_of_track(call: Call, train_words: list[str], tmp_path: Path) -> None:
    found = call(*train_words, "--track", "paper", "--out", tmp_path / "run")
    assert found.code == 2
    assert "training.track" in found.err
    assert "'tensorboard' or 'wandb'" in found.err


def test_the_report_is_an_artefact(call: Call, train_words: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    short = ["--set", "method=simgcd", "--set", "simgcd.epochs=1", "--set", "data.known_classes=5"]
    found = call(*train_words, *short, "--track", "wandb", "--out", run)
    assert found.code == 0, found.err
    assert f"tracking with wandb in {run}/track" in found.err
    track = read_wandb(run)
    assert_whole(track, run)
    (artefact,) = track.reports
    (entry,) = artefact.manifest.contents
    assert (artefact.type, entry.path) == ("report", "report.html")
    assert Path(entry.local_path).read_bytes() == (run / "report.html").read_bytes()
    assert newest_checkpoint(run / "checkpoints") is not None
    again = call("train", "--resume", "--out", run)
    assert again.code == 0, again.err
    assert len(read_wandb(run).reports) == 1


def test_a_discovery_tells_tensorboard_where_its_report_is(call: Call, digit_folder: Path, tmp_path: Path) -> None:
    run, folder = tmp_path / "run", tmp_path / "pile"
    folder.mkdir()
    for number, file in enumerate(sorted(digit_folder.glob("*/*.png"))):
        (folder / f"{number}.png").write_bytes(file.read_bytes())
    options = ["--backbone", "sptnet_digits_vit", "--set", "backbone.image_size=32", "--device", "cpu"]
    found = call("discover", folder, "--categories", 4, *options, "--track", "tensorboard", "--out", run)
    assert found.code == 0, found.err
    (report,) = read_tensorboard(run).reports
    assert (
        report.tensor_proto.string_val[0].decode() == f"The report of this run is `{(run / 'report.html').as_uri()}`."
    )
    again = call("discover", folder, "--categories", 4, *options, "--overwrite", "--no-report", "--out", run)
    assert again.code == 0, again.err
    assert not (run / "track").exists(), "the track belongs to the run"
