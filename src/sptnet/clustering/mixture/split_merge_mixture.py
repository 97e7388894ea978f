"""Clustering that finds the number of clusters: semi-supervised k-means alternated with split and merge."""

import math
import warnings
from numbers import Integral, Real
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from sptnet.clustering.mixture.niw import ALPHA, KAPPA, PSI, Prior, log_evidence
from sptnet.clustering.mixture.split_merge import ACCEPT, LEAST, split_and_merge
from sptnet.clustering.semi_supervised_kmeans import Ids, SemiSupervisedKMeans, class_ranks
from sptnet.errors import Misuse


class _Clusters(NamedTuple):
    """Result of k-means and how well it explains the points."""

    kmeans: SemiSupervisedKMeans
    n_clusters: int
    log_evidence: float


class SplitMergeMixture(ClusterMixin, BaseEstimator):
    """Mixture of known and new clusters whose number is found by split and merge.

    `fit(X, y)` takes X (n x dim) and one integer per point: -1 if unlabelled, else a class id. Each of `n_rounds`
    rounds splits and merges the clusters of new categories (`split_and_merge`) and fits `SemiSupervisedKMeans` with the
    number of clusters that results. In the first half of the rounds, splits and merges that are no improvement are made
    with the probability `accept`. The second half goes on from the best clusters so far without them, and ends as soon
    as nothing changes. The clusters with the highest `log_evidence` of all rounds are kept. Clusters 0 to n_known - 1
    are the known classes in ascending order of their ids (`known_classes_`).

    `n_clusters` is the number to start from, known classes included; None: twice the number of known classes, and one
    new cluster at least. A new category all of whose points k-means gave to known classes cannot be split off, so a
    start with too many clusters is safer than one with too few. `alpha`, `kappa`, `nu` and `psi` are those of
    `log_split_ratio`. The scale `psi` is in the unit of X squared; the default suits features of unit length. A cluster
    needs many more points than X has features for the ratio to depend on its shape rather than on its size: reduce X
    to a few principal components first.

    Attributes: `labels_` (n), `cluster_centers_` (n_clusters_ x dim), `n_clusters_`, `known_classes_`, `log_evidence_`,
    `n_iter_` (of the k-means that was kept), and `counts_`, the number of clusters at the start and after each round.
    """

    def __init__(
        self,
        n_clusters: int | None = None,
        n_rounds: int = 20,
        accept: float = ACCEPT,
        least: int = LEAST,
        alpha: float = ALPHA,
        kappa: float = KAPPA,
        nu: float | None = None,
        psi: float = PSI,
        n_init: int = 10,
        max_iter: int = 200,
        tol: float = 1e-4,
        random_state: int | np.random.RandomState | None = None,
        device: str = "cpu",
    ) -> None:
        self.n_clusters = n_clusters
        self.n_rounds = n_rounds
        self.accept = accept
        self.least = least
        self.alpha = alpha
        self.kappa = kappa
        self.nu = nu
        self.psi = psi
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.device = device

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike | None = None) -> Self:  # noqa: N803
        """Cluster X (n x dim); y (n) holds -1 for unlabelled points and class ids for the others."""
        data = validate_data(self, X, dtype=(np.float64, np.float32), order="C")
        self._refuse_bad_settings(data.shape[1])
        self.known_classes_, ranks = class_ranks(y, len(data))
        n_known = len(self.known_classes_)
        random = check_random_state(self.random_state)
        mean, prior = data.mean(axis=0, dtype=np.float64), Prior(self.alpha, self.kappa, self.nu, self.psi)

        def clustered(count: int) -> _Clusters:
            kmeans = self._kmeans_with(count, random).fit(data, ranks)
            return _Clusters(kmeans, count, log_evidence(data, kmeans.labels_, mean, prior))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a round drops clusters without points
            current = best = clustered(self._start(ranks))
            self.counts_ = [best.n_clusters]
            for number in range(self.n_rounds):
                by_chance = number < self.n_rounds // 2
                before, accept = (current, self.accept) if by_chance else (best, 0.0)
                labels = before.kmeans.labels_
                after, count = split_and_merge(data, labels, n_known, mean, random, accept, self.least, prior)
                if not by_chance and count == before.n_clusters and (after == labels).all():
                    break
                current = clustered(count)
                best = max(best, current, key=lambda clusters: (clusters.log_evidence, -clusters.n_clusters))
                self.counts_.append(count)
        self._kmeans = best.kmeans
        self.log_evidence_ = best.log_evidence
        self.labels_: Ids = best.kmeans.labels_
        self.cluster_centers_ = best.kmeans.cluster_centers_
        self.n_clusters_ = len(self.cluster_centers_)
        self.n_iter_ = best.kmeans.n_iter_
        if (n_used := len(np.unique(self.labels_))) < self.n_clusters_:
            warnings.warn(
                f"only {n_used} of {self.n_clusters_} clusters have points. Raise n_rounds, or lower n_clusters.",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def predict(self, X: npt.ArrayLike) -> Ids:  # noqa: N803
        """Return the cluster with the nearest centre per point."""
        check_is_fitted(self)
        data = validate_data(self, X, reset=False, dtype=self.cluster_centers_.dtype, order="C")
        return self._kmeans.predict(data)

    def fit_predict(self, X: npt.ArrayLike, y: npt.ArrayLike | None = None) -> Ids:  # noqa: N803
        """Cluster X and return the cluster per point; labelled points are in the cluster of their class."""
        return self.fit(X, y).labels_

    def _kmeans_with(self, count: int, random: np.random.RandomState) -> SemiSupervisedKMeans:
        return SemiSupervisedKMeans(count, self.n_init, self.max_iter, self.tol, random, self.device)

    def _start(self, ranks: Ids) -> int:
        n_known, n_free = len(self.known_classes_), int((ranks < 0).sum())
        if n_free == 0:
            return n_known
        if self.n_clusters is None:
            return n_known + min(max(n_known, 1), n_free)
        if self.n_clusters < n_known:
            raise Misuse(
                f"y names {n_known} known classes but n_clusters is {self.n_clusters}. "
                f"Set n_clusters to {n_known} or more."
            )
        return self.n_clusters

    def _refuse_bad_settings(self, dim: int) -> None:
        if self.n_clusters is not None:
            _refuse_if(not _whole(self.n_clusters, 1), "n_clusters", self.n_clusters, "a whole number from 1, or None")
        _refuse_if(not _whole(self.n_rounds, 0), "n_rounds", self.n_rounds, "a whole number of at least 0")
        _refuse_if(not _whole(self.least, 0), "least", self.least, "a whole number of at least 0")
        _refuse_if(not (_finite(self.accept) and 0 <= self.accept <= 1), "accept", self.accept, "a number from 0 to 1")
        for name in ("alpha", "kappa", "psi"):
            value = getattr(self, name)
            _refuse_if(not (_finite(value) and value > 0), name, value, "a number above 0")
        if self.nu is not None:
            _refuse_if(
                not (_finite(self.nu) and self.nu > dim - 1), "nu", self.nu, f"a number above {dim - 1}, or None"
            )


def _whole(value: object, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def _finite(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _refuse_if(bad: bool, name: str, value: object, wanted: str) -> None:
    if bad:
        raise Misuse(f"{name} is {value!r}. Give {wanted}.")
