"""Number of categories from the place that known classes take among all points.

If known and new classes are alike, the known ones hold as large a share of the points as of the classes. Three ways to
measure that share each give a count; the estimate is their weighted geometric mean, combined with the count by balance
(`count_search.py`). Weights, factors and the width of the range were chosen on folders drawn from CUB and CIFAR-100
(docs/results.md).
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from sptnet.clustering.count_evidence import Counts
from sptnet.clustering.count_search import increasing_counts
from sptnet.clustering.known_share import known_share
from sptnet.clustering.points import principal_components
from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans

MOST_POINTS, DIMENSIONS = 4000, 64
STARTS, ITERATIONS = 2, 30
HELD, OCCUPIED = 1.33, 1.35  # factors by which imperfect clusters of known classes hold more than their share
WEIGHTS = {"held": 0.6, "occupied": 0.15, "share": 0.25}
# The logarithm of the estimate has an error of this standard deviation: a part that more classes do not reduce, and a
# part per known class. A 90 % range has 1.65 of them to either side.
COMMON_ERROR, ERROR_PER_CLASS, RANGE = 0.1, 0.75, 1.65
TRUST_POWER, CERTAIN_POWER, LEAST_ERROR = 2, 8, 0.05  # how much accurate clusters show

Floats = npt.NDArray[np.float32]
OnCount = Callable[[int], None]


@dataclass(frozen=True)
class ShareEvidence:
    """Counts that the three ways suggest."""

    held: float
    """Count at which the clusters of known classes hold their share of the points."""
    occupied: float
    """Count at which labelled points occupy as many clusters as there are known classes."""
    share: float
    """Count from the share of unlabelled points that resemble known classes."""

    @property
    def mean(self) -> float:
        """Weighted geometric mean of the counts."""
        return math.exp(sum(weight * math.log(getattr(self, name)) for name, weight in WEIGHTS.items()))


@dataclass(frozen=True)
class PlausibleCounts:
    """A count and how far from it others are plausible."""

    mean: float
    error: float
    """Standard deviation of the logarithm of the mean."""

    def plausibility(self, n_categories: int) -> float:
        """Return 1 at the mean, less for counts that are far from it."""
        return math.exp(-0.5 * (math.log(n_categories / self.mean) / self.error) ** 2)

    def interval(self) -> tuple[int, int]:
        """Return the 90 % range."""
        return round(self.mean * math.exp(-RANGE * self.error)), round(self.mean * math.exp(RANGE * self.error))


def combine(evidence: ShareEvidence, balanced: int, accuracy: float, n_known: int) -> PlausibleCounts:
    """Combine the evidence with the count by balance, given the accuracy of the labelled points under that count.

    Clusters that match the known classes show the count by themselves, so that balance has the more weight the more
    accurate they are.
    """
    trust = accuracy**TRUST_POWER
    mean = math.exp(trust * math.log(balanced) + (1 - trust) * math.log(evidence.mean))
    error = math.hypot(COMMON_ERROR, ERROR_PER_CLASS / math.sqrt(n_known)) * (1 - accuracy**CERTAIN_POWER)
    return PlausibleCounts(max(mean, n_known), max(error, LEAST_ERROR))


def share_evidence(
    points: Floats, ranks: Counts, low: int, high: int, seed: int, on_trial: OnCount = lambda n_categories: None
) -> ShareEvidence:
    """Cluster into increasing numbers of clusters until known classes hold more than their share.

    `points` are unit rows; `ranks` are class ranks, -1 for unlabelled points.
    """
    n_known, reduced = int(ranks.max()) + 1, principal_components(points, DIMENSIONS)
    counts: list[int] = []
    held: list[float] = []
    occupied: list[float] = []
    for k in increasing_counts(max(low, n_known), high):
        counts.append(k)
        held.append(float((_clusters(reduced, ranks, k, seed) < n_known).mean() * k))
        occupied.append(effective_clusters(_clusters(reduced, None, k, seed), ranks, n_known))
        on_trial(k)
        if held[-1] > HELD * n_known and occupied[-1] > OCCUPIED * n_known:
            break
    expected = known_share(points, ranks) * (ranks < 0).sum() + (ranks >= 0).sum()
    return ShareEvidence(
        held=crossing(counts, held, HELD * n_known),
        occupied=crossing(counts, occupied, OCCUPIED * n_known),
        share=n_known * len(points) / expected,
    )


def _clusters(points: Floats, labels: Counts | None, k: int, seed: int) -> Counts:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # empty clusters are expected if K is too large
        return SemiSupervisedKMeans(k, STARTS, ITERATIONS, random_state=seed).fit(points, labels).labels_


def effective_clusters(clusters: Counts, ranks: Counts, n_known: int) -> float:
    """Return the exponential of the entropy of clusters among labelled points, with equal weight for every class."""
    occupancy = np.zeros(int(clusters.max()) + 1)
    for known in range(n_known):
        members = clusters[ranks == known]
        occupancy += np.bincount(members, minlength=len(occupancy)) / len(members) / n_known
    used = occupancy[occupancy > 0]
    return float(np.exp(-(used * np.log(used)).sum()))


def crossing(counts: Sequence[int], values: Sequence[float], target: float) -> float:
    """Return the count at which increasing values reach the target, between the counts tried or at their ends."""
    return float(np.exp(np.interp(target, np.maximum.accumulate(values), np.log(counts))))
