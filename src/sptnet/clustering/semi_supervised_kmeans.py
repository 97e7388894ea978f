"""Semi-supervised k-means with the interface of scikit-learn."""

import math
import warnings
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Int
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from sptnet.clustering.lloyd import (
    Centres,
    Pinned,
    Points,
    Run,
    cluster_sums,
    distances,
    lloyd,
    nearest,
    seed_by_distance,
    squared_distances_to,
    squared_norms,
    total,
    widest,
)
from sptnet.errors import Misuse
from sptnet.runtime.compute import choose_compute

UNLABELLED = -1
ROWS_AT_ONCE = 8192

Floats = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]


class SemiSupervisedKMeans(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator):
    """K-means in which labelled points stay in the cluster of their class.

    `fit(X, y)` takes X (n x dim) and one integer per point: -1 if unlabelled, else a class id. Clusters 0 to
    n_known - 1 are the known classes in ascending order of their ids (`known_classes_`); the other clusters are
    initialised by greedy k-means++ on the unlabelled points. Without y, or with -1 only, this is plain k-means. If all
    points are labelled, the clusters are the classes, and `n_clusters` has no effect.

    A start ends when the squared shift of all centres together is at most `tol` times the mean variance of the
    features; the start with the lowest inertia is kept. Inertia uses the centre of the class for labelled points.
    `predict`, `transform` and `score` use no labels: they assign points to the nearest centre.

    X is processed in its own precision, float32 or float64. In float32, squared distances are accurate to about 1e-7 of
    the squared spread of X; finer clusters need float64.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        n_init: int = 10,
        max_iter: int = 200,
        tol: float = 1e-4,
        random_state: int | np.random.RandomState | None = None,
        device: str = "cpu",
    ) -> None:
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.device = device

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike | None = None) -> Self:  # noqa: N803
        """Cluster X (n x dim); y (n) holds -1 for unlabelled points and class ids for the others."""
        self._refuse_bad_settings()
        data = validate_data(self, X, dtype=(np.float64, np.float32), order="C")
        self.known_classes_, ranks = class_ranks(y, len(data))
        n_clusters = self._number_of_clusters(ranks)
        with np.errstate(over="ignore", invalid="ignore"):
            self._offset = data.mean(axis=0, dtype=np.float64).astype(data.dtype)
            centred = data[np.argsort(ranks >= 0, kind="stable")]  # a copy: X is not changed
            centred -= self._offset
        labelled = torch.from_numpy(ranks[ranks >= 0])
        best = self._best_start(self._on_device(centred), labelled, n_clusters)
        self.n_iter_ = best.n_iter
        self.cluster_centers_ = best.centres.cpu().numpy() + self._offset
        self.labels_ = np.where(ranks >= 0, ranks, self._nearest(data))
        self.inertia_ = self._inertia(data, self.labels_)
        if (n_used := len(np.unique(self.labels_))) < n_clusters:
            warnings.warn(
                f"only {n_used} of {n_clusters} clusters have points. "
                "Lower n_clusters, give more distinct unlabelled points, or raise max_iter.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def fit_predict(self, X: npt.ArrayLike, y: npt.ArrayLike | None = None) -> Ids:  # noqa: N803
        """Cluster X and return the cluster per point; labelled points are in the cluster of their class."""
        return self.fit(X, y).labels_

    def predict(self, X: npt.ArrayLike) -> Ids:  # noqa: N803
        """Return the cluster with the nearest centre per point."""
        return self._nearest(self._checked(X))

    def transform(self, X: npt.ArrayLike) -> Floats:  # noqa: N803
        """Return the distances to all centres (n x n_clusters)."""
        parts = self._parts(self._checked(X))
        return torch.cat([distances(part, self._centres()).cpu() for part in parts]).numpy()

    def score(self, X: npt.ArrayLike, y: object = None) -> float:  # noqa: N803
        """Return minus the inertia of X, each point assigned to its nearest centre; y is ignored."""
        data = self._checked(X)
        return -self._inertia(data, self._nearest(data))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)

    def _best_start(self, points: Points, labelled: Int[Tensor, " l"], n_clusters: int) -> Run:
        """Return the best run; `points` are the unlabelled ones, then the labelled ones with clusters `labelled`."""
        labelled = labelled.to(points.device)
        n_known, n_free = len(self.known_classes_), len(points) - len(labelled)
        free, norms = points[:n_free], squared_norms(points)
        variance = total(norms) / points.numel()
        if not math.isfinite(variance):
            raise Misuse(f"X has values too large to be squared in {points.dtype}. Divide X by a large number.")
        pinned = Pinned(*cluster_sums(points[n_free:], labelled, n_clusters))
        known = pinned.sums[:n_known] / pinned.counts[:n_known, None]

        def finished(seeds: Int[Tensor, " new"]) -> tuple[float, Run]:
            run = lloyd(free, pinned, torch.cat([known, free[seeds]]), self.max_iter, self.tol * variance)
            return total(squared_distances_to(points, run.centres, torch.cat([run.labels, labelled]))), run

        uniforms = torch.from_numpy(self._draws(n_clusters - n_known, n_clusters))
        uniforms = uniforms.to(widest(points.device)).to(points.device)
        runs = map(finished, seed_by_distance(free, norms[:n_free], known, uniforms))
        return min(runs, key=lambda run: run[0])[1]

    def _draws(self, n_new: int, n_clusters: int) -> Floats:
        """Draw uniform numbers for seeding; twice the trials of scikit-learn, which lowers the inertia on most data."""
        trials = 4 + int(2 * math.log(n_clusters))
        starts = self.n_init if n_new else 1
        draws: Floats = check_random_state(self.random_state).random_sample((starts, n_new, trials))
        return draws

    def _checked(self, X: npt.ArrayLike) -> Floats:  # noqa: N803
        check_is_fitted(self)
        data: Floats = validate_data(self, X, reset=False, dtype=self.cluster_centers_.dtype, order="C")
        return data

    def _on_device(self, array: Floats) -> Tensor:
        device = choose_compute(self.device, "float32").device
        tensor = torch.from_numpy(array)
        if device.type == "mps" and tensor.dtype == torch.float64:
            raise Misuse("the device mps has no float64. Give X as float32, or use device='cpu'.")
        return tensor.to(device)

    def _centres(self) -> Centres:
        return self._on_device(self.cluster_centers_ - self._offset)

    def _parts(self, data: Floats) -> Iterator[Points]:
        for start in range(0, len(data), ROWS_AT_ONCE):
            yield self._on_device(data[start : start + ROWS_AT_ONCE] - self._offset)

    def _nearest(self, data: Floats) -> Ids:
        labels: Ids = torch.cat([nearest(part, self._centres()).cpu() for part in self._parts(data)]).numpy()
        return labels

    def _inertia(self, data: Floats, labels: Ids) -> float:
        of_parts = torch.from_numpy(labels).split(ROWS_AT_ONCE)
        parts = zip(self._parts(data), of_parts, strict=True)
        squared = [squared_distances_to(part, self._centres(), its.to(part.device)).cpu() for part, its in parts]
        return total(torch.cat(squared))

    def _refuse_bad_settings(self) -> None:
        for name in ("n_clusters", "n_init", "max_iter"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
                raise Misuse(f"{name} is {value!r}. Give a whole number of at least 1.")
        if not isinstance(self.tol, Real) or isinstance(self.tol, bool) or not 0 <= self.tol < math.inf:
            raise Misuse(f"tol is {self.tol!r}. Give a number of at least 0.")

    def _number_of_clusters(self, ranks: Ids) -> int:
        n_points, n_known = len(ranks), len(self.known_classes_)
        if self.n_clusters > n_points:
            raise Misuse(
                f"n_samples={n_points} should be >= n_clusters={self.n_clusters}. "
                "Give more points or a lower n_clusters."
            )
        if (ranks < 0).any():
            if self.n_clusters < n_known:
                raise Misuse(
                    f"y names {n_known} known classes but n_clusters is {self.n_clusters}. "
                    f"Set n_clusters to {n_known} or more."
                )
            return self.n_clusters
        if self.n_clusters != n_known:
            warnings.warn(
                f"every point is labelled, so the clusters are the {n_known} classes and n_clusters="
                f"{self.n_clusters} has no effect. Give -1 as the label of points that are to be clustered.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return n_known


def class_ranks(y: npt.ArrayLike | None, n_points: int) -> tuple[Ids, Ids]:
    """Return the known classes in ascending order and, per point, the position of its class among them or -1."""
    if y is None:
        return np.empty(0, np.int64), np.full(n_points, UNLABELLED, np.int64)
    classes = np.asarray(y)
    if classes.dtype == object:
        classes = np.array(classes.tolist())
    if classes.shape != (n_points,):
        raise Misuse(f"y has the shape {classes.shape} but X has {n_points} points. Give one class id for each point.")
    whole = classes.dtype.kind in "iub" or (classes.dtype.kind == "f" and bool((classes == np.rint(classes)).all()))
    if not whole or not np.isfinite(classes).all():
        raise Misuse(
            "y holds values that are not whole numbers. "
            "Give -1 for unlabelled points and class ids such as 0, 1, 2 for the others."
        )
    if (classes < UNLABELLED).any():
        raise Misuse(f"y holds {classes.min()}. Give -1 for unlabelled points and class ids from 0 for the others.")
    labelled = classes >= 0
    known, positions = np.unique(classes[labelled], return_inverse=True)
    ranks = np.full(n_points, UNLABELLED, np.int64)
    ranks[labelled] = positions
    return known.astype(np.int64), ranks
