"""Evidence that points are sorted rightly, against naive forms."""

import numpy as np
import pytest

from sptnet.clustering.points import unit_features
from sptnet.clustering.sorting_evidence import hide_some, lead, neighbour_share, sorting_evidence


def test_neighbours_and_lead_by_brute_force() -> None:
    random = np.random.RandomState(0)
    points, categories = unit_features(random.standard_normal((60, 5))), random.randint(0, 4, 60)
    sample = np.arange(0, 60, 2)
    shares, leads = neighbour_share(points, categories, sample), lead(points, categories, 5)
    for i in range(60):
        others = sorted((j for j in sample if j != i), key=lambda j: -float(points[i] @ points[j]))[:10]
        assert shares[i] == pytest.approx(np.mean([categories[j] == categories[i] for j in others]))
        cosines = {}
        for c in range(4):
            members = [j for j in range(60) if (categories[j] == c and j != i) or (categories[j] == c != categories[i])]
            mean = points[members].astype(float).sum(0)
            cosines[c] = float(points[i] @ mean) / float(np.linalg.norm(mean))
        own = cosines.pop(int(categories[i]))
        assert leads[i] == pytest.approx(own - max(cosines.values()), abs=1e-5)


def test_a_point_alone_in_its_category_has_no_lead() -> None:
    points = unit_features(np.eye(3) + 0.1)
    assert lead(points, np.array([0, 1, 1]), 2)[0] == -1


@pytest.mark.parametrize("n_known", [0, 1, 2, 7])
def test_some_labels_are_hidden_and_none_invented(n_known: int) -> None:
    ranks = np.r_[np.repeat(np.arange(n_known), 6), np.full(9, -1)]
    for seed in range(5):
        kept = hide_some(ranks, np.random.RandomState(seed))
        assert (kept[kept >= 0] == ranks[kept >= 0]).all()
        classes = np.unique(kept[kept >= 0])
        assert len(classes) == (0 if n_known == 0 else n_known - min(n_known - 1, max(1, round(n_known / 3))))
        assert all((kept == c).sum() == 4 for c in classes)


def test_separate_groups_have_the_best_evidence_and_strangers_a_bad_one() -> None:
    random = np.random.RandomState(1)
    truth = np.repeat(np.arange(4), 15)
    points = unit_features(np.eye(8)[truth] + 0.05 * random.standard_normal((60, 8)))
    ranks = np.where(np.arange(60) % 15 < 5, np.where(truth < 2, truth, -1), -1)
    categories = truth.copy()
    categories[7] = 1  # a point of the first group
    found = sorting_evidence(points, ranks, categories, 4, seed=0)
    rest = np.delete(np.arange(60), 7)
    assert (found.neighbours[rest] > 0.85).all() and found.neighbours[7] == 0
    assert (found.lead[rest] > 0.5).all() and found.lead[7] < -0.5
    assert found.stability[rest].mean() > 0.7 and found.stability[7] < 0.2


def test_the_same_seed_gives_the_same_evidence_and_any_size_works() -> None:
    points = unit_features(np.random.RandomState(0).standard_normal((30, 4)))
    ranks, categories = np.full(30, -1), np.arange(30) % 3
    first, second = (sorting_evidence(points, ranks, categories, 3, seed=5) for _ in range(2))
    assert np.array_equal(first.stability, second.stability)
    for n, k in ((1, 1), (2, 2), (3, 7)):
        found = sorting_evidence(points[:n], ranks[:n], np.arange(n) % k, k, seed=0)
        assert len(found.stability) == n and np.isfinite(found.lead).all()
