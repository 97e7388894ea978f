"""Estimate the number of categories from clusterings into K clusters and the labelled points."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state

from sptnet.clustering.count_evidence import Counts
from sptnet.clustering.count_search import (
    Choice,
    Curve,
    Floats,
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
from sptnet.clustering.semi_supervised_kmeans import class_ranks
from sptnet.errors import Misuse

MOST_CATEGORIES = 1000
LEAST_POINTS_EACH = 4  # mean number of points per category at the default max_categories
LEAST_UNLABELLED = 2  # default min_categories without known classes
DIMENSIONS = 64
STARTS = 10  # k-means starts per count for "brent", summed over all repeats

CountMethod = Literal["auto", "balance", "silhouette", "brent"]


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
    """Lowest and highest plausible count; contains the estimates of all single repeats."""
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
    "balance" finds the count at which clusters are as fine as the known classes: pairs of labelled points are separated
    as often as they are merged. The silhouette, as a share of its maximum, is added to the score. The search goes up
    from the smallest count until clusters are clearly too fine, then tries more counts near the best one. The estimate
    is the best count if clusters match classes, and moves towards the middle of the plausible counts the less they do.
    Each repeat uses at most 20,000 points and leaves some known classes out for its own estimate.
    "silhouette" finds the count with the best separated clusters. It uses no labels and therefore no information on
    how fine the categories should be.
    "auto" is "balance" if at least two known classes have two labelled points each, else "silhouette".
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
        method = "balance" if comparable else "silhouette"
    check_labels(ranks, len(known), comparable or method == "silhouette")
    low, high = checked_range(min_categories, max_categories, ranks)
    random = check_random_state(random_state)
    seeds = [int(seed) for seed in random.randint(2**31 - 1, size=n_repeats)]
    if method == "brent":
        curve = Curve([PlainRepeat(points, ranks, seed, max(1, STARTS // n_repeats)) for seed in seeds], on_trial)
        search_by_brent(curve, low, high)
        return make_estimate(curve, curve.accuracies, choose_best, method)
    reduced = principal_components(points, DIMENSIONS)
    curve = Curve([GrowingRepeat(reduced, ranks, seed) for seed in seeds], on_trial)
    if method == "silhouette":
        search_by_silhouette(curve, low, high)
        refine(curve, curve.silhouettes)
        return make_estimate(curve, curve.silhouettes, choose_best, method)
    search_by_balance(curve, low, high)
    refine(curve, curve.balance_scores)
    return make_estimate(curve, curve.balance_scores, choose_by_trust, method)


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


def unit_features(X: npt.ArrayLike) -> Floats:  # noqa: N803
    """Normalise rows to length one; a row of zeros stays zero."""
    data = np.asarray(X, dtype=np.float32)
    if data.ndim != 2 or data.size == 0:
        raise Misuse(f"X has the shape {data.shape}. Give one row of features for each point.")
    if not np.isfinite(data).all():
        raise Misuse("X holds values that are not finite. Leave out the points whose features are NaN or infinite.")
    data = data / np.maximum(np.abs(data).max(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    unit: Floats = data / np.maximum(np.linalg.norm(data, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return unit


def principal_components(points: Floats, dimensions: int) -> Floats:
    """Return centred points in the coordinates of at most `dimensions` principal components."""
    centred: Floats = points - points.mean(axis=0)
    if points.shape[1] <= dimensions:
        return centred
    directions = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :dimensions]
    reduced: Floats = np.ascontiguousarray(centred @ directions)
    return reduced


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
    if low < n_known:
        raise Misuse(f"min_categories is {low}, but y names {n_known} known classes. Give at least {n_known}.")
    if high < low:
        raise Misuse(f"max_categories is {high}, less than the smallest count {low}. Give at least {low}.")
    if high > n_points:
        raise Misuse(f"max_categories is {high}, but there are {n_points} points. Give at most {n_points}.")
    return int(low), int(high)
