"""Number of categories from the place that known classes take among all points.

If known and new classes are alike, the known ones hold as large a share of the points as of the classes. Three ways to
measure that share each give a count; the estimate is their weighted geometric mean. Weights, factors and the width of
the range were chosen on folders drawn from CUB and CIFAR-100 (docs/results.md).
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from sptnet.clustering.count_evidence import Counts
from sptnet.clustering.known_share import known_share
from sptnet.clustering.points import principal_components
from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans

MOST_POINTS, DIMENSIONS = 4000, 64
STARTS, ITERATIONS = 2, 30
GROWTH = 1.12
HELD, OCCUPIED = 1.35, 1.35  # factors by which imperfect clusters of known classes hold more than their share
WEIGHTS = {"held": 0.6, "occupied": 0.15, "share": 0.25}
# The logarithm of the estimate has an error of this standard deviation: a part that more classes do not reduce, and a
# part per known class. A 90 % range has 1.65 of them to either side.
COMMON_ERROR, ERROR_PER_CLASS, RANGE = 0.1, 0.55, 1.65

Floats = npt.NDArray[np.float32]
OnCount = Callable[[int, int], None]


@dataclass(frozen=True)
class ShareTrial:
    """Clusterings into one number of clusters, with and without labels."""

    n_clusters: int
    held: float
    """Share of all points in the clusters of known classes, times the number of clusters."""
    occupied: float
    """Effective number of clusters among labelled points, if labels are not used."""
    clusters: Counts
    """Cluster per point without labels."""
    inertia: float


@dataclass(frozen=True)
class ShareEvidence:
    """Counts that the three ways suggest."""

    n_known: int
    held: float
    """Count at which the clusters of known classes hold their share of the points."""
    occupied: float
    """Count at which labelled points occupy as many clusters as there are known classes."""
    share: float
    """Count from the share of unlabelled points that resemble known classes."""

    @property
    def mean(self) -> float:
        """Weighted geometric mean of the counts; at least the number of known classes."""
        mean = math.exp(sum(weight * math.log(getattr(self, name)) for name, weight in WEIGHTS.items()))
        return max(mean, float(self.n_known))

    @property
    def error(self) -> float:
        """Standard deviation of the logarithm of the mean."""
        return math.hypot(COMMON_ERROR, ERROR_PER_CLASS / math.sqrt(self.n_known))

    def plausibility(self, n_categories: int) -> float:
        """Return 1 at the mean, less for counts that are far from it."""
        return math.exp(-0.5 * (math.log(n_categories / self.mean) / self.error) ** 2)

    def interval(self, most: int) -> tuple[int, int]:
        """Return the 90 % range, from the number of known classes to at most `most`."""
        low, high = self.mean * math.exp(-RANGE * self.error), self.mean * math.exp(RANGE * self.error)
        chosen = round(self.mean)
        return max(self.n_known, min(chosen, round(low))), min(most, max(chosen, round(high)))


def share_trials(
    points: Floats, ranks: Counts, low: int, high: int, seed: int, on_trial: OnCount
) -> tuple[list[ShareTrial], ShareEvidence]:
    """Cluster into increasing numbers of clusters until known classes hold more than their share; return the evidence.

    `points` are unit rows; `ranks` are class ranks, -1 for unlabelled points.
    """
    n_known, reduced = int(ranks.max()) + 1, principal_components(points, DIMENSIONS)
    trials: list[ShareTrial] = []
    k = max(low, n_known)
    while True:
        trials.append(_try(reduced, ranks, k, n_known, seed))
        on_trial(k, len(trials))
        last = trials[-1]
        if k >= high or (len(trials) > 4 and last.held > HELD * n_known and last.occupied > OCCUPIED * n_known):
            break
        k = min(high, max(k + 1, round(GROWTH * k)))
    counts = np.array([trial.n_clusters for trial in trials], dtype=float)
    expected = known_share(points, ranks) * (ranks < 0).sum() + (ranks >= 0).sum()
    return trials, ShareEvidence(
        n_known,
        held=crossing(counts, np.array([trial.held for trial in trials]), HELD * n_known),
        occupied=crossing(counts, np.array([trial.occupied for trial in trials]), OCCUPIED * n_known),
        share=n_known * len(points) / expected,
    )


def _try(points: Floats, ranks: Counts, k: int, n_known: int, seed: int) -> ShareTrial:
    def fit(labels: Counts | None) -> SemiSupervisedKMeans:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # empty clusters are expected if K is too large
            return SemiSupervisedKMeans(k, STARTS, ITERATIONS, random_state=seed).fit(points, labels)

    with_labels, plain = fit(ranks), fit(None)
    held = float((with_labels.labels_ < n_known).mean() * k)
    occupancy = np.zeros(k)
    for known in range(n_known):
        members = plain.labels_[ranks == known]
        occupancy += np.bincount(members, minlength=k) / len(members) / n_known
    used = occupancy[occupancy > 0]
    effective = float(np.exp(-(used * np.log(used)).sum()))
    return ShareTrial(k, held, effective, plain.labels_, plain.inertia_ / len(points))


def crossing(counts: npt.NDArray[np.float64], values: npt.NDArray[np.float64], target: float) -> float:
    """Return the count at which increasing values reach the target, between the counts tried or at their ends."""
    rising = np.maximum.accumulate(values)
    return float(np.exp(np.interp(target, rising, np.log(counts))))
