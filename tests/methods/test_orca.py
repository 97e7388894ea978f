"""ORCA: losses, partners and uncertainty against naive loops in float64, and on degenerate batches."""

import math
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.loops import (
    assert_gradient,
    cosines,
    dot,
    finite_differences,
    flags,
    log_softmax,
    long,
    loss_tolerance,
    normal,
    number,
    probabilities,
    rows,
    unit,
)
from helpers.rounding import DOUBLE, SINGLE, STANDARD_DEVIATIONS
from sptnet.losses import cross_entropy, mean_entropy_gap
from sptnet.methods.orca import margin_cross_entropy, negative_entropy, pairwise_loss, partners, uncertainty

ALL_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def naive_margin_cross_entropy(logits, labels, margin, scale=10.0):
    total = 0.0
    for row, label in zip(logits, labels, strict=True):
        moved = [scale * (x + margin if c == label else x) for c, x in enumerate(row)]
        total -= log_softmax(moved)[label]
    return total / len(labels)


def naive_allowed(features, labels, labelled):
    """Return the possible partners of each image."""
    units = [unit(row) for row in features]
    allowed = []
    for i in range(len(features)):
        others = [j for j in range(len(features)) if j != i]
        if labelled[i]:
            others = [j for j in others if labelled[j] and labels[j] == labels[i]]
        else:
            others = sorted(others, key=lambda j: -dot(units[i], units[j]))[:1]
        allowed.append(set(others or [i]))
    return allowed


def naive_pairwise_loss(p, q, chosen):
    return -sum(math.log(dot(p[i], q[j])) for i, j in enumerate(chosen)) / len(p)


def naive_negative_entropy(p):
    means = [sum(row[c] for row in p) / len(p) for c in range(len(p[0]))]
    return sum(m * math.log(m) for m in means if m > 0)


# --- margin_cross_entropy ---


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
@pytest.mark.parametrize("margin", [0.0, 0.25, 0.5])
@pytest.mark.parametrize("labels", [(0,), (1, 1, 1), (3, 0, 2)], ids=str)
def test_margin_cross_entropy_equals_the_loops(labels, margin, dtype):
    logits = cosines(len(labels), 4, seed=1, dtype=dtype)
    value = margin_cross_entropy(logits, long(*labels), margin)
    assert value.shape == ()
    assert value.dtype is torch.promote_types(dtype, torch.float32)
    expected = naive_margin_cross_entropy(rows(logits), labels, margin)
    assert number(value) == pytest.approx(expected, abs=loss_tolerance(dtype, 0.1))


def test_margin_cross_entropy_by_hand():
    # The target's logit is 10 (0 + log(3) / 10): the target has the probability 3 / (3 + 1).
    logits = torch.zeros(1, 2, dtype=torch.float64)
    value = margin_cross_entropy(logits, long(1), math.log(3) / 10)
    assert number(value) == pytest.approx(math.log(4 / 3), rel=DOUBLE)


def test_a_larger_margin_is_a_smaller_loss_and_a_weaker_push():
    logits, labels = cosines(4, 3, seed=2).requires_grad_(), long(0, 1, 2, 1)
    losses = [margin_cross_entropy(logits, labels, margin) for margin in (0.0, 0.2, 0.5)]
    pushes = [torch.autograd.grad(loss, logits)[0].abs().sum() for loss in losses]
    assert losses[0] > losses[1] > losses[2]
    assert pushes[0] > pushes[1] > pushes[2]


def test_without_a_margin_it_is_the_cross_entropy_of_the_other_methods():
    logits, labels = cosines(3, 4, seed=3), long(3, 0, 3)
    expected = number(cross_entropy(logits.repeat(2, 1), labels, 0.1))
    assert number(margin_cross_entropy(logits, labels, 0.0)) == pytest.approx(expected, rel=DOUBLE)


def test_margin_cross_entropy_gradient_equals_finite_differences():
    labels = (2, 0, 2)
    logits = cosines(3, 3, seed=4).requires_grad_()
    (gradient,) = torch.autograd.grad(margin_cross_entropy(logits, long(*labels), 0.3, 5.0), logits)
    expected = finite_differences(lambda s: naive_margin_cross_entropy(s, labels, 0.3, 5.0), rows(logits))
    assert_gradient(gradient, expected, 0.2, loss_tolerance(torch.float64, 0.2))


