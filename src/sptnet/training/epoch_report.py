"""Report of one epoch of training, and the end of a training whose loss is not finite."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sptnet.errors import Failure
from sptnet.methods.phases import Phase


def stop_at_bad_loss(parts: Mapping[str, float], where: str, ids: Iterable[str]) -> None:
    """Raise a `Failure` that names the images of the batch if the total loss is not finite."""
    if math.isfinite(parts["total"]):
        return
    bad = ", ".join(f"{name} = {value}" for name, value in parts.items() if not math.isfinite(value))
    raise Failure(
        f"the loss is not finite in {where}: {bad}. The last good checkpoint is kept. Lower the learning rate, or look "
        f"at the images of this batch: {', '.join(ids)}."
    )


@dataclass
class EpochReport:
    """Means of every loss part by phase, learning rates and speed of an epoch."""

    epoch: int
    steps: dict[str, int] = field(default_factory=dict)
    losses: dict[str, dict[str, float]] = field(default_factory=dict)
    learning_rates: dict[str, float] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    """Numbers in the memory of the stage."""
    images_per_second: float = 0.0
    seconds: float = 0.0
    waiting: float = 0.0
    """Share of the seconds spent waiting for a batch."""

    def add(self, phase: Phase, parts: dict[str, float]) -> None:
        """Add the loss parts of a step to the means of its phase."""
        n = self.steps.get(phase.name, 0)
        means = self.losses.setdefault(phase.name, dict.fromkeys(parts, 0.0))
        for name, value in parts.items():
            means[name] += (value - means[name]) / (n + 1)
        self.steps[phase.name] = n + 1
