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
    """k-means in which labelled points stay in the cluster of their class.

    `fit(X, y)` takes a whole number for every point: -1 for an unlabelled one, else the id of its class. Clusters
    0 to n_known - 1 are the known classes in ascending order of their ids (`known_classes_`); the other clusters start
    by greedy k-means++ on the unlabelled points. Without y, or with -1 only, this is k-means. Where every point is
    labelled, the clusters are the classes, whatever `n_clusters` is.

    Every start ends when the squared shift of all centres together is at most `tol` times the mean variance of the
    features; the start of the lowest inertia is kept. Inertia counts a labelled point at the centre of its class.
    `predict`, `transform` and `score` know no labels: they look at the nearest centre only.

    X is worked on as float32 or float64, whichever it is. In float32 squared distances are good to about 1e-7 of the
    squared spread of X; clusters finer than that need float64.
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
        """Cluster X; y holds -1 for unlabelled points and class ids for the others."""
        self._refuse_bad_settings()
        data = validate_data(self, X, dtype=(np.float64, np.float32), order="C")
        self.known_classes_, ranks = class_ranks(y, len(data))
        n_clusters = self._number_of_clusters(ranks)
        with np.errstate(over="ignore", invalid="ignore"):
            self._offset = data.mean(axis=0, dtype=np.float64).astype(data.dtype)
            centred = data[np.argsort(ranks >= 0, kind="stable")]  # a copy: X stays as it is
            centred -= self._offset
        labelled = torch.from_numpy(ranks[ranks >= 0])
        best = self._best_start(self._on_device(centred), labelled, n_clusters)
        self.n_iter_ = best.n_iter
        self.cluster_centers_ = best.centres.cpu().numpy() + self._offset
        self.labels_ = np.where(ranks >= 0, ranks, self._nearest(data))
        self.inertia_ = self._inertia(data, self.labels_)
        if (found := len(np.unique(self.labels_))) < n_clusters:
            warnings.warn(
                f"only {found} of {n_clusters} clusters have points. "
                "Lower n_clusters, give more distinct unlabelled points, or raise max_iter.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def fit_predict(self, X: npt.ArrayLike, y: npt.ArrayLike | None = None) -> Ids:  # noqa: N803
        """The clusters of X; labelled points are in that of their class."""
        return self.fit(X, y).labels_

    def predict(self, X: npt.ArrayLike) -> Ids:  # noqa: N803
        """The cluster of the nearest centre."""
        return self._nearest(self._checked(X))

    def transform(self, X: npt.ArrayLike) -> Floats:  # noqa: N803
        """The distance to every centre."""
        parts = self._parts(self._checked(X))
        return torch.cat([distances(part, self._centres()).cpu() for part in parts]).numpy()

    def score(self, X: npt.ArrayLike, y: object = None) -> float:  # noqa: N803
        """Minus the inertia of X with every point at its nearest centre; y is not used."""
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
        """`points` are the free ones, then those with a class, whose clusters are `labelled`."""
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
        """Twice as many trials as scikit-learn makes: on most data this lowers the inertia."""
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
    """The known classes in ascending order, and for every point the position of its class among them or -1."""
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
