"""Estimate of the number of categories: known truths, no count tried twice, invalid input refused."""

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn.metrics import silhouette_score

from helpers.rounding import DOUBLE, assert_same
from sptnet.clustering import count as count_module
from sptnet.clustering import count_evidence, count_search
from sptnet.clustering.count import CountEstimate, estimate_n_categories, random_sample
from sptnet.clustering.count_evidence import (
    GrowingClusters,
    Pairs,
    balance,
    precision_and_recall,
    relative,
    silhouette,
)
from sptnet.clustering.count_modules import count_modules
from sptnet.clustering.count_search import ChosenCount, choose_best, choose_by_trust, plausible_range
from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans
from sptnet.errors import Misuse

METHODS = ("balance", "brent")
Problem = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]


def blobs(n_classes: int = 8, n_known: int = 4, each: int = 24, seed: int = 0, dim: int = 16) -> Problem:
    """Separate classes, two of them near each other; every second point of the known ones is labelled."""
    random = np.random.RandomState(seed)
    centres = random.standard_normal((n_classes, dim))
    centres[1] = centres[0] + 0.3 * random.standard_normal(dim)  # two close classes, merged by few clusters
    truth = np.repeat(np.arange(n_classes), each)
    points = centres[truth] + 0.05 * random.standard_normal((len(truth), dim))
    return points.astype(np.float32), np.where((truth < n_known) & (np.arange(len(truth)) % 2 == 0), truth, -1)


def counted(features: Any, y: Any, method: Any, seed: Any = 0) -> CountEstimate:
    return estimate_n_categories(features, y, max_categories=16, random_state=seed, method=method)


@pytest.fixture(scope="module")
def estimates() -> dict[str, CountEstimate]:
    features, y = blobs()
    return {method: counted(features, y, method) for method in METHODS}


@pytest.mark.parametrize("method", METHODS)
def test_separate_blobs_are_counted(estimates: dict[str, CountEstimate], method: str) -> None:
    assert estimates[method].method == method
    assert estimates[method].n_categories == 8


@pytest.mark.parametrize(("n_classes", "n_known", "off"), [(5, 3, 0), (12, 4, 0), (20, 15, 1)])
def test_the_default_counts_other_blobs(n_classes: int, n_known: int, off: int) -> None:
    """One in twenty may be missed: a k-means run may merge the two close classes."""
    features, y = blobs(n_classes, n_known, seed=n_classes)
    result = estimate_n_categories(features, y, random_state=1, n_repeats=3)
    assert abs(result.n_categories - n_classes) <= off
    assert result.interval[0] <= n_classes <= result.interval[1]


def test_counts_between_those_of_the_search_are_tried_near_the_best() -> None:
    result = estimate_n_categories(*blobs(20, 15, seed=20), random_state=1, n_repeats=1)
    counts = [trial.n_categories for trial in result.curve]
    walked = [15, 17, 19, 21, 24, 27, 30]
    assert set(walked) <= set(counts)
    assert 20 in counts
    assert set(counts) < set(range(counts[0], counts[-1] + 1)), "far from the best only counts of the search are tried"


@pytest.mark.parametrize("method", METHODS)
def test_the_curve_ascends_within_bounds_and_the_interval_holds_the_estimate(
    estimates: dict[str, CountEstimate], method: str
) -> None:
    counts = [trial.n_categories for trial in estimates[method].curve]
    assert counts == sorted(set(counts))
    assert counts[0] >= 4 and counts[-1] <= 16
    low, high = estimates[method].interval
    assert low <= estimates[method].n_categories <= high
    assert estimates[method].n_categories in counts


def test_the_published_rule_keeps_the_best_of_all_scores(estimates: dict[str, CountEstimate]) -> None:
    scores = {trial.n_categories: trial.score for trial in estimates["brent"].curve}
    assert estimates["brent"].n_categories == min(scores, key=lambda k: (-scores[k], k))


SCORE = np.array([0.5, 0.8, 1.0, 0.9, 0.81, 0.7])
COUNTS = [4, 5, 6, 8, 16, 32]


@pytest.mark.parametrize(
    ("trust", "answer"),
    [(1.0, ChosenCount(6, 6, 6)), (0.0, ChosenCount(5, 9, 16)), (0.5, ChosenCount(5, 7, 10))],
)
def test_trust_interpolates_between_the_best_count_and_the_middle(trust: float, answer: ChosenCount) -> None:
    """Plausible are 5 to 16, whose geometric middle is 8.94; halfway to 6 lie 5.48, 7.33 and 9.80."""
    assert choose_by_trust(COUNTS, SCORE, trust) == answer
    assert choose_best(COUNTS, SCORE, trust) == ChosenCount(5, 6, 16)


