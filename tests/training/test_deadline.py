"""A time limit ends a stage on time, annealed, resumable, and in a way that can be repeated from its settings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.trainers import make_config, make_trainer
from sptnet.config import Config
from sptnet.data.load import SplitImages
from sptnet.methods import stages_of
from sptnet.results.run_folder import RunFolder
from sptnet.training import trainer as trainer_module
from sptnet.training.deadline import PACE_STEPS, Deadline, Ending
from sptnet.training.stage import share_done
from sptnet.training.trainer import StageTrainer


class Clock:
    """A clock that a test moves by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rates_fall_linearly_to_the_last_step() -> None:
    ending = Ending(anneal_from=4, steps=8)
    assert [ending.factor(step) for step in range(9)] == [1, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0]
    assert Ending(5, 5).factor(4) == 1


def test_the_end_is_decided_once_nine_tenths_of_the_time_are_used() -> None:
    clock = Clock()
    deadline = Deadline(100.0, clock=clock)
    decided = []
    for step in range(1, 200):
        clock.now += 0.9
        ending = deadline.after_step(step, planned=1000)
        if ending is not None:
            decided.append((step, ending))
            break
    assert decided == [(100, Ending(100, 111))], "90 s are used; 10 s are left for steps of 0.9 s"


def test_a_schedule_that_ends_in_time_is_left_alone() -> None:
    clock = Clock()
    deadline = Deadline(100.0, clock=clock)
    for step in range(1, 101):
        clock.now += 0.95
        assert deadline.after_step(step, planned=100) is None


def test_the_latest_steps_give_the_pace() -> None:
    """Slow steps at the beginning, which fill a token bank, do not count."""
    clock = Clock()
    deadline = Deadline(100.0, clock=clock)
    for step in range(1, 11):
        clock.now += 8.0
        assert deadline.after_step(step, 10_000) is None
    ending = None
    while ending is None:
        clock.now += 0.1
        step += 1
        ending = deadline.after_step(step, 10_000)
    assert step > 10 + PACE_STEPS
    assert ending.steps - ending.anneal_from == pytest.approx(100, abs=1), "10 s of 0.1 s each"


def test_time_used_before_counts() -> None:
    clock = Clock()
    deadline = Deadline(100.0, used=95.0, clock=clock)
    clock.now += 1.0
    assert deadline.used == pytest.approx(96.0)
    assert deadline.after_step(7, 1000) == Ending(7, 11)
    late = Deadline(100.0, used=500.0, clock=clock)
    clock.now += 1.0
    assert late.after_step(7, 1000) == Ending(7, 8), "one more step, so that the stage ends in order"


def limited(method: str = "simgcd", **limit: Any) -> StageTrainer:
    config = make_config(method).changed(**{method: limit})
    return make_trainer(config, stages_of(config)[-1])


def test_a_limit_in_steps_ends_in_the_middle_of_an_epoch() -> None:
    """Two epochs of five batches are planned; the stage has seven steps, the last three annealed."""
    trainer = limited(max_steps=7, anneal_steps=3)
    rates = []
    step, usual = trainer.train_step, limited()

    def watched(batch: Any, phase: Any, number: int) -> dict[str, float]:
        parts = step(batch, phase, number)
        rates.append(trainer.optimisers["model"].param_groups[0]["lr"])
        return parts

    trainer.train_step = watched  # type: ignore[method-assign]
    reports = []
    while not trainer.finished:
        reports.append(trainer.run_epoch())
    assert [sum(report.steps.values()) for report in reports] == [5, 2]
    usual.set_learning_rates(0)
    first = usual.optimisers["model"].param_groups[0]["lr"]
    usual.epoch = 1
    usual.set_learning_rates(5)
    second = usual.optimisers["model"].param_groups[0]["lr"]
    assert rates == pytest.approx([first] * 5 + [second * 2 / 3, second / 3])


def test_without_a_limit_nothing_changes() -> None:
    plain, roomy = limited(), limited(minutes=1000.0)
    for trainer in (plain, roomy):
        while not trainer.finished:
            trainer.run_epoch()
    assert roomy.ending is None and plain.deadline is None
    states = [trainer.model.state_dict() for trainer in (plain, roomy)]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_the_share_done_is_that_of_the_time_if_the_limit_comes_first() -> None:
    """Ten steps are planned; there is time for four, the last of them annealed."""
    clock = Clock()
    plain, timed, ended = limited(), limited(minutes=1.0), limited(max_steps=5)
    timed.deadline = Deadline(60.0, clock=clock)
    for trainer in (plain, timed, ended):
        trainer.steps_done = 2
    assert [share_done(trainer) for trainer in (plain, timed, ended)] == [0.2, 0.2, 0.4]
    clock.now += 45.0
    assert share_done(timed) == 0.75
    timed.steps_done, timed.ending = 3, Ending(3, 5)
    assert share_done(timed) == pytest.approx(0.9)
    timed.steps_done = 4
    assert share_done(timed) == pytest.approx(0.95)
    timed.steps_done = 5
    assert share_done(timed) == 1.0


class Jumps:
    """Time as the trainer sees it: every look at the clock takes a tenth of a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        self.now += 0.1
        return self.now


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Jumps()
    monkeypatch.setattr(
        trainer_module, "Deadline", lambda seconds, used=0.0: Deadline(seconds, used, clock.perf_counter)
    )


@pytest.fixture
def timed_config(tiny_config: Config) -> Config:
    """Twelve epochs of five steps are planned; there is time for about a third of them."""
    return tiny_config.changed(simgcd={"epochs": 12, "minutes": 0.1}).model_copy(update={"method": "simgcd"})


def test_a_run_ends_in_time_and_records_its_steps(
    slow_clock: None,
    timed_config: Config,
    few_digits: SplitImages,
    run_it: Callable[..., Path],
    tmp_path: Path,
    assert_same_result: Callable[[Path, Path], None],
) -> None:
    folder = RunFolder(run_it(tmp_path / "timed", timed_config, few_digits))
    assert folder.facts()["status"] == "finished"
    recorded = folder.config().simgcd
    assert recorded.max_steps is not None and 5 < recorded.max_steps < 60
    assert recorded.anneal_steps >= 1
    done = sum(sum(line["steps"].values()) for line in folder.metrics())
    assert done == recorded.max_steps
    again = run_it(tmp_path / "again", folder.config(), few_digits)
    assert_same_result(folder.path, again)


def test_a_stopped_run_keeps_the_time_it_used(
    slow_clock: None,
    timed_config: Config,
    few_digits: SplitImages,
    run_it: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step, steps = StageTrainer.train_step, [0]

    def stopping(self: StageTrainer, *arguments: Any) -> Any:
        steps[0] += 1
        if steps[0] == 12:
            raise KeyboardInterrupt
        return step(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(StageTrainer, "train_step", stopping)
        with pytest.raises(KeyboardInterrupt):
            run_it(tmp_path / "run", timed_config, few_digits)
    run_it(tmp_path / "run", None, few_digits, resume=True)
    whole = RunFolder(run_it(tmp_path / "whole", timed_config, few_digits)).config().simgcd.max_steps
    resumed = RunFolder(tmp_path / "run").config().simgcd.max_steps
    assert whole is not None and resumed is not None
    assert abs(resumed - whole) <= 3, "about as many steps in all as without the stop"
