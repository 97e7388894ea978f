"""Number of categories by hidden classes: scores against scikit-learn, single merges, and whole estimates."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import silhouette_score

from helpers.rounding import rounding
from sptnet.clustering.hierarchy.count_neighbors import Judge, best_of, count_by_neighbors, n_hidden, scaled
from sptnet.clustering.hierarchy.neighbor_levels import build_levels, closest_merges, merge_clusters, single_points
from sptnet.clustering.points import unit_features
from sptnet.errors import Misuse
from sptnet.metrics import contingency, matched_share


def labelled_blobs(seed, n=1200, k=24, known=12):
    random = np.random.RandomState(seed)
    points, truth = make_blobs(n, 32, centers=random.standard_normal((k, 32)), cluster_std=0.5, random_state=seed)
    return points, np.where((truth < known) & (random.uniform(size=n) < 0.5), truth, -1)


@pytest.mark.parametrize("seed", range(3))
def test_separated_categories_are_counted(seed):
    points, y = labelled_blobs(seed)
    assert count_by_neighbors(points, y, seed) == 24


def test_digits_are_counted():
    points, truth = load_digits(return_X_y=True)
    y = np.where((truth < 5) & (np.arange(len(truth)) % 2 == 0), truth, -1)
    counts = [count_by_neighbors(points, y, seed) for seed in range(3)]
    assert all(8 <= count <= 13 for count in counts), counts
    assert counts[0] == count_by_neighbors(points, y, 0)


def test_estimate_is_at_least_the_number_of_known_classes():
    points, y = np.tile(np.eye(2), (6, 1)), np.arange(12) % 6
    assert count_by_neighbors(points, y, 0) == 6


@pytest.mark.parametrize("n_known, n", [(2, 1), (3, 2), (5, 2), (10, 4), (11, 2), (50, 10), (100, 20)])
def test_number_of_hidden_classes(n_known, n):
    assert n_hidden(n_known) == n


def test_scores_after_each_merge_are_those_of_the_clustering():
    points, y = labelled_blobs(0, n=200, k=8, known=4)
    units = unit_features(points)
    hidden = np.where(y < 2, y, -1)
    visible = np.where(y >= 2, y, -1)
    level = build_levels(single_points(torch.from_numpy(units), torch.from_numpy(visible)))[0]
    into, partitions = np.arange(len(level.sums)), [np.arange(len(level.sums))]
    for kept, dropped in closest_merges(level, 2):
        into = np.where(into == dropped, kept, into)
        partitions.append(into)
    walk = list(Judge(units, hidden, np.random.RandomState(0)).scores_of_merges(level, 2))
    assert len(walk) == len(partitions) == len(level.sums) - 1
    for (n_categories, (accuracy, separation)), into in zip(walk, partitions, strict=True):
        merged = merge_clusters(level, torch.from_numpy(np.unique(into, return_inverse=True)[1]))
        labels, classes = merged.members.numpy(), merged.classes.numpy()
        assert n_categories == (classes < 0).sum() + len(set(classes.tolist()) - {-1})
        assert accuracy == matched_share(contingency(hidden[hidden >= 0], labels[hidden >= 0]))
        # Each value is a quotient of mean distances, which are sums of at most 200 cosines of 32 terms.
        expected = silhouette_score(units.astype(np.float64), labels, metric="cosine")
        assert separation == pytest.approx(expected, abs=rounding(232, sums=2) / 0.05)


def test_best_of_scores():
    assert scaled(np.array([1.0, 3.0, 2.0])).tolist() == [0, 1, 0.5]
    assert scaled(np.array([0.2, 0.2])).tolist() == [1, 1]
    assert best_of([(0.1, 0.9), (0.6, 0.5), (0.9, 0.1)]) == 1
    assert best_of([(0.5, 0.1), (0.5, 0.3)]) == 1
    assert best_of([(0.5, 0.1)]) == 0


@pytest.mark.parametrize("y", [[-1, -1, -1], [0, 0, -1]])
def test_too_few_known_classes_are_refused(y):
    with pytest.raises(Misuse, match=r"^counting with hidden classes needs at least two known classes, but y has [01]"):
        count_by_neighbors(np.eye(3), y)
