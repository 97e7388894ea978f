"""Estimate the number of categories by hiding known classes from selective-neighbour clustering (the rule of CiPR)."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from sklearn.utils import check_random_state
from torch import Tensor

from sptnet.clustering.count_evidence import Counts, Values, silhouette_of_sums
from sptnet.clustering.hierarchy.neighbor_levels import NeighborLevel, build_levels, closest_merges, single_points
from sptnet.clustering.points import Floats, unit_features
from sptnet.clustering.semi_supervised_kmeans import class_ranks
from sptnet.errors import Misuse
from sptnet.metrics import contingency, matched_share

HIDDEN, HIDDEN_OF_FEW = 0.2, 0.4  # shares of the known classes
FEW_CLASSES = 10
SILHOUETTE_POINTS = 2048

Scores = tuple[float, float]
"""Accuracy of the points of hidden classes, and silhouette."""


def count_by_neighbors(
    X: npt.ArrayLike,  # noqa: N803
    y: npt.ArrayLike,
    random_state: int | np.random.RandomState | None = None,
) -> int:
    """Estimate the number of categories among all points X (n x dim); y holds class ids, -1 for unlabelled points.

    A fifth of the known classes (two fifths of at most 10) lose their labels; at least two classes if one more is left.
    The points are clustered with the other labels. The score of a clustering is the product of the accuracy of the
    points that lost their labels, clusters matched to classes, and the cosine silhouette of at most 2,048 points, both
    scaled to the range from 0 to 1. The best level is found first. Then single merges lead from the next finer level to
    the number of clusters of the next coarser one, and the best clustering on this way is counted. Clusters of the same
    known class count as one category, and the estimate is at least the number of known classes.
    """
    points = unit_features(X)
    known, ranks = class_ranks(y, len(points))
    if len(known) < 2:
        raise Misuse(
            f"counting with hidden classes needs at least two known classes, but y has {len(known)}. "
            "Label points of more classes, or use another method."
        )
    random = check_random_state(random_state)
    hidden = np.isin(ranks, random.permutation(len(known))[: n_hidden(len(known))])
    visible = np.where(hidden, -1, ranks)
    levels = build_levels(single_points(torch.from_numpy(points), torch.from_numpy(visible)))
    judge = Judge(points, np.where(hidden, ranks, -1), random)
    best = best_of([judge.scores(level) for level in levels])
    finer, coarser = levels[max(best - 1, 0)], levels[min(best + 1, len(levels) - 1)]
    walk = list(judge.scores_of_merges(finer, len(coarser.sums)))
    n_categories = walk[best_of([scores for _, scores in walk])][0]
    return max(n_categories, len(known))


def n_hidden(n_known: int) -> int:
    """Return the number of classes to hide: two or more if possible, but not all."""
    share = HIDDEN_OF_FEW if n_known <= FEW_CLASSES else HIDDEN
    return min(n_known - 1, max(2, round(share * n_known)))


def best_of(scores: Sequence[Scores]) -> int:
    """Return the position of the largest product of scaled accuracy and silhouette; the first one for ties."""
    accuracies, silhouettes = np.array(scores).T
    return int((scaled(accuracies) * scaled(silhouettes)).argmax())


def scaled(values: Values) -> Values:
    """Scale values to the range from 0 to 1; equal values become 1."""
    spread = values.max() - values.min()
    return np.asarray((values - values.min()) / spread if spread > 0 else np.ones_like(values))


class Judge:
    """Score clusterings by the points of hidden classes and by the silhouette of a sample."""

    def __init__(self, points: Floats, hidden_ranks: Counts, random: np.random.RandomState) -> None:
        self.hidden = torch.from_numpy(np.flatnonzero(hidden_ranks >= 0))
        self.truth = np.unique(hidden_ranks[self.hidden], return_inverse=True)[1]
        self.sample = torch.from_numpy(random.permutation(len(points))[:SILHOUETTE_POINTS])
        sampled = torch.from_numpy(points)[self.sample]
        self.distances = (1 - sampled @ sampled.T).clamp_(min=0)

    def scores(self, level: NeighborLevel) -> Scores:
        """Return accuracy and silhouette of a level."""
        return next(self.scores_of_merges(level, len(level.sums)))[1]

    def scores_of_merges(self, level: NeighborLevel, n_clusters: int) -> Iterator[tuple[int, Scores]]:
        """Yield the number of categories and the scores of a level, and after each merge down to `n_clusters`."""
        classes, n_categories, k = level.classes.clone(), categories(level), len(level.sums)
        table = contingency(self.truth, level.members[self.hidden].numpy(), (int(self.truth.max()) + 1, k))
        sampled = SampledClusters(self.distances, level.members[self.sample], k)
        scores = matched_share(table), sampled.silhouette
        yield n_categories, scores
        for kept, dropped in closest_merges(level, n_clusters):
            # One category less, unless both have labelled points: then they are of the same class.
            n_categories -= int(min(classes[kept], classes[dropped]) < 0)
            classes[kept] = max(classes[kept], classes[dropped])
            changed = table[:, kept].any() and table[:, dropped].any()
            table[:, kept] += table[:, dropped]
            table[:, dropped] = 0
            sampled.merge(kept, dropped)
            scores = matched_share(table) if changed else scores[0], sampled.silhouette
            yield n_categories, scores


class SampledClusters:
    """Silhouette of a sample, kept up to date through merges: sums of distances are added, not computed again."""

    def __init__(self, distances: Float[Tensor, "m m"], clusters: Int[Tensor, " m"], n_clusters: int) -> None:
        present, self.clusters = clusters.unique(return_inverse=True)
        self.row = torch.full((n_clusters,), -1)
        """Row of `sums` per cluster, -1 if the sample has none of its points."""
        self.row[present] = torch.arange(len(present))
        member = F.one_hot(self.clusters).to(distances.dtype)
        self.sums, self.sizes = member.T @ distances, member.sum(0)
        self.silhouette = silhouette_of_sums(self.sums.T, self.sizes, self.clusters)

    def merge(self, kept: int, dropped: int) -> None:
        """Merge two clusters; the silhouette changes if the sample has points of both."""
        low, high = sorted((int(self.row[kept]), int(self.row[dropped])))
        self.row[dropped] = -1
        self.row[kept] = high if low < 0 else low
        if low < 0:
            return
        self.clusters[self.clusters == high] = low
        last = len(self.sums) - 1
        for each in (self.sums, self.sizes):
            each[low] += each[high]
            each[high] = each[last]
        for numbers in (self.clusters, self.row):
            numbers[numbers == last] = high
        self.sums, self.sizes = self.sums[:last], self.sizes[:last]
        self.silhouette = silhouette_of_sums(self.sums.T, self.sizes, self.clusters)


def categories(level: NeighborLevel) -> int:
    """Return the number of clusters; those of the same known class count as one."""
    is_known = level.classes >= 0
    return int((~is_known).sum()) + len(level.classes[is_known].unique())
