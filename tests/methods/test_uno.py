"""UNO+: Sinkhorn targets and swapped prediction against naive loops, and on degenerate batches."""

from decimal import Decimal, localcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.loops import (
    assert_gradient,
    cosines,
    finite_differences,
    flags,
    log_softmax,
    long,
    loss_tolerance,
    normal,
    number,
    probabilities,
    rows,
)
from helpers.rounding import DOUBLE, rounding
from sptnet.losses import self_distillation
from sptnet.methods.uno import sinkhorn, swapped_prediction, targets_of

ALL_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SPREAD = 2 / 0.05
"""Largest difference of two cosines divided by epsilon: the size of the terms of the logarithms."""


def naive_sinkhorn(logits, epsilon=0.05, iterations=3):
    """Scale rows and columns of Q as published, in decimal numbers, whose exponents neither over- nor underflow."""
    with localcontext() as context:
        context.prec = 40
        n, k = len(logits), len(logits[0])
        q = [[(Decimal(row[c]) / Decimal(epsilon)).exp() for row in logits] for c in range(k)]
        total = sum(sum(row) for row in q)
        q = [[x / total for x in row] for row in q]
        for _ in range(iterations):
            q = [[x / sum(row) / k for x in row] for row in q]
            columns = [sum(q[c][i] for c in range(k)) for i in range(n)]
            q = [[x / columns[i] / n for i, x in enumerate(row)] for row in q]
        return [[float(q[c][i] * n) for c in range(k)] for i in range(n)]


def naive_swapped_prediction(logits, targets, temperature=0.1):
    half = len(logits) // 2
    total = 0.0
    for i in range(half):
        for source, target in ((i, i + half), (i + half, i)):
            log_p = log_softmax(logits[source], temperature)
            total -= sum(t * x for t, x in zip(targets[target], log_p, strict=True))
    return total / (2 * half)


def assert_close(found, expected, dtype=torch.float64, terms=12, scale=SPREAD):
    """Compare results of seven scalings in a row of logarithms of size `scale`."""
    atol = rounding(terms, sums=7, dtype=torch.promote_types(dtype, torch.float32)) * scale
    torch.testing.assert_close(found.double(), torch.as_tensor(expected, dtype=torch.float64), rtol=0, atol=atol)


# --- sinkhorn ---


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
@pytest.mark.parametrize(("images", "categories"), [(1, 1), (1, 4), (4, 1), (2, 2), (3, 7), (9, 4)])
def test_sinkhorn_equals_the_loops(images, categories, dtype):
    logits = cosines(images, categories, seed=images, dtype=dtype)
    found = sinkhorn(logits)
    assert found.dtype is torch.promote_types(dtype, torch.float32)
    assert_close(found, naive_sinkhorn(rows(logits)), dtype)
    assert_close(found.sum(1), torch.ones(images), dtype, scale=1.0)


@pytest.mark.parametrize(("epsilon", "iterations"), [(1.0, 1), (0.05, 1), (0.2, 5), (0.05, 20)])
def test_sinkhorn_of_other_settings(epsilon, iterations):
    logits = cosines(5, 3, seed=1)
    assert_close(sinkhorn(logits, epsilon, iterations), naive_sinkhorn(rows(logits), epsilon, iterations), terms=100)


def test_sinkhorn_by_hand():
    # exp is 1, 2 / 1, 4. Categories: 1/2, 1/3 / 1/2, 2/3. Images: 3/5, 2/5 / 3/7, 4/7.
    logits = torch.tensor([[1.0, 2.0], [1.0, 4.0]], dtype=torch.float64).log()
    found = sinkhorn(logits, epsilon=1.0, iterations=1)
    assert_close(found, [[3 / 5, 2 / 5], [3 / 7, 4 / 7]])


def test_many_iterations_give_all_categories_equal_shares():
    shares = sinkhorn(0.2 * cosines(8, 4, seed=2), iterations=200).sum(0)
    assert_close(shares, torch.full((4,), 2.0), terms=10**4)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data(), n=st.integers(1, 6), k=st.integers(1, 5), seed=st.integers(0, 1000))
def test_sinkhorn_follows_permutations_and_ignores_shifts(data, n, k, seed):
    logits = cosines(n, k, seed=seed)
    order, categories = (long(*data.draw(st.permutations(range(size)))) for size in (n, k))
    found = sinkhorn(logits)
    assert_close(sinkhorn(logits[order][:, categories]), found[order][:, categories])
    # The first scaling removes a constant per category.
    assert_close(sinkhorn(logits + normal(1, k, seed=seed)), found, scale=5 * SPREAD)


