"""Scores of predictions."""

import math

import numpy as np
import pytest

from sptnet.results.scores import score


def ids(*values):
    return np.array(values, dtype=np.int64)


def test_images_without_truth_are_left_out():
    truth, predicted = ids(0, 0, 1, 2, 2), ids(4, 4, 3, 0, 1)
    with_strangers = score(ids(-1, 0, 0, -1, 1, 2, 2, -1), ids(0, 4, 4, 3, 3, 0, 1, 0), 2)
    assert with_strangers == score(truth, predicted, 2)
    assert with_strangers["images"] == 5
    assert (with_strangers["all"], with_strangers["old"], with_strangers["new"]) == (0.8, 1.0, 0.5)


def test_no_truth_no_scores():
    assert score(ids(-1, -1, -1), ids(0, 1, 2), 2) == {}
    assert score(ids(), ids(), 2) == {}


def test_fewer_clusters_than_classes():
    scores = score(ids(0, 0, 0, 1, 1, 2), ids(5, 5, 5, 5, 5, 5), 1)
    assert (scores["all"], scores["old"], scores["new"]) == (0.5, 1.0, 0.0)
    assert scores["balanced"] == {"all": pytest.approx(1 / 3), "old": 1.0, "new": 0.0}
    assert scores["ari"] == pytest.approx(0.0)


def test_more_clusters_than_classes():
    scores = score(ids(0, 0, 0, 0, 1, 1), ids(0, 1, 2, 2, 7, 9), 1)
    assert scores["all"] == 0.5  # two of class 0 by cluster 2, one of class 1
    assert (scores["old"], scores["new"]) == (0.5, 0.5)


def test_separate_matching_lets_one_cluster_serve_twice():
    scores = score(ids(0, 0, 1, 1), ids(3, 3, 3, 3), 1)
    assert scores["all"] == 0.5
    assert scores["separate"] == {"all": 1.0, "old": 1.0, "new": 1.0}


def test_the_numbers_of_one_mixed_example():
    scores = score(ids(0, 0, 1, 1, 1, 2), ids(1, 1, 0, 0, 2, 2), 2)
    assert scores["all"] == pytest.approx(5 / 6)
    assert scores["old"] == pytest.approx(4 / 5)
    assert scores["new"] == 1.0
    assert scores["balanced"]["all"] == pytest.approx((1 + 2 / 3 + 1) / 3)
    assert scores["balanced"]["old"] == pytest.approx((1 + 2 / 3) / 2)
    assert 0 < scores["nmi"] < 1
    assert 0 < scores["ari"] < 1


def test_without_new_images_new_is_no_number():
    scores = score(ids(0, 1), ids(1, 0), 2)
    assert (scores["all"], scores["old"]) == (1.0, 1.0)
    assert math.isnan(scores["new"])


def test_the_truth_is_not_changed_by_scoring():
    truth, predicted = ids(-1, 0, 1), ids(2, 2, 1)
    score(truth, predicted, 1)
    assert truth.tolist() == [-1, 0, 1]
    assert predicted.tolist() == [2, 2, 1]
