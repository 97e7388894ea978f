"""The plan of `sptnet discover`: a table from pile, speed and time to method and schedule, with its reasons."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from sptnet.config import Config
from sptnet.config.recipes import all_keys
from sptnet.data.load import load_data
from sptnet.discovery import discover as discovery
from sptnet.discovery.discover import make_settings, plan_for
from sptnet.discovery.plan import speed as speed_module
from sptnet.discovery.plan.costs import Costs, ImageSetFacts
from sptnet.discovery.plan.plan import LEAST_STEPS, PLANNED, SPTNET_LEAST_STEPS, Plan, batch_size_for, make_plan
from sptnet.discovery.plan.speed import Speed, measure_speed, rate, scaled_border
from sptnet.errors import Misuse
from sptnet.methods import stages_of
from sptnet.methods.phases import MODEL, PROMPT, TakeTurns
from sptnet.model.backbone import EMBEDDED
from sptnet.runtime.distributed import World

GIB = 2**30
CPU = Speed("cpu", forward=50, prompted=20, last_block=1000, decode=500, image_size=224, token_bytes=300_000)
SLOW = Speed("cpu", forward=5, prompted=2, last_block=100, decode=100, image_size=224, token_bytes=300_000)
GPU = Speed("cuda", forward=2000, prompted=700, last_block=20_000, decode=1000, image_size=224, token_bytes=300_000)
SMALL = ImageSetFacts(300, 100, 200, 4, 100 * GIB)
MIDDLE = ImageSetFacts(6000, 1500, 3500, 20, 100 * GIB)
LARGE = ImageSetFacts(200_000, 50_000, 150_000, 100, 100 * GIB)
BARE = ImageSetFacts(300, 0, 300, 0, 100 * GIB)
AUTO = Config(n_categories="auto", views={"workers": 0})


def bank_and_epochs(plan: Plan) -> tuple[str, int, int]:
    config = plan.config
    epochs = {"simgcd": config.simgcd.epochs, "gcd": config.gcd.epochs, "sptnet": config.sptnet.epochs}
    return config.method, config.views.bank, epochs.get(config.method, 0)


# --- costs ------------------------------------------------------------------------------------------------------------


def test_costs_add_up_by_hand() -> None:
    costs = Costs(AUTO, MIDDLE, CPU)  # 5,000 training images, 39 batches of 128
    assert (costs.batches, costs.drawn) == (39, 4992)
    assert costs.look(1000) == pytest.approx(1000 / 50 + 1000 / 500)
    assert costs.counting() == pytest.approx(5000 / 50 + 5000 / 500 + 50)
    assert costs.sorting() == pytest.approx(6000 / 50 + 6000 / 500)
    assert costs.clustering(10) == pytest.approx(25)
    assert costs.report() == pytest.approx(10 + 60)
    assert costs.bank_bytes(4) == 5 * 5000 * 300_000
    views = 2 * 4992 * 10
    assert costs.raw_epochs(10, bank=4) == pytest.approx(20_000 / 50 + views / 1000 + 10)
    assert costs.raw_epochs(1, bank=4) == pytest.approx(9984 / 50 + 9984 / 1000 + 10), "one epoch does not fill it"
    # 5,000 images of 256 px do not fit into the cache, so they are read in every epoch
    assert costs.raw_epochs(10, bank=0) == pytest.approx(views / 50 + views / 1000 + 10 * 10)
    half = 4992 * 10 / 2
    assert costs.sptnet_epochs(10, bank=0) == pytest.approx(2 * half / 20 + 2 * half / 50 + 2 * half / 1000 + 100)
    assert costs.sptnet_epochs(10, bank=4) == pytest.approx(2 * half / 20 + half / 50 + 2 * half / 1000 + 100)


def test_nothing_is_counted_where_the_number_is_given() -> None:
    assert Costs(Config(n_categories=7), MIDDLE, CPU).counting() == 0


def test_few_images_stay_in_memory_and_are_read_once() -> None:
    costs = Costs(AUTO, SMALL, CPU)
    views = 2 * costs.drawn * 10
    assert costs.raw_epochs(10, bank=0) == pytest.approx(views / 50 + views / 1000 + 300 / 500)


def test_processes_load_beside_the_computing() -> None:
    config = AUTO.changed(views={"workers": 4})
    costs = Costs(config, MIDDLE, GPU)
    views = 2 * costs.drawn
    assert costs.raw_epochs(1, bank=0) == pytest.approx(views / 2000 + views / 20_000), "computing is the longer"
    reading = Costs(config, MIDDLE, Speed("cuda", 10**6, 10**6, 10**6, 100, 224, 1))
    assert reading.raw_epochs(3, bank=0) == pytest.approx(3 * 5000 / 400), "reading is the longer"


def test_processes_share_the_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert CPU.of_processes(1) == CPU
    monkeypatch.setattr(discovery, "measure_speed", lambda *_: CPU)
    config = make_settings(
        EMBEDDED,
        {"n_categories": 10, "data.source": "digits", "data.known_classes": 5, "device": "cpu", "views.bank": 0},
    )
    data = load_data(config.data)
    alone = plan_for(config, data, tmp_path, method="simgcd", given={"simgcd.epochs", "views.bank"}, report=False)
    monkeypatch.setattr(discovery, "world", lambda: Four(0, 4))
    shared = plan_for(config, data, tmp_path, method="simgcd", given={"simgcd.epochs", "views.bank"}, report=False)
    assert shared.config == alone.config
    assert [step.what for step in shared.steps] == [step.what for step in alone.steps]
    assert [4 * step.seconds for step in shared.steps] == pytest.approx([step.seconds for step in alone.steps])
    monkeypatch.setattr(discovery, "world", lambda: Four(0, 4, on_machine=4))
    monkeypatch.setattr(discovery, "lent_cores", lambda: 2)
    crowded = plan_for(config, data, tmp_path, method="simgcd", given={"simgcd.epochs", "views.bank"}, report=False)
    assert crowded.seconds == pytest.approx(2 * shared.seconds), "four processes on two cores are as quick as two"


class Four(World):
    """Four processes, seen by the first one."""

    def from_first(self, work: Callable[[], Any]) -> Any:
        return work()


# --- what is chosen ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "speed", "minutes", "chosen"),
    [
        (SMALL, CPU, None, ("simgcd", 8, 200)),
        (SMALL, CPU, 3, ("simgcd", 8, 198)),
        (SMALL, CPU, 2.5, ("simgcd", 4, 186)),
        (SMALL, CPU, 1, ("sskmeans", 0, 0)),
        (SMALL, CPU, 10_000, ("sptnet", 8, 1000)),
        (SMALL, SLOW, None, ("simgcd", 8, 200)),
        (MIDDLE, CPU, None, ("simgcd", 4, 102)),
        (MIDDLE, CPU, 15, ("simgcd", 2, 32)),
        (MIDDLE, SLOW, None, ("sskmeans", 0, 0)),
        (MIDDLE, SLOW, 600, ("simgcd", 8, 200)),
        (LARGE, CPU, None, ("sskmeans", 0, 0)),
        (SMALL, GPU, None, ("sptnet", 0, 1000)),
        (MIDDLE, GPU, None, ("sptnet", 0, 840)),
        (MIDDLE, GPU, 30, ("simgcd", 0, 158)),
        (LARGE, GPU, None, ("simgcd", 0, 22)),
        (BARE, CPU, None, ("kmeans", 0, 0)),
        (BARE, GPU, None, ("kmeans", 0, 0)),
    ],
)
def test_the_table(facts: ImageSetFacts, speed: Speed, minutes: float | None, chosen: tuple[str, int, int]) -> None:
    plan = make_plan(AUTO, facts, speed, minutes)
    assert bank_and_epochs(plan) == chosen
    if chosen[0] in ("simgcd", "sptnet"):
        assert plan.seconds <= 60 * (minutes or {"cpu": 30, "cuda": 240}[speed.device]), "what is chosen fits"


def test_more_time_never_gives_less_training() -> None:
    rank = ["sskmeans", "simgcd", "sptnet"]
    plans = [make_plan(AUTO, MIDDLE, CPU, minutes) for minutes in (5, 10, 15, 30, 60, 120, 600, 6000, 60_000)]
    amounts = [(rank.index(plan.config.method), plan.config.views.bank) for plan in plans]
    assert amounts == sorted(amounts)
    assert [plan.config.method for plan in (plans[0], plans[3], plans[-1])] == rank


@pytest.mark.parametrize(
    ("n", "size"),
    [(100_000, 128), (512, 128), (511, 64), (300, 64), (255, 32), (60, 8), (31, 4), (8, 2), (7, 2), (2, 2)],
)
def test_batches_leave_an_epoch_some_steps(n: int, size: int) -> None:
    assert batch_size_for(n) == size
    assert make_plan(AUTO, ImageSetFacts(n, 1, n - 1, 1, GIB), CPU).config.training.batch_size == size


def test_training_has_enough_steps_to_be_worth_it() -> None:
    plan = make_plan(AUTO, MIDDLE, CPU, 15)
    assert plan.config.simgcd.epochs * 39 >= LEAST_STEPS
    plan = make_plan(AUTO, MIDDLE, GPU, 60)
    assert plan.config.method == "sptnet"
    assert plan.config.simgcd.epochs >= 100
    assert plan.config.sptnet.epochs * 39 >= SPTNET_LEAST_STEPS


def test_the_reasons_are_sentences_that_name_the_times() -> None:
    assert make_plan(AUTO, SMALL, CPU).reasons == (
        "SPTNet would need about 4 h 22 min to get past its noisy start, but the time is 30 minutes.",
        "SimGCD for 200 epochs. The frozen blocks see 8 fixed views of each image once; what they make of them is on "
        "disk while it trains (at most 810 MB).",
    )
    assert make_plan(AUTO, BARE, CPU).reasons == (
        "No image has a label, so the images are clustered by k-means: categories are groups that look alike.",
    )
    assert make_plan(AUTO, MIDDLE, SLOW, 15).reasons == (
        "SPTNet would need about 114 h 55 min to get past its noisy start, but the time is 15 minutes.",
        "SimGCD would need about 1 h 47 min to be worth it, but the time is 15 minutes.",
        "Semi-supervised k-means on the backbone's features keeps the labels and trains nothing, so it is chosen.",
        "This will take about 23 min 25 s, but the time is 15 minutes: nothing is quicker.",
    )
    assert make_plan(AUTO, SMALL, GPU).reasons == (
        "SimGCD for 200 epochs, then SPTNet for 1000, which fits into 240 minutes.",
    )


def test_a_full_disk_is_told() -> None:
    full = ImageSetFacts(300, 100, 200, 4, free_disk=3 * 300 * 300_000 * 2 - 1)
    plan = make_plan(AUTO, full, CPU, 600)
    assert plan.config.views.bank == 0
    assert plan.reasons[0] == (
        "Keeping what the frozen blocks make of the images would need 540 MB of free disk; without it, training is "
        "several times slower."
    )
    roomier = ImageSetFacts(300, 100, 200, 4, free_disk=3 * 300 * 300_000 * 2)
    assert make_plan(AUTO, roomier, CPU, 60).config.views.bank == 2


def test_a_budget_for_the_bank_takes_the_place_of_half_the_disk() -> None:
    four_views = 5 * 300 * 300_000
    for bytes_, bank in ((four_views, 4), (four_views - 1, 2)):
        config = AUTO.changed(views={"bank_budget_gb": bytes_ / 1e9})
        assert make_plan(config, SMALL, CPU, 60).config.views.bank == bank
    plan = make_plan(AUTO.changed(views={"bank_budget_gb": 0.1}), SMALL, CPU, 600)
    assert plan.config.views.bank == 0
    assert plan.reasons[0] == (
        "Keeping what the frozen blocks make of the images would need 270 MB, both of free disk and of "
        "views.bank_budget_gb; without it, training is several times slower."
    )


def test_a_bank_that_is_asked_for_as_auto_is_the_plan_s() -> None:
    auto = AUTO.changed(views={"bank": "auto"})
    asked = make_plan(auto, SMALL, CPU, 60, given=["views.bank"])
    assert asked.config == make_plan(AUTO, SMALL, CPU, 60).config
    assert asked.config.views.bank == 8
    assert make_plan(AUTO.changed(views={"bank": 3}), SMALL, CPU, 60, given=["views.bank"]).config.views.bank == 3


# --- as asked ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["kmeans", "sskmeans", "gcd", "simgcd", "sptnet"])
def test_a_method_that_is_asked_for_is_done(method: str) -> None:
    plan = make_plan(AUTO, MIDDLE, SLOW, 1, method)
    assert plan.config.method == method
    assert "as asked" in plan.reasons[0]
    assert plan.reasons[-1].endswith("but the time is 1 minute: fewer epochs or the method auto would be quicker.")


def test_sptnet_with_few_steps_begins_without_noise() -> None:
    plan = make_plan(AUTO, SMALL, CPU, None, "sptnet")
    assert bank_and_epochs(plan) == ("sptnet", 2, 150)
    assert plan.reasons[:2] == (
        "SimGCD for 150 epochs, then SPTNet for 150, as asked. The frozen blocks see 2 fixed views of each image once; "
        "what they make of them is on disk while it trains (at most 270 MB).",
        "With 600 steps SPTNet may not get past a noisy start, so its prompts begin without noise.",
    )
    assert plan.config.prompt.noise == 0
    long = make_plan(AUTO, MIDDLE, GPU, None, "sptnet")
    assert (len(long.reasons), long.config.prompt.noise) == (1, 1)


@pytest.mark.parametrize(("noise", "warned"), [(1.0, True), (0.1, True), (0.0, False)])
def test_noise_that_is_asked_for_comes_with_a_warning(noise: float, warned: bool) -> None:
    plan = make_plan(AUTO.changed(prompt={"noise": noise}), SMALL, CPU, None, "sptnet", {"prompt.noise"})
    assert plan.config.prompt.noise == noise
    warning = (
        "With 600 steps SPTNet may end below the SimGCD model it starts from, because its prompts begin as noise. More "
        "time or epochs help, or --set prompt.noise=0."
    )
    assert (warning in plan.reasons) == warned


@pytest.mark.parametrize(("epochs", "k"), [(1, 1), (3, 3), (10, 10), (20, 20), (150, 20)])
def test_both_phases_have_their_turns_however_few_steps_there_are(epochs: int, k: int) -> None:
    """Four batches an epoch."""
    config = AUTO.changed(simgcd={"epochs": 3}, sptnet={"epochs": epochs})
    plan = make_plan(config, SMALL, CPU, None, "sptnet", {"simgcd.epochs", "sptnet.epochs"})
    stage = stages_of(plan.config)[-1]
    assert isinstance(stage.turns, TakeTurns)
    assert stage.turns == TakeTurns(PROMPT, MODEL, k, restart=k <= 2)
    stage.turns.check(epochs, 4)


def test_what_somebody_has_set_stays() -> None:
    own: dict[str, Any] = {
        "training": {"batch_size": 50, "evaluate_every": 3},
        "views": {"bank": 3},
        "prompt": {"border": 11, "noise": 0.5},
        "sptnet": {"epochs": 7, "counter": "epoch", "k": 3},
        "simgcd": {"epochs": 9},
        "gcd": {"epochs": 5},
    }
    config = AUTO.changed(**own)
    given = {f"{section}.{key}" for section, changes in own.items() for key in changes}
    assert given == PLANNED <= set(all_keys())
    for method in ("gcd", "simgcd", "sptnet", "kmeans"):
        plan = make_plan(config, SMALL, CPU, None, method, given)
        assert plan.config == config.model_copy(update={"method": method})


def test_a_method_is_chosen_for_the_epochs_given() -> None:
    config = AUTO.changed(simgcd={"epochs": 3}, sptnet={"epochs": 3})
    plan = make_plan(config, SMALL, GPU, None, None, {"simgcd.epochs", "sptnet.epochs"})
    assert bank_and_epochs(plan) == ("simgcd", 0, 3)
    assert plan.reasons[0] == "SPTNet is left out: 12 steps do not get past its noisy start."


def test_the_rest_of_the_settings() -> None:
    small, middle = make_plan(AUTO, SMALL, GPU).config, make_plan(AUTO, MIDDLE, GPU).config
    assert (small.sptnet.counter, small.sptnet.k) == ("continuous", 20), "4 batches: the model's turn would never come"
    assert middle.sptnet.counter == "continuous"
    many = ImageSetFacts(9000, 2000, 7000, 9, GIB)
    assert make_plan(AUTO, many, GPU, 3000).config.sptnet.counter == "epoch", "70 batches"
    assert small.training.evaluate_every == 1000
    assert make_plan(AUTO, SMALL, CPU).config.training.evaluate_every == 200
    assert small.simgcd.learning_rate == Config().simgcd.learning_rate
    assert small.prompt.border == 30
    tiny = Speed("cuda", 2000, 700, 20_000, 1000, image_size=96, token_bytes=1)
    assert make_plan(AUTO, SMALL, tiny).config.prompt.border == 13
    assert [scaled_border(size) for size in (224, 112, 96, 32, 4)] == [30, 15, 13, 4, 1]


def test_the_steps_are_all_of_it() -> None:
    plan = make_plan(AUTO, SMALL, GPU)
    assert [step.what for step in plan.steps] == [
        "look at all images and count the categories",
        "train SimGCD, 200 epochs",
        "train SPTNet, 1000 epochs",
        "sort all images",
        "write the report",
    ]
    assert plan.seconds == pytest.approx(sum(step.seconds for step in plan.steps))
    known = make_plan(Config(n_categories=7), SMALL, CPU, None, "gcd", report=False)
    assert [step.what for step in known.steps] == ["train GCD, 200 epochs", "sort all images"]
    assert [step.what for step in make_plan(Config(n_categories=7), BARE, CPU).steps] == [
        "look at all images",
        "cluster",
        "write the report",
    ]
    assert [step.what for step in make_plan(AUTO, SMALL, CPU, None, "sskmeans").steps][:3] == [
        "look at all images",
        "count the categories",
        "cluster",
    ]


@pytest.mark.parametrize(
    ("options", "facts", "message"),
    [
        (
            {"method": "magic"},
            SMALL,
            "unknown method 'magic'. Use auto or one of: kmeans, sskmeans, gcd, simgcd, sptnet.",
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
def test_plans_that_cannot_be_made(options: dict[str, Any], facts: ImageSetFacts, message: str) -> None:
    with pytest.raises(Misuse) as error:
        make_plan(AUTO, facts, CPU, **options)
    assert str(error.value) == message


# --- speed ------------------------------------------------------------------------------------------------------------


def rate_of(seconds: list[float]) -> tuple[float, int]:
    """The rate of ten items a call if calls take so long, and how many of them were made."""
    now, calls = [0.0], 0

    def work() -> torch.Tensor:
        nonlocal calls
        now[0] += seconds[calls]
        calls += 1
        return torch.zeros(())

    return rate(work, 10, lambda: now[0]), calls


def test_a_rate_is_that_of_the_quickest_call() -> None:
    assert rate_of([0.5, 0.1, 0.3, 0.1, 9.0]) == (pytest.approx(100), 4), "the first warms up"
    assert rate_of([0.125] * 9) == (pytest.approx(80), 5), "short calls fill the time"


def test_a_slow_machine_is_not_kept_waiting() -> None:
    assert rate_of([2.0, 1.0, 9.0]) == (pytest.approx(10), 2)
    assert rate_of([5.0, 1.0]) == (2.0, 1)


def test_speed_is_measured_and_leaves_no_trace(
    make_model: Callable[..., Any], cpu: Any, few_digits: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed_module, "SECONDS", 0.01)
    backbone = make_model().backbone
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    speed = measure_speed(backbone, cpu, few_digits.image_set.sources)
    assert min(speed.forward, speed.prompted, speed.last_block, speed.decode) > 0
    assert speed.prompted <= speed.forward <= speed.last_block
    assert (speed.device, speed.image_size, speed.token_bytes) == ("cpu", 32, 5 * 96 * 2)
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    assert not any(p.requires_grad or p.grad is not None for p in backbone.parameters())