def test_the_only_image_is_spread_evenly():
    assert_close(sinkhorn(cosines(1, 5, seed=3)), [[0.2] * 5])


def test_one_category_takes_all_images():
    assert sinkhorn(cosines(4, 1, seed=4)).tolist() == [[1.0]] * 4


def test_sinkhorn_of_no_image():
    assert sinkhorn(torch.zeros(0, 3)).shape == (0, 3)


def test_an_image_or_a_category_far_below_the_others_does_not_vanish():
    # exp(-1000 / 0.05) is zero in every dtype.
    logits = torch.tensor([[0.0, 0.5, -1000.0], [0.2, 0.0, -1000.5], [-1000.0, -1000.25, -2000.0]], dtype=torch.float64)
    assert_close(sinkhorn(logits), naive_sinkhorn(rows(logits)), scale=2000 / 0.05)


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_sinkhorn_of_logits_that_overflow_half_precision(dtype):
    # Each image has a logit at the top, so that no difference of two huge numbers is rounded.
    logits = 4e4 * torch.tensor([[1, -1, 1], [1, -1, -1], [1, 1, -1], [-1, 1, 1], [1, 1, 1], [-1, -1, 1]], dtype=dtype)
    found = sinkhorn(logits)
    assert_close(found, naive_sinkhorn(rows(logits)), dtype)
    assert_close(found.sum(1), torch.ones(6), dtype, scale=1.0)


# --- targets_of ---


LABELS = {
    "none labelled": ((-1, -1, -1, -1), (0, 0, 0, 0)),
    "one labelled": ((-1, 1, -1, -1), (0, 1, 0, 0)),
    "one unlabelled": ((0, 1, 1, -1), (1, 1, 1, 0)),
    "all labelled": ((0, 2, 1, 2), (1, 1, 1, 1)),
    "one image, labelled": ((2,), (1,)),
    "one image, unlabelled": ((-1,), (0,)),
}


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
@pytest.mark.parametrize("case", LABELS)
def test_targets_equal_the_loops(case, dtype):
    labels, labelled = LABELS[case]
    b = len(labels)
    logits = cosines(2 * b, 3, seed=6, dtype=dtype).requires_grad_()
    found = targets_of(logits, long(*labels), flags(*labelled))
    assert found.dtype is torch.promote_types(dtype, torch.float32)
    assert not found.requires_grad

    values, expected = rows(logits), []
    for view in (values[:b], values[b:]):
        unlabelled = [i for i in range(b) if not labelled[i]]
        balanced = iter(naive_sinkhorn([view[i] for i in unlabelled])) if unlabelled else iter(())
        expected += [[float(c == labels[i]) for c in range(3)] if labelled[i] else next(balanced) for i in range(b)]
    assert_close(found, expected, dtype)
    known = flags(*labelled).repeat(2)
    assert found[known].tolist() == torch.tensor(expected)[known].tolist(), "labels are exact"


def test_unlabelled_images_may_belong_to_known_classes():
    logits = torch.tensor([[0.9, 0.0, 0.0], [0.8, 0.1, 0.0], [0.0, 0.7, 0.0], [0.0, 0.0, 0.9]]).repeat(2, 1)
    targets = targets_of(logits, long(0, -1, -1, -1), flags(1, 0, 0, 0))
    assert targets.argmax(1).tolist() == [0, 0, 1, 2] * 2


def test_targets_take_the_settings_of_sinkhorn():
    logits = cosines(6, 4, seed=7)
    targets = targets_of(logits, long(-1, -1, -1), flags(0, 0, 0), epsilon=0.5, iterations=1)
    assert_close(targets[:3], naive_sinkhorn(rows(logits[:3]), 0.5, 1))
    assert_close(targets[3:], naive_sinkhorn(rows(logits[3:]), 0.5, 1))


@pytest.mark.parametrize("placeholder", [-1, 0, -100, 1000])
def test_labels_of_unlabelled_images_are_ignored(placeholder):
    logits, labelled = cosines(6, 4, seed=8), flags(0, 1, 0)
    expected = targets_of(logits, long(1, 2, 3), labelled)
    assert torch.equal(targets_of(logits, long(placeholder, 2, placeholder), labelled), expected)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data(), b=st.integers(1, 5), k=st.integers(1, 4), seed=st.integers(0, 1000))