def test_margin_cross_entropy_of_one_category_is_zero():
    assert number(margin_cross_entropy(cosines(3, 1), long(0, 0, 0), 0.5)) == 0.0


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_margin_cross_entropy_of_logits_that_overflow_half_precision(dtype):
    logits = (4e4 * torch.tensor([[1.0, -1.0], [-1.0, 1.0]])).to(dtype).requires_grad_()
    value = margin_cross_entropy(logits, long(0, 0), 0.5)
    expected = naive_margin_cross_entropy(rows(logits), [0, 0], 0.5)  # 4e5, of which the margin is 2.5
    assert number(value) == pytest.approx(expected, rel=DOUBLE if dtype is torch.float64 else SINGLE)
    assert torch.isfinite(torch.autograd.grad(value, logits)[0]).all()


# --- partners ---


LABELS = {
    "none labelled": ((-1, -1, -1, -1), (0, 0, 0, 0)),
    "one labelled": ((-1, 1, -1, -1), (0, 1, 0, 0)),
    "a class seen once": ((0, 0, 1, -1), (1, 1, 1, 0)),
    "every class seen once": ((3, 0, 1, 2), (1, 1, 1, 1)),
    "all of one class": ((2, 2, 2, 2), (1, 1, 1, 1)),
    "two images": ((0, -1), (1, 0)),
    "one image, labelled": ((1,), (1,)),
    "one image, unlabelled": ((-1,), (0,)),
    "no image": ((), ()),
}


@pytest.mark.parametrize("case", LABELS)
def test_partners_are_among_those_of_the_loops(case):
    labels, labelled = LABELS[case]
    features = normal(len(labels), 5, seed=5)
    allowed = naive_allowed(rows(features), labels, labelled)
    for seed in range(10):
        chosen = partners(features, long(*labels), flags(*labelled), seeded(seed))
        assert chosen.dtype is torch.long
        assert chosen.shape == (len(labels),)
        assert all(j in allowed[i] for i, j in enumerate(chosen.tolist()))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(data=st.data(), n=st.integers(1, 7), seed=st.integers(0, 1000))
def test_partners_of_any_batch_in_any_order(data, n, seed):
    features = normal(n, 4, seed=seed)
    labelled = flags(*data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    labels = long(*data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)))
    order = long(*data.draw(st.permutations(range(n))))
    allowed = naive_allowed(rows(features), labels.tolist(), labelled.tolist())
    chosen = partners(features, labels, labelled, seeded(seed))
    moved = order[partners(features[order], labels[order], labelled[order], seeded(seed))][order.argsort()]
    for found in (chosen.tolist(), moved.tolist()):
        assert all(j in allowed[i] for i, j in enumerate(found))
    assert torch.equal(moved[~labelled], chosen[~labelled]), "neighbours are not drawn"


def test_nearest_neighbours_are_by_cosine_and_may_be_labelled():
    features = torch.tensor([[1.0, 0.0], [50.0, 1.0], [1.2, 1.0], [0.0, 1.0]])
    chosen = partners(features, long(0, -1, -1, -1), flags(1, 0, 0, 0), seeded())
    assert chosen.tolist() == [0, 0, 1, 2]


def test_an_unlabelled_image_is_not_a_partner_by_its_placeholder():
    labels, labelled = long(1, 1, 1), flags(1, 0, 1)
    for seed in range(20):
        chosen = partners(normal(3, 4), labels, labelled, seeded(seed)).tolist()
        assert chosen[0] == 2
        assert chosen[2] == 0


def test_partners_of_a_class_are_drawn_evenly():
    generator, draws = seeded(), 600
    features, labels, labelled = normal(5, 3), long(0, 0, 7, 0, 0), flags(1, 1, 1, 1, 1)
    drawn = Counter(int(partners(features, labels, labelled, generator)[0]) for _ in range(draws))
    assert drawn.keys() == {1, 3, 4}
    deviation = math.sqrt(draws * 1 / 3 * 2 / 3)
    assert all(abs(times - draws / 3) < STANDARD_DEVIATIONS * deviation for times in drawn.values())


