"""From the pile, the speed of the machine and the time there is to a method and its schedule, with reasons."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from sptnet.config import Config
from sptnet.discovery.plan.costs import Costs, ImageSetFacts
from sptnet.discovery.plan.speed import Speed, scaled_border
from sptnet.errors import Misuse
from sptnet.methods import METHODS, NAMES
from sptnet.model.token_bank import BANKS, DISK_SHARE, room_for_bank
from sptnet.runtime.progress import duration
from sptnet.runtime.text import sentence

CPU_MINUTES, GPU_MINUTES = 30.0, 240.0
BATCH_SIZES = (128, 64, 32, 16, 8, 4, 2)
LEAST_BATCHES = 4  # an epoch, if the pile allows
LEAST_EPOCHS, MOST_EPOCHS = 20, 200  # SimGCD and GCD; 200 are published
LEAST_STEPS = 600  # docs/results.md: with as many, SimGCD is above k-means on every set of real images tried
# SPTNet's prompts begin as noise. With 40 steps it ends below the SimGCD model it starts from (docs/results.md); its
# prompts alone warm up for 1,000 steps. 5,000 are five times that, and a tenth of what is published for CUB. Whoever
# asks for fewer gets prompts that begin without noise.
SPTNET_SIMGCD_EPOCHS, SPTNET_LEAST_STEPS, SPTNET_MOST_EPOCHS = 100, 5000, 1000
FILL_SHARE = 0.5  # of the time that filling a bank may take
PLANNED = frozenset(
    {
        *("training.batch_size", "training.evaluate_every", "views.bank", "prompt.border", "prompt.noise"),
        *("gcd.epochs", "simgcd.epochs", "sptnet.epochs", "sptnet.counter", "sptnet.k"),
    }
)
"""The settings that a plan chooses."""
UNTRAINED = ("kmeans", "sskmeans")


@dataclass(frozen=True)
class Step:
    what: str
    seconds: float


@dataclass(frozen=True)
class Plan:
    config: Config
    steps: tuple[Step, ...]
    reasons: tuple[str, ...]

    @property
    def seconds(self) -> float:
        return sum(step.seconds for step in self.steps)


@dataclass(frozen=True)
class Schedule:
    """Epochs of SimGCD's or GCD's training, then of SPTNet's; and the views of the token bank."""

    epochs: int = 0
    sptnet_epochs: int = 0
    bank: int = 0


def make_plan(
    config: Config,
    image_set_facts: ImageSetFacts,
    speed: Speed,
    minutes: float | None = None,
    method: str | None = None,
    given: Collection[str] = (),
    report: bool = True,
    because: str = "as asked",
) -> Plan:
    """The best method that the time allows, or as asked; keys in `given`, such as simgcd.epochs, stay as they are.

    `report` says whether a report will be written, `because` why a `method` that is given was chosen.
    """
    check_wishes(minutes, method, image_set_facts.known)
    return _Planner(config, image_set_facts, speed, minutes, frozenset(given), report).plan(method, because)


def check_wishes(minutes: float | None, method: str | None, n_known: int) -> None:
    """Refuses what no plan can be made for."""
    if method is not None and method not in METHODS:
        raise Misuse(f"unknown method {method!r}. Use auto or one of: {', '.join(METHODS)}.")
    if minutes is not None and not minutes > 0:
        raise Misuse(f"minutes is {minutes:g}. Give a number above 0.")
    if n_known == 0 and method not in (None, "kmeans"):
        raise Misuse(
            f"no image has a label, but {NAMES[method]} learns from labels. Label some images, or cluster them with "
            "the method kmeans."
        )


def batch_size_for(n_images: int) -> int:
    """The largest that leaves an epoch some batches."""
    return next((size for size in BATCH_SIZES if n_images >= LEAST_BATCHES * size), 2)


