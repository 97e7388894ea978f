"""What a method is to the rest: what it trains, with which head, and how images get their category."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sptnet.config import Config
from sptnet.head import Head
from sptnet.methods.phases import StagePlan


@dataclass(frozen=True)
class Method:
    stages: Callable[[Config], list[StagePlan]]
    """What is trained, in order; nothing for a method that only clusters."""
    head: Callable[[Config, int, int], Head]
    """From the settings, the features' length and the number of categories to the head."""
    clusters: Literal["no", "plain", "semi-supervised"] = "no"
    """`no`: the trained head decides. Otherwise the nearest centroid does, found by k-means on all training images:
    plain on the unlabelled ones, or semi-supervised on all, labelled ones held to their class."""