def test_partners_depend_on_the_generator_alone():
    features, labels, labelled = normal(8, 3), torch.zeros(8).long(), torch.ones(8).bool()
    state = torch.get_rng_state()
    first = partners(features, labels, labelled, seeded(1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first, partners(features, labels, labelled, seeded(1)))
    assert not torch.equal(first, partners(features, labels, labelled, seeded(2)))


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_neighbours_are_found_in_every_dtype_without_overflow(dtype):
    # The squares overflow float16. Rows 0 and 1, and 2 and 3, differ by a small angle.
    features = torch.tensor([[6e4, 0.0], [6e4, 6e3], [0.0, 6e4], [6e3, 6e4]], dtype=dtype)
    unlabelled = flags(0, 0, 0, 0)
    for images, expected in ((features, [1, 0, 3, 2]), (torch.zeros_like(features), [1, 0, 0, 0])):
        assert partners(images, long(-1, -1, -1, -1), unlabelled, seeded()).tolist() == expected


def test_neighbours_are_found_in_full_precision_under_autocast():
    # The cosines of the first image are 1 - 5e-5 and 1 - 2e-4; both are 1 in bfloat16.
    features = torch.tensor([[1.0, 0.0], [1.0, 0.02], [1.0, -0.01]])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        chosen = partners(features, long(-1, -1, -1), flags(0, 0, 0), seeded())
    assert chosen.tolist() == [2, 0, 0]


def test_partners_carry_no_gradient():
    features = normal(4, 3).requires_grad_()
    assert not partners(features, long(0, 0, -1, -1), flags(1, 1, 0, 0), seeded()).requires_grad


# --- pairwise_loss ---


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
@pytest.mark.parametrize("chosen", [(0,), (1, 0), (0, 1, 2), (2, 2, 0)], ids=str)
def test_pairwise_loss_equals_the_loops(chosen, dtype):
    p, q = (probabilities(len(chosen), 4, seed=seed, dtype=dtype) for seed in (6, 7))
    value = pairwise_loss(p, q, long(*chosen))
    assert value.shape == ()
    assert value.dtype is torch.promote_types(dtype, torch.float32)
    # Products are sums of positive numbers, so the error of a logarithm is a relative error.
    assert number(value) == pytest.approx(naive_pairwise_loss(rows(p), rows(q), chosen), abs=loss_tolerance(dtype))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data(), n=st.integers(1, 5), k=st.integers(1, 5), seed=st.integers(0, 1000))
def test_losses_ignore_the_order_of_images_and_of_categories(data, n, k, seed):
    p, q = probabilities(n, k, seed=seed), probabilities(n, k, seed=seed + 1)
    chosen = long(*data.draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n)))
    order, categories = (long(*data.draw(st.permutations(range(size)))) for size in (n, k))
    moved_p, moved_q = p[order][:, categories], q[order][:, categories]
    moved_chosen = order.argsort()[chosen[order]]
    expected = number(pairwise_loss(p, q, chosen))
    assert number(pairwise_loss(moved_p, moved_q, moved_chosen)) == pytest.approx(expected, abs=DOUBLE)
    assert number(negative_entropy(moved_p)) == pytest.approx(number(negative_entropy(p)), abs=DOUBLE)
    assert uncertainty(moved_p) == pytest.approx(uncertainty(p), abs=DOUBLE)


def test_pairwise_loss_gradient_equals_finite_differences():
    chosen = (2, 2, 0)
    p, q = probabilities(3, 3, seed=8).requires_grad_(), probabilities(3, 3, seed=9).requires_grad_()
    by_p, by_q = torch.autograd.grad(pairwise_loss(p, q, long(*chosen)), (p, q))
    u, v = rows(p), rows(q)
    smallest = min(dot(u[i], v[j]) for i, j in enumerate(chosen))
    tolerance = loss_tolerance(torch.float64)
    assert_gradient(by_p, finite_differences(lambda x: naive_pairwise_loss(x, v, chosen), u), smallest, tolerance)
    assert_gradient(by_q, finite_differences(lambda x: naive_pairwise_loss(u, x, chosen), v), smallest, tolerance)
    assert by_q[1].tolist() == [0.0] * 3, "no image has the second one as its partner"


def test_pairwise_loss_pulls_even_the_most_certain_cosines():
    # At a scale of 10, cosines of 1 and -1 give products of about 2 exp(-20) = 4e-9.
    logits = torch.tensor([[1.0, -1.0], [-1.0, 1.0]]).requires_grad_()
    p = torch.softmax(10 * logits, dim=1)
    (gradient,) = torch.autograd.grad(pairwise_loss(p, p, long(1, 0)), logits)
    assert gradient[0, 0] > 1
    assert gradient[0, 1] < -1


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_pairwise_loss_of_contradictory_predictions_is_finite(dtype):
    p = torch.eye(2, dtype=dtype).requires_grad_()
    value = pairwise_loss(p, p, long(1, 0))
    tiny = torch.finfo(torch.promote_types(dtype, torch.float32)).tiny
    assert number(value) == pytest.approx(-math.log(tiny), rel=SINGLE)
    assert torch.isfinite(torch.autograd.grad(value, p)[0]).all()


def test_losses_of_one_category_are_zero():
    p = torch.ones(3, 1, dtype=torch.float64)
    assert number(pairwise_loss(p, p, long(1, 2, 2))) == 0.0
    assert number(negative_entropy(p)) == 0.0
    assert uncertainty(p) == 0.0