class _Planner:
    def __init__(
        self,
        config: Config,
        facts: ImageSetFacts,
        speed: Speed,
        minutes: float | None,
        given: frozenset[str],
        report: bool,
    ) -> None:
        if "training.batch_size" not in given:
            config = config.changed(training={"batch_size": batch_size_for(facts.training)})
        if config.views.bank == "auto":
            given -= {"views.bank"}
        self.config, self.facts, self.speed, self.given = config, facts, speed, given
        self.costs = Costs(config, facts, speed)
        self.minutes = minutes or (CPU_MINUTES if speed.device == "cpu" else GPU_MINUTES)
        self.time = "1 minute" if self.minutes == 1 else f"{self.minutes:g} minutes"
        self.report = self.costs.report() if report else 0.0
        self.fixed = self.costs.counting() + self.costs.sorting() + self.report
        self.budget = 60 * self.minutes - self.fixed
        self.reasons: list[str] = []

    def plan(self, asked: str | None, because: str) -> Plan:
        method, schedule = self._choose() if asked is None else self._as_asked(asked, because)
        config = self._settings(method, schedule)
        steps = self._steps(method, schedule)
        total = sum(step.seconds for step in steps)
        if total > 60 * self.minutes * 1.05:
            self.reasons.append(
                f"This will take about {duration(total)}, but the time is {self.time}: "
                + ("nothing is quicker." if asked is None else "fewer epochs or the method auto would be quicker.")
            )
        return Plan(config, tuple(steps), tuple(self.reasons))

    def _choose(self) -> tuple[str, Schedule]:
        if self.facts.known == 0:
            self.reasons.append(
                "No image has a label, so the images are clustered by k-means: categories are groups that look alike."
            )
            return "kmeans", Schedule()
        self._note_full_disk()
        worth = {"sptnet": self._least_sptnet(SPTNET_SIMGCD_EPOCHS, SPTNET_LEAST_STEPS), "simgcd": self._least_raw()}
        for method, least in worth.items():
            schedule = self._longest(method, least) if self._is_worth_it(method, least) else None
            if schedule is not None:
                self.reasons.append(self._describe(method, schedule))
                return method, schedule
            self.reasons.append(self._why_not(method, least))
        self.reasons.append(
            "Semi-supervised k-means on the backbone's features keeps the labels and trains nothing, so it is chosen."
        )
        return "sskmeans", Schedule()

    def _as_asked(self, method: str, because: str) -> tuple[str, Schedule]:
        if method in UNTRAINED:
            self.reasons.append(sentence(f"{NAMES[method]}, {because}."))
            return method, Schedule()
        self._note_full_disk()
        least = self._least_raw(method) if method != "sptnet" else self._least_sptnet(LEAST_EPOCHS, LEAST_STEPS)
        schedule = self._longest(method, least) or replace(least, bank=self._banks()[-1])
        self.reasons.append(self._describe(method, schedule, f", {because}"))
        if not self._is_worth_it(method, schedule):
            self._note_few_steps(self._sptnet_steps(schedule))
        return method, schedule

    def _note_few_steps(self, steps: int) -> None:
        few = f"With {steps:,} steps SPTNet"
        if "prompt.noise" not in self.given:
            self.reasons.append(f"{few} may not get past a noisy start, so its prompts begin without noise.")
        elif self.config.prompt.noise > 0:
            self.reasons.append(
                f"{few} may end below the SimGCD model it starts from, because its prompts begin as noise. More time "
                "or epochs help, or --set prompt.noise=0."
            )

    def _is_worth_it(self, method: str, schedule: Schedule) -> bool:
        """Whether SPTNet has the steps, or all of the published epochs."""
        long = schedule.sptnet_epochs >= SPTNET_MOST_EPOCHS or self._sptnet_steps(schedule) >= SPTNET_LEAST_STEPS
        return method != "sptnet" or long

    def _sptnet_steps(self, schedule: Schedule) -> int:
        return schedule.sptnet_epochs * self.costs.batches

    def _why_not(self, method: str, least: Schedule) -> str:
        if not self._is_worth_it(method, least):
            return f"SPTNet is left out: {self._sptnet_steps(least):,} steps do not get past its noisy start."
        needs = duration(self.fixed + self._seconds(method, replace(least, bank=self._banks()[-1])))
        why = "to get past its noisy start" if method == "sptnet" else "to be worth it"
        return sentence(f"{NAMES[method]} would need about {needs} {why}, but the time is {self.time}.")

    def _longest(self, method: str, least: Schedule) -> Schedule | None:
        """The longest schedule that fits, all stages at the same share of their published length."""
        key = "gcd.epochs" if method == "gcd" else "simgcd.epochs"
        most = self._or_given(key, MOST_EPOCHS), self._or_given("sptnet.epochs", SPTNET_MOST_EPOCHS)
        for bank in self._banks():
            for percent in range(100, 0, -1):
                schedule = Schedule(
                    max(least.epochs, most[0] * percent // 100),
                    max(least.sptnet_epochs, most[1] * percent // 100) if method == "sptnet" else 0,
                    bank,
                )
                if self._seconds(method, schedule) <= self.budget:
                    return schedule
        return None

    def _least_raw(self, method: str = "simgcd") -> Schedule:
        enough = -(-LEAST_STEPS // self.costs.batches)
        return Schedule(self._or_given(f"{method}.epochs", min(MOST_EPOCHS, max(LEAST_EPOCHS, enough))))

    def _least_sptnet(self, simgcd_epochs: int, steps: int) -> Schedule:
        enough = min(SPTNET_MOST_EPOCHS, -(-steps // self.costs.batches))
        first = self._or_given("simgcd.epochs", max(simgcd_epochs, self._least_raw().epochs))
        return Schedule(first, self._or_given("sptnet.epochs", enough))

    def _or_given(self, key: str, value: int) -> int:
        """The user's own value where there is one."""
        section, name = key.split(".")
        given: int = getattr(getattr(self.config, section), name)
        return given if key in self.given else value

    def _banks(self) -> tuple[int, ...]:
        """Sizes of token banks to try, the largest first; a device that is quick, or a full disk, has none."""
        views = self.config.views
        if "views.bank" in self.given and views.bank != "auto":
            return (views.bank,)
        room = room_for_bank(views, self.facts.free_disk)
        banks = [bank for bank in BANKS if self.costs.bank_bytes(bank) <= room and self.speed.device == "cpu"]
        filling = self.facts.training / self.speed.forward
        quick = [bank for bank in banks if bank * filling <= FILL_SHARE * self.budget]
        return tuple(quick or banks[-1:] or [0])

    def _note_full_disk(self) -> None:
        if self.speed.device == "cpu" and self._banks() == (0,) and "views.bank" not in self.given:
            megabytes = self.costs.bank_bytes(BANKS[-1]) / 1e6
            needed = f"{megabytes / DISK_SHARE:,.0f} MB of free disk"
            if self.config.views.bank_budget_gb is not None:
                needed = f"{megabytes:,.0f} MB, both of free disk and of views.bank_budget_gb"
            self.reasons.append(
                f"Keeping what the frozen blocks make of the images would need {needed}; "
                "without it, training is several times slower."
            )

    def _seconds(self, method: str, schedule: Schedule) -> float:
        costs, config = self.costs, self.config
        seconds = costs.raw_epochs(schedule.epochs, schedule.bank)
        if method == "gcd":
            seconds += costs.clustering(config.gcd.n_init)
        if method == "sptnet":
            seconds += costs.sptnet_epochs(schedule.sptnet_epochs, schedule.bank)
        return seconds

    def _describe(self, method: str, schedule: Schedule, why: str = "") -> str:
        if method == "sptnet":
            text = (
                f"SimGCD for {schedule.epochs} epochs, then SPTNet for {schedule.sptnet_epochs}"
                f"{why or f', which fits into {self.time}'}."
            )
        else:
            text = sentence(f"{NAMES[method]} for {schedule.epochs} epochs{why}.")
        if schedule.bank:
            megabytes = self.costs.bank_bytes(schedule.bank) / 1e6
            text += (
                f" The frozen blocks see {schedule.bank} fixed views of each image once; what they make of them is on "
                f"disk while it trains (at most {megabytes:,.0f} MB)."
            )
        return text

    def _settings(self, method: str, schedule: Schedule) -> Config:
        """The whole configuration; nothing is scored on the way, as that takes time and needs the truth."""
        stage = "gcd" if method == "gcd" else "simgcd"
        wanted: dict[str, Any] = {
            f"{stage}.epochs": schedule.epochs or None,
            "sptnet.epochs": schedule.sptnet_epochs or None,
            "views.bank": schedule.bank,
            "prompt.border": scaled_border(self.speed.image_size),
            "training.evaluate_every": max(1, schedule.epochs, schedule.sptnet_epochs),
        }
        if method == "sptnet":
            wanted |= self._turns(self._sptnet_steps(schedule))
            wanted["prompt.noise"] = None if self._is_worth_it(method, schedule) else 0.0
        changes: dict[str, dict[str, Any]] = {}
        for key, value in wanted.items():
            section, name = key.split(".")
            if key not in self.given and value is not None:
                changes.setdefault(section, {})[name] = value
        return self.config.changed(**changes).model_copy(update={"method": method})

    def _turns(self, steps: int) -> dict[str, Any]:
        """Else the model's turn would never come, or too seldom: two turns for each where there are few steps."""
        k = self._or_given("sptnet.k", min(self.config.sptnet.k, max(1, steps // 4)))
        return {"sptnet.k": k, "sptnet.counter": "continuous" if self.costs.batches < 2 * k else None}

    def _steps(self, method: str, schedule: Schedule) -> list[Step]:
        trained = method not in UNTRAINED
        steps = self._training_steps(method, schedule) if trained else self._clustering_steps(method)
        return [step for step in [*steps, Step("write the report", self.report)] if step.seconds > 0]

    def _clustering_steps(self, method: str) -> list[Step]:
        """Where nothing is trained, one look at the images serves all that follows."""
        costs, settings = self.costs, getattr(self.config, method)
        return [
            Step("look at all images", costs.sorting()),
            Step("count the categories", costs.counting_alone()),
            Step("cluster", costs.clustering(settings.n_init)),
        ]

    def _training_steps(self, method: str, schedule: Schedule) -> list[Step]:
        costs = self.costs
        seconds = self._seconds(method, schedule)
        trained = [Step(f"train {NAMES[method]}, {schedule.epochs} epochs", seconds)]
        if method == "sptnet":
            first = costs.raw_epochs(schedule.epochs, schedule.bank)
            trained = [
                Step(f"train SimGCD, {schedule.epochs} epochs", first),
                Step(f"train SPTNet, {schedule.sptnet_epochs} epochs", seconds - first),
            ]
        look = Step("look at all images and count the categories", costs.counting())
        return [look, *trained, Step("sort all images", costs.sorting())]
