"""Semi-supervised k-means against slow float64 loops, brute force and scikit-learn, and on awkward inputs."""

import itertools
import pickle
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris, load_wine, make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers.rounding import DOUBLE, SINGLE, assert_same, rounding
from sptnet.clustering import lloyd as kmeans_steps
from sptnet.clustering.lloyd import Pinned, averages, cluster_sums, distances, lloyd, nearest, seed_by_distance
from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans, class_ranks
from sptnet.errors import Misuse

# --- oracles: float64, one point and one cluster at a time ---


def squared(a, b):
    return sum((float(p) - float(q)) ** 2 for p, q in zip(a, b, strict=True))


def oracle_assign(points, ranks, centres):
    return [
        int(r) if r >= 0 else int(np.argmin([squared(x, c) for c in centres]))
        for x, r in zip(points, ranks, strict=True)
    ]


def oracle_inertia(points, labels, centres):
    return sum(squared(x, centres[c]) for x, c in zip(points, labels, strict=True))


def oracle_step(points, ranks, centres):
    """One iteration of assignment and averaging; empty clusters are not supported."""
    labels = np.array(oracle_assign(points, ranks, centres))
    return labels, np.stack([points[labels == c].astype(np.float64).mean(0) for c in range(len(centres))])


def labelled_blobs(seed, n=60, dim=5, k=6, known=3, dtype=np.float64, spread=1.5):
    points, truth = make_blobs(n, dim, centers=k, cluster_std=spread, random_state=seed)
    random = np.random.RandomState(seed)
    y = np.where((truth < known) & (random.uniform(size=n) < 0.5), truth, -1)
    y[[int(np.flatnonzero(truth == c)[0]) for c in range(known)]] = np.arange(known)
    return points.astype(dtype), y


def steps_input(points, ranks, k):
    """Arguments of `lloyd`: centred free points and pinned sums; also the offset."""
    offset = points.mean(0)
    x = torch.from_numpy(points - offset)
    free = torch.from_numpy(ranks < 0)
    return x[free], Pinned(*cluster_sums(x[~free], torch.from_numpy(ranks[ranks >= 0]), k)), offset


# --- the iterations ---


@pytest.mark.parametrize("seed", range(4))
def test_every_iteration_is_that_of_the_slow_form(seed):
    points, y = labelled_blobs(seed)
    free, pinned, offset = steps_input(points, y, 6)
    start = np.stack([*(points[y == c].mean(0) for c in range(3)), *points[y < 0][[0, 7, 14]]])
    expected = start
    for n_iter in range(1, 6):
        labels, expected = oracle_step(points, y, expected)
        run = lloyd(free, pinned, torch.from_numpy(start - offset), n_iter, 0.0)
        assert_same(run.centres.numpy() + offset, expected, terms=len(points), sums=n_iter)
        if run.n_iter == n_iter:
            assert run.labels.tolist() == np.array(oracle_assign(points, y, expected))[y < 0].tolist()
        else:
            assert run.labels.tolist() == labels[y < 0].tolist()


def test_float32_far_from_the_origin_finds_the_clusters_of_float64():
    points, y = labelled_blobs(1, dtype=np.float32)
    points = points + np.float32(1e4)
    wide = points.astype(np.float64)
    narrow = SemiSupervisedKMeans(6, random_state=0).fit(points, y)
    exact = SemiSupervisedKMeans(6, random_state=0).fit(wide, y)
    assert narrow.labels_.tolist() == exact.labels_.tolist()
    assert oracle_assign(wide, y, exact.cluster_centers_) == exact.labels_.tolist()
    assert_same(narrow.cluster_centers_, exact.cluster_centers_, terms=1)  # rounded as the offset is added
    expected = oracle_inertia(wide, narrow.labels_, narrow.cluster_centers_)
    assert_same(narrow.inertia_, expected, terms=len(points) + 5, dtype=torch.float32)
    assert_same(narrow.inertia_, exact.inertia_, terms=len(points) + 5, dtype=torch.float32)


