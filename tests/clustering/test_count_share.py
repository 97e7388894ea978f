"""Count by the share of the known classes: its parts against naive forms, and its behaviour on made-up points."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sptnet.clustering.count import estimate_n_categories
from sptnet.clustering.count_share import (
    ShareEvidence,
    combine,
    crossing,
    effective_clusters,
    share_evidence,
)
from sptnet.clustering.known_share import equal_weights, known_share, mixture_share, resemblance
from sptnet.clustering.points import unit_features

Points = npt.NDArray[np.float32]


def noisy(
    n_classes: int, n_known: int, each: int = 20, labels: int = 6, noise: float = 0.25, seed: int = 0
) -> tuple[Points, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Overlapping classes on the sphere: points, labels and truth."""
    random = np.random.RandomState(seed)
    truth = np.repeat(np.arange(n_classes), each)
    points = random.standard_normal((n_classes, 32))[truth] / 32**0.5 + noise * random.standard_normal((len(truth), 32))
    ranks = np.where((truth < n_known) & (np.arange(len(truth)) % each < labels), truth, -1)
    return unit_features(points), ranks, truth


@pytest.mark.parametrize(("n_classes", "n_known"), [(12, 6), (20, 8), (24, 18)])
def test_overlapping_classes_are_counted_within_the_range(n_classes: int, n_known: int) -> None:
    points, ranks, _ = noisy(n_classes, n_known, noise=0.12, seed=n_classes)
    found = estimate_n_categories(points, ranks, random_state=0, method="share", n_repeats=2)
    assert found.method == "share"
    assert found.interval[0] <= n_classes <= found.interval[1]
    assert abs(math.log(found.n_categories / n_classes)) < 0.3
    best = max(found.curve, key=lambda trial: trial.score)
    assert abs(best.n_categories - found.n_categories) <= max(2, 0.15 * found.n_categories)


@pytest.mark.parametrize("n_known", [4, 8, 16])
def test_the_share_of_known_points_is_found(n_known: int) -> None:
    points, ranks, truth = noisy(20, n_known, noise=0.15)
    true = (truth[ranks < 0] < n_known).mean()
    assert known_share(points, ranks) == pytest.approx(true, abs=0.1)


@settings(max_examples=50, deadline=None)
@given(share=st.floats(0.05, 0.95), seed=st.integers(0, 99))
def test_a_mixture_of_calibrated_scores_gives_its_share(share: float, seed: int) -> None:
    """Scores whose log-odds are normal with unit variance and means 1/2 and -1/2 are calibrated at equal shares."""
    random = np.random.RandomState(seed)
    positive = random.random_sample(4000) < share
    log_odds = 2.0 * random.standard_normal(4000) + np.where(positive, 2.0, -2.0)
    assert mixture_share(1 / (1 + np.exp(-log_odds))) == pytest.approx(positive.mean(), abs=0.05)


def test_resemblance_by_hand() -> None:
    """Two classes on the axes, one unlabelled point near the first."""
    points = unit_features(np.array([[1, 0.1], [1, -0.1], [0.1, 1], [-0.1, 1], [1, 0.2]]))
    as_known, as_new, unlabelled, classes = resemblance(points, np.array([0, 0, 1, 1, -1]))
    assert classes.tolist() == [0, 0, 1, 1]
    cosines = points.astype(float) @ points.astype(float).T
    assert as_known[0, 0] == pytest.approx(cosines[0, 1]), "without itself, its class is the other point"
    mean_of_second = points[2] + points[3]
    to_second = float(points[0] @ mean_of_second) / float(np.linalg.norm(mean_of_second))
    assert as_known[0, 1] == pytest.approx(cosines[0, 1] - to_second, abs=1e-6)
    assert as_new[0, 0] == pytest.approx(to_second, abs=1e-6), "as a new point it is nearest to the other class"
    assert unlabelled[0, 2] == pytest.approx((cosines[4, 0] + cosines[4, 1]) / 2, abs=1e-6)
    density = np.mean([cosines[4, i] for i in range(4)])
    assert unlabelled[0, 4] == pytest.approx(unlabelled[0, 2] - density, abs=1e-6)


