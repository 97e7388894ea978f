"""The plan of a discovery: settings, steps with their expected times, and the time limit of training.

The times of a plan are estimates, but the time limit is kept: training ends when its time is over
(`training/deadline.py`).
"""

from dataclasses import dataclass
from itertools import takewhile

from sptnet.config import Config

TRY = "try the training on hidden labels"


@dataclass(frozen=True)
class ImageFacts:
    """Facts about the images that a plan depends on."""

    images: int
    """All images, including held-out and test images."""
    training: int
    """Labelled and unlabelled training images."""
    labelled: int
    """Training images with a label."""
    known: int
    """Categories that have labels."""
    banks: tuple[int, ...]
    """Views per image of the token banks that the disk has room for, largest first."""
    image_size: int
    """Pixels per side of a view."""
    can_try: bool = False
    """True if the labels are enough for a trial on hidden ones."""


@dataclass(frozen=True)
class PlanStep:
    """Step of a plan with its expected time, and the name of the stage if it trains one."""

    what: str
    seconds: float
    stage: str | None = None
    length: "StageLength | None" = None
    """Length of the stage."""


@dataclass(frozen=True)
class StageLength:
    """Planned epochs of a stage."""

    epochs: int
    most: int | None
    """Largest number of epochs that is of use; None if the epochs were given."""
    seconds: float
    """Expected time of the planned epochs, even if the limit ends them early."""


@dataclass(frozen=True)
class Plan:
    """Settings, the expected time of each step, and the reasons for the choice."""

    config: Config
    steps: tuple[PlanStep, ...]
    reasons: tuple[str, ...]
    minutes: float | None
    """Time limit of the whole run; None if nothing trains or epochs were given instead."""
    tries: bool = False
    """True if the training is tried on hidden labels first, and left out if the clustering alone is better."""
    short_of_time: bool = False
    """True if a better method was left out because it takes longer than the limit."""
    fits: float = 1.0
    """Share of the training that fits into the time."""

    @property
    def seconds(self) -> float:
        """Expected time of all steps."""
        return sum(step.seconds for step in self.steps)

    @property
    def lengths(self) -> dict[str, StageLength]:
        """Length of each training stage, by name."""
        return {step.stage: step.length for step in self.steps if step.stage is not None and step.length is not None}


def limit_stages(plan: Plan, config: Config, seconds: float) -> Config:
    """Set a time limit per stage: the remaining seconds in proportion to the expected times."""
    trained = {step.stage: max(step.seconds, 1e-3) for step in plan.steps if step.stage is not None}
    if plan.minutes is None or not trained:
        return config
    total = sum(trained.values())
    limits = {stage: {"minutes": round(max(1.0, seconds * share / total) / 60, 3)} for stage, share in trained.items()}
    return config.changed(**limits)


def before_training(plan: Plan) -> float:
    """Expected seconds of the steps before training, the trial included."""
    return sum(step.seconds for step in takewhile(lambda step: step.stage is None, plan.steps))


def before_trial(plan: Plan) -> float:
    """Expected seconds of the steps before the trial, or before training if there is no trial."""
    return sum(step.seconds for step in takewhile(lambda step: step.stage is None and step.what != TRY, plan.steps))


def after_training(plan: Plan) -> float:
    """Expected seconds of the steps after training."""
    return sum(step.seconds for step in takewhile(lambda step: step.stage is None, reversed(plan.steps)))
