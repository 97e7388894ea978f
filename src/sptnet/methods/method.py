"""The interface of a method: its stages, its head, and how images get their category."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sptnet.config import Config
from sptnet.head import Head
from sptnet.methods.phases import StagePlan


@dataclass(frozen=True)
class Method:
    """A method of category discovery."""

    stages: Callable[[Config], list[StagePlan]]
    """Training stages in order; empty for a method that only clusters."""
    head: Callable[[Config, int, int], Head]
    """Builds the head from the settings, the length of the features and the number of categories."""
    clusters: Literal["no", "plain", "semi-supervised"] = "no"
    """`no`: the trained head assigns categories. Otherwise the nearest centroid does: `plain` centroids are those of
    k-means on the unlabelled training images, `semi-supervised` ones those of semi-supervised k-means on all."""
