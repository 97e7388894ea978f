"""How many categories are there? Clusterings into K clusters, judged by the labelled points among the images."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from sptnet.count_curve import (
    Counts,
    GrowingClusters,
    Pairs,
    Values,
    balance,
    contingency_table,
    matched_share,
    precision_and_recall,
    silhouette,
    stretched,
)
from sptnet.errors import Misuse
from sptnet.ss_kmeans import SemiSupervisedKMeans, class_ranks

MOST_CATEGORIES = 1000
LEAST_POINTS_EACH = 4  # on average, where no max_categories is given
MOST_POINTS, SILHOUETTE_POINTS = 20_000, 1000
DIMENSIONS = 64
STARTS = 10  # of k-means for each count of "brent", all repeats together
GROWTH = 1.12  # from one count of "balance" to the next
FALLEN = 0.5  # share of the best balance at which the walk over counts ends
SILHOUETTE_WEIGHT = 0.5

Method = Literal["balance", "brent"]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class CountTrial:
    """One count that was tried; means over the repeats, inertia per point."""

    n_categories: int
    labelled_accuracy: float
    silhouette: float
    inertia: float
    score: float


@dataclass(frozen=True)
class CountEstimate:
    n_categories: int
    interval: tuple[int, int]
    """The lowest and the highest count that a repeat alone would give."""
    curve: list[CountTrial]
    method: str


@dataclass(frozen=True)
class Clustering:
    """What one repeat found for one count."""

    table: Counts
    silhouette: float
    inertia: float


def estimate_n_categories(
    X: npt.ArrayLike,  # noqa: N803
    y: npt.ArrayLike,
    min_categories: int | None = None,
    max_categories: int | None = None,
    random_state: int | np.random.RandomState | None = None,
    *,
    method: Method = "balance",
    n_repeats: int = 5,
    on_trial: Callable[[int, int], None] = lambda n_categories, n_tried: None,
) -> CountEstimate:
    """The number of categories among all points; y holds class ids, -1 for unlabelled points.

    Counts from `min_categories` (the known classes if not given) to `max_categories` are tried; if that is not given,
    1000, or a quarter of the number of points if that is less. `on_trial` hears each count and how many were tried.

    "balance" seeks the count at which clusters are as fine as the known classes: pairs of labelled points are split
    as often as they are thrown together. The silhouette adds to that at half the weight. It walks up from the smallest
    count until clusters are clearly too fine, then looks closer round the best. Each repeat draws at most 20,000
    points and leaves some known classes out for its own estimate.
    "brent" is the published rule: the accuracy of labelled points under k-means, maximised by Brent's bounded search;
    the best of all counts that it met is kept.
    """
    if method not in get_args(Method):
        raise Misuse(f"unknown method {method!r}. Use one of: {', '.join(get_args(Method))}.")
    if n_repeats < 1:
        raise Misuse(f"n_repeats is {n_repeats}. Give a whole number of at least 1.")
    points = unit_features(X)
    ranks = checked_classes(y, len(points))
    low, high = checked_range(min_categories, max_categories, ranks)
    random = check_random_state(random_state)
    seeds = [int(seed) for seed in random.randint(2**31 - 1, size=n_repeats)]
    if method == "brent":
        curve = Curve([PlainRepeat(points, ranks, seed, max(1, STARTS // n_repeats)) for seed in seeds], on_trial)
        search_by_brent(curve, low, high)
        return curve.estimate(method, curve.accuracies)
    reduced = principal(points, DIMENSIONS)
    curve = Curve([GrowingRepeat(reduced, ranks, seed) for seed in seeds], on_trial)
    walk(curve, low, high)
    return curve.estimate(method, curve.balance_scores)


class GrowingRepeat:
    """Clusterings of a sample of the points, each grown from the one before."""

    def __init__(self, points: Floats, ranks: Counts, seed: int) -> None:
        random = np.random.RandomState(seed)
        chosen = np.sort(random.permutation(len(points))[:MOST_POINTS])
        self.measure = Measure(points[chosen], ranks[chosen], random)
        self.clusters = GrowingClusters(torch.from_numpy(points[chosen]), seed)
        n_known = int(ranks.max()) + 1
        left_out = 0 if n_known == 2 else math.ceil(n_known / 5)
        self.counted: Counts = np.sort(random.permutation(n_known)[left_out:])
        """The classes that this repeat's own estimate is made from."""

    def __call__(self, n_clusters: int) -> Clustering:
        labels, inertia = self.clusters.cluster(n_clusters)
        return self.measure(labels.numpy(), n_clusters, inertia)


