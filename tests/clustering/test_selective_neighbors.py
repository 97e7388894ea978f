"""Selective-neighbour clustering against loops over single points, properties, and awkward inputs."""

import math
import pickle
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers.rounding import assert_same
from sptnet.clustering import SelectiveNeighborClustering, lloyd
from sptnet.clustering.hierarchy import neighbor_levels
from sptnet.clustering.hierarchy.neighbor_levels import pick_neighbors
from sptnet.errors import Misuse
from sptnet.losses import unit_rows

# --- oracle: float64, one point at a time; links, removals and majorities as they are specified ---


def unit(x):
    length = math.sqrt(sum(v * v for v in x))
    return [v / length if length else 0.0 for v in x]


def mean(rows):
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def cosine(a, b):
    return sum(p * q for p, q in zip(unit(a), unit(b), strict=True))


def oracle_chains(vectors, members):
    """Return the pick of each member of one class."""
    picks, unused = {}, list(members)
    centre = mean([unit(vectors[i]) for i in members])
    length = math.ceil(math.sqrt(len(members)))
    while unused:
        chain = [min(unused, key=lambda i: cosine(vectors[i], centre))]
        unused.remove(chain[0])
        while unused and len(chain) < length:
            chain.append(max(unused, key=lambda i: cosine(vectors[i], vectors[chain[-1]])))
            unused.remove(chain[-1])
        picks.update(zip(chain, [*chain[1:], chain[-1]], strict=True))
    return picks


def oracle_picks(vectors, classes):
    n = len(vectors)
    picks = {}
    for i in range(n):
        if classes[i] < 0:
            others = [j for j in range(n) if j != i]
            picks[i] = max(others, key=lambda j: cosine(vectors[i], vectors[j])) if others else i
    for c in set(classes) - {-1}:
        picks.update(oracle_chains(vectors, [i for i in range(n) if classes[i] == c]))
    return [picks[i] for i in range(n)]


def oracle_components(picks, classes):
    """Return the component of each node after links between different classes are removed."""
    n = len(picks)

    def linked(i, j):
        if classes[i] >= 0 and classes[j] >= 0 and classes[i] != classes[j]:
            return False
        return picks[i] == j or picks[j] == i or picks[i] == picks[j]

    component = [-1] * n
    for start in range(n):
        if component[start] < 0:
            component[start], reached = start, [start]
            while reached:
                i = reached.pop()
                for j in range(n):
                    if component[j] < 0 and linked(i, j):
                        component[j] = start
                        reached.append(j)
    return component


def majority(labels):
    counts = Counter(c for c in labels if c >= 0)
    return counts.most_common(1)[0][0] if counts else -1


def groups_of(labels):
    """Return the clusters as sorted lists of points."""
    found = {}
    for i, c in enumerate(labels):
        found.setdefault(int(c), []).append(i)
    return sorted(found.values())


def oracle_levels(points, y):
    """Return the clusters of every level as lists of points."""
    units = [unit(x) for x in points.tolist()]
    groups, levels = [[i] for i in range(len(points))], []
    while True:
        vectors = [mean([units[i] for i in group]) for group in groups]
        classes = [majority([int(y[i]) for i in group]) for group in groups]
        merged = groups_of(oracle_components(oracle_picks(vectors, classes), classes))
        coarser = sorted(sorted(i for g in group for i in groups[g]) for group in merged)
        if levels and len(coarser) == len(groups):
            return levels
        levels.append(coarser)
        groups = coarser


def oracle_merged(groups, points, y, n_clusters):
    units = [unit(x) for x in points.tolist()]
    groups = [list(group) for group in groups]
    while len(groups) > n_clusters:
        vectors = [mean([units[i] for i in group]) for group in groups]
        classes = [majority([int(y[i]) for i in group]) for group in groups]
        pairs = [
            (cosine(vectors[a], vectors[b]), a, b)
            for a in range(len(groups))
            for b in range(a)
            if -1 in (classes[a], classes[b]) or classes[a] == classes[b]
        ]
        _, a, b = max(pairs)
        groups[b] += groups.pop(a)
    return sorted(sorted(group) for group in groups)