def test_a_class_of_one_point_has_no_resemblance_to_itself() -> None:
    points = unit_features(np.eye(4) + 0.1)
    as_known, as_new, _, _ = resemblance(points, np.array([0, 1, 1, -1]))
    assert np.array_equal(as_known[0], as_new[0])


def test_weights_are_equal_for_every_class() -> None:
    weights = equal_weights(np.array([0, 0, 0, 1, 3, 3]))
    assert weights.sum() == pytest.approx(0.5)
    assert [weights[:3].sum(), weights[3], weights[4:].sum()] == pytest.approx([1 / 6] * 3)


@pytest.mark.parametrize(
    ("clusters", "expected"),
    [([0, 0, 1, 1], 2.0), ([0, 0, 0, 0], 1.0), ([0, 1, 2, 3], 4.0), ([0, 0, 0, 1], math.exp(0.8112781 * math.log(2)))],
)
def test_effective_clusters_by_hand(clusters: list[int], expected: float) -> None:
    ranks = np.array([0, 0, 1, 1])
    assert effective_clusters(np.array(clusters), ranks, 2) == pytest.approx(expected, rel=1e-6)


def test_small_classes_weigh_as_much_as_large_ones() -> None:
    clusters, ranks = np.array([0] * 9 + [1]), np.array([0] * 9 + [1])
    assert effective_clusters(clusters, ranks, 2) == pytest.approx(2.0)


def test_crossing_is_between_counts_and_never_outside() -> None:
    assert crossing([4, 16], [1.0, 3.0], 2.0) == pytest.approx(8.0)
    assert crossing([4, 16], [1.0, 3.0], 9.0) == pytest.approx(16.0)
    assert crossing([4, 16], [1.0, 3.0], 0.5) == pytest.approx(4.0)
    assert crossing([4, 8, 16], [1.0, 0.5, 3.0], 2.0) == pytest.approx(8 * 2**0.5), "values are made to increase"


def test_accurate_clusters_decide_alone() -> None:
    evidence = ShareEvidence(held=30.0, occupied=30.0, share=30.0)
    assert combine(evidence, 20, 1.0, 5).mean == pytest.approx(20)
    assert combine(evidence, 20, 0.0, 5).mean == pytest.approx(30)
    assert (
        combine(evidence, 20, 1.0, 5).error < combine(evidence, 20, 0.5, 5).error < combine(evidence, 20, 0.0, 2).error
    )
    assert combine(ShareEvidence(3.0, 3.0, 3.0), 3, 0.0, 5).mean == 5, "not below the known classes"


def test_the_range_is_even_around_the_mean_and_the_mean_most_plausible() -> None:
    counts = combine(ShareEvidence(40.0, 40.0, 40.0), 40, 0.0, 9)
    low, high = counts.interval()
    assert low * high == pytest.approx(1600, rel=0.1)
    assert counts.plausibility(40) == pytest.approx(1.0)
    assert counts.plausibility(30) < 1 and counts.plausibility(20) < counts.plausibility(30)


def test_the_evidence_is_the_same_for_the_same_seed() -> None:
    points, ranks, _ = noisy(12, 6)
    assert share_evidence(points, ranks, 6, 60, 3) == share_evidence(points, ranks, 6, 60, 3)


def test_no_count_lies_outside_the_bounds() -> None:
    points, ranks, _ = noisy(12, 6)
    for low, high in ((6, 6), (6, 8), (30, 40)):
        found = estimate_n_categories(points, ranks, low, high, random_state=0, method="share", n_repeats=1)
        assert low <= found.interval[0] <= found.n_categories <= found.interval[1] <= high
