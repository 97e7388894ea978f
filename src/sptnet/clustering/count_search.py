"""Search for a number of categories: each count is tried once and scored over several repeats."""

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
GROWTH = 1.12  # ratio of successive counts in a search
FALLEN = 0.6  # share of the best value below which a search ends
PLAUSIBLE = 0.8  # share of the best score that a plausible count reaches
TRUST_POWER = 2  # trust in the best count is the accuracy of the labelled points to this power

Floats = npt.NDArray[np.float32]
Scores = Callable[[Sequence[int], Counts], Values]
"""Function that returns one score per count tried, from the given repeats and known classes."""


@dataclass(frozen=True)
class CountFindings:
    """Result of one repeat for one count."""

    table: Counts
    """Numbers of labelled points: known classes x clusters."""
    silhouette: float
    inertia: float


class GrowingRepeat:
    """Clusterings of a sample of the points, each started from the next smaller one."""

    def __init__(self, points: Floats, ranks: Counts, seed: int) -> None:
        random = np.random.RandomState(seed)
        chosen = np.sort(random.permutation(len(points))[:MOST_POINTS])
        self.measure = Measure(points[chosen], ranks[chosen], random)
        self.clusters = GrowingClusters(torch.from_numpy(points[chosen]), seed)
        n_known = int(ranks.max()) + 1
        left_out = 0 if n_known <= 2 else math.ceil(n_known / 5)
        self.classes: Counts = np.sort(random.permutation(n_known)[left_out:])
        """The known classes that this repeat's own estimate uses."""

    def __call__(self, n_clusters: int) -> CountFindings:
        """Cluster the sample and measure the result."""
        labels, inertia = self.clusters.cluster(n_clusters)
        return self.measure(labels.numpy(), n_clusters, inertia)