def problem(seed, n=40, dim=4, known=3, share=0.5):
    random = np.random.RandomState(seed)
    truth = random.randint(2 * known or 3, size=n)
    points = random.standard_normal((2 * known or 3, dim))[truth] + 0.5 * random.standard_normal((n, dim))
    y = np.where((truth < known) & (random.uniform(size=n) < share), truth, -1)
    y[:known] = np.arange(known)
    return points, y


# --- against the oracle ---


@pytest.mark.parametrize("known, share", [(0, 0.0), (1, 0.5), (3, 0.2), (3, 0.5), (3, 1.0), (6, 0.9)])
@pytest.mark.parametrize("seed", range(3))
def test_every_level_is_that_of_the_slow_form(seed, known, share):
    points, y = problem(seed, known=known, share=share)
    model = SelectiveNeighborClustering().fit(points, y)
    expected = oracle_levels(points, y)
    assert [groups_of(level) for level in model.levels_] == expected
    assert len(expected) > 1
    assert len(expected[-1]) == max(known, 1)


@pytest.mark.parametrize("n_clusters", [3, 4, 5, 7, 12, 25, 39, 40])
@pytest.mark.parametrize("seed", range(2))
def test_the_merges_are_those_of_the_slow_form(seed, n_clusters):
    points, y = problem(seed)
    singles = [[i] for i in range(len(points))]
    start = [groups for groups in [singles, *oracle_levels(points, y)] if len(groups) >= n_clusters][-1]
    found = SelectiveNeighborClustering(n_clusters).fit(points, y)
    assert groups_of(found.labels_) == oracle_merged(start, points, y, n_clusters)
    assert found.n_clusters_ == n_clusters == len(set(found.labels_.tolist()))


@pytest.mark.parametrize("sizes", [[1], [2], [3], [4], [5], [9], [10], [17], [3, 11, 1, 6]])
def test_the_chains_are_those_of_the_slow_form(sizes):
    random = np.random.RandomState(0)
    points = random.standard_normal((sum(sizes), 3))
    classes = random.permutation(np.repeat(np.arange(len(sizes)), sizes))
    picks = pick_neighbors(unit_rows(torch.from_numpy(points)), torch.from_numpy(classes)).tolist()
    if 2 in sizes:  # both are as far from their mean
        assert picks in ([0, 0], [1, 1])
    else:
        assert picks == oracle_picks(points.tolist(), classes.tolist())
    ends = sum(math.ceil(n / math.ceil(math.sqrt(n))) for n in sizes)
    assert sum(i == pick for i, pick in enumerate(picks)) == ends


@pytest.mark.parametrize("block", [1, 50, 120])
def test_blocks_do_not_change_the_result(monkeypatch, block):
    points, y = problem(5, n=60, known=4, share=0.8)
    whole = SelectiveNeighborClustering(9).fit(points, y)
    monkeypatch.setattr(neighbor_levels, "CLASS_BLOCK", block)
    monkeypatch.setattr(lloyd, "LEAST_ROWS", 7)
    monkeypatch.setattr(lloyd, "CPU_BLOCK", 1)
    parts = SelectiveNeighborClustering(9).fit(points, y)
    assert parts.labels_.tolist() == whole.labels_.tolist()
    assert [level.tolist() for level in parts.levels_] == [level.tolist() for level in whole.levels_]


def test_float32_finds_the_clusters_of_float64():
    points, y = problem(1, n=200, dim=8)
    narrow = SelectiveNeighborClustering(6).fit(points.astype(np.float32), y)
    wide = SelectiveNeighborClustering(6).fit(points, y)
    assert narrow.labels_.tolist() == wide.labels_.tolist()
    assert narrow.cluster_centers_.dtype == np.float32 and wide.cluster_centers_.dtype == np.float64
    assert_same(narrow.cluster_centers_, wide.cluster_centers_, terms=len(points))


# --- the result ---


