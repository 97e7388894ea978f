"""Marginal likelihoods against the dense formula; split and merge on planted clusters and on degenerate ones."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from scipy.special import gammaln, multigammaln
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers.rounding import DOUBLE, assert_same
from sptnet.clustering.mixture import split_merge, split_merge_mixture
from sptnet.clustering.mixture.niw import Prior, log_evidence, log_marginal_likelihood, log_split_ratio
from sptnet.clustering.mixture.split_merge import split_and_merge
from sptnet.clustering.mixture.split_merge_mixture import SplitMergeMixture
from sptnet.errors import Misuse

# --- oracle: the dense formula in float64, term by term, one point at a time ---


def naive_likelihood(points, mean, kappa=1e-4, nu=None, psi=0.005):
    n, dim = points.shape
    nu = dim + 1 if nu is None else nu
    centre = sum(points) / n
    scale = psi * np.eye(dim)
    for x in points:
        scale = scale + np.outer(x - centre, x - centre)
    scale = scale + kappa * n / (kappa + n) * np.outer(centre - mean, centre - mean)
    return (
        -n * dim / 2 * math.log(math.pi)
        + multigammaln((nu + n) / 2, dim)
        - multigammaln(nu / 2, dim)
        + nu / 2 * np.linalg.slogdet(psi * np.eye(dim))[1]
        - (nu + n) / 2 * np.linalg.slogdet(scale)[1]
        + dim / 2 * (math.log(kappa) - math.log(kappa + n))
    )


def naive_ratio(points, halves, mean, alpha=1.0, **prior):
    one, two = points[halves == 0], points[halves == 1]
    return (
        math.log(alpha)
        + gammaln(len(one))
        + naive_likelihood(one, mean, **prior)
        + gammaln(len(two))
        + naive_likelihood(two, mean, **prior)
        - gammaln(len(points))
        - naive_likelihood(points, mean, **prior)
    )


def cloud(n, dim, seed=0, size=0.3):
    random = np.random.RandomState(seed)
    points = size * random.standard_normal((n, dim))
    halves = np.arange(n) % 2
    random.shuffle(halves)
    return points, halves, size * random.standard_normal(dim)


def size_of_terms(points, mean):
    """Size of the terms that a marginal likelihood is the sum of, relative to which it is rounded."""
    n, dim = points.shape
    return dim * (n + dim) * (1 + abs(math.log(0.005)) + math.log(n + dim))


SHAPES = [(2, 1), (2, 3), (6, 3), (40, 3), (9, 8), (8, 9), (7, 8), (5, 30), (30, 30)]


@pytest.mark.parametrize("n, dim", SHAPES)
def test_the_ratio_is_that_of_the_dense_formula(n, dim):
    points, halves, mean = cloud(n, dim)
    size = size_of_terms(points, mean)
    for prior in ({}, {"kappa": 2.5, "nu": dim + 4.5, "psi": 0.7}):
        found = log_marginal_likelihood(points, mean, **prior)
        assert_same(found, naive_likelihood(points, mean, **prior), terms=n * dim, scale=size)
    for prior in ({}, {"alpha": 7.0, "kappa": 2.5, "nu": dim + 4.5, "psi": 0.7}):
        found = log_split_ratio(points, halves, mean, **prior)
        assert_same(found, naive_ratio(points, halves, mean, **prior), terms=n * dim, scale=3 * size)


def test_a_single_number_has_the_density_of_student_t():
    """One point in one dimension: t with nu degrees of freedom, scale sqrt(psi (kappa + 1) / (kappa nu))."""
    kappa, nu, psi, x, m = 0.5, 3.0, 2.0, 1.7, 0.4
    variance = psi * (kappa + 1) / (kappa * nu)
    expected = (
        gammaln((nu + 1) / 2)
        - gammaln(nu / 2)
        - 0.5 * math.log(nu * math.pi * variance)
        - (nu + 1) / 2 * math.log1p((x - m) ** 2 / (nu * variance))
    )
    assert log_marginal_likelihood(np.array([[x]]), np.array([m]), kappa, nu, psi) == pytest.approx(
        expected, rel=DOUBLE
    )


def test_the_density_of_the_next_point_integrates_to_one():
    """Given three others, in one dimension; the grid reaches far into the tails."""
    points = np.array([[0.3], [-0.2], [0.05]])
    grid = np.tan(np.linspace(-math.pi / 2, math.pi / 2, 20_001)[1:-1])
    before = log_marginal_likelihood(points, np.zeros(1), 1.0, 4.0, 0.5)
    densities = [
        math.exp(log_marginal_likelihood(np.append(points, [[x]], axis=0), np.zeros(1), 1.0, 4.0, 0.5) - before)
        for x in grid[::20]
    ]
    assert trapezoid(densities, grid[::20]) == pytest.approx(1, abs=1e-3)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 30), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_invariances(n, dim, seed):
    points, halves, mean = cloud(n, dim, seed)
    ratio = log_split_ratio(points, halves, mean)
    random = np.random.RandomState(seed)
    order = random.permutation(n)
    rotation = np.linalg.qr(random.standard_normal((dim, dim)))[0]
    shift = random.standard_normal(dim)
    same = [
        log_split_ratio(points[order], halves[order], mean),
        log_split_ratio(points, 1 - halves, mean),
        log_split_ratio(points @ rotation, halves, mean @ rotation),
        log_split_ratio(points + shift, halves, mean + shift),
    ]
    size = 3 * size_of_terms(points, mean)
    for other in same:
        assert_same(other, ratio, terms=n * dim * dim, scale=size)


def test_evidence_changes_by_the_ratio():
    points, halves, mean = cloud(30, 4)
    prior = Prior(alpha=3.0, kappa=0.2, nu=6.0, psi=0.1)
    clusters = np.repeat([0, 4, 2], 10)
    apart = np.where((clusters == 4) & (halves == 1), 9, clusters)
    change = log_evidence(points, apart, mean, prior) - log_evidence(points, clusters, mean, prior)
    part = clusters == 4
    assert change == pytest.approx(log_split_ratio(points[part], halves[part], mean, *prior), rel=DOUBLE)


@pytest.mark.parametrize("n", [2, 20, 800, 2000])
def test_many_features_need_no_larger_matrix_than_points_or_features(monkeypatch, n):
    sizes, cholesky = [], np.linalg.cholesky
    monkeypatch.setattr(np.linalg, "cholesky", lambda matrix: sizes.append(len(matrix)) or cholesky(matrix))
    points, halves, mean = cloud(n, 768, size=1 / 768**0.5)
    found = log_split_ratio(points, halves, mean)
    assert math.isfinite(found)
    assert max(sizes) == min(n + 1, 768)
    if n == 20:
        expected = naive_ratio(points, halves, mean)
        assert_same(found, expected, terms=n * 768, scale=3 * size_of_terms(points, mean))


@pytest.mark.parametrize("n, dim", [(40, 3), (4, 9)])
def test_large_numbers_are_computed_from_singular_values(n, dim):
    """The Gram matrix of points of size 1e7 has no digit left for psi; only one direction is large here."""
    points = cloud(n, dim, size=1e-2)[0]
    points[:, 0] *= 1e9
    wide = 0.005 + (points[:, 0] - points[:, 0].mean()) @ (points[:, 0] - points[:, 0].mean())
    found = log_marginal_likelihood(points, points.mean(0))
    # The Schur complement of the first feature is psi I plus the scatter of what a regression on it leaves over.
    x = points[:, 0] - points[:, 0].mean()
    rest = points[:, 1:] - points[:, 1:].mean(0)
    left = rest - np.outer(x, x @ rest) / wide
    schur = 0.005 * np.eye(dim - 1) + rest.T @ left
    nu = dim + 1
    expected = (
        -n * dim / 2 * math.log(math.pi)
        + multigammaln((nu + n) / 2, dim)
        - multigammaln(nu / 2, dim)
        + nu / 2 * dim * math.log(0.005)
        - (nu + n) / 2 * (math.log(wide) + np.linalg.slogdet(schur)[1])
        + dim / 2 * math.log(1e-4 / (1e-4 + n))
    )
    assert found == pytest.approx(expected, rel=1e-8)  # 1e7 / sqrt(psi) times the precision of float64


def test_tensors_and_narrow_types_are_computed_in_float64():
    points, halves, mean = cloud(12, 5)
    narrow = points.astype(np.float32)
    expected = log_split_ratio(narrow.astype(np.float64), halves, mean)
    assert log_split_ratio(narrow, halves, mean) == expected
    tensors = torch.from_numpy(narrow).requires_grad_(), torch.from_numpy(halves), torch.from_numpy(mean)
    assert log_split_ratio(*tensors) == expected
    half = torch.from_numpy(points).bfloat16()
    assert log_split_ratio(half, halves, mean) == log_split_ratio(half.double().numpy(), halves, mean)
    assert log_split_ratio(points, halves == 1, mean) == log_split_ratio(points, halves, mean)


@pytest.mark.parametrize("dim", [2, 5, 10])
def test_two_blobs_are_better_apart_and_one_is_better_whole(dim):
    random = np.random.RandomState(dim)
    blob = 0.05 * random.standard_normal((80, dim))
    two = blob + np.repeat([[0.0], [1.0]], 40, axis=0)
    assert log_split_ratio(two, np.repeat([0, 1], 40), two.mean(0)) > 0
    assert log_split_ratio(blob, (blob[:, 0] > 0).astype(int), blob.mean(0)) < 0
    assert log_split_ratio(blob, np.repeat([0, 1], 40), blob.mean(0)) < 0


def test_an_empty_half_is_never_a_split():
    points, _, mean = cloud(6, 2)
    assert log_split_ratio(points, np.zeros(6, int), mean) == -math.inf
    assert log_split_ratio(points, np.ones(6, int), mean) == -math.inf
    assert log_split_ratio(points[:0], np.zeros(0, int), mean) == -math.inf
    assert log_marginal_likelihood(points[:0], mean) == 0


def test_points_that_are_all_alike_have_a_finite_ratio():
    points = np.tile([0.3, 0.4, 0.5], (20, 1))
    assert_same(
        log_split_ratio(points, np.arange(20) % 2, points[0]),
        naive_ratio(points, np.arange(20) % 2, points[0]),
        terms=60,
        scale=3 * size_of_terms(points, points[0]),
    )


@pytest.mark.parametrize(
    "wrong, told",
    [
        ({"halves": np.array([0, 1])}, "halves has the shape"),
        ({"halves": np.array([0, 1, 2, 0])}, "Give 0 or 1 for each of the 4 points"),
        ({"mean": np.zeros(2)}, "equal length"),
        ({"alpha": 0.0}, "alpha is 0.0"),
        ({"kappa": 0.0}, "kappa is 0.0"),
        ({"psi": -1.0}, "psi -1.0"),
        ({"nu": 2.0}, "Give more than 2"),
    ],
)
def test_wrong_arguments_are_refused(wrong, told):
    arguments = {"X": np.eye(4, 3), "halves": np.array([0, 1, 1, 0]), "mean": np.zeros(3)} | wrong
    with pytest.raises(Misuse, match=told):
        log_split_ratio(**arguments)


# --- one round ---


def blobs(seed, n_blobs, per_blob=30, dim=3, spread=0.05):
    """Blobs whose centres are at least 1 apart."""
    random = np.random.RandomState(seed)
    centres = []
    while len(centres) < n_blobs:
        centre = random.uniform(-2, 2, dim)
        if all(np.linalg.norm(centre - other) > 1 for other in centres):
            centres.append(centre)
    truth = np.repeat(np.arange(n_blobs), per_blob)
    return np.stack(centres)[truth] + spread * random.standard_normal((len(truth), dim)), truth


def same_clusters(one, two):
    return len(set(zip(one.tolist(), two.tolist(), strict=True))) == len(set(one.tolist())) == len(set(two.tolist()))


def settled(points, assignment, n_known, rounds=4):
    random = np.random.RandomState(0)
    for _ in range(rounds):
        assignment, count = split_and_merge(points, assignment, n_known, points.mean(0), random, accept=0.0)
    return assignment, count


@pytest.mark.parametrize("seed", range(2))
def test_rounds_find_the_planted_clusters_from_too_few(seed):
    points, truth = blobs(seed, 8)
    start = np.where(truth < 2, truth, 2 + (truth - 2) // 3)
    found, count = settled(points, start, n_known=2)
    assert count == 8 and same_clusters(found, truth)
    assert found[truth < 2].tolist() == truth[truth < 2].tolist()


@pytest.mark.parametrize("seed", range(2))
def test_rounds_find_the_planted_clusters_from_too_many(seed):
    points, truth = blobs(seed, 8)
    start = np.where(truth < 2, truth, 2 + (truth - 2) * 3 + np.arange(len(truth)) % 3)
    found, count = settled(points, start, n_known=2)
    assert count == 8 and same_clusters(found, truth)
    assert found[truth < 2].tolist() == truth[truth < 2].tolist()


def test_planted_clusters_stay_as_they_are():
    points, truth = blobs(0, 6)
    found, count = split_and_merge(points, truth, 2, points.mean(0), 0, accept=0.0)
    assert count == 6 and found.tolist() == truth.tolist()


def test_a_round_does_the_same_for_tensors_and_changes_no_input():
    points, truth = blobs(1, 6)
    start = truth // 2
    before = points.copy(), start.copy()
    found, count = split_and_merge(points, start, 1, points.mean(0), 3)
    assert (points == before[0]).all() and (start == before[1]).all()
    tensors = (torch.from_numpy(array) for array in (points, start))
    again, same = split_and_merge(*tensors, 1, torch.from_numpy(points.mean(0)), np.random.RandomState(3))
    assert again.tolist() == found.tolist() and count == same and found.dtype == np.int64


@pytest.mark.parametrize("accept", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("n_known", [0, 2, 4])
def test_clusters_of_known_classes_are_untouched(n_known, accept):
    points, truth = blobs(2, 8)
    start = truth // 2  # every cluster is two blobs
    found, count = split_and_merge(points, start, n_known, points.mean(0), 0, accept)
    known = start < n_known
    assert found[known].tolist() == start[known].tolist()
    assert (found[~known] >= n_known).all()
    assert sorted(set(found.tolist())) == list(range(count))
    assert count == n_known + 2 * (4 - n_known)


def test_known_classes_that_lie_together_are_not_merged():
    points = 0.05 * np.random.RandomState(0).standard_normal((40, 2))
    start = np.repeat([0, 1, 2, 3], 10)
    found, count = split_and_merge(points, start, 2, points.mean(0), 0, accept=0.0)
    assert count == 3 and found.tolist() == [0] * 10 + [1] * 10 + [2] * 20
    found, count = split_and_merge(points, start, 3, points.mean(0), 0, accept=1.0)
    assert count == 4 and found.tolist() == start.tolist()


@pytest.mark.parametrize("size, count", [(5, 1), (6, 2)])
def test_halves_need_more_than_the_least_number_of_points(size, count):
    points = np.concatenate([np.zeros((size, 1)), np.ones((20, 1))]) + 0.01 * np.arange(size + 20)[:, None] / 30
    for accept in (0.0, 1.0):
        found, number = split_and_merge(points, np.zeros(len(points), int), 0, points.mean(0), 0, accept)
        assert number == count == len(set(found.tolist()))
    assert split_and_merge(points, np.zeros(len(points), int), 0, points.mean(0), 0, 0.0, least=4)[1] == 2


def test_a_cluster_takes_part_in_one_merge_and_the_closest_pairs_go_first():
    """Clusters at 0, 1, 2.5 and 10: 0 and 1 merge, 2.5 has its nearest in a merged one, 10 in 2.5."""
    points = np.repeat([0.0, 1.0, 2.5, 10.0], 3)[:, None]
    start = np.repeat([3, 1, 0, 2], 3)
    found, count = split_and_merge(points, start, 0, points.mean(0), 0, accept=1.0)
    assert count == 2
    assert found.tolist() == np.repeat([0, 0, 1, 1], 3).tolist()


def test_halves_are_not_merged_again_in_the_same_round():
    blob = 0.05 * np.random.RandomState(0).standard_normal((60, 2))
    found, count = split_and_merge(blob, np.zeros(60, int), 0, blob.mean(0), 0, accept=1.0)
    assert count == 2
    assert split_and_merge(blob, found, 0, blob.mean(0), 0, accept=0.0)[1] == 1


@pytest.mark.parametrize("accept, fewest, most", [(0.0, 0, 0), (0.5, 8, 32), (1.0, 40, 40)])
def test_splits_that_are_no_improvement_have_the_probability_asked_for(monkeypatch, accept, fewest, most):
    """40 clusters of two close groups of six points, better whole; 8 and 32 are four standard deviations off 20."""
    monkeypatch.setattr(split_merge, "STARTS", 1)
    random = np.random.RandomState(0)
    truth = np.repeat(np.arange(40), 12)
    centres = np.stack([truth // 10, truth % 10], axis=1) * 5.0
    points = centres + 0.02 * np.where(np.arange(480) % 2, 1, -1)[:, None] + 1e-3 * random.standard_normal((480, 2))
    found, count = split_and_merge(points, truth, 0, points.mean(0), 0, accept)
    halves = np.bincount(found, minlength=count) == 6
    assert 2 * fewest <= halves.sum() <= 2 * most and halves.sum() % 2 == 0
    assert count == 40 or accept > 0


def test_degenerate_clusters():
    """A known class without points, one point, two points, points all alike, and an id that is not used."""
    points = np.concatenate([[[0.0, 0.0]], [[9.0, 0.0]], [[0.0, 9.0], [0.0, 9.0]], np.full((30, 2), -9.0)])
    start = np.array([0, 2, 3, 3] + [7] * 30)
    found, count = split_and_merge(points, start, 2, points.mean(0), 0, accept=0.0)
    assert found.min() == 0 and 1 not in found and found[0] == 0
    assert sorted(set(found.tolist())) == [0, *range(2, count)]
    assert len(set(found[4:].tolist())) == 1
    for chance in (0.0, 1.0):
        alike = split_and_merge(np.ones((30, 2)), np.full(30, 4), 1, np.ones(2), 0, accept=chance)
        assert alike[1] == 2 and alike[0].tolist() == [1] * 30
    assert split_and_merge(np.empty((0, 2)), np.empty(0, int), 3, np.zeros(2), 0)[1] == 3
    single = split_and_merge(np.ones((1, 2)), np.zeros(1, int), 0, np.zeros(2), 0, accept=1.0)
    assert single[1] == 1 and single[0].tolist() == [0]


@pytest.mark.parametrize(
    "wrong, told",
    [
        ({"assignment": np.zeros(3, int)}, "Give the id of a cluster for each point"),
        ({"assignment": np.zeros(4)}, "float64"),
        ({"assignment": np.array([0, 1, -1, 0])}, "assignment holds -1"),
        ({"n_known": -1}, "n_known is -1"),
        ({"accept": 1.5}, "accept is 1.5"),
        ({"least": -1}, "least is -1"),
    ],
)
def test_wrong_rounds_are_refused(wrong, told):
    arguments = {"X": np.eye(4), "assignment": np.zeros(4, int), "n_known": 0, "mean": np.zeros(4), "random_state": 0}
    with pytest.raises(Misuse, match=told):
        split_and_merge(**arguments | wrong)


# --- the estimator ---


def half_labelled(truth, n_known):
    return np.where((truth < n_known) & (np.arange(len(truth)) % 2 == 0), truth, -1)


def quick(n_clusters=None, n_rounds=6, seed=0, **settings):
    return SplitMergeMixture(n_clusters, n_rounds, n_init=3, random_state=seed, **settings)


@pytest.mark.parametrize("start", [None, 5, 12])
def test_the_number_of_clusters_is_found(start):
    points, truth = blobs(0, 7)
    model = quick(start).fit(points, half_labelled(truth, 3))
    assert model.n_clusters_ == 7 and same_clusters(model.labels_, truth)
    assert model.counts_[0] == (6 if start is None else start)
    assert model.labels_[truth < 3].tolist() == truth[truth < 3].tolist()
    assert model.cluster_centers_.shape == (7, 3)
    for cluster, centre in enumerate(model.cluster_centers_):
        assert_same(centre, points[model.labels_ == cluster].mean(0), terms=len(points), scale=2.0)
    assert model.predict(points).tolist() == model.labels_.tolist()
    assert model.log_evidence_ == log_evidence(points, model.labels_, points.mean(0))


def test_without_split_and_merge_the_count_stays_at_the_start(monkeypatch):
    points, truth = blobs(0, 7)
    y = half_labelled(truth, 3)
    assert quick(5, n_rounds=0).fit(points, y).n_clusters_ == 5
    assert quick(5).fit(points, y).n_clusters_ == 7

    def unchanged(data, labels, n_known, *rest):
        return labels, max(labels) + 1

    monkeypatch.setattr(split_merge_mixture, "split_and_merge", unchanged)
    assert quick(5).fit(points, y).n_clusters_ == 5
    monkeypatch.undo()
    monkeypatch.setattr(split_merge, "log_split_ratio", lambda *arguments: 0.0)
    assert quick(5, accept=0.0).fit(points, y).n_clusters_ == 5


def test_without_labels_a_start_of_one_cluster_is_enough():
    points, truth = blobs(3, 5)
    model = quick().fit(points)
    assert model.counts_[0] == 1 and model.n_clusters_ == 5 and same_clusters(model.labels_, truth)
    assert model.known_classes_.tolist() == []


def test_class_ids_are_ranked_and_labelled_points_stay():
    points, truth = blobs(1, 5)
    y = np.array([30, 4, -1])[np.clip(half_labelled(truth, 2), -1, 2)]
    y[np.flatnonzero(truth == 4)[0]] = 4  # a wrong label
    labels = quick(5).fit_predict(points, y)
    assert labels[y == 4].tolist() == [0] * (y == 4).sum() and labels[y == 30].tolist() == [1] * (y == 30).sum()


def test_all_points_labelled():
    points, truth = blobs(1, 3)
    model = quick().fit(points, truth)
    assert model.n_clusters_ == 3 and model.labels_.tolist() == truth.tolist()


def test_results_depend_on_the_seed_alone():
    points, truth = blobs(0, 6, spread=0.3, per_blob=20)
    results = [quick(seed=seed).fit(points, half_labelled(truth, 2)) for seed in (0, 0, np.random.RandomState(0))]
    assert len({(tuple(model.labels_), tuple(model.counts_), model.log_evidence_) for model in results}) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_centres_keep_the_precision(dtype):
    points, truth = blobs(0, 5)
    model = quick(5, 2).fit(points.astype(dtype), half_labelled(truth, 2))
    assert model.cluster_centers_.dtype == dtype and model.n_clusters_ == 5


def test_points_all_alike_are_one_cluster():
    model = quick(4).fit(np.ones((20, 2)))
    assert model.n_clusters_ == 1 and model.labels_.tolist() == [0] * 20
    with pytest.warns(ConvergenceWarning, match="only 1 of 4 clusters have points"):
        quick(4, n_rounds=0).fit(np.ones((20, 2)))


@pytest.mark.parametrize(
    "wrong, told",
    [
        ({"n_clusters": 0}, "n_clusters is 0"),
        ({"n_clusters": 1}, "y names 2 known classes but n_clusters is 1"),
        ({"n_clusters": 100}, "n_samples=40 should be >= n_clusters=100"),
        ({"n_rounds": -1}, "n_rounds is -1"),
        ({"n_rounds": 2.5}, "n_rounds is 2.5"),
        ({"least": -1}, "least is -1"),
        ({"accept": 1.1}, "accept is 1.1"),
        ({"accept": math.nan}, "accept is nan"),
        ({"alpha": 0}, "alpha is 0"),
        ({"kappa": -1}, "kappa is -1"),
        ({"psi": math.inf}, "psi is inf"),
        ({"psi": True}, "psi is True"),
        ({"nu": 2}, "nu is 2"),
        ({"n_init": 0}, "n_init is 0"),
    ],
)
def test_wrong_settings_are_refused(wrong, told):
    points, truth = blobs(0, 4, per_blob=10)
    with pytest.raises(Misuse, match=told):
        SplitMergeMixture(**wrong).fit(points, half_labelled(truth, 2))


def test_predict_needs_fit():
    with pytest.raises(NotFittedError):
        SplitMergeMixture().predict(np.eye(3))


@parametrize_with_checks([SplitMergeMixture(n_rounds=2, n_init=1)])
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)