def test_a_run_ends_at_the_tolerance():
    points, y = labelled_blobs(2, n=300, spread=3.0)
    free, pinned, _ = steps_input(points, y, 6)
    start = torch.cat([pinned.sums[:3] / pinned.counts[:3, None], free[:3]])
    shifts, centres = [], start
    while not shifts or shifts[-1] > 0:
        labels = nearest(free, centres)
        before, centres = centres, averages(free, labels, pinned, centres)
        shifts.append(float((centres - before).square().sum()))
    assert len(shifts) > 4 and shifts == sorted(shifts, reverse=True)
    for stop in range(1, len(shifts)):
        between = (shifts[stop - 1] + shifts[stop]) / 2
        assert lloyd(free, pinned, start, 200, between).n_iter == stop + 1
        run = lloyd(free, pinned, start, 200, shifts[stop])
        assert run.n_iter == stop + 1
        assert run.labels.tolist() == nearest(free, run.centres).tolist()
    assert lloyd(free, pinned, start, 3, 0.0).n_iter == 3


def test_the_tolerance_is_in_units_of_the_mean_variance():
    points, _ = make_blobs(300, 4, centers=8, cluster_std=4.0, random_state=0)
    rounds = {
        scale: SemiSupervisedKMeans(8, n_init=1, tol=0.01, random_state=0).fit(points * scale) for scale in (1, 64)
    }
    full = SemiSupervisedKMeans(8, n_init=1, tol=0, random_state=0).fit(points)
    assert rounds[1].n_iter_ == rounds[64].n_iter_ < full.n_iter_


# --- the result ---


def slow_lloyd(points, ranks, centres):
    """Iterate until convergence; the inertia, or infinity if a cluster becomes empty."""
    while True:
        labels = np.array(oracle_assign(points, ranks, centres))
        if len(set(labels.tolist())) < len(centres):
            return np.inf
        moved = np.stack([points[labels == c].mean(0) for c in range(len(centres))])
        if (moved == centres).all():
            return oracle_inertia(points, labels, centres)
        centres = moved


def best_of_all_assignments(points, ranks, k):
    best = np.inf
    for free in itertools.product(range(k), repeat=int((ranks < 0).sum())):
        labels = ranks.copy()
        labels[ranks < 0] = free
        best = min(best, sum(points[labels == c].var(0).sum() * (labels == c).sum() for c in set(labels.tolist())))
    return best


@pytest.mark.parametrize("seed", range(5))
def test_many_starts_reach_the_best_of_all_assignments(seed):
    points = np.random.RandomState(seed).standard_normal((6, 2))
    model = SemiSupervisedKMeans(3, n_init=30, random_state=0).fit(points)
    assert model.inertia_ == pytest.approx(best_of_all_assignments(points, np.full(6, -1), 3), rel=DOUBLE)


@pytest.mark.parametrize("seed", range(5))
def test_with_labels_many_starts_reach_the_best_of_all_assignments(seed):
    random = np.random.RandomState(seed)
    points = random.standard_normal((9, 2)) + np.repeat([[0, 0], [4, 0], [0, 4]], 3, axis=0)
    y = np.array([0, 0, -1, 1, -1, -1, -1, -1, -1])
    model = SemiSupervisedKMeans(3, n_init=30, random_state=0).fit(points, y)
    assert model.inertia_ == pytest.approx(best_of_all_assignments(points, y, 3), rel=DOUBLE)


@pytest.mark.parametrize("seed", range(5))
def test_without_clear_clusters_the_end_is_one_that_a_seeding_leads_to(seed):
    """Not necessarily the best of all assignments, because the known centres have fixed starts."""
    points = np.random.RandomState(seed).standard_normal((9, 2))
    y = np.array([0, 0, 1, -1, -1, -1, -1, -1, -1])
    known = [points[y == 0].mean(0), points[y == 1].mean(0)]
    ends = [slow_lloyd(points, y, np.stack([*known, x])) for x in points[3:]]
    model = SemiSupervisedKMeans(3, n_init=30, random_state=0).fit(points, y)
    assert any(model.inertia_ == pytest.approx(end, rel=DOUBLE) for end in ends)
    assert model.inertia_ >= best_of_all_assignments(points, y, 3) * (1 - DOUBLE)


def summed_inertias(points, k, n_init, seeds):
    ours = sum(SemiSupervisedKMeans(k, n_init=n_init, random_state=s).fit(points).inertia_ for s in range(seeds))
    theirs = sum(KMeans(k, n_init=n_init, random_state=s).fit(points).inertia_ for s in range(seeds))
    return ours, theirs