class PlainRepeat:
    """Plain k-means on all points, independent for every count."""

    def __init__(self, points: Floats, ranks: Counts, seed: int, n_init: int) -> None:
        self.points, self.seed, self.n_init = points, seed, n_init
        self.measure = Measure(points, ranks, np.random.RandomState(seed))
        self.classes: Counts = np.arange(int(ranks.max()) + 1)

    def __call__(self, n_clusters: int) -> CountFindings:
        """Cluster all points and measure the result."""
        kmeans = SemiSupervisedKMeans(n_clusters, n_init=self.n_init, random_state=self.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # empty clusters are expected if K is too large
            labels = kmeans.fit(self.points).labels_
        return self.measure(labels, n_clusters, kmeans.inertia_ / len(self.points))


class Measure:
    """Measure clusterings of one set of points: contingency table, silhouette and inertia."""

    def __init__(self, points: Floats, ranks: Counts, random: np.random.RandomState) -> None:
        self.labelled, self.n_known = np.flatnonzero(ranks >= 0), int(ranks.max()) + 1
        self.classes = ranks[self.labelled]
        self.sample = random.permutation(len(points))[:SILHOUETTE_POINTS]
        sampled = torch.from_numpy(points[self.sample]).double()  # float32 loses too many digits in the matrix product
        self.distances = torch.cdist(sampled, sampled, compute_mode="use_mm_for_euclid_dist").float()

    def __call__(self, labels: Counts, n_clusters: int, inertia: float) -> CountFindings:
        """Measure one clustering, given the cluster per point."""
        table = contingency(self.classes, labels[self.labelled], (self.n_known, n_clusters))
        separation = silhouette(self.distances, torch.from_numpy(labels[self.sample]), n_clusters)
        return CountFindings(table, separation, inertia)


class Curve:
    """Findings of all repeats per count; no count is tried twice."""

    def __init__(self, repeats: Sequence[GrowingRepeat | PlainRepeat], on_trial: Callable[[int, int], None]) -> None:
        self.repeats, self.on_trial = repeats, on_trial
        self.findings: dict[int, list[CountFindings]] = {}

    def __call__(self, n_categories: int) -> list[CountFindings]:
        """Return the findings of all repeats for a count; try it if necessary."""
        if n_categories not in self.findings:
            self.findings[n_categories] = [repeat(n_categories) for repeat in self.repeats]
            self.on_trial(n_categories, len(self.findings))
        return self.findings[n_categories]

    @property
    def counts(self) -> list[int]:
        """Counts tried so far, sorted."""
        return sorted(self.findings)

    def precision_and_recall(self, n_categories: int, repeats: Sequence[int], classes: Counts) -> tuple[float, float]:
        """Precision and recall of labelled pairs of the given classes in the given repeats."""
        findings = self(n_categories)
        pairs = Pairs.pooled([Pairs.of(findings[i].table[classes]) for i in repeats])
        return precision_and_recall(pairs, len(classes), n_categories)

    def accuracies(self, repeats: Sequence[int], classes: Counts) -> Values:
        """Accuracy of labelled points per count tried."""
        return np.array([self.accuracy_at(k, repeats, classes) for k in self.counts])

    def balance_scores(self, repeats: Sequence[int], classes: Counts) -> Values:
        """Balance plus relative silhouette per count tried."""
        balances = np.array([balance(*self.precision_and_recall(k, repeats, classes)) for k in self.counts])
        return balances + relative(self.silhouettes(repeats, classes))

    def silhouettes(self, repeats: Sequence[int], classes: Counts) -> Values:
        """Mean silhouette per count tried; `classes` is ignored."""
        return np.array([np.mean([self.findings[k][i].silhouette for i in repeats]) for k in self.counts])

    def all_evidence(self) -> tuple[Sequence[int], Counts]:
        """Return the numbers of all repeats and all known classes, the arguments of a score over all data."""
        return range(len(self.repeats)), np.arange(self.repeats[0].measure.n_known)

    def accuracy_at(self, n_categories: int, repeats: Sequence[int], classes: Counts) -> float:
        """Mean accuracy of labelled points; 0 without labelled points."""
        findings = self(n_categories)
        tables = [findings[i].table[classes] for i in repeats]
        return float(np.mean([matched_share(table) if table.any() else 0.0 for table in tables]))


@dataclass(frozen=True)
class ChosenCount:
    """A count and the range of plausible counts."""

    low: int
    chosen: int
    high: int


def choose_best(counts: list[int], score: Values, trust: float) -> ChosenCount:
    """Choose the count with the best score; `trust` is ignored."""
    low, high = plausible_range(counts, score)
    return ChosenCount(low, counts[int(score.argmax())], high)


def choose_by_trust(counts: list[int], score: Values, trust: float) -> ChosenCount:
    """Interpolate between the best count (trust 1) and the middle of the plausible counts (trust 0).

    The score of noisy clusters is flat, and its maximum may be anywhere, most often near the number of known classes.
    """
    low, high = plausible_range(counts, score)
    peak, middle = counts[int(score.argmax())], math.sqrt(low * high)
    return ChosenCount(*(round(peak**trust * count ** (1 - trust)) for count in (low, middle, high)))


def plausible_range(counts: list[int], score: Values) -> tuple[int, int]:
    """Return the lowest and the highest count whose score is close to the best."""
    threshold = score.max() - (1 - PLAUSIBLE) * abs(score.max())
    close = [count for count, value in zip(counts, score, strict=True) if value >= threshold]
    return close[0], close[-1]


Choice = Callable[[list[int], Values, float], ChosenCount]


def choose_count(curve: Curve, scores: Scores, choice: Choice) -> ChosenCount:
    """Choose a count from all repeats together; the range contains the choice of each single repeat."""

    def choose(repeats: Sequence[int], classes: Counts) -> ChosenCount:
        score = scores(repeats, classes)
        peak = curve.counts[int(score.argmax())]
        return choice(curve.counts, score, curve.accuracy_at(peak, repeats, classes) ** TRUST_POWER)

    together = choose(*curve.all_evidence())
    alone = [choose([i], repeat.classes).chosen for i, repeat in enumerate(curve.repeats)]
    low, high = min(together.low, together.chosen, *alone), max(together.high, together.chosen, *alone)
    return ChosenCount(low, together.chosen, high)


def search_by_brent(curve: Curve, low: int, high: int) -> None:
    """Try counts by a bounded search for the highest accuracy of the labelled points."""
    if low == high:
        curve(low)
        return
    evidence = curve.all_evidence()
    minimize_scalar(lambda x: -curve.accuracy_at(int(x), *evidence), bounds=(low, high), method="bounded")


def search_by_balance(curve: Curve, low: int, high: int) -> None:
    """Try increasing counts until clusters are clearly finer than classes."""
    best = 0.0
    for k in increasing_counts(low, high):
        precision, recall = curve.precision_and_recall(k, *curve.all_evidence())
        value = balance(precision, recall)
        best = max(best, value)
        if precision >= recall and value < FALLEN * best:
            break


def search_by_silhouette(curve: Curve, low: int, high: int) -> None:
    """Try increasing counts until the silhouette is clearly below its maximum."""
    best = 0.0
    for k in increasing_counts(low, high):
        value = float(np.mean([one.silhouette for one in curve(k)]))
        best = max(best, value)
        if value < FALLEN * best:
            break


def increasing_counts(low: int, high: int) -> Iterator[int]:
    """Yield counts from `low` to `high`, each about 12 % (at least 1) above the one before."""
    k = low
    yield k
    while k < high:
        k = min(high, max(k + 1, round(GROWTH * k)))
        yield k


def refine(curve: Curve, scores: Scores) -> None:
    """Try more counts near the best one and near both ends of the plausible range."""
    counts, score = curve.counts, scores(*curve.all_evidence())
    positions = {int(score.argmax()), *(counts.index(count) for count in plausible_range(counts, score))}
    for below, above in sorted({pair for i in positions for pair in pairwise(counts[max(0, i - 1) : i + 2])}):
        for between in np.linspace(below, above, 5).round().astype(int).tolist()[1:-1]:
            curve(between)
