"""How many categories are there? Clusterings into K clusters, judged by the labelled points among the images."""

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
    answer,
    at_the_peak,
    by_trust,
    look_closer,
    search_by_brent,
    walk,
    walk_unlabelled,
)
from sptnet.clustering.semi_supervised_kmeans import class_ranks
from sptnet.errors import Misuse

MOST_CATEGORIES = 1000
LEAST_POINTS_EACH = 4  # on average, where no max_categories is given
LEAST_UNLABELLED = 2  # categories, where none is known
DIMENSIONS = 64
STARTS = 10  # of k-means for each count of "brent", all repeats together

CountMethod = Literal["auto", "balance", "silhouette", "brent"]


@dataclass(frozen=True)
class CountTrial:
    """One count that was tried; means over the repeats, inertia per point, no accuracy where nothing is labelled."""

    n_categories: int
    labelled_accuracy: float | None
    silhouette: float
    inertia: float
    score: float


@dataclass(frozen=True)
class CountEstimate:
    n_categories: int
    interval: tuple[int, int]
    """From the lowest to the highest plausible count; the answers of all single repeats are among them."""
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
    """The number of categories among all points; y holds class ids, -1 for unlabelled points.

    Counts from `min_categories` (the known classes if not given) to `max_categories` are tried; if that is not given,
    1000, or a quarter of the number of points if that is less. `on_trial` hears each count and how many were tried.

    "balance" seeks the count at which clusters are as fine as the known classes: pairs of labelled points are split
    as often as they are thrown together. The silhouette adds to that, as a share of the best one met. It walks up
    from the smallest count until clusters are clearly too fine, then looks closer. The answer is the best count if
    clusters match classes, and moves to the middle of the plausible counts the less they do. Each repeat draws at most
    20,000 points and leaves some known classes out for its own answer.
    "silhouette" seeks the count at which clusters are most apart. It needs no labels, and so cannot know how fine a
    person would sort.
    "auto" is "balance" where two known classes have two labelled points each, and "silhouette" elsewhere.
    "brent" is the published rule: the accuracy of labelled points under k-means, maximised by Brent's bounded search;
    the best of all counts that it met is kept.
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
        return described(curve, curve.accuracies, at_the_peak, method)
    reduced = principal(points, DIMENSIONS)
    curve = Curve([GrowingRepeat(reduced, ranks, seed) for seed in seeds], on_trial)
    if method == "silhouette":
        walk_unlabelled(curve, low, high)
        look_closer(curve, curve.silhouettes)
        return described(curve, curve.silhouettes, at_the_peak, method)
    walk(curve, low, high)
    look_closer(curve, curve.balance_scores)
    return described(curve, curve.balance_scores, by_trust, method)


def described(curve: Curve, scores: Scores, choice: Choice, method: str) -> CountEstimate:
    found = answer(curve, scores, choice)
    curve(found.chosen)  # the curve always holds the answer
    everything = curve.everything()
    trials = [
        CountTrial(
            n_categories=k,
            labelled_accuracy=curve.accuracy_at(k, *everything) if len(everything[1]) else None,
            silhouette=float(np.mean([one.silhouette for one in curve.found[k]])),
            inertia=float(np.mean([one.inertia for one in curve.found[k]])),
            score=float(value),
        )
        for k, value in zip(curve.counts, scores(*everything), strict=True)
    ]
    return CountEstimate(found.chosen, (found.low, found.high), trials, method)


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


def check_labels(ranks: Counts, n_known: int, comparable: bool) -> None:
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