def test_a_start_is_on_average_better_than_one_of_scikit_learn():
    """Single seeds and data sets may end in either minimum; on average ours must not be worse."""
    problems = [
        (load_digits().data[:300], 10),
        (load_iris().data, 8),
        (load_wine().data, 10),
        (make_blobs(200, 8, centers=15, cluster_std=1.0, random_state=0)[0], 15),
        (make_blobs(200, 4, centers=12, cluster_std=3.0, random_state=1)[0], 12),
        (np.random.RandomState(2).uniform(size=(200, 3)), 10),
    ]
    inertias = [summed_inertias(*problem, n_init=1, seeds=25) for problem in problems]
    assert np.mean([ours / theirs for ours, theirs in inertias]) <= 1


@pytest.mark.parametrize("seed", range(3))
def test_inertia_is_that_of_scikit_learn_where_clusters_are_clear(seed):
    points, _ = make_blobs(200, 8, centers=6, cluster_std=1.0, random_state=seed)
    ours, theirs = summed_inertias(points, 6, n_init=10, seeds=2)
    assert ours <= theirs * (1 + DOUBLE)


def test_inertia_on_the_digits_is_that_of_scikit_learn():
    """Ten starts end in minima that differ by a few parts in a thousand at most."""
    ours, theirs = summed_inertias(load_digits().data, 10, n_init=10, seeds=2)
    assert ours == pytest.approx(theirs, rel=3e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_clear_blobs_are_found(dtype):
    points, truth = make_blobs(120, 3, centers=4, cluster_std=0.1, random_state=0)
    points = points.astype(dtype)
    model = SemiSupervisedKMeans(4, random_state=0).fit(points)
    assert len(set(zip(truth.tolist(), model.labels_.tolist(), strict=True))) == 4
    theirs = KMeans(4, n_init=10, random_state=0).fit(points.astype(np.float64)).inertia_
    assert_same(model.inertia_, theirs, terms=points.size, dtype=torch.from_numpy(points).dtype)


def test_known_classes_have_the_first_clusters_in_ascending_order():
    points, y = labelled_blobs(0)
    names = np.array([20, 3, 7, -1])  # class 1 is called 3, and so is the first of the known
    model = SemiSupervisedKMeans(6, random_state=0).fit(points, names[y])
    assert model.known_classes_.tolist() == [3, 7, 20]
    assert model.labels_[y >= 0].tolist() == [[2, 0, 1][c] for c in y[y >= 0]]
    for cluster in range(6):
        assert_same(model.cluster_centers_[cluster], points[model.labels_ == cluster].mean(0), terms=len(points))


def test_labelled_points_stay_in_their_class_wherever_they_lie():
    points, y = labelled_blobs(0)
    y = np.where(y == 0, 1, np.where(y == 1, 0, y))  # the names of two blobs exchanged
    y[np.flatnonzero(y == 0)[0]] = 2  # and a label that is plainly wrong
    model = SemiSupervisedKMeans(6, random_state=0).fit(points, y)
    assert model.labels_[y >= 0].tolist() == y[y >= 0].tolist()
    assert model.predict(points)[y < 0].tolist() == model.labels_[y < 0].tolist()
    assert model.inertia_ == pytest.approx(oracle_inertia(points, model.labels_, model.cluster_centers_))
    assert -model.score(points) < model.inertia_


def test_new_clusters_start_away_from_the_known_ones():
    points = np.array([[0.0], [0.1], [10.0], [10.1], [20.0], [20.1]])
    model = SemiSupervisedKMeans(3, n_init=1, random_state=0).fit(points, [-1, 0, -1, 1, -1, -1])
    assert model.labels_.tolist() == [0, 0, 1, 1, 2, 2]


def test_the_order_of_labelled_points_does_not_matter():
    points, y = labelled_blobs(3)
    labelled = np.flatnonzero(y >= 0)
    moved = labelled[np.random.RandomState(0).permutation(len(labelled))]
    order = np.arange(len(points))
    order[labelled] = moved
    one = SemiSupervisedKMeans(6, random_state=0).fit(points, y)
    two = SemiSupervisedKMeans(6, random_state=0).fit(points[order], y[order])
    assert two.labels_.tolist() == one.labels_[order].tolist()
    assert two.inertia_ == pytest.approx(one.inertia_, rel=DOUBLE)


def test_results_depend_on_the_seed_alone():
    points, y = labelled_blobs(1, n=200, spread=4.0)

    def fitted(seed):
        model = SemiSupervisedKMeans(12, n_init=2, random_state=seed).fit(points, y)
        return model.labels_.tolist(), model.cluster_centers_.tolist(), model.inertia_

    assert fitted(0) == fitted(0) == fitted(np.random.RandomState(0))
    assert fitted(0) != fitted(1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [1, 7, 10_000])
def test_block_sizes_do_not_matter(monkeypatch, dtype, rows):
    points, y = labelled_blobs(2, n=150, spread=3.0, dtype=dtype)
    usual = SemiSupervisedKMeans(12, n_init=3, random_state=0).fit(points, y)
    for name in ("CPU_BLOCK", "SEEDING_BLOCK", "LEAST_ROWS"):
        monkeypatch.setattr(kmeans_steps, name, rows)
    monkeypatch.setattr("sptnet.clustering.semi_supervised_kmeans.ROWS_AT_ONCE", rows)
    other = SemiSupervisedKMeans(12, n_init=3, random_state=0).fit(points, y)
    assert other.labels_.tolist() == usual.labels_.tolist()
    assert_same(other.inertia_, usual.inertia_, terms=points.size, dtype=torch.from_numpy(points).dtype)
    assert_same(other.transform(points), usual.transform(points), terms=points.size)


def test_blocks_bound_the_number_of_distances_held():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert [kmeans_steps.rows_at_once(k, cpu) for k in (1, 100, 512, 513)] == [2**17, 1310, 256, 256]
    assert kmeans_steps.rows_at_once(100, gpu) == 671088


def test_more_starts_never_do_worse():
    points, _ = make_blobs(200, 3, centers=15, cluster_std=2.0, random_state=0)
    inertias = [SemiSupervisedKMeans(15, n_init=n, random_state=0).fit(points).inertia_ for n in (1, 2, 4, 8, 16)]
    assert inertias == sorted(inertias, reverse=True) and inertias[0] > inertias[-1]


# --- the interface ---


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # the checks label every point
@parametrize_with_checks([SemiSupervisedKMeans()])
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_attributes_and_methods():
    points, y = labelled_blobs(4, dtype=np.float32)
    before = points.copy()
    model = SemiSupervisedKMeans(6, random_state=0)
    assert model.fit_predict(points, y).tolist() == model.labels_.tolist()
    assert points.tolist() == before.tolist()
    assert model.cluster_centers_.shape == (6, 5) and model.n_features_in_ == 5
    assert 1 <= model.n_iter_ <= 200
    wide = points.astype(np.float64)
    expected = [[squared(x, c) ** 0.5 for c in model.cluster_centers_] for x in wide]
    assert_same(model.transform(points), expected, terms=5)
    assert model.predict(points).tolist() == np.argmin(expected, 1).tolist()
    assert_same(model.score(points, y), -(np.min(expected, 1) ** 2).sum(), terms=points.size, dtype=torch.float32)
    same = clone(model).fit_transform(points, y)
    assert (same == model.transform(points)).all()
    assert (pickle.loads(pickle.dumps(model)).predict(points) == model.predict(points)).all()
    assert model.get_feature_names_out().tolist() == [f"semisupervisedkmeans{i}" for i in range(6)]
    assert model.get_params() == {
        "device": "cpu", "max_iter": 200, "n_clusters": 6, "n_init": 10, "random_state": 0, "tol": 1e-4
    }  # fmt: skip


@pytest.mark.parametrize("given, kept", [(np.float32, np.float32), (np.float64, np.float64), (np.int64, np.float64)])
def test_number_formats(given, kept):
    points, y = labelled_blobs(0)
    model = SemiSupervisedKMeans(6, random_state=0).fit(points.astype(given), y)
    assert (
        model.cluster_centers_.dtype
        == model.transform(points).dtype
        == model.transform(points.astype(given)).dtype
        == kept
    )
    assert model.labels_.dtype == model.predict(points).dtype == np.int64
    assert isinstance(model.inertia_, float)


def test_before_fit_there_is_nothing_to_predict():
    with pytest.raises(NotFittedError):
        SemiSupervisedKMeans().predict([[0.0]])


@pytest.mark.parametrize("y", [[5, 5, -1, 2], [5.0, 5.0, -1.0, 2.0], np.array([5, 5, -1, 2], dtype=object)])
def test_class_ids_may_come_in_any_form_of_whole_numbers(y):
    known, ranks = class_ranks(y, 4)
    assert known.tolist() == [2, 5] and ranks.tolist() == [1, 1, -1, 0]
    assert known.dtype == ranks.dtype == np.int64


def test_truth_values_are_class_ids():
    assert [part.tolist() for part in class_ranks([True, False, True], 3)] == [[0, 1], [1, 0, 1]]


# --- awkward inputs ---


def test_one_cluster():
    points = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 8.0]])
    model = SemiSupervisedKMeans(1).fit(points)
    assert model.labels_.tolist() == [0, 0, 0]
    assert_same(model.cluster_centers_, [[2, 4]], terms=3)
    assert model.inertia_ == pytest.approx(34)


