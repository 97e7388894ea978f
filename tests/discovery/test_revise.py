"""Plans are revised before the first training step, from the time that the steps before it took."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sptnet.config import Config
from sptnet.discovery import discover as discovery
from sptnet.discovery.discover import Discovery, Wishes
from sptnet.discovery.pace import Pace
from sptnet.discovery.plan import ImageFacts, Plan, before_training
from sptnet.discovery.planner import make_plan, with_batch_size
from sptnet.discovery.revise import correction, revised_plan, slowdown, with_lengths
from sptnet.model.backbone import Backbone
from sptnet.results.run_folder import RunFolder

CPU = Pace("cpu", read=0.002, forward=0.02, step=0.1)
FACTS = ImageFacts(5000, 5000, 10_000, 20, (8, 4, 2), image_size=224)


def plan_of(minutes: float, method: str = "simgcd", given: frozenset[str] = frozenset(), **changes: Any) -> Plan:
    config = with_batch_size(Config(n_categories=30).changed(**changes), 5000)
    return make_plan(config, FACTS, CPU, minutes, method, given)


def epochs_of(plan: Plan) -> dict[str, int]:
    return {stage: length.epochs for stage, length in plan.lengths.items()}


def test_a_plan_that_fits_is_left_alone() -> None:
    plan = plan_of(30)
    training = sum(length.seconds for length in plan.lengths.values())
    assert revised_plan(plan, 1.02 * training, 1.0) == plan
    late = revised_plan(plan, 0.9 * training, 1.0)
    assert epochs_of(late) == epochs_of(plan), "the deadline ends it; a whole schedule is not worth so little"
    assert late.seconds == pytest.approx(plan.seconds - 0.1 * training)


def test_a_slow_machine_gets_a_shorter_schedule_and_a_fast_one_a_longer() -> None:
    plan = plan_of(10)
    training = sum(length.seconds for length in plan.lengths.values())
    slow, fast = revised_plan(plan, training, 2.0), revised_plan(plan, training, 0.5)
    planned = epochs_of(plan)["simgcd"]
    assert epochs_of(slow)["simgcd"] == planned // 2
    assert epochs_of(fast)["simgcd"] == 2 * planned < 200
    for revised in (slow, fast):
        assert sum(step.seconds for step in revised.steps if step.stage) == pytest.approx(training, rel=0.05)
        assert f"train SimGCD, {epochs_of(revised)['simgcd']} epochs" in [step.what for step in revised.steps]
    most = revised_plan(plan, 1000 * training, 1.0)
    assert epochs_of(most)["simgcd"] == 200, "more is of no use"


def test_lengths_that_were_given_stay() -> None:
    plan = plan_of(30, given=frozenset({"simgcd.epochs"}), simgcd={"epochs": 20})
    slow = revised_plan(plan, 30.0, 3.0)
    assert epochs_of(slow) == {"simgcd": 20}
    assert sum(step.seconds for step in slow.steps if step.stage) == pytest.approx(30), "the deadline ends it"


@pytest.mark.parametrize("method", ["simgcd", "sptnet", "dccl", "mugcd"])
def test_settings_follow_the_lengths(method: str) -> None:
    """As if the plan had been made with these epochs."""
    plan = plan_of(60, method)
    training = sum(length.seconds for length in plan.lengths.values())
    shorter = revised_plan(plan, training / 3, 1.0)
    config = with_lengths(plan.config, shorter, batches=39, given=frozenset())
    given = {f"{stage}.epochs" for stage in shorter.lengths}
    own = {stage: {"epochs": n} for stage, n in epochs_of(shorter).items()}
    anew = plan_of(60, method, frozenset(given | {"views.bank"}), **own, views={"bank": plan.config.views.bank})
    assert config == anew.config
    assert with_lengths(plan.config, plan, 39, frozenset()) is plan.config


def test_clusterings_have_no_lengths() -> None:
    plan = plan_of(1, "sskmeans")
    assert revised_plan(plan, 10.0, 4.0) is plan


def test_slowdown_has_limits() -> None:
    assert [slowdown(10, took) for took in (1, 8, 20, 900)] == [0.5, 0.8, 2.0, 4.0]
    assert slowdown(0.0, 2.0) == 2.0, "an expected time of nothing is no measure"


def test_only_large_corrections_are_told() -> None:
    assert correction(600, 650) is None and correction(10, 25) is None
    told = "this machine is {} than when it was measured: about {} min 00 s left, not {} min 00 s"
    assert correction(300, 600) == told.format("slower", 10, 5)
    assert correction(600, 300) == told.format("faster", 5, 10)


class FakeExperiment:
    """Settings, stages and messages of an experiment, without any images."""

    def __init__(self, config: Config):
        self.state = type("State", (), {"config": config, "stages": ["simgcd"]})()
        self.told: list[str] = []
        self.tell: Callable[[str], None] = self.told.append

    def use(self, config: Config) -> None:
        self.state.config = config


@pytest.mark.parametrize(("times", "faster"), [(0.5, True), (2.0, False)])
def test_a_discovery_revises_its_plan(
    times: float, faster: bool, few_digits: Any, make_model: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps before the training take half or twice as long as planned, by a clock of this test."""
    plan = plan_of(10)
    expected = before_training(plan)
    backbone: Backbone = make_model().backbone
    found = Discovery(
        plan, few_digits, backbone, RunFolder(Path("run")), wishes=Wishes("simgcd"), planned_at=100.0, began=90.0
    )
    clock = itertools.repeat(100.0 + times * expected)
    monkeypatch.setattr(discovery.time, "perf_counter", lambda: next(clock))
    experiment: Any = FakeExperiment(plan.config)
    found._revise(experiment)
    found._limit(experiment, expected)
    epochs = experiment.state.config.simgcd.epochs
    assert (epochs > plan.config.simgcd.epochs) == faster
    assert experiment.state.config.simgcd.teacher_warm_up == max(1, round(0.15 * epochs))
    assert found.plan.config.simgcd.epochs == epochs
    after = sum(step.seconds for step in plan.steps[-2:])
    left = 10 * 60 - 10 - times * expected - times * after
    assert 60 * experiment.state.config.simgcd.minutes == pytest.approx(left, abs=0.1), "images and count are counted"
    assert replace(found.plan, steps=plan.steps, config=plan.config) == plan


def test_a_correction_is_told(few_digits: Any, make_model: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(600, given=frozenset({"simgcd.epochs"}), simgcd={"epochs": 20})
    found = Discovery(
        plan,
        few_digits,
        make_model().backbone,
        RunFolder(Path("run")),
        wishes=Wishes("simgcd"),
        planned_at=0.0,
        began=0.0,
    )
    monkeypatch.setattr(discovery.time, "perf_counter", lambda: 3 * before_training(plan))
    experiment: Any = FakeExperiment(plan.config)
    found._revise(experiment)
    (message,) = experiment.told
    assert message.startswith("this machine is slower than when it was measured: about ")