class PlainRepeat:
    """Plain k-means on all points, every count by itself."""

    def __init__(self, points: Floats, ranks: Counts, seed: int, n_init: int) -> None:
        self.points, self.seed, self.n_init = points, seed, n_init
        self.measure = Measure(points, ranks, np.random.RandomState(seed))
        self.counted: Counts = np.arange(int(ranks.max()) + 1)

    def __call__(self, n_clusters: int) -> Clustering:
        kmeans = SemiSupervisedKMeans(n_clusters, n_init=self.n_init, random_state=self.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # empty clusters are an answer, too: K is too large
            labels = kmeans.fit(self.points).labels_
        return self.measure(labels, n_clusters, kmeans.inertia_ / len(self.points))


class Measure:
    """From the clusters of points to what is known about their number."""

    def __init__(self, points: Floats, ranks: Counts, random: np.random.RandomState) -> None:
        self.labelled, self.n_known = np.flatnonzero(ranks >= 0), int(ranks.max()) + 1
        self.classes = ranks[self.labelled]
        self.sample = random.permutation(len(points))[:SILHOUETTE_POINTS]
        sampled = torch.from_numpy(points[self.sample])
        self.distances = torch.cdist(sampled, sampled, compute_mode="donot_use_mm_for_euclid_dist")

    def __call__(self, labels: Counts, n_clusters: int, inertia: float) -> Clustering:
        table = contingency_table(self.classes, labels[self.labelled], self.n_known, n_clusters)
        apart = silhouette(self.distances, torch.from_numpy(labels[self.sample]), n_clusters)
        return Clustering(table, apart, inertia)


class Curve:
    """Every count that was tried, with what each repeat found; no count is tried twice."""

    def __init__(self, repeats: Sequence[GrowingRepeat | PlainRepeat], on_trial: Callable[[int, int], None]) -> None:
        self.repeats, self.on_trial = repeats, on_trial
        self.found: dict[int, list[Clustering]] = {}

    def __call__(self, n_categories: int) -> list[Clustering]:
        if n_categories not in self.found:
            self.found[n_categories] = [repeat(n_categories) for repeat in self.repeats]
            self.on_trial(n_categories, len(self.found))
        return self.found[n_categories]

    @property
    def counts(self) -> list[int]:
        return sorted(self.found)

    def accuracy(self, n_categories: int) -> float:
        return float(np.mean([matched_share(one.table) for one in self(n_categories)]))

    def precision_and_recall(self, n_categories: int, of: Sequence[int], counted: Counts) -> tuple[float, float]:
        """Over the labelled pairs of the `counted` classes in the repeats numbered `of`."""
        found = self(n_categories)
        pairs = Pairs.pooled([Pairs.of(found[i].table[counted]) for i in of])
        return precision_and_recall(pairs, len(counted), n_categories)

    def accuracies(self, of: Sequence[int], counted: Counts) -> Values:
        return np.array([np.mean([matched_share(self.found[k][i].table[counted]) for i in of]) for k in self.counts])

    def balance_scores(self, of: Sequence[int], counted: Counts) -> Values:
        """Balance and silhouette of every count tried."""
        even = np.array([balance(*self.precision_and_recall(k, of, counted)) for k in self.counts])
        apart = np.array([np.mean([self.found[k][i].silhouette for i in of]) for k in self.counts])
        return even + SILHOUETTE_WEIGHT * stretched(apart)

    def estimate(self, method: str, scores: Callable[[Sequence[int], Counts], Values]) -> CountEstimate:
        """The count of the best score over all repeats and classes, and where those of single repeats lie."""
        everything = np.arange(len(self.found[self.counts[0]][0].table))
        score = scores(range(len(self.repeats)), everything)
        best = self.counts[int(score.argmax())]
        alone = [self.counts[int(scores([i], one.counted).argmax())] for i, one in enumerate(self.repeats)]
        trials = [
            CountTrial(
                n_categories=k,
                labelled_accuracy=self.accuracy(k),
                silhouette=float(np.mean([one.silhouette for one in self.found[k]])),
                inertia=float(np.mean([one.inertia for one in self.found[k]])),
                score=float(value),
            )
            for k, value in zip(self.counts, score, strict=True)
        ]
        return CountEstimate(best, (min([best, *alone]), max([best, *alone])), trials, method)


def search_by_brent(curve: Curve, low: int, high: int) -> None:
    """Tries the counts that a bounded search for the highest accuracy of labelled points asks for."""
    if low == high:
        curve(low)
    else:
        minimize_scalar(lambda x: -curve.accuracy(int(x)), bounds=(low, high), method="bounded")


def walk(curve: Curve, low: int, high: int) -> None:
    """Tries ever larger counts until clusters are clearly finer than classes, then those round the best."""
    everything, repeats = np.arange(curve.repeats[0].measure.n_known), range(len(curve.repeats))
    k, best = low, 0.0
    while True:
        precision, recall = curve.precision_and_recall(k, repeats, everything)
        even = balance(precision, recall)
        best = max(best, even)
        if k == high or (precision >= recall and even < FALLEN * best):
            break
        k = min(high, max(k + 1, round(GROWTH * k)))
    middle = int(curve.balance_scores(repeats, everything).argmax())
    for below, above in pairwise(curve.counts[max(0, middle - 1) : middle + 2]):
        for between in np.linspace(below, above, 5).round().astype(int).tolist()[1:-1]:
            curve(between)


def unit_features(X: npt.ArrayLike) -> Floats:  # noqa: N803
    """Rows of length one; a row of zeros stays as it is."""
    data = np.asarray(X, dtype=np.float32)
    if data.ndim != 2 or data.size == 0:
        raise Misuse(f"X has the shape {data.shape}. Give one row of features for each point.")
    if not np.isfinite(data).all():
        raise Misuse("X holds values that are not finite. Leave out the points whose features are NaN or infinite.")
    data = data / np.maximum(np.abs(data).max(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    unit: Floats = data / np.maximum(np.linalg.norm(data, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return unit


def principal(points: Floats, dimensions: int) -> Floats:
    """Centred points along the directions in which they differ most."""
    centred: Floats = points - points.mean(axis=0)
    if points.shape[1] <= dimensions:
        return centred
    directions = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :dimensions]
    reduced: Floats = np.ascontiguousarray(centred @ directions)
    return reduced


def checked_classes(y: npt.ArrayLike, n_points: int) -> Counts:
    """For every point the position of its class among the known ones, or -1."""
    known, ranks = class_ranks(y, n_points)
    if (np.bincount(ranks[ranks >= 0], minlength=1) >= 2).sum() < 2:
        raise Misuse(
            "counting categories needs at least two known ones with at least two labelled points each, but "
            f"y has {len(known)} known and {(ranks >= 0).sum()} labelled points. Label more points."
        )
    if (ranks >= 0).all():
        raise Misuse(
            f"every point is labelled, so the categories are the {len(known)} known ones. "
            "Give -1 as the label of points whose category is not known."
        )
    return ranks


def checked_range(low: Any, high: Any, ranks: Counts) -> tuple[int, int]:
    n_points, n_known = len(ranks), int(ranks.max()) + 1
    low = n_known if low is None else low
    high = max(low, min(MOST_CATEGORIES, n_points // LEAST_POINTS_EACH)) if high is None else high
    if low < n_known:
        raise Misuse(f"min_categories is {low}, but y names {n_known} known classes. Give at least {n_known}.")
    if high < low:
        raise Misuse(f"max_categories is {high}, less than the smallest count {low}. Give at least {low}.")
    if high > n_points:
        raise Misuse(f"max_categories is {high}, but there are {n_points} points. Give at most {n_points}.")
    return int(low), int(high)
