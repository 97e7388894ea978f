"""Estimate the number of categories from clusterings into K clusters and the labelled points."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from sptnet.clustering.count_evidence import Counts
from sptnet.clustering.count_modules import count_modules, middle
from sptnet.clustering.count_search import (
    Choice,
    Curve,
    GrowingRepeat,
    PlainRepeat,
    Scores,
    choose_best,
    choose_by_trust,
    choose_count,
    refine,
    search_by_balance,
    search_by_brent,
    search_by_silhouette,
)
from sptnet.clustering.count_share import MOST_POINTS, combine, share_evidence
from sptnet.clustering.points import principal_components, unit_features
from sptnet.clustering.semi_supervised_kmeans import class_ranks
from sptnet.errors import Misuse

MOST_CATEGORIES = 1000
LEAST_POINTS_EACH = 4  # mean number of points per category at the default max_categories
LEAST_UNLABELLED = 2  # default min_categories without known classes
LEAST_LABELLED = 2  # points per known class that a sample contains
DIMENSIONS = 64
STARTS = 10  # k-means starts per count for "brent", summed over all repeats

Floats = npt.NDArray[np.float32]
CountMethod = Literal["auto", "share", "balance", "between", "silhouette", "brent"]
WITHOUT_LABELS = ("between", "silhouette")


@dataclass(frozen=True)
class CountTrial:
    """Scores of one count: means over the repeats, inertia per point; no accuracy without labelled points."""

    n_categories: int
    labelled_accuracy: float | None
    silhouette: float
    inertia: float
    score: float


@dataclass(frozen=True)
class CountEstimate:
    """Estimated number of categories and the counts that were tried."""

    n_categories: int
    interval: tuple[int, int]
    """Lowest and highest plausible count: a 90 % range by "share", two bounds by "between"; others are less exact."""
    curve: list[CountTrial]
    method: str


def estimate_n_categories(
    X: npt.ArrayLike,  # noqa: N803
    y: npt.ArrayLike,
    min_categories: int | None = None,
    max_categories: int | None = None,
    random_state: int | np.random.RandomState | None = None,
    *,
    method: CountMethod = "auto",
    n_repeats: int = 5,
    on_trial: Callable[[int, int], None] = lambda n_categories, n_tried: None,
) -> CountEstimate:
    """Estimate the number of categories among all points X (n x dim); y holds class ids, -1 for unlabelled points.

    Counts from `min_categories` (default: the number of known classes) to `max_categories` (default: 1000, at most a
    quarter of the number of points) are tried. `on_trial` is called with each count and the number of counts tried.

    Methods:
    "share" finds the count at which the known classes hold as large a share of the points as of the clusters, measured
    in three ways on at most 4,000 points, and at least two labelled ones per class. The less the clusters match the
    known classes, the more it departs from "balance". The score of a count is its plausibility.
    "balance" finds the count at which clusters are as fine as the known classes: pairs of labelled points are separated
    as often as they are merged. The silhouette, as a share of its maximum, is added to the score. The search goes up
    from the smallest count until clusters are clearly too fine, then tries more counts near the best one. The estimate
    is the best count if clusters match classes, and moves towards the middle of the plausible counts the less they do.
    Each repeat uses at most 20,000 points and leaves some known classes out for its own estimate.
    "silhouette" finds the count with the best separated clusters. It uses no labels and therefore no information on
    how fine the categories should be.
    "between" uses no labels either. The count with the best silhouette is its lower bound, the number of modules in a
    graph of five neighbours per point its upper bound, and their geometric mean the estimate.
    "auto" is "share" if at least two known classes have two labelled points each, else "between".
    "brent" is the published rule: maximise the accuracy of the labelled points under k-means with Brent's bounded
    search; the best of all tried counts is kept.
    """
    if method not in get_args(CountMethod):
        raise Misuse(f"unknown method {method!r}. Use one of: {', '.join(get_args(CountMethod))}.")
    if n_repeats < 1:
        raise Misuse(f"n_repeats is {n_repeats}. Give a whole number of at least 1.")
    points = unit_features(X)
    known, ranks = class_ranks(y, len(points))
    comparable = bool((np.bincount(ranks[ranks >= 0], minlength=1) >= 2).sum() >= 2)
    if method == "auto":
        method = "share" if comparable else "between"
    check_labels(ranks, len(known), comparable or method in WITHOUT_LABELS)
    low, high = checked_range(min_categories, max_categories, ranks)
    random = check_random_state(random_state)
    seeds = [int(seed) for seed in random.randint(2**31 - 1, size=n_repeats)]
    if method == "brent":
        curve = Curve([PlainRepeat(points, ranks, seed, max(1, STARTS // n_repeats)) for seed in seeds], on_trial)
        search_by_brent(curve, low, high)
        return make_estimate(curve, curve.accuracies, choose_best, method)
    reduced = principal_components(points, DIMENSIONS)
    curve = Curve([GrowingRepeat(reduced, ranks, seed) for seed in seeds], on_trial)
    if method in WITHOUT_LABELS:
        search_by_silhouette(curve, low, high)
        refine(curve, curve.silhouettes)
        separated = make_estimate(curve, curve.silhouettes, choose_best, "silhouette")
        return separated if method == "silhouette" else estimate_between(points, low, high, random, separated, curve)
    search_by_balance(curve, low, high)
    refine(curve, curve.balance_scores)
    balanced = make_estimate(curve, curve.balance_scores, choose_by_trust, "balance")
    return balanced if method == "balance" else estimate_by_share(points, ranks, low, high, random, balanced)


def estimate_between(
    points: Floats, low: int, high: int, random: np.random.RandomState, separated: CountEstimate, curve: Curve
) -> CountEstimate:
    """Take the middle between the count with the best silhouette and the number of modules of a neighbour graph."""
    modules = min(high, max(low, count_modules(points, random)))
    least, most = sorted((separated.n_categories, modules))
    n_categories = middle(least, most)
    curve(n_categories)  # the curve must contain the estimate
    tried = make_estimate(curve, curve.silhouettes, choose_best, "between")
    return replace(tried, n_categories=n_categories, interval=(least, most))


def estimate_by_share(
    points: Floats, ranks: Counts, low: int, high: int, random: np.random.RandomState, balanced: CountEstimate
) -> CountEstimate:
    """Combine the estimate by balance with the share of the known classes, on a sample of many points."""
    chosen = random_sample(ranks, random)
    evidence = share_evidence(points[chosen], ranks[chosen], low, high, int(random.randint(2**31 - 1)))
    accuracy = next(trial.labelled_accuracy for trial in balanced.curve if trial.n_categories == balanced.n_categories)
    counts = combine(evidence, balanced.n_categories, accuracy or 0.0, int(ranks.max()) + 1)
    n_categories = min(high, max(low, round(counts.mean)))
    least, most = counts.interval()
    curve = [replace(trial, score=counts.plausibility(trial.n_categories)) for trial in balanced.curve]
    interval = min(n_categories, max(low, least)), max(n_categories, min(high, most))
    return CountEstimate(n_categories, interval, curve, "share")


def random_sample(ranks: Counts, random: np.random.RandomState) -> Counts:
    """Draw points, and add labelled ones of classes with fewer than two in the sample; the shares hardly change."""
    order = random.permutation(len(ranks))
    labelled = order[ranks[order] >= 0]
    by_class = labelled[ranks[labelled].argsort(kind="stable")]
    first = np.searchsorted(ranks[by_class], ranks[by_class])
    return np.union1d(order[:MOST_POINTS], by_class[np.arange(len(by_class)) - first < LEAST_LABELLED])


def make_estimate(curve: Curve, scores: Scores, choice: Choice, method: str) -> CountEstimate:
    """Choose a count and list the scores of all counts that were tried."""
    estimate = choose_count(curve, scores, choice)
    curve(estimate.chosen)  # the curve must contain the estimate
    evidence = curve.all_evidence()
    trials = [
        CountTrial(
            n_categories=k,
            labelled_accuracy=curve.accuracy_at(k, *evidence) if len(evidence[1]) else None,
            silhouette=float(np.mean([one.silhouette for one in curve.findings[k]])),
            inertia=float(np.mean([one.inertia for one in curve.findings[k]])),
            score=float(value),
        )
        for k, value in zip(curve.counts, scores(*evidence), strict=True)
    ]
    return CountEstimate(estimate.chosen, (estimate.low, estimate.high), trials, method)


def check_labels(ranks: Counts, n_known: int, comparable: bool) -> None:
    """Raise if the labels are too few for the method, or if every point is labelled."""
    if not comparable:
        raise Misuse(
            "this rule for counting categories needs at least two known ones with at least two labelled points each, "
            f"but y has {n_known} known and {(ranks >= 0).sum()} labelled points. Label more points, or use the method "
            "silhouette."
        )
    if (ranks >= 0).all():
        raise Misuse(
            f"every point is labelled, so the categories are the {n_known} known ones. "
            "Give -1 as the label of points whose category is not known."
        )


def checked_range(low: Any, high: Any, ranks: Counts) -> tuple[int, int]:
    """Return the smallest and largest count to try, with defaults filled in."""
    n_points, n_known = len(ranks), int(ranks.max()) + 1
    low = (n_known or min(LEAST_UNLABELLED, n_points)) if low is None else low
    high = max(low, min(MOST_CATEGORIES, n_points // LEAST_POINTS_EACH)) if high is None else high
    if low < max(1, n_known):
        named = f", but y names {n_known} known classes" if n_known else ""
        raise Misuse(f"min_categories is {low}{named}. Give at least {max(1, n_known)}.")
    if high < low:
        raise Misuse(f"max_categories is {high}, less than the smallest count {low}. Give at least {low}.")
    if high > n_points:
        raise Misuse(f"max_categories is {high}, but there are {n_points} points. Give at most {n_points}.")
    return int(low), int(high)