def test_losses_of_huge_logits_are_finite():
    logits = (4e4 * torch.sign(normal(6, 3, seed=10))).to(torch.float16).requires_grad_()
    p, q = torch.softmax(10 * logits.float(), dim=1).chunk(2)
    total = pairwise_loss(p, q, long(1, 2, 0)) + negative_entropy(torch.cat([p, q]))
    assert torch.isfinite(total)
    assert torch.isfinite(torch.autograd.grad(total, logits)[0]).all()


# --- negative_entropy ---


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
@pytest.mark.parametrize(("images", "categories"), [(1, 2), (4, 3), (2, 9)])
def test_negative_entropy_equals_the_loops(images, categories, dtype):
    p = probabilities(images, categories, seed=11, dtype=dtype)
    value = negative_entropy(p)
    assert value.shape == ()
    assert value.dtype is torch.promote_types(dtype, torch.float32)
    assert number(value) == pytest.approx(naive_negative_entropy(rows(p)), abs=loss_tolerance(dtype))


def test_negative_entropy_is_the_mean_entropy_gap_less_its_constant():
    logits = cosines(4, 5, seed=12)
    expected = number(mean_entropy_gap(logits, 0.1)) - math.log(5)
    p = torch.softmax(logits / 0.1, dim=1)
    assert number(negative_entropy(p)) == pytest.approx(expected, abs=loss_tolerance(torch.float64, 0.1))


def test_negative_entropy_at_its_ends():
    balanced = torch.eye(4, dtype=torch.float64)
    assert number(negative_entropy(balanced)) == pytest.approx(-math.log(4), rel=DOUBLE)
    assert number(negative_entropy(balanced[:1].repeat(3, 1))) == 0.0


def test_negative_entropy_gradient_equals_finite_differences():
    p = probabilities(3, 4, seed=13).requires_grad_()
    (gradient,) = torch.autograd.grad(negative_entropy(p), p)
    smallest = number(p.mean(0).min())
    expected = finite_differences(naive_negative_entropy, rows(p))
    assert_gradient(gradient, expected, smallest, loss_tolerance(torch.float64))


def test_negative_entropy_has_a_finite_gradient_for_an_unused_category():
    p = torch.tensor([[1.0, 0.0], [1.0, 0.0]]).requires_grad_()
    (gradient,) = torch.autograd.grad(negative_entropy(p), p)
    assert torch.isfinite(gradient).all()
    assert (gradient[:, 1] < gradient[:, 0]).all(), "towards the unused category"


# --- uncertainty ---


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_uncertainty_equals_the_loops(dtype):
    p = probabilities(5, 4, seed=14, dtype=dtype).requires_grad_()
    value = uncertainty(p)
    assert isinstance(value, float)
    expected = sum(1 - max(row) for row in rows(p)) / 5
    assert value == pytest.approx(expected, abs=loss_tolerance(dtype))


def test_uncertainty_at_its_ends():
    assert uncertainty(torch.eye(3)) == 0.0
    assert uncertainty(torch.full((2, 4), 0.25)) == 0.75
    assert uncertainty(torch.zeros(0, 4)) == 0.0


# --- empty batches and autocast ---


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_losses_of_an_empty_batch_are_zero_with_a_graph(dtype):
    p, q = (torch.zeros(0, 4, dtype=dtype).requires_grad_() for _ in range(2))
    for value in (margin_cross_entropy(p, long(), 0.5), pairwise_loss(p, q, long()), negative_entropy(p)):
        assert number(value) == 0.0
        assert value.dtype is torch.promote_types(dtype, torch.float32)
        assert torch.autograd.grad(value, p)[0].shape == (0, 4)


def test_losses_keep_their_precision_under_autocast():
    logits, p = cosines(3, 5, seed=15, dtype=torch.float32), probabilities(3, 5, seed=16, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        supervised, paired, negative = (
            margin_cross_entropy(logits, long(0, 4, 2), 0.3),
            pairwise_loss(p, p, long(1, 2, 0)),
            negative_entropy(p),
        )
    expected = naive_margin_cross_entropy(rows(logits), (0, 4, 2), 0.3)
    assert number(supervised) == pytest.approx(expected, abs=loss_tolerance(torch.float32, 0.1))
    expected = naive_pairwise_loss(rows(p), rows(p), (1, 2, 0))
    assert number(paired) == pytest.approx(expected, abs=loss_tolerance(torch.float32))
    assert number(negative) == pytest.approx(naive_negative_entropy(rows(p)), abs=loss_tolerance(torch.float32))
