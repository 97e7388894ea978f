"""Departures from the published methods, by training stage: `discover` makes them, and `train` does not.

Each sorts images better at equal cost, and the certainty of all methods is calibrated (docs/results.md). A setting that
the user gives stays.
"""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Departure:
    """Settings of a stage, and the sentence in which a plan tells the first of them."""

    settings: dict[str, Any]
    words: str = ""


ALL_TRAININGS: dict[str, Any] = {"training.certainty": "calibrated"}
FROM_CLUSTERS: dict[str, Any] = {
    "head.start": "clusters",
    "head.contrast": "features",
    "simgcd.backbone_ratio": 0.1,
}
SHARP_PROTOTYPES: dict[str, Any] = {
    "gpc.temperature": 0.1,
    "gpc.split_merge": False,
}
# Wide projections begin with random weights: in trainings as short as those of a plan, the published 0.1 loses what the
# features had. CiPR's backbone has a tenth of it as published.
LOW_RATE = 0.01


def slowly(stage: str, name: str = "") -> Departure:
    """Return a tenth of the published learning rate; without a `name` nothing is told."""
    told = f"The learning rate of {name} is a tenth of the published one."
    return Departure({f"{stage}.learning_rate": LOW_RATE}, told if name else "")


DEPARTURES = {
    "simgcd": Departure(FROM_CLUSTERS, "It starts from clusters."),
    "gcd": slowly("gcd", "GCD"),
    "dccl": slowly("dccl", "DCCL"),
    "promptcal": slowly("promptcal", "PromptCAL"),
    "promptcal_calibrated": slowly("promptcal_calibrated"),
    "gpc": Departure(SHARP_PROTOTYPES, "Prototypes are sharp, and there is one per category."),
}
PLANNED_SETTINGS: dict[str, Any] = ALL_TRAININGS | {
    key: value for departure in DEPARTURES.values() for key, value in departure.settings.items()
}
"""All settings that a plan departs from, with its values."""