def test_one_point():
    model = SemiSupervisedKMeans(1).fit([[3.0, 4.0]])
    assert (model.labels_.tolist(), model.cluster_centers_.tolist(), model.inertia_) == ([0], [[3.0, 4.0]], 0.0)


@pytest.mark.parametrize("y", [None, [-1, 1, -1, 0, -1, -1, -1, -1]])
def test_as_many_clusters_as_points(y):
    points = np.random.RandomState(0).standard_normal((8, 3))
    model = SemiSupervisedKMeans(8, random_state=0).fit(points, y)
    assert sorted(model.labels_.tolist()) == list(range(8))
    assert model.inertia_ == pytest.approx(0, abs=DOUBLE**2)  # squares of rounding errors


@pytest.mark.parametrize("value", [0.1, 1e4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("y", [None, [3, -1, -1, -1, -1]])
def test_duplicate_points_only(value, dtype, y):
    points = np.full((5, 2), value, dtype)
    with pytest.warns(
        ConvergenceWarning, match="^only 1 of 3 clusters have points. Lower n_clusters, give more distinct"
    ):
        model = SemiSupervisedKMeans(3, random_state=0).fit(points, y)
    assert model.labels_.tolist() == [0] * 5
    assert_same(model.cluster_centers_, np.full((3, 2), value), terms=5)
    error = rounding(5, dtype=torch.from_numpy(points).dtype) * value
    assert model.inertia_ == pytest.approx(0, abs=points.size * error**2)


def test_fewer_distinct_points_than_clusters():
    points = np.repeat([[0.0], [1.0], [5.0]], 4, axis=0)
    with pytest.warns(ConvergenceWarning, match="only 3 of 5 clusters have points"):
        model = SemiSupervisedKMeans(5, random_state=0).fit(points)
    assert model.inertia_ == 0 and np.isfinite(model.cluster_centers_).all()


def test_fewer_unlabelled_points_than_new_clusters():
    points = np.array([[0.0], [1.0], [5.0], [9.0]])
    with pytest.warns(ConvergenceWarning, match="only 2 of 4 clusters have points"):
        model = SemiSupervisedKMeans(4, random_state=0).fit(points, [0, 0, 0, -1])
    assert model.labels_.tolist()[:3] == [0, 0, 0] and model.labels_[3] > 0
    assert model.cluster_centers_.shape == (4, 1) and np.isfinite(model.cluster_centers_).all()


def test_all_labelled_gives_the_class_means():
    points, _ = labelled_blobs(0)
    y = np.arange(60) % 3
    model = SemiSupervisedKMeans(3).fit(points, y + 10)
    assert model.labels_.tolist() == y.tolist() and model.known_classes_.tolist() == [10, 11, 12]
    assert_same(model.cluster_centers_, np.stack([points[y == c].mean(0) for c in range(3)]), terms=len(points))


@pytest.mark.parametrize("n_clusters", [2, 5])
def test_all_labelled_with_another_number_of_clusters_is_pointed_out(n_clusters):
    points, _ = labelled_blobs(0)
    y = np.arange(60) % 3
    message = (
        f"^every point is labelled, so the clusters are the 3 classes and n_clusters={n_clusters} has no effect. Give"
    )
    with pytest.warns(ConvergenceWarning, match=message):
        model = SemiSupervisedKMeans(n_clusters).fit(points, y)
    assert model.cluster_centers_.shape == (3, 5) and model.labels_.tolist() == y.tolist()


def test_none_labelled_is_as_without_labels():
    points, _ = labelled_blobs(0)
    one = SemiSupervisedKMeans(4, random_state=0).fit(points)
    two = SemiSupervisedKMeans(4, random_state=0).fit(points, np.full(60, -1))
    assert one.labels_.tolist() == two.labels_.tolist() and one.inertia_ == two.inertia_
    assert one.known_classes_.tolist() == two.known_classes_.tolist() == []


def test_a_known_class_of_one_point():
    points = np.array([[0.0], [0.2], [9.0], [9.2], [9.4]])
    model = SemiSupervisedKMeans(2, random_state=0).fit(points, [-1, -1, -1, 4, -1])
    assert model.labels_.tolist() == [1, 1, 0, 0, 0]
    assert_same(model.cluster_centers_, [[9.2], [0.1]], terms=3)


def test_one_feature_agrees_with_scikit_learn():
    points = np.random.RandomState(0).standard_normal((100, 1))
    ours = SemiSupervisedKMeans(4, n_init=10, random_state=0).fit(points).inertia_
    assert ours <= KMeans(4, n_init=10, random_state=0).fit(points).inertia_ * (1 + DOUBLE)


def test_all_clusters_known_takes_one_start_whatever_n_init(monkeypatch):
    points, y = labelled_blobs(0, k=3)
    runs = []
    monkeypatch.setattr(
        "sptnet.clustering.semi_supervised_kmeans.lloyd", lambda *given: runs.append(lloyd(*given)) or runs[-1]
    )
    SemiSupervisedKMeans(3, n_init=7).fit(points, y)
    assert len(runs) == 1
    SemiSupervisedKMeans(4, n_init=7).fit(points, y)
    assert len(runs) == 8


# --- empty clusters and seeding ---


def no_pins(k, dim, dtype=torch.float64):
    return Pinned(torch.zeros(k, dim, dtype=dtype), torch.zeros(k, dtype=torch.int64))


def test_empty_clusters_move_to_the_points_farthest_from_their_means():
    x = torch.tensor([[0.0], [1.0], [10.0], [-7.0]], dtype=torch.float64)  # mean 1: distances 1, 0, 9, 8
    centres = torch.tensor([[2.0], [50.0], [60.0]], dtype=torch.float64)
    labels = nearest(x, centres)
    assert labels.tolist() == [0, 0, 0, 0]
    assert averages(x, labels, no_pins(3, 1), centres).tolist() == [[1.0], [10.0], [-7.0]]
    run = lloyd(x, no_pins(3, 1), centres, 50, 0.0)
    assert run.labels.tolist() == [0, 0, 1, 2] and run.centres.tolist() == [[0.5], [10.0], [-7.0]]


def test_an_empty_cluster_stays_where_no_point_is_off_its_mean():
    x = torch.ones(4, 2, dtype=torch.float64)
    centres = torch.tensor([[1.0, 1.0], [5.0, 6.0]], dtype=torch.float64)
    run = lloyd(x, no_pins(2, 2), centres, 50, 0.0)
    assert run.centres.tolist() == centres.tolist() and run.n_iter == 1


def test_a_pinned_cluster_is_never_empty():
    x = torch.tensor([[4.0], [6.0]], dtype=torch.float64)
    pinned = Pinned(torch.tensor([[-20.0], [0.0]], dtype=torch.float64), torch.tensor([2, 0]))
    run = lloyd(x, pinned, torch.tensor([[-10.0], [4.0]], dtype=torch.float64), 50, 0.0)
    assert run.centres.tolist() == [[-10.0], [5.0]] and run.labels.tolist() == [1, 1]


def test_cluster_sums():
    sums, counts = cluster_sums(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([2, 0, 2]), 4)
    assert sums.tolist() == [[3, 4], [0, 0], [6, 8], [0, 0]] and counts.tolist() == [1, 0, 2, 0]


def test_distances_near_zero_are_exact_in_float32():
    x = torch.tensor([[1.0, 1.0], [1.0, 1.0001]])
    gap = float(x[1, 1]) - 1
    # Squares are worked out in float64 by three sums of two terms of size 4 at most, and distances are float32.
    error = 4 * rounding(2, sums=3, dtype=torch.float64)
    assert gap**2 > 1e4 * error
    squares = distances(x, x).double().square()
    np.testing.assert_allclose(squares, [[0, gap**2], [gap**2, 0]], rtol=SINGLE, atol=error)


def seeds_of(x, known, uniforms):
    x = torch.tensor(x, dtype=torch.float64)[:, None]
    known = torch.tensor(known, dtype=torch.float64).reshape(-1, 1)
    return seed_by_distance(x, x.square()[:, 0], known, torch.tensor(uniforms, dtype=torch.float64)).tolist()


def test_points_are_drawn_with_the_weight_of_their_squared_distance():
    # Squared distances to the known centre 0 are 1, 4, 0, 9: shares of 14 that end at 1/14, 5/14, 5/14, 1.
    ends = np.array([0, 1, 5, 14]) / 14
    for u, drawn in [(ends[0], 0), (ends[1] - 1e-9, 0), (ends[1], 1), (ends[2] - 1e-9, 1), (ends[2] + 1e-9, 3)]:
        assert seeds_of([1, -2, 0, 3], [0], [[[u]]]) == [[drawn]]
    # After the draw of 3 they are 1, 4, 0, 0 from it and 0: shares of 5.
    assert seeds_of([1, -2, 0, 3], [0], [[[0.99], [0.19]]]) == [[3, 0]]
    assert seeds_of([1, -2, 0, 3], [0], [[[0.99], [0.21]]]) == [[3, 1]]


def test_without_known_centres_the_first_is_drawn_evenly():
    assert [seeds_of([1, -2, 0, 3], [], [[[u]]]) for u in (0.0, 0.24, 0.26, 0.51, 0.99)] == [
        [[i]] for i in (0, 0, 1, 2, 3)
    ]


def test_of_several_trials_the_best_stays():
    x = [10, 11, 12, -30]
    # Drawn are the points 0, 1 and 3; with 3 the squared distances left are 100 + 121 + 144, with 1 only 1 + 1 + 900.
    assert seeds_of(x, [0], [[[0.0, 0.1, 0.9]]]) == [[3]]
    assert seeds_of(x, [0], [[[0.0, 0.1, 0.1]]]) == [[1]]


def test_starts_are_seeded_independently():
    together = seeds_of([1, -2, 0, 3], [0], [[[0.99], [0.19]], [[0.2], [0.5]]])
    assert together == [
        *seeds_of([1, -2, 0, 3], [0], [[[0.99], [0.19]]]),
        *seeds_of([1, -2, 0, 3], [0], [[[0.2], [0.5]]]),
    ]


# --- refusals ---


@pytest.mark.parametrize(
    "y, message",
    [
        ([0, 1], r"^y has the shape \(2,\) but X has 4 points. Give one class id for each point.$"),
        ([[0], [1], [2], [3]], r"^y has the shape \(4, 1\) but X has 4 points. Give one class id for each point.$"),
        ([0, 1, -2, 0], "^y holds -2. Give -1 for unlabelled points and class ids from 0 for the others.$"),
        (
            [0, 0.5, 1, 1],
            "^y holds values that are not whole numbers. Give -1 for unlabelled points and class ids such",
        ),
        ([0, np.nan, 1, 1], "not whole numbers"),
        ([0, np.inf, 1, 1], "not whole numbers"),
        (["cat", "dog", "cat", "dog"], "not whole numbers"),
        ([0, None, 1, 1], "not whole numbers"),
        ([0, 1, 2, -1], "^y names 3 known classes but n_clusters is 2. Set n_clusters to 3 or more.$"),
    ],
)
def test_labels_that_are_refused(y, message):
    with pytest.raises(Misuse, match=message) as caught:
        SemiSupervisedKMeans(2).fit([[0.0], [1.0], [2.0], [3.0]], y)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"n_clusters": 5}, "^n_samples=4 should be >= n_clusters=5. Give more points or a lower n_clusters.$"),
        ({"n_clusters": 0}, "^n_clusters is 0. Give a whole number of at least 1.$"),
        ({"n_clusters": 2.0}, "^n_clusters is 2.0. Give a whole number"),
        ({"n_init": "auto"}, "^n_init is 'auto'. Give a whole number"),
        ({"max_iter": True}, "^max_iter is True. Give a whole number"),
        ({"tol": -1e-4}, "^tol is -0.0001. Give a number of at least 0.$"),
        ({"tol": float("nan")}, "^tol is nan. Give a number"),
        ({"tol": "small"}, "^tol is 'small'. Give a number"),
        ({"device": "abacus"}, "^unknown device 'abacus'. Use auto, cpu"),
    ],
)
def test_settings_that_are_refused(changes, message):
    with pytest.raises(Misuse, match=message):
        SemiSupervisedKMeans(**{"n_clusters": 2, **changes}).fit([[0.0], [1.0], [2.0], [3.0]])


