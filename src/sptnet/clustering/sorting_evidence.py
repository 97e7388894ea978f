"""Evidence that images are sorted rightly: neighbours, lead over other categories, and repeated clusterings.

The features should not have been trained on the labels that are judged: training pulls images of a category together,
rightly or not.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans
from sptnet.metrics import contingency

NEIGHBOURS = 10
REPEATS = 8
HIDDEN = 1 / 3  # share of the known classes, and of the labels of the others, that a repeat does not see
MOST_POINTS = 5000  # of a sample, to which all labelled points are added
COSINES_AT_ONCE = 2**23

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SortingEvidence:
    """Evidence per point, each of shape (n,)."""

    neighbours: Floats
    """Share of the ten nearest points in the same category."""
    lead: Floats
    """Cosine to the mean of the own category, without the point itself, minus that to the nearest other one."""
    stability: Floats
    """Mean Jaccard index between the category and the cluster of the point in repeated clusterings."""


def sorting_evidence(
    points: npt.NDArray[np.float32], ranks: Ids, categories: Ids, n_categories: int, seed: int
) -> SortingEvidence:
    """Collect the evidence for unit points (n x dim) in categories, the known ones first.

    `ranks` are the labels: a known category, or -1 for unlabelled points.
    """
    random = np.random.RandomState(seed)
    sample = np.sort(random.permutation(len(points))[:MOST_POINTS])
    if len(sample) < len(points):
        sample = np.union1d(sample, np.flatnonzero(ranks >= 0))
    return SortingEvidence(
        neighbour_share(points, categories, sample),
        lead(points, categories, n_categories),
        stability(points, ranks, categories, n_categories, sample, random),
    )


def neighbour_share(points: npt.NDArray[np.float32], categories: Ids, sample: Ids) -> Floats:
    """Return the share of the nearest points of the sample that have the same category, of shape (n,)."""
    n_near = min(NEIGHBOURS, len(sample) - 1)
    if n_near < 1:
        return np.zeros(len(points))
    place = np.full(len(points), -1)
    place[sample] = np.arange(len(sample))
    shares = []
    step = max(1, COSINES_AT_ONCE // len(sample))
    for start in range(0, len(points), step):
        rows = np.arange(start, min(start + step, len(points)))
        cosines = points[rows] @ points[sample].T
        inside = place[rows] >= 0
        cosines[np.flatnonzero(inside), place[rows][inside]] = -np.inf  # a point is not its own neighbour
        near = np.argpartition(-cosines, n_near - 1, axis=1)[:, :n_near]
        shares.append((categories[sample][near] == categories[rows][:, None]).mean(1))
    return np.concatenate(shares)


def lead(points: npt.NDArray[np.float32], categories: Ids, n_categories: int) -> Floats:
    """Return the lead of the own category over the nearest other one, of shape (n,).

    It is -1 for a point that is alone in its category, and 0 if there is no other category.
    """
    sums = np.zeros((n_categories, points.shape[1]))
    np.add.at(sums, categories, points)
    sizes = np.bincount(categories, minlength=n_categories)
    own = sums[categories] - points
    to_own = (points * own).sum(1) / np.maximum(np.linalg.norm(own, axis=1), 1e-12)
    cosines = points @ (sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-12)).T
    cosines[:, sizes == 0] = -1.0
    cosines[np.arange(len(points)), categories] = -1.0
    if (sizes > 0).sum() < 2:
        return np.zeros(len(points))
    leads: Floats = np.where(sizes[categories] > 1, to_own - cosines.max(1), -1.0)
    return leads


def stability(
    points: npt.NDArray[np.float32],
    ranks: Ids,
    categories: Ids,
    n_categories: int,
    sample: Ids,
    random: np.random.RandomState,
) -> Floats:
    """Cluster the sample again, each time without some labels, and return the mean Jaccard index per point."""
    total = np.zeros(len(points))
    sizes = np.bincount(categories, minlength=n_categories)
    n_clusters = min(n_categories, len(sample))
    for _ in range(REPEATS):
        kmeans = SemiSupervisedKMeans(n_clusters, n_init=1, max_iter=100, random_state=random.randint(2**31 - 1))
        kept = hide_some(ranks, random)[sample]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # an empty cluster does no harm here
            clusters = kmeans.fit(points[sample], kept).predict(points)
        table = contingency(categories, clusters, (n_categories, int(clusters.max()) + 1))
        union = sizes[:, None] + table.sum(0)[None, :] - table
        total += (table / np.maximum(union, 1))[categories, clusters]
    return total / REPEATS


def hide_some(ranks: Ids, random: np.random.RandomState) -> Ids:
    """Return the labels without those of some classes, as if these were new, and without some of the others.

    At least one class keeps labels.
    """
    n_known = int(ranks.max()) + 1
    labels = ranks.copy()
    if n_known == 0:
        return labels
    shuffled = random.permutation(n_known)
    n_hidden = min(n_known - 1, max(1, round(HIDDEN * n_known)))
    labels[np.isin(labels, shuffled[:n_hidden])] = -1
    for known in shuffled[n_hidden:]:
        images = random.permutation(np.flatnonzero(labels == known))
        labels[images[: min(len(images) - 1, round(HIDDEN * len(images)))]] = -1
    return labels
