"""Scores of clusterings into K clusters: agreement with the labelled points, and separation of the clusters."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

from sptnet.clustering.lloyd import Pinned, lloyd, seed_by_distance, squared_distances_to, squared_norms, total
from sptnet.runtime.seeds import seed_of

DRAWS = 4
MOST_ITERATIONS = 10
TOLERANCE = 1e-4

Counts = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


class GrowingClusters:
    """K-means of one set of points for increasing K; each K starts from the solution of the next smaller K."""

    def __init__(self, points: Float[Tensor, "n dim"], seed: int) -> None:
        self.points, self.seed = points, seed
        self.norms = squared_norms(points)
        self.tolerance = TOLERANCE * total(self.norms) / points.numel()
        self.solved = {0: points[:0]}

    def cluster(self, k: int) -> tuple[Int[Tensor, " n"], float]:
        """Return the cluster per point, and the inertia per point."""
        x, below = self.points, max(n for n in self.solved if n < k)
        draws = np.random.RandomState(seed_of(self.seed, k) % 2**32).random_sample((1, k - below, DRAWS))
        start = self.solved[below]
        added = seed_by_distance(x, self.norms, start, torch.from_numpy(draws))[0]
        nothing = Pinned(x.new_zeros(k, x.shape[1]), torch.zeros(k, dtype=torch.int64))
        run = lloyd(x, nothing, torch.cat([start, x[added]]), MOST_ITERATIONS, self.tolerance)
        self.solved[k] = run.centres
        return run.labels, total(squared_distances_to(x, run.centres, run.labels)) / len(x)


@dataclass(frozen=True)
class Pairs:
    """Numbers of pairs of labelled points: of the same class, in the same cluster, and both."""

    of_class: int
    in_cluster: int
    both: int

    @staticmethod
    def of(table: Counts) -> "Pairs":
        """Count the pairs of a contingency table, classes x clusters."""
        return Pairs(*(int((n * (n - 1) // 2).sum()) for n in (table.sum(1), table.sum(0), table)))

    @staticmethod
    def pooled(parts: Sequence["Pairs"]) -> "Pairs":
        """Add up the numbers of several tables."""
        return Pairs(*(sum(getattr(part, name) for part in parts) for name in ("of_class", "in_cluster", "both")))


def precision_and_recall(pairs: Pairs, n_known: int, n_clusters: int) -> tuple[float, float]:
    """Precision and recall of pairs in the same cluster as a prediction of pairs of the same class.

    Labelled points show only how known classes mix with each other, but new classes mix with them too. If they mix as
    often, there are (K - 1) / (n_known - 1) times as many false pairs; if never, no more than observed. The number of
    false pairs is the geometric mean of the two.
    """
    if pairs.both == 0:
        return 0.0, 0.0
    unseen = ((n_clusters - 1) / (n_known - 1)) ** 0.5
    false = (pairs.in_cluster - pairs.both) * unseen
    return pairs.both / (pairs.both + false), pairs.both / pairs.of_class


def balance(precision: float, recall: float) -> float:
    """Return 1 if clusters are as fine as classes, less if classes share clusters or are split among them."""
    return min(precision, recall) / max(precision, recall) if min(precision, recall) > 0 else 0.0


def silhouette(distances: Float[Tensor, "m m"], clusters: Int[Tensor, " m"], n_clusters: int) -> float:
    """Return the mean silhouette, given all distances; a point alone in its cluster has 0.

    One matrix product: with scikit-learn's silhouette_score, estimating the number of categories of 2,000 points takes
    1.4 times as long.
    """
    member = torch.nn.functional.one_hot(clusters, n_clusters).to(distances.dtype)
    return silhouette_of_sums(distances @ member, member.sum(0), clusters)


def silhouette_of_sums(sums: Float[Tensor, "m k"], sizes: Float[Tensor, " k"], clusters: Int[Tensor, " m"]) -> float:
    """Return the mean silhouette, given the sum of the distances of each point to each cluster, and cluster sizes."""
    own = clusters[:, None]
    of_own = sizes[clusters]
    inside = sums.gather(1, own)[:, 0] / (of_own - 1).clamp(min=1)
    nearest_other = (sums / sizes).masked_fill_(sizes == 0, torch.inf).scatter_(1, own, torch.inf).amin(1)
    larger = torch.maximum(inside, nearest_other)
    score = torch.where((of_own > 1) & (larger > 0) & larger.isfinite(), (nearest_other - inside) / larger, 0.0)
    return float(score.mean())


def relative(values: Values) -> Values:
    """Divide values by their maximum; negative values become 0."""
    return np.asarray(np.maximum(values, 0) / max(values.max(), np.finfo(np.float64).tiny))