def test_plausible_counts_of_negative_scores_hold_the_best() -> None:
    assert plausible_range([2, 3, 4], np.array([-0.3, -0.1, -0.115])) == (3, 4)
    assert plausible_range([2, 3, 4], np.zeros(3)) == (2, 4)


def test_without_labels_two_bounds_agree_on_clear_clusters() -> None:
    features, y = blobs(10, 5, seed=10)
    result = estimate_n_categories(features, np.full(len(y), -1), random_state=1, n_repeats=3)
    assert (result.method, result.n_categories) == ("between", 10)
    assert result.interval in ((10, 10), (10, 11))
    assert result.curve[0].n_categories == 2
    assert all(trial.labelled_accuracy is None and trial.score == trial.silhouette for trial in result.curve)
    assert max(trial.score for trial in result.curve) == next(t.score for t in result.curve if t.n_categories == 10)
    one_class = estimate_n_categories(features, np.where(y == 0, 0, -1), random_state=1, n_repeats=3)
    assert one_class.method == "between" and one_class.n_categories == 10


def test_without_labels_unclear_clusters_have_a_wide_range() -> None:
    """Six groups of three blobs that overlap: the silhouette sees the groups, the graph more than the groups."""
    random = np.random.RandomState(0)
    groups = np.eye(6, 24).repeat(3, axis=0)
    centres = groups + 0.25 * random.standard_normal((18, 24))
    points = centres.repeat(25, axis=0) + 0.12 * random.standard_normal((450, 24))
    nothing = np.full(450, -1)
    result = estimate_n_categories(points, nothing, random_state=1, n_repeats=2)
    coarse = estimate_n_categories(points, nothing, random_state=1, n_repeats=2, method="silhouette").n_categories
    low, high = result.interval
    assert low == coarse < result.n_categories < high
    assert low <= 18 <= high
    assert result.n_categories == round((low * high) ** 0.5)
    assert result.n_categories in [trial.n_categories for trial in result.curve]


def test_few_points_are_one_module() -> None:
    assert count_modules(np.eye(4), np.random.RandomState(0)) == 1
    assert count_modules(np.ones((40, 3)) / 3**0.5, np.random.RandomState(0)) >= 1


def test_a_search_without_labels_ends_after_the_best_silhouette() -> None:
    features, y = blobs(5, 3, seed=10)
    result = estimate_n_categories(features, np.full(len(y), -1), random_state=1, n_repeats=1)
    scores = [trial.score for trial in result.curve]
    assert result.curve[-1].n_categories < len(y) // 4
    assert scores[-1] < count_search.FALLEN * max(scores)
    assert all(score >= count_search.FALLEN * max(scores[: i + 1]) for i, score in enumerate(scores[:-1]))


def test_the_published_score_is_the_labelled_accuracy(estimates: dict[str, CountEstimate]) -> None:
    curve = estimates["brent"].curve
    assert [trial.score for trial in curve] == [trial.labelled_accuracy for trial in curve]


def test_the_search_does_not_end_on_its_last_count_but_on_its_best(monkeypatch: pytest.MonkeyPatch) -> None:
    def wander(function: Callable[[float], float], bounds: tuple[int, int], method: str) -> None:
        assert (bounds, method) == ((4, 48), "bounded")
        for x in (20.9, 8.2, 40.0):
            function(x)

    monkeypatch.setattr(count_search, "minimize_scalar", wander)
    result = estimate_n_categories(*blobs(), random_state=0, method="brent", n_repeats=1)
    assert [trial.n_categories for trial in result.curve] == [8, 20, 40]
    assert result.n_categories == 8


def test_brents_curve_is_what_k_means_and_all_matchings_give() -> None:
    """Accuracy, inertia and silhouette of every count, by plain k-means and by trying every one-to-one matching."""
    features, y = blobs(4, 3, each=20)
    result = estimate_n_categories(features, y, 3, 6, random_state=3, method="brent", n_repeats=1)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    seed = int(np.random.RandomState(3).randint(2**31 - 1, size=1)[0])
    assert len(result.curve) >= 2
    for trial in result.curve:
        model = SemiSupervisedKMeans(trial.n_categories, n_init=10, random_state=seed).fit(unit)
        clusters, classes = model.labels_[y >= 0], y[y >= 0]
        matchings = itertools.permutations(range(trial.n_categories), 3)
        hits = max(sum(int((clusters[classes == c] == m[c]).sum()) for c in range(3)) for m in matchings)
        assert trial.labelled_accuracy == hits / len(classes)
        terms = sum(features.shape)  # means over points of sums over axes
        assert_same(trial.inertia, model.inertia_ / len(features), terms, dtype=torch.float32)
        assert_same(trial.silhouette, silhouette_score(unit, model.labels_), terms, scale=1.0, dtype=torch.float32)


