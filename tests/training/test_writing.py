"""A training and its files: kills at file operations, full disks, two processes, and how run.json ends."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import SafetensorError

from conftest import Call
from helpers.kills import Killed, file_operations
from sptnet.config import Config
from sptnet.data.load import SplitImages
from sptnet.errors import Failure, Misuse
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.disk import NotWritten
from sptnet.runtime.distributed import FailedOnRankZero, World
from sptnet.runtime.files import is_temporary
from sptnet.runtime.locks import Locked
from sptnet.training.checkpoint import write_checkpoint
from sptnet.training.experiment import Experiment, writing
from sptnet.training.stage import Stage
from sptnet.training.trainer import StageTrainer

RunIt = Callable[..., Path]
Same = Callable[[Path, Path], None]


@pytest.fixture
def short(tiny_config: Config) -> Config:
    """One stage of two epochs, of which the better one is kept."""
    changed = tiny_config.changed(simgcd={"epochs": 2}, training={"select": "best-old-holdout", "batch_size": 36})
    return changed.model_copy(update={"method": "simgcd"})


def begin_again(folder: Path, config: Config, data: SplitImages) -> None:
    """Do what a user can do after a kill: resume, or begin again if nothing had begun."""
    run = RunFolder(folder)
    try:
        chosen, resume = run.config(), True
    except Misuse:
        chosen, resume = config, False
    Experiment(chosen, run, data, tell=lambda line: None).run(resume=resume, overwrite=not resume)


def test_killed_at_file_operations(
    short: Config, held_out_digits: SplitImages, run_it: RunIt, tmp_path: Path, assert_same_result: Same
) -> None:
    """While a better epoch replaces the best one, when the model is put in its place, and at some other operations."""
    with pytest.MonkeyPatch.context() as patch:
        with file_operations() as done:
            moments: list[int] = []

            def keep_each(stage: Stage, line: dict[str, float], trainer: StageTrainer) -> None:
                """Keep every epoch as the best so far."""
                moments.append(len(done))
                stage.best = (line["old_holdout"], int(line["epoch"]))
                write_checkpoint(stage._best_file, trainer.checkpoint())
                moments.append(len(done))

            patch.setattr("sptnet.training.stage.Stage._keep_best", keep_each)
            whole = run_it(tmp_path / "whole", short, held_out_digits)
        second = range(moments[2] + 1, moments[3] + 1)
        assert {"replace", "fsync"} <= {done[number - 1] for number in second}
        exchanges = [number for number, name in enumerate(done, start=1) if name == "rename"]
        for number in sorted({*second, *exchanges, exchanges[-1] + 1, *range(20, len(done), len(done) // 3)}):
            folder = tmp_path / str(number)
            with pytest.raises(Killed), file_operations(number):
                run_it(folder, short, held_out_digits)
            begin_again(folder, short, held_out_digits)
            assert_same_result(folder, whole)
            assert json.loads((folder / "run.json").read_text())["status"] == "finished"
            assert not [path for path in folder.rglob("*") if is_temporary(path.name)]
            shutil.rmtree(folder)


# a full disk


@pytest.mark.parametrize("kind", ["safetensors", "safetensors 0.4", "line of metrics"])
def test_a_full_disk_is_one_line_that_leads_to_resume(
    kind: str, train_words: list[str], call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        if kind == "line of metrics":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise SafetensorError(
            "Error while serializing: I/O error: No space left on device (os error 28)"
            if kind == "safetensors"
            else 'Error while serializing: IoError(Os { code: 28, kind: StorageFull, message: "No space left" })'
        )

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        if kind == "line of metrics":
            patch.setattr(os, "write", full)
        else:
            patch.setattr("sptnet.training.checkpoint.save_file", full)
        answer = call(*train_words, "--out", out)
    file = "metrics.jsonl" if kind == "line of metrics" else "checkpoints/stage0-epoch00001.safetensors"
    assert (answer.code, answer.err.splitlines()[-1]) == (
        1,
        f"error: {out / file} could not be written (No space left on device). Make room, then go on with --resume; "
        "whole epochs are kept.",
    )
    facts = RunFolder(out).facts()
    assert facts["status"] == "failed" and facts["reason"].startswith(f"{out / file} could not be written")
    assert not [path for path in out.rglob("*") if is_temporary(path.name)]
    if kind == "safetensors":
        answer = call("train", "--resume", "--out", out)
        assert answer.code == 0, answer.err
        assert RunFolder(out).facts()["status"] == "finished" and "reason" not in RunFolder(out).facts()


def test_a_disk_that_is_full_before_the_run_has_begun(
    tiny_config: Config, few_digits: SplitImages, run_it: RunIt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise NotWritten(path, errno.ENOSPC)

    monkeypatch.setattr("sptnet.results.run_folder.write_text_atomically", full)
    with pytest.raises(NotWritten, match=r"Make room, then try again\.$"):
        run_it(tmp_path / "run", tiny_config, few_digits)


# how run.json ends


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (Failure("the loss is not finite.\nmore"), "failed", "the loss is not finite."),
        (RuntimeError(), "failed", "RuntimeError"),
        (KeyboardInterrupt(), "stopped", None),
        (SystemExit(3), "stopped", None),
    ],
)
def test_run_json_never_says_running_after_the_end(
    error: BaseException,
    status: str,
    reason: str | None,
    tiny_config: Config,
    few_digits: SplitImages,
    run_it: RunIt,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*args: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(StageTrainer, "train_step", fail)
        with pytest.raises(type(error)):
            run_it(tmp_path / "run", tiny_config, few_digits)
    facts = RunFolder(tmp_path / "run").facts()
    assert (facts["status"], facts.get("reason")) == (status, reason)


def test_an_end_that_cannot_be_written_hides_no_error(
    tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, told = RunFolder(tmp_path / "run"), []
    monkeypatch.setattr("sptnet.training.experiment.say", told.append)
    with pytest.raises(ZeroDivisionError), writing(run):
        run.create(tiny_config)
        run.facts_file.write_text("{")
        raise ZeroDivisionError
    assert len(told) == 1 and "does not say that the run has ended" in told[0]


# two processes


def test_two_resumes_do_not_overlap(
    tiny_config: Config,
    few_digits: SplitImages,
    run_it: RunIt,
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, inner, refused = tmp_path / "run", StageTrainer.train_step, []

    def step(self: StageTrainer, *args: object) -> object:
        if not refused:
            refused.append(call("train", "--resume", "--out", folder))
            refused.append(call("discover", "--resume", "--out", folder))
            with pytest.raises(Locked):
                Experiment(RunFolder(folder).config(), RunFolder(folder), few_digits).run(resume=True)
        return inner(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(StageTrainer, "train_step", step)
    run_it(folder, tiny_config.model_copy(update={"method": "simgcd"}), few_digits)
    for answer in refused:
        assert answer.code == 1
        assert answer.err.startswith(f"error: the run {folder} is being written by process {os.getpid()} on ")
    assert [line["epoch"] for line in RunFolder(folder).metrics()] == [1, 2, 3]
    assert RunFolder(folder).facts()["status"] == "finished"


def test_rank_zero_locks_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(tmp_path / "run")
    sent: list[list[object]] = []

    def broadcast(result: list[object], src: int) -> None:
        sent.append(result)

    def receive(result: list[object], src: int) -> None:
        result[:] = sent.pop()

    monkeypatch.setattr("torch.distributed.broadcast_object_list", broadcast)
    monkeypatch.setattr("sptnet.training.experiment.world", lambda: World(0, 2))
    with writing(run):
        with pytest.raises(Locked, match="is being written by process"), writing(run):
            pytest.fail("two jobs write one run")
        monkeypatch.setattr("torch.distributed.broadcast_object_list", receive)
        monkeypatch.setattr("sptnet.training.experiment.world", lambda: World(1, 2))
        with pytest.raises(FailedOnRankZero, match="is being written by process"), writing(run):
            pytest.fail("rank 0 was refused")
        with writing(run):
            pass  # rank 1 of the first job takes no lock of its own
