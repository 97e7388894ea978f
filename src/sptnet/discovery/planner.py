"""Choose the method and its length: the best that the time allows, with reasons."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from sptnet.config import Config
from sptnet.config.sections import MOST_MINUTES
from sptnet.discovery.departures import ALL_TRAININGS, DEPARTURES, PLANNED_SETTINGS, Departure
from sptnet.discovery.lengths import (
    LEAST_STEPS,
    SCHEDULES,
    STAGES,
    by_section,
    length_settings,
    most_epochs,
    most_from_clusters,
    scaled_border,
)
from sptnet.discovery.pace import Pace
from sptnet.discovery.plan import TRY, ImageFacts, Plan, PlanStep, StageLength
from sptnet.errors import Misuse
from sptnet.methods import METHODS, NAMES
from sptnet.methods.stage_plan import StagePlan
from sptnet.runtime.progress import duration
from sptnet.runtime.text import sentence
from sptnet.schedules import steps_per_epoch

CPU_MINUTES, GPU_MINUTES = 30.0, 240.0
BATCH_SIZES = (128, 64, 32, 16, 8, 4, 2)
LEAST_BATCHES = 4  # per epoch, if there are enough images
LEAST_KNOWN = 2  # categories with labels: those of a single one show no difference to learn
TRIAL_STEPS = 100  # of the training that is tried on hidden labels (discovery/trial.py)
FILL_SHARE = 0.35  # of the training time that filling a token bank may take
BACKWARD = 3.0  # forward and back through all blocks, in forward passes
# Seconds per image on two idle cores, measured for 50 to 6,000 images of 96 to 768 dimensions: small beside the rest.
COUNT, CLUSTER, DRAW, PAGE = 0.0016, 0.00001, 0.0012, 1.0
PLANNED = frozenset(
    {
        *("training.batch_size", "training.evaluate_every", "views.bank", "prompt.border", "prompt.noise"),
        *("simgcd.teacher_warm_up", "sptnet.counter", "sptnet.k"),
        *(f"{stage}.epochs" for stages in STAGES.values() for stage in stages),
        *(f"{stage}.{name}" for stage, names in SCHEDULES.items() for name in names),
        *PLANNED_SETTINGS,
    }
)
"""Settings that a plan chooses unless they are given."""


Stages = dict[str, tuple[int, float]]
"""Epochs and expected seconds of each stage, by name."""


def with_batch_size(config: Config, n_images: int) -> Config:
    """Set the largest batch size that leaves enough batches per epoch."""
    size = next((size for size in BATCH_SIZES if n_images >= LEAST_BATCHES * size), 2)
    return config.changed(training={"batch_size": size})


def check_options(minutes: float | None, method: str | None) -> None:
    """Refuse requirements that no plan can meet, whatever the images."""
    if method is not None and method not in METHODS:
        raise Misuse(f"unknown method {method!r}. Use auto or one of: {', '.join(METHODS)}.")
    if minutes is not None and not 0 < minutes <= MOST_MINUTES:
        wanted = f"at most {MOST_MINUTES}" if minutes > MOST_MINUTES else "a number above 0"
        raise Misuse(f"minutes is {minutes:g}. Give {wanted}.")


def check_wishes(minutes: float | None, method: str | None, n_known: int) -> None:
    """Refuse requirements that no plan can meet."""
    check_options(minutes, method)
    if n_known == 0 and method not in (None, "kmeans"):
        raise Misuse(
            f"no image has a label, but {NAMES[method]} learns from labels. Label some images, or cluster them with "
            "the method kmeans."
        )


@dataclass(frozen=True)
class Planner:
    """Expected times of everything that a run may do, and the choice of the method."""

    config: Config
    facts: ImageFacts
    pace: Pace
    minutes: float
    given: frozenset[str]
    """Keys of settings that the user has chosen; they are kept."""
    report: bool
    """True if a report will be written."""
    limited: bool = True
    """False if epochs were given instead of a time."""
    tries: bool = False
    """True if the training is tried on hidden labels first."""
    spent: float = 0.0
    """Seconds of the time that are over when the plan is made."""

    @property
    def batches(self) -> int:
        """Steps per epoch."""
        return max(1, steps_per_epoch(self.facts.training, self.config.training.batch_size))

    def features(self) -> float:
        """Seconds to take every image through the backbone once."""
        return self.facts.images * (self.pace.read + self.pace.forward)

    def around(self, method: str) -> list[PlanStep]:
        """Steps other than the training itself, in their order."""
        images, counts, crowding = self.facts.images, self.config.n_categories == "auto", self.pace.crowding
        trains = method in STAGES
        from_clusters = "simgcd" in STAGES.get(method, {}) and self.setting("head.start") == "clusters"
        uses = counts or from_clusters or not trains or self.setting("training.certainty") == "calibrated"
        page = crowding * PAGE + images * (self.pace.read + crowding * DRAW)
        steps = {
            "compute features of all images": self.features() * uses,
            "count the categories": crowding * COUNT * self.facts.training * counts,
            "cluster": crowding * CLUSTER * self.facts.training * self.config.sskmeans.n_init * (not trains),
            TRY: TRIAL_STEPS * self.pace.step * (trains and self.tries),
            "sort all images": self.features() * trains,
            "write the report": page * self.report,
        }
        return [PlanStep(what, seconds) for what, seconds in steps.items() if seconds > 0]

    def setting(self, key: str) -> Any:
        """Value of a departure from the published method: that of the user, or the plan's."""
        section, name = key.split(".")
        return getattr(getattr(self.config, section), name) if key in self.given else PLANNED_SETTINGS[key]

    def told(self, departure: Departure) -> str:
        """Sentence for a departure that the user has not undone."""
        key = next(iter(departure.settings))
        return f" {departure.words}" if departure.words and self.setting(key) == departure.settings[key] else ""

    def budget(self, method: str) -> float:
        """Seconds left for training."""
        return 60 * self.minutes - self.spent - sum(step.seconds for step in self.around(method))

    def bank(self, method: str) -> int:
        """Views of the token bank: the most that fit on the disk and are filled within a share of the time."""
        banks, bank = self.facts.banks, self.config.views.bank
        if "views.bank" in self.given:
            assert bank != "auto"
            return bank
        phases = [phase for stage in self.stage_plans(method) for phase in stage.turns.phases]
        if all(view.prompted for phase in phases for view in phase.all_views):
            return 0  # prompted views change what enters the last block
        if any(phase.strong_draws for phase in phases):
            banks = banks[1:]  # strong views double the room
        quick = [b for b in banks if b * self.facts.training * self.pace.forward <= FILL_SHARE * self.budget(method)]
        return (*quick, *banks[-1:], 0)[0] if self.pace.device == "cpu" else 0

    def stage_plans(self, method: str) -> list[StagePlan]:
        """Training stages of a method with the settings so far."""
        return METHODS[method].stages(self.config.model_copy(update={"method": method}))

    def stages(self, method: str, share: float) -> Stages:
        """Epochs and seconds of each stage at a share of its published length; given epochs are kept."""
        pace, bank, size = self.pace, self.bank(method), self.config.training.batch_size
        training = self.config.training
        backward = BACKWARD + (training.accumulate > 1) + training.checkpointing
        stages = {}
        for number, plan in enumerate(self.stage_plans(method)):
            stage, published = plan.name, STAGES[method][plan.name]
            given = f"{stage}.epochs" in self.given
            planned = max(1, min(round(share * published), self.most_epochs(stage, published)))
            epochs = getattr(self.config, stage).epochs if given else planned
            steps = epochs * self.batches
            filled = min(bank * self.facts.training, 2 * size * steps) if number == 0 else 0
            step = pace.step_seconds(plan, size, bank > 0, backward)
            stages[stage] = epochs, filled * pace.forward + self.facts.training * pace.read + steps * step
        return stages

    def most_epochs(self, stage: str, published: int) -> int:
        """Largest number of epochs that is of use: fewer than published if there are few images.

        From clusters, also fewer if there are few labels.
        """
        most = most_epochs(published, self.config.training.batch_size)
        from_clusters = stage == "simgcd" and self.setting("head.start") == "clusters"
        return min(most, most_from_clusters(self.facts.labelled, self.batches)) if from_clusters else most

    def longest(self, method: str) -> Stages:
        """Stages at the largest share of their published length that fits into the time."""
        shares = (percent / 100 for percent in range(100, 0, -1))
        fitting = (share for share in shares if seconds_of(self.stages(method, share)) <= self.budget(method))
        return self.stages(method, next(fitting, 0.01))

    def choose(self) -> tuple[str, list[str]]:
        """Choose the best method that the time allows, with reasons.

        SPTNet is for those who ask for it: at equal time its prompts have not sorted folders better than SimGCD alone
        (docs/results.md).
        """
        if self.facts.known == 0:
            reason = "No image has a label, so k-means groups the images by their looks."
            return "kmeans", [reason]
        if self.facts.known < LEAST_KNOWN:
            return "sskmeans", ["Only one category has labels, which show no differences to learn."]
        method = "simgcd"
        stages = self.stages(method, min(1.0, -(-LEAST_STEPS[method] // self.batches) / STAGES[method][method]))
        if seconds_of(stages) <= self.budget(method):
            return method, []
        in_all = duration(seconds_of(stages) + 60 * self.minutes - self.budget(method))
        return "sskmeans", [f"{NAMES[method]} needs about {in_all}; the time is {self.minutes:g} min."]

    def plan(self, method: str, reasons: list[str]) -> Plan:
        """Plan a method."""
        if method not in STAGES:
            text = f"{sentence(NAMES[method])} on the features of the backbone; nothing trains."
            config = self.config.changed(head={"start": "random"}).model_copy(update={"method": method})
            return Plan(config, tuple(self.around(method)), (*reasons, text, *self.over_time(method)), None)
        stages, filled = self.without_filling(method, self.longest(method))
        lengths = [f"{NAMES[stage]} for {n} epochs" for stage, (n, _) in stages.items()]
        text = f"{', then '.join(lengths)}{f', {self.minutes:g} min at most in all' if self.limited else ''}."
        epochs = {stage: n for stage, (n, _) in stages.items()}
        wanted: dict[str, Any] = {
            "views.bank": self.bank(method),
            "prompt.border": scaled_border(self.facts.image_size),
            **ALL_TRAININGS,
        }
        if "simgcd" not in stages:
            wanted["head.start"] = "random"
        for departure in (DEPARTURES[stage] for stage in stages if stage in DEPARTURES):
            wanted |= departure.settings
            text += self.told(departure)
        wanted = {key: value for key, value in wanted.items() if key not in self.given}
        wanted |= length_settings(self.config, epochs, self.batches, self.given)
        if "prompt.noise" in wanted:
            steps = epochs["sptnet"] * self.batches
            text += f" {steps:,} steps may not get past a noisy start, so prompts begin without noise."
        around = [replace(s, seconds=s.seconds + filled) if s.what == TRY else s for s in self.around(method)]
        allowed = min(1.0, max(0.0, self.budget(method) - filled) / seconds_of(stages)) if self.limited else 1.0
        trained = [
            PlanStep(f"train {NAMES[stage]}, {n} epochs", allowed * s, stage, self.length(method, stage, n, s))
            for stage, (n, s) in stages.items()
        ]
        if self.tries:
            text += " A trial on hidden labels first shows whether training helps."
        sort = next(i for i, step in enumerate(around) if step.what == "sort all images")
        config = self.config.changed(**by_section(wanted)).model_copy(update={"method": method})
        steps_in_order = (*around[:sort], *trained, *around[sort:])
        limit = self.minutes if self.limited else None
        why = (*reasons, text, *self.over_time(method))
        return Plan(config, steps_in_order, why, limit, self.tries, fits=allowed)

    def without_filling(self, method: str, stages: Stages) -> tuple[Stages, float]:
        """Return the stages without the part of the token bank that a trial fills before, and the seconds of that."""
        if not self.tries:
            return stages, 0.0
        first, (epochs, seconds) = next(iter(stages.items()))
        steps = min(TRIAL_STEPS, epochs * self.batches)
        views = min(self.bank(method) * self.facts.training, 2 * self.config.training.batch_size * steps)
        filled = views * self.pace.forward
        return stages | {first: (epochs, seconds - filled)}, filled

    def length(self, method: str, stage: str, epochs: int, seconds: float) -> StageLength:
        """Planned and largest useful number of epochs of a stage."""
        given = f"{stage}.epochs" in self.given
        return StageLength(epochs, None if given else self.most_epochs(stage, STAGES[method][stage]), seconds)

    def over_time(self, method: str) -> list[str]:
        """Say so if the steps without the training already take longer than the time."""
        if not self.limited or self.budget(method) >= 0:
            return []
        in_all = duration(60 * self.minutes - self.budget(method))
        return [f"Without any training that takes about {in_all}, more than the {self.minutes:g} min there are."]


def seconds_of(stages: Stages) -> float:
    """Expected seconds of all stages."""
    return sum(seconds for _, seconds in stages.values())


def make_plan(
    config: Config,
    facts: ImageFacts,
    pace: Pace,
    minutes: float | None = None,
    method: str | None = None,
    given: Collection[str] = (),
    report: bool = True,
    always_limited: bool = False,
    spent: float = 0.0,
) -> Plan:
    """Plan the best method that the time allows, or the given one; settings with keys in `given` are kept.

    Epochs given without minutes lift the time limit, unless `always_limited`. `spent` seconds of the time are over.
    """
    check_wishes(minutes, method, facts.known)
    usual = CPU_MINUTES if pace.device == "cpu" else GPU_MINUTES
    limited = always_limited or minutes is not None or not any(key.endswith(".epochs") for key in given)
    fixed = frozenset(given) - ({"views.bank"} if config.views.bank == "auto" else set())
    tries = method is None and facts.can_try
    planner = Planner(config, facts, pace, minutes or usual, fixed, report, limited, tries, spent)
    chosen, reasons = planner.choose() if method is None else (method, [])
    short = method is None and chosen not in STAGES and facts.known >= LEAST_KNOWN
    return replace(planner.plan(chosen, reasons), short_of_time=short)
