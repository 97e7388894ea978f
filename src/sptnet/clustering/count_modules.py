"""Upper bound of the number of categories without labels: the modules of a graph of few neighbours.

A graph of five neighbours per point is cut into modules by the map equation. On drawn folders of photos the true number
was between the count with the best silhouette, which merges categories, and the number of modules, which splits them
(docs/results.md). Where categories are well separated, both are near the true number.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from sptnet.clustering.graph.infomap import SemiSupervisedInfomap

NEIGHBORS = 5
LEAST_MEMBERS = 3  # points of a module that counts
MOST_POINTS = 20_000


def count_modules(points: npt.NDArray[Any], random: np.random.RandomState) -> int:
    """Number of modules among unit points (n x dim), of a sample if there are many; at least 1."""
    chosen = np.sort(random.permutation(len(points))[:MOST_POINTS])
    if len(chosen) <= NEIGHBORS:
        return 1
    modules = SemiSupervisedInfomap(NEIGHBORS, threshold=0.0, min_size=LEAST_MEMBERS, random_state=random)
    return max(1, modules.fit(points[chosen]).n_clusters_)


def middle(low: int, high: int) -> int:
    """Geometric mean of two counts."""
    return round(math.sqrt(low * high))