def test_settings_of_numpy_are_accepted():
    model = SemiSupervisedKMeans(np.int64(2), n_init=np.int32(2), tol=np.float32(0), max_iter=np.int8(9))
    assert sorted(model.fit_predict([[0.0], [0.1], [3.0]]).tolist()) in ([0, 0, 1], [0, 1, 1])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(bad):
    with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
        SemiSupervisedKMeans(1).fit([[0.0], [bad]])
    with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
        SemiSupervisedKMeans(1).fit([[0.0], [1.0]]).predict([[bad]])


def test_sparse_input_is_refused():
    with pytest.raises(TypeError, match="Sparse data was passed"):
        SemiSupervisedKMeans(1).fit(sparse.eye(3, format="csr"))


@pytest.mark.parametrize("dtype, value", [(np.float32, 1e25), (np.float64, 1e308)])
def test_values_whose_squares_overflow_are_refused(dtype, value):
    points = np.array([[value], [value], [-value / 2], [-value]], dtype)
    with pytest.raises(
        Misuse, match=r"^X has values too large to be squared in torch.float\d\d. Divide X by a large number"
    ):
        SemiSupervisedKMeans(2).fit(points)


def test_mps_refuses_float64(monkeypatch):
    from sptnet.runtime.compute import Compute

    monkeypatch.setattr(
        "sptnet.clustering.semi_supervised_kmeans.choose_compute",
        lambda *_: Compute(torch.device("mps"), torch.float32),
    )
    with pytest.raises(Misuse, match=r"^the device mps has no float64. Give X as float32, or use device='cpu'.$"):
        SemiSupervisedKMeans(1).fit(np.zeros((2, 1)))
    assert kmeans_steps.widest(torch.device("mps")) == torch.float32


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_cuda_finds_what_the_cpu_finds():
    points, y = labelled_blobs(0)
    models = [
        SemiSupervisedKMeans(6, random_state=0, device=device).fit(points, y) for device in ("cpu", "cuda", "cuda")
    ]
    assert models[0].labels_.tolist() == models[1].labels_.tolist()
    assert models[1].cluster_centers_.tolist() == models[2].cluster_centers_.tolist()