def test_the_defaults_curve_is_what_its_clusters_give(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accuracy of the recorded clusters by all matchings and inertia from the means of the clusters."""
    clusterings: dict[int, list[tuple[npt.NDArray[np.int64], torch.Tensor]]] = {}
    cluster = GrowingClusters.cluster

    def recorded(self: GrowingClusters, k: int) -> Any:
        labels, inertia = cluster(self, k)
        clusterings.setdefault(k, []).append((labels.numpy(), self.points))
        return labels, inertia

    monkeypatch.setattr(GrowingClusters, "cluster", recorded)
    features, y = blobs(4, 3, each=20)
    result = estimate_n_categories(features, y, max_categories=6, random_state=0, n_repeats=2)
    for trial in result.curve:
        shares, inertias = [], []
        for labels, points in clusterings[trial.n_categories]:
            clusters, classes = labels[y >= 0], y[y >= 0]
            matchings = itertools.permutations(range(trial.n_categories), 3)
            hits = max(sum(int((clusters[classes == c] == m[c]).sum()) for c in range(3)) for m in matchings)
            shares.append(hits / len(classes))
            means = np.stack([points.numpy()[labels == c].mean(0) for c in range(trial.n_categories)])
            inertias.append(((points.numpy() - means[labels]) ** 2).sum() / len(features))
        assert trial.labelled_accuracy == pytest.approx(np.mean(shares), abs=DOUBLE)
        assert trial.inertia == pytest.approx(np.mean(inertias), rel=0.02)  # the last assignment follows the last means


@pytest.mark.parametrize("method", METHODS)
def test_no_count_is_clustered_twice(monkeypatch: pytest.MonkeyPatch, method: Any) -> None:
    calls: Counter[tuple[int, int]] = Counter()
    for repeat in (count_module.GrowingRepeat, count_module.PlainRepeat):
        inner = repeat.__call__

        def count_calls(self: Any, k: int, inner: Any = inner) -> Any:
            calls[id(self), k] += 1
            return inner(self, k)

        monkeypatch.setattr(repeat, "__call__", count_calls)
    trials: list[tuple[int, int]] = []
    result = estimate_n_categories(
        *blobs(), random_state=0, method=method, n_repeats=2, on_trial=lambda k, n: trials.append((k, n))
    )
    assert set(calls.values()) == {1}
    assert len(calls) == 2 * len(result.curve)
    assert sorted(k for k, _ in trials) == [trial.n_categories for trial in result.curve]
    assert [n for _, n in trials] == list(range(1, len(trials) + 1))


@pytest.mark.parametrize("method", METHODS)
def test_results_depend_on_the_seed_alone(estimates: dict[str, CountEstimate], method: Any) -> None:
    features, y = blobs()
    assert counted(features, y, method) == estimates[method]
    again = counted(features, y, method, np.random.RandomState(0))
    assert again == estimates[method]
    other = counted(features, y, method, 1)
    assert [t.silhouette for t in other.curve] != [t.silhouette for t in estimates[method].curve]


@pytest.mark.parametrize("method", METHODS)
def test_lengths_and_class_ids_do_not_matter(estimates: dict[str, CountEstimate], method: Any) -> None:
    features, y = blobs()
    longer = features * np.float32(4.0)
    names = np.where(y >= 0, 10 * y + 7, -1)
    assert counted(longer, names.tolist(), method) == estimates[method]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("low", "high"), [(4, 6), (10, 14), (9, 9), (None, 4)])
def test_bounds_are_kept(method: Any, low: int | None, high: int) -> None:
    result = estimate_n_categories(*blobs(), low, high, random_state=0, method=method, n_repeats=2)
    counts = [trial.n_categories for trial in result.curve]
    assert min(counts) >= (low or 4) and max(counts) <= high
    assert result.n_categories in counts


def test_the_default_bound_is_a_quarter_of_the_points_but_never_below_the_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []
    real = count_module.search_by_balance

    def recorded_search(curve: Any, low: int, high: int) -> None:
        asked.append((low, high))
        real(curve, low, high)

    monkeypatch.setattr(count_module, "search_by_balance", recorded_search)
    features, y = blobs(4, 4, each=4)
    estimate_n_categories(features, y, random_state=0, n_repeats=1)
    estimate_n_categories(features, y, 6, random_state=0, n_repeats=1)
    estimate_n_categories(features[:14], y[:14], random_state=0, n_repeats=1)
    monkeypatch.setattr(count_module, "MOST_CATEGORIES", 9)
    estimate_n_categories(*blobs(), random_state=0, n_repeats=1)
    assert asked == [(4, 4), (6, 6), (4, 4), (4, 9)]


def test_many_points_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_search, "MOST_POINTS", 150)
    monkeypatch.setattr(count_search, "SILHOUETTE_POINTS", 60)
    sizes: set[int] = set()
    cluster = GrowingClusters.cluster

    def recorded(self: GrowingClusters, k: int) -> Any:
        sizes.add(len(self.points))
        return cluster(self, k)

    monkeypatch.setattr(GrowingClusters, "cluster", recorded)
    result = estimate_n_categories(*blobs(each=60), random_state=0, n_repeats=2)
    assert sizes == {150}
    assert result.n_categories == 8


def test_many_dimensions_are_reduced_without_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    features, y = blobs(dim=100)
    assert count_module.principal_components(count_module.unit_features(features), 64).shape == (192, 64)
    assert estimate_n_categories(features, y, random_state=0, n_repeats=2).n_categories == 8
    random = np.random.RandomState(0)
    flat = (random.standard_normal((30, 3)) @ random.standard_normal((3, 12))).astype(np.float32)
    kept, centred = count_module.principal_components(flat, 3), (flat - flat.mean(0)).astype(np.float64)
    assert_same(kept @ kept.T, centred @ centred.T, terms=30 + 12, sums=3)  # covariance, directions, products


@pytest.mark.parametrize("method", METHODS)
def test_duplicates_and_zeros_are_points_like_others(method: Any) -> None:
    features, y = blobs(6, 3, each=4)
    features, y = np.repeat(features, 5, axis=0), np.repeat(y, 5)
    features[-1] = 0.0
    result = estimate_n_categories(features, y, max_categories=40, random_state=0, method=method, n_repeats=2)
    assert result.interval[0] <= result.n_categories <= result.interval[1]
    assert all(np.isfinite([t.labelled_accuracy, t.silhouette, t.inertia, t.score]).all() for t in result.curve)


def test_all_points_alike_give_few_categories() -> None:
    y = np.array([0, 0, 1, 1] + [-1] * 20)
    result = estimate_n_categories(np.ones((24, 3)), y, random_state=0, n_repeats=2)
    assert result.interval[0] == 2 and result.n_categories <= 3


X0, Y0 = blobs(4, 2, each=6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.zeros(24, int)}, "every point is labelled, so the categories are the 1 known ones. Give -1"),
        (
            {"y": np.full(24, -1), "method": "balance"},
            "at least two known ones .* 0 known and 0 labelled points. Label more points, or use the method silhouette",
        ),
        (
            {"y": np.r_[0, 1, 1, [-1] * 21], "method": "brent"},
            "at least two labelled points each, but y has 2 known and 3 labelled",
        ),
        ({"y": np.arange(24) % 3}, "every point is labelled, so the categories are the 3 known ones. Give -1"),
        ({"y": Y0[:5]}, "y has the shape .5,. but X has 24 points"),
        ({"min_categories": 1}, "min_categories is 1, but y names 2 known classes. Give at least 2"),
        ({"y": np.full(24, -1), "min_categories": 0}, "min_categories is 0. Give at least 1"),
        ({"max_categories": 1}, "max_categories is 1, less than the smallest count 2. Give at least 2"),
        ({"min_categories": 9, "max_categories": 5}, "max_categories is 5, less than the smallest count 9"),
        ({"max_categories": 25}, "max_categories is 25, but there are 24 points. Give at most 24"),
        ({"X": np.where(np.arange(24)[:, None] == 3, np.nan, X0)}, "not finite. Leave out the points"),
        ({"X": np.full((24, 2), np.inf)}, "not finite"),
        ({"X": X0[:, 0]}, r"X has the shape \(24,\). Give one row of features for each point"),
        ({"X": X0[:, :0]}, r"X has the shape \(24, 0\)"),
        ({"method": "guess"}, "unknown method 'guess'. Use one of: auto, share, balance, between, silhouette, brent"),
        ({"n_repeats": 0}, "n_repeats is 0. Give a whole number of at least 1"),
    ],
)
def test_invalid_input_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(Misuse, match=message):
        estimate_n_categories(**({"X": X0, "y": Y0} | change))


def test_pairs_precision_and_recall_by_hand() -> None:
    table = np.array([[3, 1, 0], [1, 2, 0]])
    pairs = Pairs.of(table)
    assert pairs == Pairs(of_class=6 + 3, in_cluster=6 + 3, both=3 + 1)
    assert Pairs.pooled([pairs, Pairs(1, 2, 1)]) == Pairs(10, 11, 5)
    assert precision_and_recall(pairs, 2, 2) == (4 / 9, 4 / 9)
    assert precision_and_recall(pairs, 2, 5) == (4 / (4 + 5 * 2.0), 4 / 9)  # four times as many classes to mix with
    assert precision_and_recall(Pairs(3, 0, 0), 2, 5) == (0.0, 0.0)
    assert balance(0.4, 0.8) == balance(0.8, 0.4) == 0.5
    assert balance(0.3, 0.3) == 1.0
    assert balance(0.0, 0.0) == 0.0
    assert relative(np.array([2.0, 8.0, -3.0])).tolist() == [0.25, 1.0, 0.0]
    assert relative(np.array([-2.0, 0.0])).tolist() == [0.0, 0.0]


def test_the_silhouette_is_that_of_scikit_learn() -> None:
    random = np.random.RandomState(0)
    points, labels = random.standard_normal((40, 3)), random.randint(7, size=40)
    labels[labels == 4] = 3
    labels[0] = 4  # a cluster of one point
    distances = torch.from_numpy(np.linalg.norm(points[:, None] - points, axis=2))
    found = silhouette(distances, torch.from_numpy(labels), 9)  # two clusters have no point
    assert found == pytest.approx(silhouette_score(points, labels), abs=DOUBLE)
    assert silhouette(distances, torch.zeros(40, dtype=torch.int64), 1) == 0.0


def test_clusters_grow_from_smaller_solutions(monkeypatch: pytest.MonkeyPatch) -> None:
    points = torch.from_numpy(count_module.principal_components(blobs()[0], 64))
    added: list[tuple[int, int]] = []
    draw = count_evidence.seed_by_distance

    def recorded(x: Any, norms: Any, known: Any, uniforms: Any) -> Any:
        added.append((len(known), uniforms.shape[1]))
        return draw(x, norms, known, uniforms)

    monkeypatch.setattr(count_evidence, "seed_by_distance", recorded)
    clusters = GrowingClusters(points, 0)
    inertias = [clusters.cluster(k)[1] for k in (4, 8, 6)]
    assert added == [(0, 4), (4, 4), (4, 2)]
    assert inertias[0] > inertias[2] > inertias[1]


@pytest.mark.parametrize("seed", range(8))
def test_classes_that_a_sample_misses_add_two_points_each_and_no_more(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """All labelled points would change the share of the known classes, and one per class is too few to learn from."""
    monkeypatch.setattr(count_module, "MOST_POINTS", 100)
    ranks = np.r_[np.repeat([0, 1], 2), np.full(40, 2), np.full(400, -1)]
    for state in (np.random.RandomState(seed), np.random.RandomState(seed + 100)):
        chosen = random_sample(ranks, state)
        assert len(np.unique(chosen)) == len(chosen) and (np.diff(chosen) > 0).all()
        assert (np.bincount(ranks[chosen][ranks[chosen] >= 0], minlength=3) >= 2).all()
        assert 100 <= len(chosen) <= 104
    drawn = np.sort(np.random.RandomState(seed).permutation(len(ranks))[:100])
    assert set(drawn) <= set(random_sample(ranks, np.random.RandomState(seed)))
    whole = np.r_[np.repeat([0, 1], 30), np.full(30, -1)]
    assert np.array_equal(random_sample(whole, np.random.RandomState(seed)), np.arange(90))


def test_few_labels_among_many_points_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(count_module, "MOST_POINTS", 100)
    points, y = blobs(each=60)
    labels = np.full(len(y), -1)
    for known in (0, 1):
        labels[np.flatnonzero(y == known)[:2]] = known
    for seed in range(4):
        assert 2 <= estimate_n_categories(points, labels, random_state=seed, n_repeats=1).n_categories <= 60
