"""The search for a number of categories: every count tried once, scored by what each repeat found there."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning

from sptnet.clustering.count_evidence import (
    Counts,
    GrowingClusters,
    Pairs,
    Values,
    balance,
    precision_and_recall,
    relative,
    silhouette,
)
from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans
from sptnet.metrics import contingency, matched_share

MOST_POINTS, SILHOUETTE_POINTS = 20_000, 1000
GROWTH = 1.12  # from one count of a walk to the next
FALLEN = 0.6  # share of the best at which a walk over counts ends
PLAUSIBLE = 0.8  # share of the best score that a plausible count reaches
TRUST_POWER = 2  # of the accuracy of labelled points: how far the best count is to be trusted

Floats = npt.NDArray[np.float32]
Scores = Callable[[Sequence[int], Counts], Values]
"""Of every count tried, from the repeats with these numbers and these known classes."""


@dataclass(frozen=True)
class CountFindings:
    """What one repeat found for one count."""

    table: Counts
    silhouette: float
    inertia: float


class GrowingRepeat:
    """Clusterings of a sample of the points, each grown from the one before."""

    def __init__(self, points: Floats, ranks: Counts, seed: int) -> None:
        random = np.random.RandomState(seed)
        chosen = np.sort(random.permutation(len(points))[:MOST_POINTS])
        self.measure = Measure(points[chosen], ranks[chosen], random)
        self.clusters = GrowingClusters(torch.from_numpy(points[chosen]), seed)
        n_known = int(ranks.max()) + 1
        left_out = 0 if n_known <= 2 else math.ceil(n_known / 5)
        self.counted: Counts = np.sort(random.permutation(n_known)[left_out:])
        """The classes that this repeat's own estimate is made from."""

    def __call__(self, n_clusters: int) -> CountFindings:
        labels, inertia = self.clusters.cluster(n_clusters)
        return self.measure(labels.numpy(), n_clusters, inertia)


class PlainRepeat:
    """Plain k-means on all points, every count by itself."""

    def __init__(self, points: Floats, ranks: Counts, seed: int, n_init: int) -> None:
        self.points, self.seed, self.n_init = points, seed, n_init
        self.measure = Measure(points, ranks, np.random.RandomState(seed))
        self.counted: Counts = np.arange(int(ranks.max()) + 1)

    def __call__(self, n_clusters: int) -> CountFindings:
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
        sampled = torch.from_numpy(points[self.sample]).double()  # so that a product of matrices is exact enough
        self.distances = torch.cdist(sampled, sampled, compute_mode="use_mm_for_euclid_dist").float()

    def __call__(self, labels: Counts, n_clusters: int, inertia: float) -> CountFindings:
        table = contingency(self.classes, labels[self.labelled], (self.n_known, n_clusters))
        apart = silhouette(self.distances, torch.from_numpy(labels[self.sample]), n_clusters)
        return CountFindings(table, apart, inertia)


class Curve:
    """Every count that was tried, with what each repeat found; no count is tried twice."""

    def __init__(self, repeats: Sequence[GrowingRepeat | PlainRepeat], on_trial: Callable[[int, int], None]) -> None:
        self.repeats, self.on_trial = repeats, on_trial
        self.found: dict[int, list[CountFindings]] = {}

    def __call__(self, n_categories: int) -> list[CountFindings]:
        if n_categories not in self.found:
            self.found[n_categories] = [repeat(n_categories) for repeat in self.repeats]
            self.on_trial(n_categories, len(self.found))
        return self.found[n_categories]

    @property
    def counts(self) -> list[int]:
        return sorted(self.found)

    def precision_and_recall(self, n_categories: int, of: Sequence[int], counted: Counts) -> tuple[float, float]:
        """Over the labelled pairs of the `counted` classes in the repeats numbered `of`."""
        found = self(n_categories)
        pairs = Pairs.pooled([Pairs.of(found[i].table[counted]) for i in of])
        return precision_and_recall(pairs, len(counted), n_categories)

    def accuracies(self, of: Sequence[int], counted: Counts) -> Values:
        return np.array([self.accuracy_at(k, of, counted) for k in self.counts])

    def balance_scores(self, of: Sequence[int], counted: Counts) -> Values:
        """Balance plus silhouette of every count tried, the best silhouette counting one."""
        even = np.array([balance(*self.precision_and_recall(k, of, counted)) for k in self.counts])
        return even + relative(self.silhouettes(of, counted))

    def silhouettes(self, of: Sequence[int], counted: Counts) -> Values:
        """Of every count tried; they ask no labels, whatever is `counted`."""
        return np.array([np.mean([self.found[k][i].silhouette for i in of]) for k in self.counts])

    def everything(self) -> tuple[Sequence[int], Counts]:
        """All repeats and all known classes: what a score is usually made from."""
        return range(len(self.repeats)), np.arange(self.repeats[0].measure.n_known)

    def accuracy_at(self, n_categories: int, of: Sequence[int], counted: Counts) -> float:
        """Of labelled points; 0 where there are none."""
        found = self(n_categories)
        tables = [found[i].table[counted] for i in of]
        return float(np.mean([matched_share(table) if table.any() else 0.0 for table in tables]))


