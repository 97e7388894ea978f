"""One round of split and merge: the clusters of unlabelled points become more or fewer."""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from torch import Tensor

from sptnet.clustering.mixture.niw import DEFAULT_PRIOR, Points, Prior, Vector, as_array, as_float64, log_split_ratio
from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans
from sptnet.errors import Misuse

ACCEPT, LEAST = 0.1, 5
STARTS = 4  # of 2-means

Floats = Float[np.ndarray[Any, Any], "n dim"]
Ids = npt.NDArray[np.int64]
Assignment = Int[np.ndarray[Any, Any], " n"] | Int[Tensor, " n"]


def split_and_merge(
    X: Points,  # noqa: N803
    assignment: Assignment,
    n_known: int,
    mean: Vector,
    random_state: int | np.random.RandomState | None,
    accept: float = ACCEPT,
    least: int = LEAST,
    prior: Prior = DEFAULT_PRIOR,
) -> tuple[Ids, int]:
    """Return the cluster per point after one round, and the number of clusters.

    Clusters 0 to n_known - 1 are those of the known classes: they are neither split nor merged and keep their ids, even
    without points. Every other cluster is split into the two halves of 2-means if each has more than `least` points and
    `log_split_ratio` is positive; otherwise with the probability `accept`. Clusters that were not split are merged with
    the nearest of their kind if the ratio of the pair is negative; otherwise with the probability `accept`. Pairs are
    tried in ascending order of the distance between their centres, and a cluster takes part in one merge at most.

    The new ids are consecutive: known classes, then clusters that are as before in their order, then merged clusters,
    then halves. Clusters without points vanish, except those of known classes. `mean` (dim) is the mean of `prior`,
    usually that of all points.
    """
    points, clusters = as_float64(X), as_array(assignment)
    _refuse_bad_input(points, clusters, n_known, accept, least)
    random = check_random_state(random_state)
    chance = _Chance(random, accept)
    whole: list[Ids] = []
    halves: list[Ids] = []
    for cluster in np.unique(clusters[clusters >= n_known]):
        members = np.flatnonzero(clusters == cluster)
        second = _second_half(points[members], least, random)
        if second is not None and (chance() or log_split_ratio(points[members], second, mean, *prior) > 0):
            halves += [members[second == 0], members[second == 1]]
        else:
            whole.append(members)
    merged: list[Ids] = []
    taken: set[int] = set()
    for one, two in _nearest_pairs(points, whole):
        if taken & {one, two}:
            continue
        members = np.concatenate([whole[one], whole[two]])
        second = np.repeat([0, 1], [len(whole[one]), len(whole[two])])
        if chance() or log_split_ratio(points[members], second, mean, *prior) < 0:
            merged.append(members)
            taken |= {one, two}
    unchanged = [members for number, members in enumerate(whole) if number not in taken]
    after = clusters.astype(np.int64)
    for new, members in enumerate([*unchanged, *merged, *halves], start=n_known):
        after[members] = new
    return after, n_known + len(unchanged) + len(merged) + len(halves)


class _Chance:
    """Coin that shows True with a fixed probability."""

    def __init__(self, random: np.random.RandomState, probability: float) -> None:
        self.random, self.probability = random, probability

    def __call__(self) -> bool:
        return bool(self.random.random_sample() < self.probability)


def _second_half(points: Floats, least: int, random: np.random.RandomState) -> Ids | None:
    """Return 1 for the points of the second cluster of 2-means and 0 for the others; None if a half is too small."""
    if len(points) < 2 * (least + 1):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # points that are all alike have one half
        second: Ids = SemiSupervisedKMeans(2, STARTS, random_state=random).fit(points).labels_
    return second if np.bincount(second, minlength=2).min() > least else None


def _nearest_pairs(points: Floats, clusters: list[Ids]) -> list[tuple[int, int]]:
    """Pair each cluster with the one whose centre is nearest; each pair once, the closest first."""
    if len(clusters) < 2:
        return []
    centres = np.stack([points[members].mean(axis=0) for members in clusters])
    apart = cdist(centres, centres)
    np.fill_diagonal(apart, np.inf)
    pairs = {(min(pair), max(pair)) for pair in enumerate(apart.argmin(axis=1).tolist())}
    return sorted(pairs, key=lambda pair: (apart[pair], pair))


def _refuse_bad_input(points: Floats, clusters: Ids, n_known: int, accept: float, least: int) -> None:
    if points.ndim != 2 or clusters.shape != points.shape[:1] or clusters.dtype.kind not in "iu":
        raise Misuse(
            f"X has the shape {points.shape} and assignment {clusters.shape} of {clusters.dtype}. "
            "Give the id of a cluster for each point."
        )
    if len(clusters) and clusters.min() < 0:
        raise Misuse(f"assignment holds {clusters.min()}. Give every point a cluster from 0.")
    if n_known < 0:
        raise Misuse(f"n_known is {n_known}. Give 0 or more.")
    if not 0 <= accept <= 1:
        raise Misuse(f"accept is {accept}. Give a probability from 0 to 1.")
    if least < 0:
        raise Misuse(f"least is {least}. Give 0 or more.")
