"""The interface of a method: its stages, its head, and how images get their category."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from sptnet.config import Config
from sptnet.head import Head
from sptnet.methods.stage_plan import StagePlan

Points = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Method:
    """A method of category discovery."""

    stages: Callable[[Config], list[StagePlan]]
    """Training stages in order; empty for a method that only clusters."""
    head: Callable[[Config, int, int], Head]
    """Builds the head from the settings, the length of the features and the number of categories."""
    clusters: Literal["no", "plain", "semi-supervised", "neighbors"] = "no"
    """`no`: the trained head assigns categories. Otherwise the nearest centroid does: `plain` centroids are those of
    k-means on the unlabelled training images, `semi-supervised` ones those of semi-supervised k-means on all. With
    `neighbors`, selective neighbour clustering assigns the training images, and its centroids all others."""
    start: Literal["none", "model", "backbone"] = "none"
    """What a finished run named by the setting `start_from` gives: its whole model, or its backbone alone."""
    starts_from: tuple[str, ...] = ()
    """Methods whose runs it builds on. A model directory, of which no method is known, is taken as it is."""
    count: Callable[[Points, Labels, int], int] | None = None
    """Number of categories by the method's own rule, from unit features, labels and a seed, if it has one."""
    count_least: int = 1
    """Known classes that this rule takes at least; with fewer the categories are counted as with other methods."""