@dataclass(frozen=True)
class Verdict:
    """A count, and the plausible ones round it."""

    low: int
    chosen: int
    high: int


def at_the_peak(counts: list[int], score: Values, trust: float) -> Verdict:
    """The count of the best score, whatever the trust in it."""
    low, high = plausible(counts, score)
    return Verdict(low, counts[int(score.argmax())], high)


def by_trust(counts: list[int], score: Values, trust: float) -> Verdict:
    """Between the count of the best score, where trust is 1, and the middle of the plausible ones, where it is 0.

    A score of noisy clusters is flat with its peak anywhere, most often near the known classes.
    """
    low, high = plausible(counts, score)
    peak, middle = counts[int(score.argmax())], math.sqrt(low * high)
    return Verdict(*(round(peak**trust * count ** (1 - trust)) for count in (low, middle, high)))


def plausible(counts: list[int], score: Values) -> tuple[int, int]:
    """The lowest and the highest count whose score is not far from the best."""
    enough = score.max() - (1 - PLAUSIBLE) * abs(score.max())
    fine = [count for count, value in zip(counts, score, strict=True) if value >= enough]
    return fine[0], fine[-1]


Choice = Callable[[list[int], Values, float], Verdict]


def answer(curve: Curve, scores: Scores, choice: Choice) -> Verdict:
    """By all repeats together; its range also holds what each repeat alone would choose."""

    def by(of: Sequence[int], counted: Counts) -> Verdict:
        score = scores(of, counted)
        peak = curve.counts[int(score.argmax())]
        return choice(curve.counts, score, curve.accuracy_at(peak, of, counted) ** TRUST_POWER)

    together = by(*curve.everything())
    alone = [by([i], one.counted).chosen for i, one in enumerate(curve.repeats)]
    low, high = min(together.low, together.chosen, *alone), max(together.high, together.chosen, *alone)
    return Verdict(low, together.chosen, high)


def search_by_brent(curve: Curve, low: int, high: int) -> None:
    """Tries the counts that a bounded search for the highest accuracy of labelled points asks for."""
    if low == high:
        curve(low)
    else:
        minimize_scalar(lambda x: -curve.accuracy_at(int(x), *curve.everything()), bounds=(low, high), method="bounded")


def walk(curve: Curve, low: int, high: int) -> None:
    """Tries ever larger counts until clusters are clearly finer than classes."""
    best = 0.0
    for k in growing(low, high):
        precision, recall = curve.precision_and_recall(k, *curve.everything())
        even = balance(precision, recall)
        best = max(best, even)
        if precision >= recall and even < FALLEN * best:
            break


def walk_unlabelled(curve: Curve, low: int, high: int) -> None:
    """Tries ever larger counts until clusters are clearly less apart than at their best."""
    best = 0.0
    for k in growing(low, high):
        apart = float(np.mean([one.silhouette for one in curve(k)]))
        best = max(best, apart)
        if apart < FALLEN * best:
            break


def growing(low: int, high: int) -> Iterator[int]:
    k = low
    yield k
    while k < high:
        k = min(high, max(k + 1, round(GROWTH * k)))
        yield k


def look_closer(curve: Curve, scores: Scores) -> None:
    """Tries counts round the best and round both ends of the plausible ones."""
    counts, score = curve.counts, scores(*curve.everything())
    wanted = {int(score.argmax()), *(counts.index(count) for count in plausible(counts, score))}
    for below, above in sorted({pair for i in wanted for pair in pairwise(counts[max(0, i - 1) : i + 2])}):
        for between in np.linspace(below, above, 5).round().astype(int).tolist()[1:-1]:
            curve(between)
