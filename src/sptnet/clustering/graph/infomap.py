"""Semi-supervised Infomap with the interface of scikit-learn."""

from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils.validation import validate_data

from sptnet.clustering.graph.map_equation import Graph, minimise_codelength
from sptnet.clustering.points import unit_rows
from sptnet.clustering.semi_supervised_kmeans import class_ranks
from sptnet.errors import Misuse

IN_NO_CLUSTER = -1
BLOCK = 2**24
"""Number of similarities held at once."""

Floats = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]


class SemiSupervisedInfomap(ClusterMixin, BaseEstimator):
    """Clusters of a neighbour graph that minimise the two-level map equation, with labels that shape the graph.

    `fit(X, y)` takes X (n x dim) and one integer per point: -1 if unlabelled, else a class id. Rows of X are normalised
    to length one. Each point has directed links to its `n_neighbors` nearest other points, weighted by their cosine
    similarity. Labels change the links between two labelled points, and no others:

    * Links between points of the same class get the similarity of the point to its nearest neighbour.
    * Links between points of different classes are dropped. The published description says nothing about them; a
      random walk along them would lead from one known class to another.

    Links with a weight below `threshold` are dropped afterwards, so that labels may keep a link that would be too weak
    without them. The modules that minimise the map equation are the clusters; those with fewer than `min_size` points
    are discarded. Labelled points of a class may be in several clusters, and a cluster may hold several classes.

    Attributes after `fit`: `labels_` (n), the cluster per point or -1 if it is in none, numbered in the order of their
    first points; `n_clusters_`; `cluster_centers_` (n_clusters_ x dim), the normalised means of the normalised points.
    """

    def __init__(
        self,
        n_neighbors: int = 15,
        threshold: float = 0.6,
        min_size: int = 5,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.threshold = threshold
        self.min_size = min_size
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike | None = None) -> Self:  # noqa: N803
        """Cluster X (n x dim); y (n) holds -1 for unlabelled points and class ids for the others."""
        self._refuse_bad_settings()
        points = unit_rows(validate_data(self, X, dtype=(np.float64, np.float32), order="C"))
        ranks = class_ranks(y, len(points))[1]
        graph = neighbour_graph(points, ranks, self.n_neighbors, self.threshold)
        modules = minimise_codelength(graph, self.random_state)
        kept = np.bincount(modules) >= self.min_size
        self.labels_ = np.where(kept, np.cumsum(kept) - 1, IN_NO_CLUSTER)[modules]
        self.n_clusters_ = int(kept.sum())
        inside = self.labels_ >= 0
        members = (np.ones(inside.sum(), points.dtype), (self.labels_[inside], np.flatnonzero(inside)))
        self.cluster_centers_ = unit_rows(sparse.csr_array(members, shape=(self.n_clusters_, len(points))) @ points)
        return self

    def fit_predict(self, X: npt.ArrayLike, y: npt.ArrayLike | None = None) -> Ids:  # noqa: N803
        """Cluster X and return the cluster per point, -1 for points in none."""
        return self.fit(X, y).labels_

    def _refuse_bad_settings(self) -> None:
        for name in ("n_neighbors", "min_size"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
                raise Misuse(f"{name} is {value!r}. Give a whole number of at least 1.")
        if not isinstance(self.threshold, Real) or isinstance(self.threshold, bool) or not 0 <= self.threshold <= 1:
            raise Misuse(f"threshold is {self.threshold!r}. Give a number between 0 and 1.")


def nearest_neighbours(points: Floats, n_neighbors: int) -> tuple[Floats, Ids]:
    """Return the similarities and indices (n x k) of the nearest other points, nearest first, for unit rows.

    k is `n_neighbors`, or n - 1 if there are not as many others. Similarities are computed in blocks of rows.
    """
    n, tensor = len(points), torch.from_numpy(points)
    k, rows = min(n_neighbors, n - 1), max(1, BLOCK // n)
    values, indices = torch.empty((n, k), dtype=tensor.dtype), torch.empty((n, k), dtype=torch.int64)
    for start in range(0, n, rows):
        similarities = tensor[start : start + rows] @ tensor.T
        similarities.diagonal(start).fill_(-torch.inf)  # the point itself, whatever its duplicates
        torch.topk(similarities, k, out=(values[start : start + rows], indices[start : start + rows]))
    return values.numpy(), indices.numpy()


def neighbour_graph(points: Floats, ranks: Ids, n_neighbors: int = 15, threshold: float = 0.6) -> Graph:
    """Return the weights of the directed links (n x n, CSR) between unit rows; see `SemiSupervisedInfomap`.

    `ranks` (n) holds the class per point, -1 if unlabelled.
    """
    n = len(points)
    weights, neighbours = nearest_neighbours(points, n_neighbors)
    sources = np.repeat(np.arange(n), neighbours.shape[1]).reshape(neighbours.shape)
    # The code of DCCL looks up the class of a neighbour by its place in the list instead of its index, in an array that
    # holds the classes of unlabelled points too. Here links change by the classes of two labelled points alone.
    labelled = (ranks[sources] >= 0) & (ranks[neighbours] >= 0)
    same = ranks[sources] == ranks[neighbours]
    weights = np.where(labelled & same, weights[:, :1], np.where(labelled, 0, weights)).astype(np.float64)
    kept = (weights >= threshold) & (weights > 0)
    return sparse.csr_array((weights[kept], (sources[kept], neighbours[kept])), shape=(n, n))