def test_targets_and_loss_follow_permutations(data, b, k, seed):
    logits = cosines(2 * b, k, seed=seed)
    labelled = flags(*data.draw(st.lists(st.booleans(), min_size=b, max_size=b)))
    labels = long(*data.draw(st.lists(st.integers(0, k - 1), min_size=b, max_size=b)))
    order, categories = (long(*data.draw(st.permutations(range(size)))) for size in (b, k))
    both = torch.cat([order, order + b])
    moved = logits[both][:, categories]
    targets = targets_of(logits, labels, labelled)
    moved_targets = targets_of(moved, categories.argsort()[labels[order]], labelled[order])
    assert_close(moved_targets, targets[both][:, categories])
    expected = number(swapped_prediction(logits, targets))
    found = number(swapped_prediction(moved, targets[both][:, categories]))
    assert found == pytest.approx(expected, abs=loss_tolerance(torch.float64, 0.1))


def test_targets_of_an_empty_batch():
    assert targets_of(torch.zeros(0, 3), long(), flags()).shape == (0, 3)


# --- swapped_prediction ---


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
@pytest.mark.parametrize(("images", "categories"), [(1, 1), (1, 3), (4, 2), (3, 6)])
def test_swapped_prediction_equals_the_loops(images, categories, dtype):
    logits, targets = (f(2 * images, categories, seed=9, dtype=dtype) for f in (cosines, probabilities))
    value = swapped_prediction(logits, targets)
    assert value.shape == ()
    assert value.dtype is torch.promote_types(dtype, torch.float32)
    expected = naive_swapped_prediction(rows(logits), rows(targets))
    assert number(value) == pytest.approx(expected, abs=loss_tolerance(dtype, 0.1))


def test_swapped_prediction_takes_the_target_of_the_other_view():
    logits = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    targets = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    assert number(swapped_prediction(logits, targets)) < 1e-8
    assert number(swapped_prediction(logits, targets.flip(0))) == pytest.approx(20.0, abs=1e-8)


def test_swapped_prediction_is_self_distillation_with_targets_by_softmax():
    logits = cosines(6, 4, seed=10)
    value = swapped_prediction(logits, torch.softmax(logits / 0.04, dim=1))
    expected = number(self_distillation(logits, 0.1, 0.04))
    assert number(value) == pytest.approx(expected, abs=loss_tolerance(torch.float64, 0.1))


def test_swapped_prediction_moves_the_logits_and_not_the_targets():
    logits, targets = cosines(4, 3, seed=11).requires_grad_(), probabilities(4, 3, seed=12).requires_grad_()
    gradient, by_target = torch.autograd.grad(
        swapped_prediction(logits, targets, 0.2), (logits, targets), allow_unused=True
    )
    assert by_target is None
    fixed = rows(targets)
    expected = finite_differences(lambda s: naive_swapped_prediction(s, fixed, 0.2), rows(logits))
    assert_gradient(gradient, expected, 0.2, loss_tolerance(torch.float64, 0.2))


def test_the_gradient_treats_sinkhorn_targets_as_constants():
    logits, labels, labelled = cosines(6, 3, seed=13).requires_grad_(), long(1, -1, -1), flags(1, 0, 0)
    targets = targets_of(logits, labels, labelled)
    (gradient,) = torch.autograd.grad(swapped_prediction(logits, targets), logits)
    expected = (torch.softmax(logits.detach() / 0.1, dim=1) - targets.roll(3, 0)) / (6 * 0.1)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=DOUBLE)


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_swapped_prediction_of_logits_that_overflow_half_precision(dtype):
    logits = (4e4 * torch.sign(normal(6, 3, seed=14))).to(dtype).requires_grad_()
    value = swapped_prediction(logits, targets_of(logits, long(0, -1, -1), flags(1, 0, 0)))
    assert torch.isfinite(value)
    assert torch.isfinite(torch.autograd.grad(value, logits)[0]).all()


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_swapped_prediction_of_an_empty_batch_is_zero_with_a_graph(dtype):
    logits = torch.zeros(0, 3, dtype=dtype).requires_grad_()
    value = swapped_prediction(logits, torch.zeros(0, 3))
    assert number(value) == 0.0
    assert value.dtype is torch.promote_types(dtype, torch.float32)
    assert torch.autograd.grad(value, logits)[0].shape == (0, 3)


def test_targets_and_loss_keep_their_precision_under_autocast():
    logits, labels, labelled = cosines(8, 5, seed=15, dtype=torch.float32), long(2, -1, -1, -1), flags(1, 0, 0, 0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        targets = targets_of(logits, labels, labelled)
        value = swapped_prediction(logits, targets)
    assert targets.dtype is value.dtype is torch.float32
    assert_close(targets[1:4], naive_sinkhorn(rows(logits[1:4])), torch.float32)
    expected = naive_swapped_prediction(rows(logits), rows(targets))
    assert number(value) == pytest.approx(expected, abs=loss_tolerance(torch.float32, 0.1))
