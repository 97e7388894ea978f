"""Selective-neighbour clustering with the interface of scikit-learn."""

import warnings
from numbers import Integral
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from sptnet.clustering.hierarchy.neighbor_levels import (
    NeighborLevel,
    build_levels,
    closest_merges,
    merge_clusters,
    single_points,
)
from sptnet.clustering.points import unit_rows
from sptnet.clustering.semi_supervised_kmeans import class_ranks
from sptnet.errors import Misuse

Floats = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]


class SelectiveNeighborClustering(ClusterMixin, BaseEstimator):
    """Semi-supervised hierarchical clustering in which each point picks one neighbour (SNC, the clustering of CiPR).

    `fit(X, y)` takes X (n x dim) and one integer per point: -1 if unlabelled, else a class id. Rows of X are normalised
    to length one, and the distance is the cosine distance. An unlabelled point picks its nearest point. The n labelled
    points of a class form chains of ceil(sqrt(n)) points: each picks the next one, the nearest unused point of its
    class, and the last one picks itself. The specification leaves the start of a chain open: here it is the unused
    point farthest from the mean of its class, which does not depend on the order of the points. Points connected by
    picks form the clusters of the first level. A cluster with labelled points has their class, which is always one
    class. The means of the clusters are clustered in the same way until their number does not fall: the last level has
    one cluster per known class, or a single cluster without labelled points.

    With `n_clusters`, the coarsest level with at least that many clusters is the start (single points if there is no
    such level), and the two closest clusters that are not of two different known classes are merged repeatedly. Without
    it, the result is the coarsest level of at least two clusters that has a cluster without labelled points, or else
    the last level. If all points are labelled, there are at least as many clusters as classes, whatever `n_clusters`.

    Cluster c is known class c: classes in ascending order of their ids (`known_classes_`). If a class has several
    clusters, c is the one with most of its labelled points. The other clusters of known classes follow, then those
    without labelled points, largest first. Ties of distances go to the first point.

    Attributes: `labels_` (n), `levels_` (one array like `labels_` per level, finest first), `n_clusters_`,
    `cluster_centers_` (n_clusters_ x dim, means of the unit rows, normalised), `cluster_classes_` (n_clusters_, class
    id or -1) and `known_classes_`.

    X is processed in its own precision, float32 or float64. Time is quadratic in the number of points, memory linear.
    """

    def __init__(self, n_clusters: int | None = None) -> None:
        self.n_clusters = n_clusters

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike | None = None) -> Self:  # noqa: N803
        """Cluster X (n x dim); y (n) holds -1 for unlabelled points and class ids for the others."""
        data = validate_data(self, X, dtype=(np.float64, np.float32), order="C")
        self.known_classes_, ranks = class_ranks(y, len(data))
        n_clusters = self._number_of_clusters(ranks)
        points = single_points(torch.from_numpy(unit_rows(data)), torch.from_numpy(ranks))
        levels = build_levels(points)
        self.levels_ = [numbered(level, ranks)[0] for level in levels]
        result = usual_level(levels) if n_clusters is None else reduce_to(n_clusters, [points, *levels])
        self.labels_, order = numbered(result, ranks)
        self.n_clusters_ = len(order)
        self.cluster_centers_ = unit_rows(result.sums[torch.from_numpy(order)].numpy())
        classes = result.classes.numpy()[order]
        self.cluster_classes_ = np.append(self.known_classes_, -1)[classes]  # class -1 is the last one
        return self

    def fit_predict(self, X: npt.ArrayLike, y: npt.ArrayLike | None = None) -> Ids:  # noqa: N803
        """Cluster X and return the cluster per point."""
        return self.fit(X, y).labels_

    def _number_of_clusters(self, ranks: Ids) -> int | None:
        wanted, n_known = self.n_clusters, len(self.known_classes_)
        if wanted is None:
            return None
        if not isinstance(wanted, Integral) or isinstance(wanted, bool) or wanted < 1:
            raise Misuse(f"n_clusters is {wanted!r}. Give a whole number of at least 1, or None.")
        if wanted > len(ranks):
            raise Misuse(
                f"n_samples={len(ranks)} should be >= n_clusters={wanted}. Give more points or a lower n_clusters."
            )
        if wanted >= n_known:
            return int(wanted)
        if (ranks < 0).any():
            raise Misuse(
                f"y names {n_known} known classes but n_clusters is {wanted}, and clusters of different known "
                f"classes are never merged. Set n_clusters to {n_known} or more."
            )
        warnings.warn(
            f"every point is labelled, so the clusters are the {n_known} classes and n_clusters={wanted} has no "
            "effect. Give -1 as the label of points that are to be clustered.",
            ConvergenceWarning,
            stacklevel=3,
        )
        return n_known


def usual_level(levels: list[NeighborLevel]) -> NeighborLevel:
    """Return the coarsest level of at least two clusters with one that has no labelled points, else the last level."""
    suited = [level for level in levels if len(level.sums) > 1 and (level.classes < 0).any()]
    return (suited or levels)[-1]


def reduce_to(n_clusters: int, levels: list[NeighborLevel]) -> NeighborLevel:
    """Return `n_clusters` clusters: the coarsest level that has as many, after merges of the closest pairs."""
    start = [level for level in levels if len(level.sums) >= n_clusters][-1]
    into = np.arange(len(start.sums))
    for kept, dropped in closest_merges(start, n_clusters):
        into[into == dropped] = kept
    return merge_clusters(start, torch.from_numpy(np.unique(into, return_inverse=True)[1]))


def numbered(level: NeighborLevel, ranks: Ids) -> tuple[Ids, Ids]:
    """Return the new cluster number per point, and the old number of each cluster in the new order.

    The first cluster of every known class comes first, then its other clusters, then those without labelled points.
    """
    members, classes = level.members.numpy(), level.classes.numpy()
    sizes = np.bincount(members, minlength=len(classes))
    labelled = np.bincount(members[ranks >= 0], minlength=len(classes))
    new = classes < 0
    order = np.lexsort((-sizes, -labelled, classes, new))
    repeated = np.append(False, classes[order][1:] == classes[order][:-1]) & ~new[order]
    order = order[np.argsort(np.where(new[order], 2, repeated), kind="stable")]
    numbers = np.empty_like(order)
    numbers[order] = np.arange(len(order))
    return numbers[members], order
