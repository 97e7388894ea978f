"""The plan of `sptnet discover`: from images, pace and time to a method and a schedule, with reasons; and the pace."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sptnet.config import Config
from sptnet.config.recipes import all_keys
from sptnet.data.load import load_data
from sptnet.discovery import discover as discovery
from sptnet.discovery import pace as pace_module
from sptnet.discovery.discover import Wishes, plan_discovery
from sptnet.discovery.lengths import (
    EPOCHS_PER_BATCH_IMAGE,
    LEAST_STEPS,
    SCHEDULES,
    STAGES,
    STEPS_PER_LABEL,
    scaled_border,
)
from sptnet.discovery.pace import Pace, measure_pace
from sptnet.discovery.plan import ImageFacts, Plan, after_training, before_training, limit_stages
from sptnet.discovery.planner import PLANNED, make_plan, with_batch_size
from sptnet.discovery.settings import make_settings
from sptnet.errors import Misuse
from sptnet.methods import METHODS, stages_of
from sptnet.methods.phases import MODEL, PROMPT, TakeTurns
from sptnet.model.backbone import EMBEDDED
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.distributed import World

GIB = 2**30
CPU = Pace("cpu", read=0.002, forward=0.02, step=0.1)
SLOW = Pace("cpu", read=0.01, forward=0.2, step=1.0)
GPU = Pace("cuda", read=0.001, forward=0.0005, step=0.01)


def facts(images: int, known: int = 4, disk: int = 100 * GIB) -> ImageFacts:
    banks = tuple(views for views in (8, 4, 2) if (views + 1) * images * 300_000 <= disk / 2)
    return ImageFacts(images, images, 10_000, known, banks, image_size=224)


SMALL, MIDDLE, LARGE, BARE = facts(300), facts(5000, 20), facts(200_000, 100), facts(300, known=0)


def auto(images: ImageFacts, **changes: Any) -> Config:
    """Settings as `plan_discovery` hands them to a plan: the batch size follows the images."""
    return with_batch_size(Config(n_categories="auto").changed(**changes), images.training)


def planned(images: ImageFacts, pace: Pace, minutes: float | None = None, *more: Any, **words: Any) -> Plan:
    return make_plan(auto(images), images, pace, minutes, *more, **words)


def chosen(plan: Plan) -> tuple[str, int, int]:
    config = plan.config
    epochs = {"simgcd": config.simgcd.epochs, "gcd": config.gcd.epochs, "sptnet": config.sptnet.epochs}
    return config.method, config.views.bank, epochs.get(config.method, 0)


# --- times ------------------------------------------------------------------------------------------------------------


def test_times_add_up_by_hand() -> None:
    """5,000 images, 39 batches of 128; SimGCD for 10 epochs with a bank of 4 views."""
    config = auto(MIDDLE, simgcd={"epochs": 10}, views={"bank": 4})
    plan = make_plan(config, MIDDLE, CPU, None, "simgcd", {"simgcd.epochs", "views.bank"})
    assert [(step.what, step.seconds) for step in plan.steps] == [
        ("compute features of all images", pytest.approx(5000 * 0.022)),
        ("count the categories", pytest.approx(5000 * 0.0016)),
        ("train SimGCD, 10 epochs", pytest.approx(20_000 * 0.02 + 5000 * 0.002 + 390 * 0.1)),
        ("sort all images", pytest.approx(5000 * 0.022)),
        ("write the report", pytest.approx(1 + 5000 * 0.0032)),
    ]
    assert plan.seconds == pytest.approx(sum(step.seconds for step in plan.steps))
    assert before_training(plan) == pytest.approx(5000 * 0.0236)
    assert after_training(plan) == pytest.approx(1 + 5000 * 0.0252)


def test_without_a_bank_every_view_is_computed() -> None:
    config = auto(MIDDLE, simgcd={"epochs": 10}, views={"bank": 0})
    plan = make_plan(config, MIDDLE, CPU, None, "simgcd", {"simgcd.epochs", "views.bank"})
    assert plan.steps[2].seconds == pytest.approx(390 * (256 * 0.02 + 0.1) + 5000 * 0.002)


@pytest.mark.parametrize(
    ("training", "passes"),
    [({}, 7), ({"accumulate": 2}, 9), ({"checkpointing": True}, 9), ({"accumulate": 2, "checkpointing": True}, 11)],
)
def test_prompts_cost_passes_through_all_blocks(training: dict[str, Any], passes: int) -> None:
    """Half of the steps go forward and back with two views; blocks may be computed twice to save memory."""
    config = auto(SMALL, training=training, sptnet={"epochs": 10}, simgcd={"epochs": 1}, views={"bank": 2})
    plan = make_plan(config, SMALL, CPU, None, "sptnet", {"simgcd.epochs", "sptnet.epochs", "views.bank"})
    trained = {step.stage: step.seconds for step in plan.steps}
    assert trained["sptnet"] == pytest.approx(40 * (64 * passes * 0.02 + 0.1) / 2 + 300 * 0.002)


def test_crowded_cores_take_longer_for_what_was_not_measured() -> None:
    alone, crowded = (planned(SMALL, replace(CPU, crowding=c), 1, "sskmeans") for c in (1.0, 3.0))
    one, three = ({step.what: step.seconds for step in plan.steps} for plan in (alone, crowded))
    assert three["count the categories"] == pytest.approx(3 * one["count the categories"])
    assert three["compute features of all images"] == one["compute features of all images"]


def test_processes_share_the_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(discovery, "measure_pace", lambda *_: CPU)
    settings = {"n_categories": 10, "data.source": "digits", "data.known_classes": 5, "device": "cpu", "views.bank": 0}
    config = make_settings(EMBEDDED, settings)
    images, wishes = load_data(config.data), Wishes("simgcd", None, frozenset({"simgcd.epochs", "views.bank"}), False)

    def plan() -> Plan:
        return plan_discovery(config, images, RunFolder(tmp_path), wishes).plan

    alone = plan()
    monkeypatch.setattr(discovery, "available_cores", lambda: 4)
    monkeypatch.setattr(discovery, "world", lambda: Four(0, 4, on_machine=4))
    shared = plan()
    assert shared.config == alone.config
    assert [4 * step.seconds for step in shared.steps] == pytest.approx([step.seconds for step in alone.steps])
    monkeypatch.setattr(discovery, "available_cores", lambda: 2)
    assert plan().seconds == pytest.approx(2 * shared.seconds), "four processes on two cores are as quick as two"


def test_a_moment_of_busy_cores_does_not_decide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first measurement is a hundred times too slow, so that only clustering would fit into the time."""
    busy = Pace("cpu", CPU.read * 100, CPU.forward * 100, CPU.step * 100, crowding=100)
    settings = {"n_categories": 10, "data.source": "digits", "data.known_classes": 5, "device": "cpu"}
    config = make_settings(EMBEDDED, settings)
    images = load_data(config.data)

    def plan(*paces: Pace) -> tuple[Plan, int]:
        left = list(paces)
        monkeypatch.setattr(discovery, "measure_pace", lambda *_: left.pop(0))
        found = plan_discovery(config, images, RunFolder(tmp_path), Wishes(None, 20.0)).plan
        return found, len(paces) - len(left)

    quick, n_quick = plan(CPU, busy)
    again, n_again = plan(busy, CPU)
    both, _ = plan(busy, busy)
    assert (n_quick, n_again) == (1, 2), "a second measurement only if something is left out"
    assert quick.config.method == again.config.method == "simgcd"
    assert again.seconds == pytest.approx(quick.seconds, rel=0.05)
    assert both.config.method == "sskmeans"