# --- properties ---


@st.composite
def problems(draw):
    n, dim = draw(st.integers(1, 20)), draw(st.integers(1, 4))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    random = np.random.RandomState(draw(st.integers(0, 2**32 - 1)))
    # Whole numbers make ties and duplicates.
    points = random.standard_normal((n, dim)) if draw(st.booleans()) else random.randint(-2, 3, size=(n, dim))
    points = (points * draw(st.sampled_from([1e-3, 1, 100])) + draw(st.sampled_from([0, -50]))).astype(dtype)
    n_known = draw(st.integers(0, min(n, 4)))
    y = random.permutation(np.concatenate([np.arange(n_known), random.randint(-1, max(n_known, 1), size=n - n_known)]))
    y = np.where(y < n_known, y, -1)
    return points, y, draw(st.integers(max(n_known, 1), n)), draw(st.integers(1, 3))


@settings(max_examples=100, deadline=None)
@given(problems())
def test_results_are_consistent_for_any_input(problem):
    points, y, k, n_init = problem
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = SemiSupervisedKMeans(k, n_init=n_init, tol=0, random_state=0).fit(points, y)
    labels, centres, free = model.labels_, model.cluster_centers_, y < 0
    assert centres.shape == (k if free.any() else len(model.known_classes_), points.shape[1])
    assert np.isfinite(centres).all()
    assert labels.min() >= 0 and labels.max() < len(centres)
    assert labels[~free].tolist() == y[~free].tolist()
    assert labels[free].tolist() == model.predict(points)[free].tolist()

    # Points and centres are rounded once at their own size, squared distances along each axis at the squared spread.
    wide, (n, dim), dtype = points.astype(np.float64), points.shape, torch.from_numpy(points).dtype
    step = rounding(1, dtype=dtype) * float(np.abs(wide).max())
    spread = float(np.abs(wide - wide.mean(0)).max()) + step
    slack = dim * (rounding(n + dim, dtype=dtype) * spread**2 + 2 * step * spread)
    assert model.inertia_ == pytest.approx(oracle_inertia(points, labels, centres), abs=n * slack)
    for x, c in zip(points[free], labels[free], strict=True):
        assert squared(x, centres[c]) <= min(squared(x, other) for other in centres) + slack
    if model.n_iter_ < model.max_iter:
        error = rounding(n, dtype=dtype) * spread + step
        for c in set(labels.tolist()):
            np.testing.assert_allclose(centres[c], wide[labels == c].mean(0), rtol=0, atol=error)