def test_numbers_of_the_clusters():
    # Directions in degrees: class 0 near 0 and near 90 (more points, fewer labels), class 1, and two new clusters.
    degrees = [[270, 271.1, 272.3], [180, 181], [90, 91, 92, 92.5, 93.2, 94.1, 95.2], range(6), [45, 46]]
    y = [-1] * 3 + [1] * 2 + [0] * 3 + [-1] * 4 + [0] * 6 + [-1] * 2
    angles = np.radians(np.concatenate([list(part) for part in degrees]))
    points = np.stack([np.cos(angles), np.sin(angles)], 1)
    model = SelectiveNeighborClustering(5).fit(points, y)
    assert model.labels_.tolist() == [3] * 3 + [1] * 2 + [2] * 7 + [0] * 6 + [4] * 2
    assert model.cluster_classes_.tolist() == [0, 1, 0, -1, -1]
    expected = [unit(points[model.labels_ == c].mean(0)) for c in range(5)]
    assert_same(model.cluster_centers_, expected, terms=10)


def test_without_a_number_the_coarsest_level_with_new_clusters_is_the_result():
    points, y = problem(0, n=80)
    model = SelectiveNeighborClustering().fit(points, y)
    sizes = [len(set(level.tolist())) for level in model.levels_]
    suited = [
        i for i, level in enumerate(model.levels_) if any(majority(y[level == c].tolist()) < 0 for c in set(level))
    ]
    assert 0 < suited[-1] < len(sizes) - 1
    assert model.labels_.tolist() == model.levels_[suited[-1]].tolist()
    assert model.n_clusters_ == sizes[suited[-1]]


def test_classes_with_gaps_are_numbered_in_order():
    points, y = problem(2)
    gaps = np.where(y >= 0, 10 * y + 7, -1)
    model, same = (SelectiveNeighborClustering(6).fit(points, labels) for labels in (gaps, y))
    assert model.known_classes_.tolist() == [7, 17, 27]
    assert model.labels_.tolist() == same.labels_.tolist()
    assert model.cluster_classes_.tolist() == [10 * c + 7 if c >= 0 else -1 for c in same.cluster_classes_]


def test_lengths_do_not_matter():
    points, y = problem(3)
    lengths = 2.0 ** np.random.RandomState(0).randint(-600, 500, size=(len(points), 1))
    expected, found = (SelectiveNeighborClustering(6).fit(x, y) for x in (points, points * lengths))
    assert found.labels_.tolist() == expected.labels_.tolist()


def test_separated_clusters_are_found():
    points, truth = make_blobs(600, 16, centers=12, cluster_std=0.5, random_state=0)
    y = np.where((truth < 6) & (np.arange(600) % 2 == 0), truth, -1)
    model = SelectiveNeighborClustering(12).fit(points, y)
    assert adjusted_rand_score(truth, model.labels_) == 1.0
    assert model.labels_[y >= 0].tolist() == y[y >= 0].tolist()
    nearest = (points @ model.cluster_centers_.T).argmax(1)
    assert nearest.tolist() == model.labels_.tolist()


def test_attributes_and_methods():
    points, y = problem(4)
    before = points.copy()
    model = SelectiveNeighborClustering(n_clusters=6)
    assert model.fit_predict(points, y).tolist() == model.labels_.tolist()
    assert model.labels_.tolist() != SelectiveNeighborClustering(6).fit_predict(points).tolist()
    assert points.tolist() == before.tolist()
    assert model.get_params() == {"n_clusters": 6}
    assert model.labels_.dtype == np.int64 and model.cluster_centers_.shape == (6, 4) and model.n_features_in_ == 4
    assert clone(model).fit_predict(points, y).tolist() == model.labels_.tolist()
    assert pickle.loads(pickle.dumps(model)).labels_.tolist() == model.labels_.tolist()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # the checks label every point
@parametrize_with_checks([SelectiveNeighborClustering()])
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


# --- degenerate input ---


def test_no_labels():
    points, _ = problem(0, known=0)
    one, two = SelectiveNeighborClustering().fit(points), SelectiveNeighborClustering().fit(points, [-1] * 40)
    assert one.labels_.tolist() == two.labels_.tolist()
    assert one.known_classes_.tolist() == [] and set(one.cluster_classes_.tolist()) == {-1}
    assert set(one.levels_[-1].tolist()) == {0} and one.n_clusters_ > 1