class Four(World):
    """Four processes, seen by the first one."""

    def from_first(self, work: Callable[[], Any]) -> Any:
        return work()

    def local_rank_zero_first(self, work: Callable[[], Any]) -> Any:
        return work()


# --- what is chosen ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("images", "pace", "minutes", "method"),
    [
        (SMALL, CPU, None, "simgcd"),
        (SMALL, CPU, 3, "simgcd"),
        (SMALL, CPU, 0.5, "sskmeans"),
        (SMALL, CPU, 10_000, "simgcd"),
        (SMALL, SLOW, None, "simgcd"),
        (MIDDLE, CPU, None, "simgcd"),
        (MIDDLE, SLOW, None, "sskmeans"),
        (LARGE, CPU, None, "sskmeans"),
        (SMALL, GPU, None, "simgcd"),
        (MIDDLE, GPU, 15, "simgcd"),
        (BARE, CPU, None, "kmeans"),
        (BARE, GPU, None, "kmeans"),
    ],
)
def test_the_method_follows_from_the_time(images: ImageFacts, pace: Pace, minutes: float | None, method: str) -> None:
    plan = planned(images, pace, minutes)
    assert plan.config.method == method
    if method == "simgcd":
        limit = minutes or {"cpu": 30, "cuda": 240}[pace.device]
        assert plan.seconds <= 60 * limit and plan.minutes == limit
        trained = {step.stage for step in plan.steps} - {None}
        steps = plan.config.simgcd.epochs * (images.training // plan.config.training.batch_size)
        assert trained == {"simgcd"}
        assert steps >= LEAST_STEPS[method] or plan.config.simgcd.epochs == 200


def test_more_time_never_gives_less_training() -> None:
    rank = ["sskmeans", "simgcd"]
    plans = [planned(MIDDLE, CPU, minutes) for minutes in (5, 10, 15, 30, 60, 120, 600, 6000, 60_000)]
    amounts = [(rank.index(plan.config.method), plan.config.views.bank) for plan in plans]
    assert amounts == sorted(amounts)
    assert [plan.config.method for plan in (plans[0], plans[-1])] == rank


@pytest.mark.parametrize(
    ("n", "size"),
    [(100_000, 128), (512, 128), (511, 64), (300, 64), (255, 32), (60, 8), (31, 4), (8, 2), (7, 2), (2, 2)],
)
def test_batches_leave_an_epoch_some_steps(n: int, size: int) -> None:
    assert with_batch_size(Config(), n).training.batch_size == size


def test_the_reasons_are_sentences_that_name_the_times() -> None:
    assert planned(BARE, CPU).reasons == (
        "No image has a label, so k-means groups the images by their looks.",
        "K-means on the features of the backbone; nothing trains.",
    )
    simgcd, choice, over = planned(MIDDLE, SLOW, 15).reasons
    assert simgcd.startswith("SimGCD needs about ") and simgcd.endswith("; the time is 15 min.")
    assert choice == "Semi-supervised k-means on the features of the backbone; nothing trains."
    assert over == "Without any training that takes about 18 min 36 s, more than the 15 min there are."
    assert planned(SMALL, GPU, None, "sptnet").reasons == (
        "SimGCD for 200 epochs, then SPTNet for 1000 epochs, 240 min at most in all. It starts from clusters.",
    )
    given = frozenset({"head.start"})
    (told,) = make_plan(auto(SMALL), SMALL, GPU, None, "simgcd", given).reasons
    assert "clusters" not in told, "the user wants random prototypes"
    assert planned(replace(SMALL, can_try=True), GPU).reasons == (
        "SimGCD for 200 epochs, 240 min at most in all. It starts from clusters. "
        "A trial on hidden labels first shows whether training helps.",
    )


def test_the_disk_and_the_time_limit_the_bank() -> None:
    three_rows = 3 * 300 * 300_000  # two views and the centre view, of which half of the free disk may be taken
    assert planned(facts(300, disk=2 * three_rows), CPU, 60).config.views.bank == 2
    assert planned(facts(300, disk=2 * three_rows - 1), CPU, 600).config.views.bank == 0
    assert planned(SMALL, CPU, 60).config.views.bank == 8
    assert planned(MIDDLE, CPU, 15).config.views.bank == 2, "8 views of 5,000 images take 13 minutes"


def test_a_bank_that_is_asked_for_as_auto_is_the_plan_s() -> None:
    config = auto(SMALL, views={"bank": "auto"})
    assert make_plan(config, SMALL, CPU, 60, given=["views.bank"]).config.views.bank == 8
    config = auto(SMALL, views={"bank": 3})
    assert make_plan(config, SMALL, CPU, 60, given=["views.bank"]).config.views.bank == 3


# --- as asked ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["kmeans", "sskmeans", "gcd", "simgcd", "sptnet"])
def test_a_method_that_is_asked_for_is_done_within_its_time(method: str) -> None:
    plan = planned(MIDDLE, SLOW, 60, method)
    assert plan.config.method == method
    trains = method in ("gcd", "simgcd", "sptnet")
    assert plan.minutes == (60 if trains else None)
    assert not trains or plan.seconds <= 60 * 60 * 1.001


def test_sptnet_with_few_steps_begins_without_noise() -> None:
    plan = planned(SMALL, CPU, None, "sptnet")
    assert plan.config.prompt.noise == 0
    assert "prompts begin without noise" in plan.reasons[-1]
    assert planned(MIDDLE, GPU, None, "sptnet").config.prompt.noise == 1
    own = make_plan(auto(SMALL, prompt={"noise": 0.1}), SMALL, CPU, None, "sptnet", {"prompt.noise"})
    assert own.config.prompt.noise == 0.1


@pytest.mark.parametrize(("epochs", "k"), [(1, 1), (3, 3), (10, 10), (20, 20), (150, 20)])
def test_both_phases_have_their_turns_however_few_steps_there_are(epochs: int, k: int) -> None:
    """Four batches per epoch."""
    config = auto(SMALL, simgcd={"epochs": 3}, sptnet={"epochs": epochs})
    plan = make_plan(config, SMALL, CPU, None, "sptnet", {"simgcd.epochs", "sptnet.epochs"})
    stage = stages_of(plan.config)[-1]
    assert isinstance(stage.turns, TakeTurns)
    assert stage.turns == TakeTurns(PROMPT, MODEL, k, restart=k <= 2)
    stage.turns.check(epochs, 4)


def test_what_somebody_has_set_stays() -> None:
    own: dict[str, Any] = {
        "training": {"batch_size": 50, "certainty": "own", "evaluate_every": 3},
        "views": {"bank": 3},
        "prompt": {"border": 11, "noise": 0.5},
        "sptnet": {"epochs": 7, "counter": "epoch", "k": 3},
        "simgcd": {"epochs": 9, "teacher_warm_up": 4, "backbone_ratio": 0.5},
        "head": {"start": "random", "contrast": "projections"},
        "gcd": {"epochs": 5, "learning_rate": 0.2},
        **{system: {"epochs": 4} for system in ("uno", "orca", "cipr")},
        **{stage: {"epochs": 4, "learning_rate": 0.2} for stage in ("promptcal", "promptcal_calibrated")},
        "gpc": {"epochs": 4, "split_merge": True, "temperature": 0.5},
        "rankstats": {"epochs": 8, "ramp_up": 3},
        "dccl": {"epochs": 8, "warm_up": 2, "weight_epochs": 5, "learning_rate": 0.2},
        "mugcd": {"epochs": 8, "teacher_warm_up": 3},
    }
    config = Config(n_categories="auto").changed(**own)
    given = {f"{section}.{key}" for section, changes in own.items() for key in changes}
    assert given == PLANNED <= set(all_keys())
    for method in METHODS:
        plan = make_plan(config, SMALL, CPU, None, method, given)
        assert plan.config == config.model_copy(update={"method": method})


@pytest.mark.parametrize(("labelled", "steps"), [(0, 150), (30, 150), (100, 100 * STEPS_PER_LABEL), (10_000, 800)])
def test_few_labels_shorten_the_training_from_clusters(labelled: int, steps: int) -> None:
    """Four batches per epoch, 200 epochs as published at most."""
    few = replace(SMALL, labelled=labelled)
    plan = planned(few, GPU, None, "simgcd")
    assert plan.config.simgcd.epochs == -(-steps // 4)
    assert plan.config.simgcd.teacher_warm_up == max(1, round(0.15 * plan.config.simgcd.epochs))
    published = make_plan(auto(few, head={"start": "random"}), few, GPU, None, "simgcd", {"head.start"})
    assert published.config.simgcd.epochs == 200, "random prototypes need their length"
    given = make_plan(auto(few, simgcd={"epochs": 180}), few, GPU, None, "simgcd", {"simgcd.epochs"})
    assert given.config.simgcd.epochs == 180


@pytest.mark.parametrize("method", STAGES)
def test_schedules_keep_their_share_of_a_shorter_training(method: str) -> None:
    config = planned(SMALL, CPU, 10, method).config
    for stage, published in STAGES[method].items():
        epochs = getattr(config, stage).epochs
        assert 1 <= epochs <= published
        for name, share in SCHEDULES.get(stage, {}).items():
            assert getattr(getattr(config, stage), name) == max(1, round(share * epochs))
    assert (config.views.bank == 0) == (method == "promptcal"), "prompted views cannot come from a bank"


@pytest.mark.parametrize(("n", "size"), [(3, 2), (7, 2), (20, 4), (60, 8), (100, 16)])
@pytest.mark.parametrize("method", ["simgcd", "gcd", "sptnet", "mugcd"])
def test_small_folders_get_small_plans(n: int, size: int, method: str) -> None:
    images = replace(facts(n, known=2), labelled=2)
    plan = planned(images, GPU, None, method)
    assert plan.config.training.batch_size == size
    for stage, published in STAGES[method].items():
        epochs = getattr(plan.config, stage).epochs
        assert epochs <= min(published, EPOCHS_PER_BATCH_IMAGE * size)
        assert epochs * max(1, n // size) <= EPOCHS_PER_BATCH_IMAGE * max(n, size), "steps per image"


def test_one_label_is_not_trained_on_unless_asked() -> None:
    images = replace(facts(3, known=1), labelled=1)
    plan = planned(images, CPU)
    assert (plan.config.method, plan.reasons[0]) == (
        "sskmeans",
        "Only one category has labels, which show no differences to learn.",
    )
    assert not plan.short_of_time
    assert planned(images, CPU, None, "sptnet").config.sptnet.epochs == 40


def test_time_that_is_over_is_not_planned_again() -> None:
    """Reading the images took 24 of the 25 minutes."""
    early, late = planned(MIDDLE, CPU, 25), planned(MIDDLE, CPU, 25, spent=24 * 60)
    assert (early.config.method, late.config.method) == ("simgcd", "sskmeans")
    assert late.short_of_time and not early.short_of_time
    asked = planned(MIDDLE, CPU, 25, "simgcd", spent=15 * 60)
    assert asked.seconds <= 10 * 60 * 1.001


def test_epochs_that_are_given_take_the_time_they_need() -> None:
    config = auto(SMALL, simgcd={"epochs": 3}, sptnet={"epochs": 3})
    given = {"simgcd.epochs", "sptnet.epochs"}
    plan = make_plan(config, SMALL, GPU, None, None, given)
    assert (chosen(plan), plan.minutes) == (("simgcd", 0, 3), None)
    assert make_plan(config, SMALL, GPU, 5, "simgcd", given).minutes == 5, "both may be asked for"
    assert make_plan(config, SMALL, GPU, None, "simgcd", given, always_limited=True).minutes == 240


def test_the_rest_of_the_settings() -> None:
    small, middle = (planned(images, GPU, None, "sptnet").config for images in (SMALL, MIDDLE))
    assert (small.sptnet.counter, small.sptnet.k) == ("continuous", 20), "4 batches: the model's turn would never come"
    assert middle.sptnet.counter == "continuous"
    assert planned(facts(9000), GPU, 3000, "sptnet").config.sptnet.counter == "epoch", "70 batches"
    assert small.training.evaluate_every == 1000
    assert planned(SMALL, CPU).config.training.evaluate_every == 200
    assert small.simgcd.learning_rate == Config().simgcd.learning_rate
    assert small.prompt.border == 30
    assert planned(replace(SMALL, image_size=96), GPU).config.prompt.border == 13
    assert [scaled_border(size) for size in (224, 112, 96, 32, 4)] == [30, 15, 13, 4, 1]


def test_the_steps_are_those_that_are_done() -> None:
    known = auto(SMALL).model_copy(update={"n_categories": 7})
    done = [step.what for step in make_plan(known, SMALL, CPU, None, "gcd", report=False).steps]
    assert done == ["compute features of all images", "train GCD, 200 epochs", "sort all images"]
    own = make_plan(known, SMALL, CPU, None, "gcd", {"training.certainty"}, report=False)
    assert [step.what for step in own.steps] == done[1:], "the model's own certainty takes no features"
    assert (own.config.training.certainty, planned(SMALL, CPU).config.training.certainty) == ("own", "calibrated")
    done = [step.what for step in make_plan(known, BARE, CPU).steps]
    assert done == ["compute features of all images", "cluster", "write the report"]
    done = [step.what for step in planned(SMALL, CPU, None, "sskmeans").steps]
    assert done[:3] == ["compute features of all images", "count the categories", "cluster"]


def test_the_training_departs_from_the_published_one_as_the_plan_says() -> None:
    for method in (None, "simgcd", "sptnet"):
        config = planned(SMALL, CPU, None, method).config
        assert (config.head.start, config.head.contrast) == ("clusters", "features")
        assert (config.simgcd.backbone_ratio, config.simgcd.entropy_weight) == (0.1, 1.0)
        assert config.simgcd.teacher_warm_up == round(0.15 * config.simgcd.epochs)
    for method in ("gcd", "gpc"):
        other = planned(SMALL, CPU, None, method).config
        assert other.head == Config().head and other.simgcd == Config().simgcd
    for method in ("gcd", "dccl", "promptcal", "mugcd"):
        other = planned(SMALL, CPU, None, method).config
        rates = {stage: getattr(other, stage).learning_rate for stage in Config.stage_names()}
        low = {stage for stage, rate in rates.items() if rate != getattr(Config(), stage).learning_rate}
        assert low == ({"gcd"} if method == "mugcd" else {name for name in rates if name.startswith(method)})
        assert {rates[stage] for stage in low} == {0.01}
    gpc = planned(SMALL, CPU, None, "gpc").config.gpc
    assert (gpc.split_merge, gpc.temperature, gpc.accept) == (False, 0.1, 0.1)


def test_a_trial_takes_its_time_and_only_where_the_plan_chooses() -> None:
    able = replace(SMALL, can_try=True)
    plan = planned(able, CPU)
    assert plan.tries and not planned(able, CPU, None, "simgcd").tries and not planned(SMALL, CPU).tries
    seconds = {step.what: step.seconds for step in plan.steps}
    fill = 300 * 8 * CPU.forward
    assert seconds["try the training on hidden labels"] == pytest.approx(10 + fill), (
        "it fills the bank for the training"
    )
    assert seconds["train SimGCD, 200 epochs"] == pytest.approx(300 * CPU.read + 800 * CPU.step)
    assert plan.lengths["simgcd"].seconds == seconds["train SimGCD, 200 epochs"]
    alone = planned(SMALL, CPU)
    assert plan.seconds == pytest.approx(alone.seconds + 10)
    assert not planned(able, CPU, 0.5).tries, "nothing trains in so short a time"


def test_stages_share_the_time_that_is_left() -> None:
    plan = planned(SMALL, GPU, None, "sptnet")
    limited = limit_stages(plan, plan.config, seconds=600.0)
    expected = {step.stage: step.seconds for step in plan.steps if step.stage}
    assert limited.simgcd.minutes is not None and limited.sptnet.minutes is not None
    assert limited.simgcd.minutes + limited.sptnet.minutes == pytest.approx(10, abs=1e-3)
    assert limited.simgcd.minutes / limited.sptnet.minutes == pytest.approx(
        expected["simgcd"] / expected["sptnet"], rel=1e-2
    )
    late = limit_stages(plan, plan.config, seconds=-5.0)
    assert late.sptnet.minutes == pytest.approx(1 / 60, abs=1e-3), "a moment at least, so that the run ends well"
    clustered = planned(SMALL, CPU, 1, "sskmeans")
    assert limit_stages(clustered, clustered.config, 60.0) == clustered.config


@pytest.mark.parametrize(
    ("options", "images", "message"),
    [
        (
            {"method": "magic"},
            SMALL,
            "unknown method 'magic'. Use auto or one of: kmeans, sskmeans, gcd, simgcd, sptnet, rankstats, "
            "uno, orca, dccl, promptcal, cipr, gpc, mugcd.",
        ),
        ({"minutes": 0}, SMALL, "minutes is 0. Give a number above 0."),
        ({"minutes": float("nan")}, SMALL, "minutes is nan. Give a number above 0."),
        (
            {"method": "simgcd"},
            BARE,
            "no image has a label, but SimGCD learns from labels. Label some images, or cluster them with the method "
            "kmeans.",
        ),
    ],
)
def test_plans_that_cannot_be_made(options: dict[str, Any], images: ImageFacts, message: str) -> None:
    with pytest.raises(Misuse) as error:
        planned(images, CPU, **options)
    assert str(error.value) == message


# --- pace -------------------------------------------------------------------------------------------------------------


def test_the_pace_is_measured_and_leaves_no_trace(
    make_model: Callable[..., Any], cpu: Any, few_digits: Any, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace_module, "SECONDS", 0.01)
    backbone = make_model().backbone
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    pace = measure_pace(backbone, cpu, few_digits.image_set.sources, tiny_config)
    assert pace.device == "cpu"
    assert min(pace.read, pace.forward, pace.step) > 0
    assert pace.crowding >= 1
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    assert not any(p.requires_grad or p.grad is not None for p in backbone.parameters())


def test_a_slow_first_batch_is_not_the_pace(
    make_model: Callable[..., Any], cpu: Any, few_digits: Any, tiny_config: Config
) -> None:
    """The first batch of a process may take seconds on busy cores. Reading 32 images asks the clock eight times."""
    calls = [0]
    now = [0.0]

    def clock() -> float:
        calls[0] += 1
        now[0] += 2.0 if calls[0] == 10 else 0.08
        return now[0]

    pace = measure_pace(make_model().backbone, cpu, few_digits.image_set.sources, tiny_config, clock)
    assert pace.forward == pytest.approx(0.08 / 8)


def test_a_slow_machine_is_not_kept_waiting(
    make_model: Callable[..., Any], cpu: Any, few_digits: Any, tiny_config: Config
) -> None:
    """With a clock that jumps by ten seconds at every call, two batches and two steps are enough."""
    now = [0.0]

    def clock() -> float:
        now[0] += 10.0
        return now[0]

    pace = measure_pace(make_model().backbone, cpu, few_digits.image_set.sources, tiny_config, clock)
    assert (pace.read, pace.forward) == (10 / 8, 10 / 8)
    assert pace.step == 10.0


@pytest.mark.parametrize(
    ("method", "from_bank", "fresh"),
    [
        ("simgcd", 0.1, 16 * 0.02 + 0.1),
        ("mugcd", 0.2, 32 * 0.02 + 0.2),
        ("dccl", 0.2, 2 * (16 * 0.02 + 0.1)),
        ("sptnet", (8 * 7 * 0.02 + 0.1) / 2, (8 * 8 * 0.02 + 0.1) / 2),
        ("promptcal", 16 * 3 * 0.02 + 0.1, 16 * 3 * 0.02 + 0.1),
    ],
)
def test_step_seconds_follow_from_the_phases(method, from_bank, fresh):
    """Prompts cost three passes per view; strong views and added images double a step."""
    stage = METHODS[method].stages(Config(method=method))[-1]
    assert CPU.step_seconds(stage, 8, True, 3.0) == pytest.approx(from_bank)
    assert CPU.step_seconds(stage, 8, False, 3.0) == pytest.approx(fresh)


def test_stages_of_a_start_from_a_run_are_not_planned():
    config = auto(SMALL, sptnet={"start_from": "runs/simgcd"})
    plan = make_plan(config, SMALL, CPU, 60, "sptnet", {"sptnet.start_from"})
    assert [step.stage for step in plan.steps if step.stage] == ["sptnet"]
