"""RankStats+: pairs, losses and ramp-up against naive loops in float64, and on degenerate batches."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.loops import (
    assert_gradient,
    dot,
    finite_differences,
    long,
    loss_tolerance,
    normal,
    number,
    probabilities,
    rows,
)
from helpers.rounding import DOUBLE
from sptnet.errors import Misuse
from sptnet.methods.rankstats import consistency, pairwise_bce, ramp_up, rank_statistics_pairs

ALL_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
EPSILON = 1e-7


def naive_pairs(features, k):
    def top(row):
        return set(sorted(range(len(row)), key=lambda d: (-row[d], d))[:k])

    return [[top(a) == top(b) for b in features] for a in features]


def naive_pairwise_bce(p, q, same):
    total = 0.0
    for i in range(len(p)):
        for j in range(len(q)):
            x = min(max(dot(p[i], q[j]), EPSILON), 1 - EPSILON)
            total -= math.log(x) if same[i][j] else math.log(1 - x)
    return total / len(p) ** 2


def naive_consistency(p, q):
    squares = [(a - b) ** 2 for u, v in zip(p, q, strict=True) for a, b in zip(u, v, strict=True)]
    return sum(squares) / len(squares)


def smallest_argument(p, q):
    """Smallest number whose logarithm may be taken; errors of a sum are divided by it."""
    products = [dot(u, v) for u in p for v in q]
    return min(min(products), 1 - max(products))


# --- rank_statistics_pairs ---


@st.composite
def feature_batches(draw):
    n, dim = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    value = st.sampled_from([-3.0, -1.0, -0.0, 0.0, 0.5, 2.0])
    features = [[draw(value) for _ in range(dim)] for _ in range(n)]
    return features, draw(st.integers(1, dim)), draw(st.sampled_from(ALL_TYPES))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(batch=feature_batches())
def test_pairs_equal_the_loops_even_with_ties(batch):
    features, k, dtype = batch
    pairs = rank_statistics_pairs(torch.tensor(features, dtype=dtype), k)
    assert pairs.dtype is torch.bool
    assert pairs.tolist() == naive_pairs(features, k)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data(), n=st.integers(1, 7), dim=st.integers(1, 6), seed=st.integers(0, 1000))
def test_pairs_follow_a_permutation_of_the_batch_and_ignore_one_of_the_dimensions(data, n, dim, seed):
    features = normal(n, dim, seed=seed)
    k = data.draw(st.integers(1, dim))
    order, dimensions = (long(*data.draw(st.permutations(range(size)))) for size in (n, dim))
    pairs = rank_statistics_pairs(features, k)
    assert torch.equal(rank_statistics_pairs(features[order], k), pairs[order][:, order])
    assert torch.equal(rank_statistics_pairs(features[:, dimensions], k), pairs)
    assert torch.equal(pairs, pairs.T)
    assert pairs.diagonal().all()


def test_sets_are_compared_and_not_orders():
    features = torch.tensor([[3.0, 2.0, 1.0, 0.0], [2.0, 3.0, 0.0, 1.0], [3.0, 1.0, 2.0, 0.0]])
    assert rank_statistics_pairs(features, 2).tolist() == [
        [True, True, False],
        [True, True, False],
        [False, False, True],
    ]


def test_values_are_ranked_with_their_sign():
    features = torch.tensor([[-9.0, 1.0, 2.0], [0.0, 5.0, 4.0], [9.0, 1.0, 2.0]])
    pairs = rank_statistics_pairs(features, 2)
    assert pairs[0, 1], "-9 is the smallest value, not the largest"
    assert not pairs[0, 2]


def test_five_dimensions_by_default():
    features = torch.tensor([[9.0, 8.0, 7.0, 6.0, 5.0, 1.0], [5.0, 6.0, 7.0, 8.0, 9.0, 1.0]])
    assert rank_statistics_pairs(features)[0, 1]
    features[1, 5] = 10.0
    assert not rank_statistics_pairs(features)[0, 1]


def test_with_all_dimensions_every_pair_matches():
    assert rank_statistics_pairs(normal(4, 5), 5).all()


@pytest.mark.parametrize("k", [0, -1, 4])
def test_more_dimensions_than_there_are_and_none_are_errors(k):
    with pytest.raises(Misuse, match=f"`k` is {k}, but features have 3 dimensions"):
        rank_statistics_pairs(normal(2, 3), k)


def test_pairs_of_one_image_and_of_none():
    assert rank_statistics_pairs(normal(1, 6)).tolist() == [[True]]
    assert rank_statistics_pairs(normal(0, 6)).shape == (0, 0)


def test_pairs_carry_no_gradient():
    pairs = rank_statistics_pairs(normal(3, 6).requires_grad_())
    assert pairs.dtype is torch.bool
    assert not pairs.requires_grad


# --- pairwise_bce ---


def random_pairs(n, seed=0):
    return normal(n, n, seed=seed) > 0


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
@pytest.mark.parametrize(("images", "categories"), [(1, 2), (2, 5), (3, 3), (3, 9)])
def test_pairwise_bce_equals_the_loops(images, categories, dtype):
    p, q = (probabilities(images, categories, seed=seed, dtype=dtype) for seed in (1, 2))
    same = random_pairs(images)
    value = pairwise_bce(p, q, same)
    assert value.shape == ()
    assert value.dtype is torch.promote_types(dtype, torch.float32)
    expected = naive_pairwise_bce(rows(p), rows(q), same.tolist())
    tolerance = loss_tolerance(dtype) / smallest_argument(rows(p), rows(q))
    assert number(value) == pytest.approx(expected, abs=tolerance)


def test_pairwise_bce_by_hand():
    p = torch.tensor([[0.75, 0.25], [0.5, 0.5]], dtype=torch.float64)
    q = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    # The products are 3/4, 1/4 and 1/2, 1/2; all pairs count, also an image with itself.
    same = torch.tensor([[True, False], [False, False]])
    expected = -(2 * math.log(0.75) + 2 * math.log(0.5)) / 4
    assert number(pairwise_bce(p, q, same)) == pytest.approx(expected, rel=DOUBLE)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data(), n=st.integers(1, 5), k=st.integers(1, 5), seed=st.integers(0, 1000))
def test_losses_ignore_the_order_of_images_and_of_categories(data, n, k, seed):
    p, q, same = probabilities(n, k, seed=seed), probabilities(n, k, seed=seed + 1), random_pairs(n, seed)
    order, categories = (long(*data.draw(st.permutations(range(size)))) for size in (n, k))
    moved_p, moved_q, moved_same = p[order][:, categories], q[order][:, categories], same[order][:, order]
    # With one category all products are 1 up to rounding, and the clamp makes it 1 - EPSILON.
    tolerance = loss_tolerance(torch.float64) / max(EPSILON, smallest_argument(rows(p), rows(q)))
    expected = number(pairwise_bce(p, q, same))
    assert number(pairwise_bce(moved_p, moved_q, moved_same)) == pytest.approx(expected, abs=tolerance)
    assert number(pairwise_bce(q, p, same.T)) == pytest.approx(expected, abs=tolerance)
    assert number(consistency(moved_p, moved_q)) == pytest.approx(number(consistency(p, q)), abs=DOUBLE)


@pytest.mark.parametrize("same", [torch.ones(3, 3).bool(), torch.zeros(3, 3).bool(), torch.eye(3).bool()])
def test_pairwise_bce_gradient_equals_finite_differences(same):
    p, q = probabilities(3, 4, seed=3).requires_grad_(), probabilities(3, 4, seed=4).requires_grad_()
    by_p, by_q = torch.autograd.grad(pairwise_bce(p, q, same), (p, q))
    smallest = smallest_argument(rows(p), rows(q))
    tolerance = loss_tolerance(torch.float64) / smallest
    u, v, s = rows(p), rows(q), same.tolist()
    assert_gradient(by_p, finite_differences(lambda x: naive_pairwise_bce(x, v, s), u), smallest, tolerance)
    assert_gradient(by_q, finite_differences(lambda x: naive_pairwise_bce(u, x, s), v), smallest, tolerance)


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_pairwise_bce_is_finite_for_certain_predictions(dtype):
    p = torch.eye(2, dtype=dtype).requires_grad_()
    q = torch.eye(2, dtype=dtype).requires_grad_()
    right, wrong = torch.eye(2).bool(), ~torch.eye(2).bool()
    step = torch.finfo(torch.promote_types(dtype, torch.float32)).eps  # 1 - EPSILON is rounded
    assert number(pairwise_bce(p, q, right)) == pytest.approx(-math.log1p(-EPSILON), abs=step)
    value = pairwise_bce(p, q, wrong)
    assert number(value) == pytest.approx(-math.log(EPSILON), abs=step / EPSILON)
    for gradient in torch.autograd.grad(value, (p, q)):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_losses_of_one_category_are_the_smallest_possible(dtype):
    p = torch.ones(3, 1, dtype=dtype).requires_grad_()
    value = pairwise_bce(p, p, torch.ones(3, 3).bool())
    step = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    assert number(value) == pytest.approx(-math.log1p(-EPSILON), abs=step)
    assert number(consistency(p, p)) == 0.0


def test_pairwise_bce_keeps_its_precision_under_autocast():
    p, q = (probabilities(3, 5, seed=seed, dtype=torch.float32) for seed in (5, 6))
    same = random_pairs(3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = pairwise_bce(p, q, same)
    assert value.dtype is torch.float32
    tolerance = loss_tolerance(torch.float32) / smallest_argument(rows(p), rows(q))
    assert number(value) == pytest.approx(naive_pairwise_bce(rows(p), rows(q), same.tolist()), abs=tolerance)


def test_losses_of_huge_logits_are_finite():
    logits = (4e4 * torch.sign(normal(6, 3, seed=7))).to(torch.float16).requires_grad_()
    p, q = torch.softmax(logits.float() / 0.1, dim=1).chunk(2)
    total = pairwise_bce(p, q, random_pairs(3)) + consistency(p, q)
    assert torch.isfinite(total)
    assert torch.isfinite(torch.autograd.grad(total, logits)[0]).all()


# --- consistency ---


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
@pytest.mark.parametrize(("images", "categories"), [(1, 2), (3, 4)])
def test_consistency_equals_the_loops(images, categories, dtype):
    p, q = (probabilities(images, categories, seed=seed, dtype=dtype) for seed in (8, 9))
    value = consistency(p, q)
    assert value.shape == ()
    assert value.dtype is torch.promote_types(dtype, torch.float32)
    assert number(value) == pytest.approx(naive_consistency(rows(p), rows(q)), abs=loss_tolerance(dtype))


def test_consistency_of_equal_and_of_opposite_views():
    p = torch.eye(4, dtype=torch.float64)
    assert number(consistency(p, p)) == 0.0
    assert number(consistency(p, p.roll(1, 0))) == 2 / 4


def test_consistency_moves_both_views():
    p, q = probabilities(3, 4, seed=10).requires_grad_(), probabilities(3, 4, seed=11).requires_grad_()
    by_p, by_q = torch.autograd.grad(consistency(p, q), (p, q))
    torch.testing.assert_close(by_p, 2 * (p - q).detach() / 12, rtol=DOUBLE, atol=DOUBLE)
    torch.testing.assert_close(by_q, -by_p, rtol=DOUBLE, atol=DOUBLE)


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_losses_of_an_empty_batch_are_zero_with_a_graph(dtype):
    p, q = (torch.zeros(0, 4, dtype=dtype).requires_grad_() for _ in range(2))
    for value in (pairwise_bce(p, q, torch.zeros(0, 0).bool()), consistency(p, q)):
        assert number(value) == 0.0
        assert value.dtype is torch.promote_types(dtype, torch.float32)
        assert all(gradient.shape == (0, 4) for gradient in torch.autograd.grad(value, (p, q)))


# --- ramp_up ---


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (0, 50 * math.exp(-5)),
        (75, 50 * math.exp(-1.25)),
        (120, 50 * math.exp(-0.2)),
        (149, 50 * math.exp(-5 / 150**2)),
    ],
)
def test_ramp_up_by_hand(epoch, expected):
    assert ramp_up(epoch, 150, 50.0) == pytest.approx(expected, rel=DOUBLE)


@pytest.mark.parametrize("epoch", [150, 151, 199, 10**6])
def test_ramp_up_ends_at_the_largest_weight(epoch):
    assert ramp_up(epoch, 150, 50.0) == 50.0


def test_ramp_up_rises_and_is_proportional_to_the_largest_weight():
    weights = [ramp_up(epoch, 10, 1.0) for epoch in range(12)]
    assert all(a < b for a, b in pairwise(weights[:11]))
    assert [ramp_up(epoch, 10, 25.0) for epoch in range(12)] == pytest.approx([25 * w for w in weights], rel=DOUBLE)


def test_ramp_up_over_no_epochs_is_the_largest_weight():
    assert ramp_up(0, 0, 5.0) == 5.0