@pytest.mark.parametrize("y", [None, [-1], [0], [5]])
@pytest.mark.parametrize("n_clusters", [None, 1])
def test_one_point(y, n_clusters):
    model = SelectiveNeighborClustering(n_clusters).fit([[3.0, 4.0]], y)
    assert model.labels_.tolist() == [0] and [level.tolist() for level in model.levels_] == [[0]]
    assert_same(model.cluster_centers_, [[0.6, 0.8]], terms=2)


def test_all_labelled_ends_with_the_classes():
    points, _ = problem(0)
    y = np.arange(40) % 3
    model = SelectiveNeighborClustering().fit(points, y)
    assert model.labels_.tolist() == y.tolist() and model.n_clusters_ == 3
    assert len(set(model.levels_[0].tolist())) == sum(math.ceil(n / 4) for n in (14, 13, 13))
    more = SelectiveNeighborClustering(5).fit(points, y)
    assert len(set(more.labels_.tolist())) == 5 and more.cluster_classes_.tolist()[:3] == [0, 1, 2]


def test_all_labelled_with_fewer_clusters_than_classes_is_pointed_out():
    points, _ = problem(0)
    message = "^every point is labelled, so the clusters are the 3 classes and n_clusters=2 has no effect. Give -1"
    with pytest.warns(ConvergenceWarning, match=message):
        model = SelectiveNeighborClustering(2).fit(points, np.arange(40) % 3)
    assert model.labels_.tolist() == (np.arange(40) % 3).tolist()


def test_every_point_is_a_class_of_its_own():
    points, _ = problem(0, n=6, known=0)
    model = SelectiveNeighborClustering().fit(points, np.arange(6))
    assert [level.tolist() for level in model.levels_] == [list(range(6))]
    assert model.labels_.tolist() == list(range(6))


def test_a_class_with_one_member():
    points = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0], [0.2, 1.0]])
    model = SelectiveNeighborClustering(2).fit(points, [-1, -1, -1, 0, -1])
    assert model.labels_.tolist() == [1, 1, 0, 0, 0] and model.cluster_classes_.tolist() == [0, -1]


@pytest.mark.parametrize("y", [None, [-1] * 6, [0, -1, -1, 0, -1, -1], [0] * 6])
def test_duplicate_points_only(y):
    model = SelectiveNeighborClustering().fit(np.tile([0.0, 2.0], (6, 1)), y)
    assert model.levels_[-1].tolist() == [0] * 6
    assert model.cluster_centers_.tolist() == [[0.0, 1.0]] * model.n_clusters_


def test_duplicates_of_two_classes_stay_apart():
    model = SelectiveNeighborClustering().fit(np.tile([0.0, 2.0], (6, 1)), [0, 0, 1, 1, -1, -1])
    assert model.labels_.tolist()[:4] == [0, 0, 1, 1] and model.n_clusters_ == 2


def test_duplicates_form_one_cluster():
    points = np.repeat(np.eye(4), 5, axis=0)
    model = SelectiveNeighborClustering().fit(points)
    assert groups_of(model.levels_[0]) == [list(range(5 * c, 5 * c + 5)) for c in range(4)]


def test_rows_of_zeros_and_opposite_points():
    model = SelectiveNeighborClustering(1).fit([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    assert model.labels_.tolist() == [0, 0, 0] and model.cluster_centers_.tolist() == [[0.0, 0.0]]


# --- properties ---


@st.composite
def problems(draw):
    n, dim = draw(st.integers(1, 24)), draw(st.integers(2, 4))
    random = np.random.RandomState(draw(st.integers(0, 2**32 - 1)))
    n_known = draw(st.integers(0, min(n, 4)))
    y = random.permutation(np.concatenate([np.arange(n_known), random.randint(-1, max(n_known, 1), size=n - n_known)]))
    y = np.where(y < n_known, y, -1)
    n_clusters = draw(st.none() | st.integers(max(n_known, 1), n))
    return random.standard_normal((n, dim)), y, n_clusters, random.permutation(n)


@settings(max_examples=40, deadline=None)
@given(problems())
def test_permuted_points_have_the_permuted_result(one):
    points, y, n_clusters, order = one
    model = SelectiveNeighborClustering(n_clusters).fit(points, y)
    other = SelectiveNeighborClustering(n_clusters).fit(points[order], y[order])
    pairs = zip([model.labels_, *model.levels_], [other.labels_, *other.levels_], strict=True)
    for expected, found in pairs:
        assert groups_of(expected[order]) == groups_of(found)


@settings(max_examples=40, deadline=None)
@given(problems(), st.booleans())
def test_results_are_consistent_for_any_input(one, rounded):
    points, y, n_clusters, _ = one
    points = np.rint(points) if rounded else points  # ties, duplicates and rows of zeros
    n_known = int(y.max()) + 1
    model = SelectiveNeighborClustering(n_clusters).fit(points, y)
    for level in [*model.levels_, model.labels_]:
        ids = sorted(set(level.tolist()))
        assert ids == list(range(len(ids)))
        for c in ids:
            classes = set(y[level == c].tolist()) - {-1}
            assert len(classes) <= 1  # so every labelled point is in a cluster of its class
            assert c >= n_known or classes == {c}
    for finer, coarser in zip(model.levels_, model.levels_[1:], strict=False):
        assert len(set(zip(finer.tolist(), coarser.tolist(), strict=True))) == len(set(finer.tolist()))
        assert len(set(coarser.tolist())) < len(set(finer.tolist()))
    assert len(set(model.levels_[-1].tolist())) == max(n_known, 1)
    assert model.n_clusters_ == len(set(model.labels_.tolist())) == len(model.cluster_centers_)
    assert n_clusters in (None, model.n_clusters_)
    expected = [majority(y[model.labels_ == c].tolist()) for c in range(model.n_clusters_)]
    assert model.cluster_classes_.tolist() == expected
    lengths = np.linalg.norm(model.cluster_centers_, axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-12) | (lengths == 0))


# --- refusals ---


@pytest.mark.parametrize(
    "n_clusters, message",
    [
        (0, "^n_clusters is 0. Give a whole number of at least 1, or None.$"),
        (2.0, "^n_clusters is 2.0. Give a whole number"),
        (True, "^n_clusters is True. Give a whole number"),
        ("auto", "^n_clusters is 'auto'. Give a whole number"),
        (
            1,
            "^y names 2 known classes but n_clusters is 1, and clusters of different known classes are never merged. "
            "Set n_clusters to 2 or more.$",
        ),
        (5, "^n_samples=4 should be >= n_clusters=5. Give more points or a lower n_clusters.$"),
    ],
)
def test_numbers_of_clusters_that_are_refused(n_clusters, message):
    with pytest.raises(Misuse, match=message):
        SelectiveNeighborClustering(n_clusters).fit(np.eye(4), [0, 1, -1, -1])


@pytest.mark.parametrize(
    "y, message",
    [
        ([0, 1], r"^y has the shape \(2,\) but X has 4 points. Give one class id for each point.$"),
        ([0, 1, -2, 0], "^y holds -2. Give -1 for unlabelled points and class ids from 0 for the others.$"),
        ([0, 0.5, 1, 1], "^y holds values that are not whole numbers"),
    ],
)
def test_labels_that_are_refused(y, message):
    with pytest.raises(Misuse, match=message):
        SelectiveNeighborClustering().fit(np.eye(4), y)


def test_points_that_are_refused():
    with pytest.raises(ValueError, match="contains NaN"):
        SelectiveNeighborClustering().fit([[0.0], [np.nan]])
    with pytest.raises(TypeError, match="Sparse data was passed"):
        SelectiveNeighborClustering().fit(sparse.eye(3, format="csr"))


def test_numbers_of_numpy_are_accepted():
    assert SelectiveNeighborClustering(np.int64(2)).fit(np.eye(3)).n_clusters_ == 2
