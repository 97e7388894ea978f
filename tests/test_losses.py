"""The losses against naive loops in float64, and their behaviour on awkward batches."""

import math

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
    rows,
    softmax,
    unit,
)
from helpers.rounding import DOUBLE, SINGLE
from sptnet.losses import (
    cross_entropy,
    gcd_loss,
    info_nce,
    mean_entropy_gap,
    self_distillation,
    supervised_contrastive,
)

PARTS = (
    "info_nce",
    "supervised_contrastive",
    "self_distillation",
    "cross_entropy",
    "mean_entropy_gap",
    "total",
)
HALF_TYPES = (torch.float16, torch.bfloat16)
SHARPEST = 0.04
"""Smallest temperature: cosines divided by it are 1 / 0.04 large."""


def tolerance(dtype):
    """Losses are computed in float32 at least, by at most six sums in a row of at most twelve terms each."""
    return loss_tolerance(dtype, SHARPEST)


# --- oracles: lists of Python floats, one row per view, all first views before all second views ---


def log_share(units, anchor, positive, temperature):
    """log of the positive's share among everything but the anchor itself."""
    similarity = {a: dot(units[anchor], u) / temperature for a, u in enumerate(units) if a != anchor}
    top = max(similarity.values())
    return similarity[positive] - top - math.log(sum(math.exp(s - top) for s in similarity.values()))


def naive_info_nce(projections, temperature):
    units = [unit(row) for row in projections]
    half = len(units) // 2
    total = 0.0
    for anchor in range(2 * half):
        other_view = anchor + half if anchor < half else anchor - half
        total -= log_share(units, anchor, other_view, temperature)
    return total / (2 * half)


def naive_supervised_contrastive(projections, labels, temperature):
    if not labels:
        return 0.0
    units = [unit(row) for row in projections]
    both_views = list(labels) + list(labels)
    total = 0.0
    for anchor in range(len(units)):
        positives = [p for p in range(len(units)) if p != anchor and both_views[p] == both_views[anchor]]
        total -= sum(log_share(units, anchor, p, temperature) for p in positives) / len(positives)
    return total / len(units)


def naive_self_distillation(student, teacher, student_temperature, teacher_temperature):
    half = len(student) // 2
    total = 0.0
    for i in range(half):
        for source, target in ((i, i + half), (i + half, i)):
            q = softmax(teacher[source], teacher_temperature)
            log_p = log_softmax(student[target], student_temperature)
            total -= sum(a * b for a, b in zip(q, log_p, strict=True))
    return total / (2 * half)


def naive_mean_entropy_gap(logits, temperature):
    k = len(logits[0])
    probabilities = [softmax(row, temperature) for row in logits]
    mean = [sum(p[c] for p in probabilities) / len(probabilities) for c in range(k)]
    entropy = -sum(m * math.log(m) for m in mean if m > 0)
    return math.log(k) - entropy


def naive_cross_entropy(logits, labels, labelled, temperature):
    half = len(labels)
    terms = []
    for i in range(half):
        if labelled[i]:
            terms.append(-log_softmax(logits[i], temperature)[labels[i]])
            terms.append(-log_softmax(logits[i + half], temperature)[labels[i]])
    return sum(terms) / len(terms) if terms else 0.0


def naive_gcd_parts(projections, logits, labels, labelled, teacher_temperature, sup=0.35, entropy=1.0, teacher=None):
    chosen = [i for i, flag in enumerate(labelled) if flag]
    half = len(labels)
    chosen_rows = [projections[i] for i in chosen] + [projections[i + half] for i in chosen]
    chosen_labels = [labels[i] for i in chosen]
    parts = {
        "info_nce": naive_info_nce(projections, 1.0),
        "supervised_contrastive": naive_supervised_contrastive(chosen_rows, chosen_labels, 0.07),
        "self_distillation": naive_self_distillation(logits, teacher or logits, 0.1, teacher_temperature),
        "cross_entropy": naive_cross_entropy(logits, labels, labelled, 0.1),
        "mean_entropy_gap": naive_mean_entropy_gap(logits, 0.1),
    }
    unsupervised = parts["self_distillation"] + entropy * parts["mean_entropy_gap"] + parts["info_nce"]
    supervised = parts["cross_entropy"] + parts["supervised_contrastive"]
    parts["total"] = (1 - sup) * unsupervised + sup * supervised
    return parts


# --- assertions ---


def assert_finite_loss_and_gradients(result, *leaves):
    for name, part in result.parts().items():
        assert torch.isfinite(part), name
    gradients = torch.autograd.grad(result.total, leaves)
    for leaf, gradient in zip(leaves, gradients, strict=True):
        assert gradient.shape == leaf.shape
        assert torch.isfinite(gradient).all()


def assert_parts_match(result, expected, dtype):
    for name in PARTS:
        assert number(getattr(result, name)) == pytest.approx(expected[name], abs=tolerance(dtype)), name


# --- info_nce ---


@pytest.mark.parametrize("temperature", [1.0, 0.07])
@pytest.mark.parametrize("images", [1, 2, 5])
def test_info_nce_equals_the_loops(images, temperature):
    projections = 3.0 * normal(2 * images, 4, seed=images)
    value = info_nce(projections, temperature)
    assert value.shape == ()
    expected = naive_info_nce(rows(projections), temperature)
    assert number(value) == pytest.approx(expected, rel=DOUBLE, abs=DOUBLE)


def test_info_nce_by_hand():
    # Two images, both views of each equal, the images orthogonal: -log(e / (e + 1 + 1)) for each anchor.
    projections = torch.tensor([[5.0, 0.0], [0.0, 2.0], [1.0, 0.0], [0.0, 7.0]], dtype=torch.float64)
    assert number(info_nce(projections, 1.0)) == pytest.approx(math.log((math.e + 2) / math.e), rel=DOUBLE)


def test_info_nce_pairs_the_first_half_with_the_second():
    aligned = torch.eye(3, dtype=torch.float64).repeat(2, 1)
    interleaved = torch.eye(3, dtype=torch.float64).repeat_interleave(2, dim=0)
    assert number(info_nce(aligned, 0.1)) < 0.01
    assert number(info_nce(interleaved, 0.1)) > 5.0


def test_info_nce_ignores_the_length_of_each_projection():
    projections = normal(6, 4, seed=3)
    scales = torch.tensor([0.01, 1.0, 50.0, 3.0, 0.2, 9.0], dtype=torch.float64)[:, None]
    expected = number(info_nce(projections, 0.5))
    assert number(info_nce(projections * scales, 0.5)) == pytest.approx(expected, rel=DOUBLE)


def test_info_nce_gradient_equals_finite_differences():
    projections = normal(6, 3, seed=4).requires_grad_()
    (gradient,) = torch.autograd.grad(info_nce(projections, 0.5), projections)
    expected = finite_differences(lambda z: naive_info_nce(z, 0.5), rows(projections))
    assert_gradient(gradient, expected, 0.5, tolerance(torch.float64))


# --- supervised_contrastive ---


@pytest.mark.parametrize("temperature", [1.0, 0.07])
@pytest.mark.parametrize(
    "labels", [(0,), (0, 0), (0, 1), (4, 2, 4), (1, 1, 1, 1), (0, 1, 2, 3), (7, 3, 7, 7, 3)], ids=str
)
def test_supervised_contrastive_equals_the_loops(labels, temperature):
    projections = 2.0 * normal(2 * len(labels), 4, seed=len(labels))
    value = supervised_contrastive(projections, long(*labels), temperature)
    assert value.shape == ()
    expected = naive_supervised_contrastive(rows(projections), labels, temperature)
    assert number(value) == pytest.approx(expected, rel=DOUBLE, abs=DOUBLE)


def test_supervised_contrastive_by_hand():
    # Three mutually orthogonal images; the first two share a class. Anchors of the shared class have
    # positives at similarities 1, 0, 0 and those of the other class one positive at similarity 1.
    projections = torch.eye(3, dtype=torch.float64).repeat(2, 1)
    log_denominator = math.log(math.e + 4)
    expected = (4 * (log_denominator - 1 / 3) + 2 * (log_denominator - 1)) / 6
    value = supervised_contrastive(projections, long(0, 0, 1), 1.0)
    assert number(value) == pytest.approx(expected, rel=DOUBLE)


def test_supervised_contrastive_with_all_labels_distinct_is_info_nce():
    projections = normal(8, 5, seed=5)
    supervised = supervised_contrastive(projections, long(3, 1, 0, 2), 0.3)
    assert number(supervised) == pytest.approx(number(info_nce(projections, 0.3)), rel=DOUBLE)


def test_supervised_contrastive_of_nothing_is_zero_and_differentiable():
    projections = torch.zeros(0, 4, requires_grad=True)
    value = supervised_contrastive(projections, long(), 0.07)
    assert value.shape == ()
    assert number(value) == 0.0
    (gradient,) = torch.autograd.grad(value, projections)
    assert gradient.shape == (0, 4)


def test_supervised_contrastive_gradient_equals_finite_differences():
    labels = (0, 1, 0)
    projections = normal(6, 3, seed=6).requires_grad_()
    (gradient,) = torch.autograd.grad(supervised_contrastive(projections, long(*labels), 0.3), projections)
    expected = finite_differences(lambda z: naive_supervised_contrastive(z, labels, 0.3), rows(projections))
    assert_gradient(gradient, expected, 0.3, tolerance(torch.float64))


# --- self_distillation ---


@pytest.mark.parametrize("teacher_temperature", [0.07, 0.04])
@pytest.mark.parametrize(("images", "categories"), [(1, 3), (4, 2), (3, 7)])
def test_self_distillation_equals_the_loops(images, categories, teacher_temperature):
    logits = cosines(2 * images, categories, seed=images)
    value = self_distillation(logits, 0.1, teacher_temperature)
    assert value.shape == ()
    expected = naive_self_distillation(rows(logits), rows(logits), 0.1, teacher_temperature)
    assert number(value) == pytest.approx(expected, rel=DOUBLE)


def test_self_distillation_by_hand():
    # View one is uniform; view two has odds of 3 to 1 for the student and 9 to 1 for the teacher.
    logits = torch.tensor([[0.0, 0.0], [math.log(3.0), 0.0]], dtype=torch.float64)
    uniform_teacher = -0.5 * math.log(3 / 4) - 0.5 * math.log(1 / 4)
    uniform_student = math.log(2)
    value = self_distillation(logits, 1.0, 0.5)
    assert number(value) == pytest.approx((uniform_teacher + uniform_student) / 2, rel=DOUBLE)


def test_self_distillation_crosses_the_views():
    agreeing = torch.eye(2, dtype=torch.float64).repeat(2, 1)
    crossed = torch.eye(2, dtype=torch.float64).repeat_interleave(2, dim=0)
    assert number(self_distillation(agreeing, 0.1, 0.05)) < 0.001
    assert number(self_distillation(crossed, 0.1, 0.05)) > 4.0


def test_self_distillation_does_not_differentiate_the_teacher():
    logits = cosines(6, 4, seed=7).requires_grad_()
    (gradient,) = torch.autograd.grad(self_distillation(logits, 0.1, 0.07), logits)

    teacher = rows(logits)
    expected = finite_differences(lambda s: naive_self_distillation(s, teacher, 0.1, 0.07), teacher)
    assert_gradient(gradient, expected, 0.1, tolerance(torch.float64))

    through_teacher = finite_differences(lambda s: naive_self_distillation(s, s, 0.1, 0.07), teacher)
    assert (torch.tensor(through_teacher) - torch.tensor(expected)).abs().max() > 0.01


def test_self_distillation_gradient_is_student_minus_teacher():
    images, temperature = 3, 0.1
    logits = cosines(2 * images, 5, seed=8).requires_grad_()
    (gradient,) = torch.autograd.grad(self_distillation(logits, temperature, 0.04), logits)
    values = rows(logits)
    for view in range(2 * images):
        other = (view + images) % (2 * images)
        p, q = softmax(values[view], temperature), softmax(values[other], 0.04)
        expected = [(a - b) / (2 * images * temperature) for a, b in zip(p, q, strict=True)]
        assert gradient[view].tolist() == pytest.approx(expected, rel=DOUBLE, abs=DOUBLE)


# --- mean_entropy_gap ---


@pytest.mark.parametrize("temperature", [1.0, 0.1])
@pytest.mark.parametrize(("images", "categories"), [(1, 2), (4, 3), (2, 9)])
def test_mean_entropy_gap_equals_the_loops(images, categories, temperature):
    logits = cosines(2 * images, categories, seed=categories)
    value = mean_entropy_gap(logits, temperature)
    assert value.shape == ()
    expected = naive_mean_entropy_gap(rows(logits), temperature)
    assert number(value) == pytest.approx(expected, rel=DOUBLE, abs=DOUBLE)
    assert number(value) > 0


def test_mean_entropy_gap_by_hand():
    # Rows (3/4, 1/4) and (1/4, 3/4) have a uniform mean; the first row alone leaves log 2 - H(3/4).
    logits = torch.tensor([[math.log(3.0), 0.0], [0.0, math.log(3.0)]], dtype=torch.float64)
    assert number(mean_entropy_gap(logits, 1.0)) == pytest.approx(0.0, abs=DOUBLE)
    lopsided = logits[:1].repeat(2, 1)
    entropy = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    assert number(mean_entropy_gap(lopsided, 1.0)) == pytest.approx(math.log(2) - entropy, rel=DOUBLE)


def test_mean_entropy_gap_is_zero_for_confident_but_balanced_rows():
    assert number(mean_entropy_gap(torch.eye(4, dtype=torch.float64), 0.1)) == pytest.approx(0.0, abs=DOUBLE)


def test_mean_entropy_gap_gradient_equals_finite_differences():
    logits = cosines(4, 3, seed=9).requires_grad_()
    (gradient,) = torch.autograd.grad(mean_entropy_gap(logits, 0.1), logits)
    expected = finite_differences(lambda z: naive_mean_entropy_gap(z, 0.1), rows(logits))
    assert_gradient(gradient, expected, 0.1, tolerance(torch.float64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_mean_entropy_gap_survives_probabilities_that_underflow(dtype):
    logits = torch.full((4, 3), -100.0, dtype=dtype)
    logits[:, 0] = 100.0
    logits.requires_grad_()
    value = mean_entropy_gap(logits, 0.1)
    assert number(value) == pytest.approx(math.log(3), abs=tolerance(dtype))
    (gradient,) = torch.autograd.grad(value, logits)
    assert torch.isfinite(gradient).all()


# --- number types ---


def every_loss(projections, logits, labels):
    labelled = torch.ones(len(labels), dtype=torch.bool)
    return {
        "info_nce": info_nce(projections, 1.0),
        "supervised_contrastive": supervised_contrastive(projections, labels, 0.07),
        "self_distillation": self_distillation(logits, 0.1, 0.04),
        "mean_entropy_gap": mean_entropy_gap(logits, 0.1),
        "total": gcd_loss(projections, logits, labels, labelled, 0.04).total,
    }


def expected_losses(projections, logits, labels):
    z, s, y = rows(projections), rows(logits), labels.tolist()
    parts = naive_gcd_parts(z, s, y, [True] * len(y), 0.04)
    return {name: parts[name] for name in PARTS if name != "cross_entropy"}


@pytest.mark.parametrize("dtype", [*HALF_TYPES, torch.float32, torch.float64])
def test_losses_are_computed_in_single_precision_at_least(dtype):
    labels = long(0, 1, 0, 2)
    projections, logits = normal(8, 6, seed=10, dtype=dtype), cosines(8, 5, seed=11, dtype=dtype)
    expected = expected_losses(projections, logits, labels)
    for name, value in every_loss(projections, logits, labels).items():
        assert value.dtype is (torch.float64 if dtype is torch.float64 else torch.float32), name
        assert number(value) == pytest.approx(expected[name], abs=tolerance(dtype)), name


def test_losses_keep_their_precision_under_autocast():
    labels = long(0, 1, 0, 2)
    projections = normal(8, 6, seed=12, dtype=torch.float32)
    logits = cosines(8, 5, seed=13, dtype=torch.float32)
    expected = expected_losses(projections, logits, labels)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values = every_loss(projections, logits, labels)
    for name, value in values.items():
        assert value.dtype is torch.float32, name
        assert number(value) == pytest.approx(expected[name], abs=tolerance(torch.float32)), name


# --- gcd_loss ---


def test_gcd_loss_equals_the_loops_part_by_part():
    labels, labelled = long(2, -1, 0, 2, -1), flags(1, 0, 1, 1, 0)
    projections, logits = normal(10, 4, seed=14), cosines(10, 6, seed=15)
    result = gcd_loss(projections, logits, labels, labelled, 0.05)
    expected = naive_gcd_parts(rows(projections), rows(logits), labels.tolist(), labelled.tolist(), 0.05)
    assert_parts_match(result, expected, torch.float64)


@pytest.mark.parametrize(("sup_weight", "entropy_weight"), [(0.35, 2.0), (0.0, 1.0), (1.0, 4.0), (0.6, 0.0)])
def test_gcd_loss_weights(sup_weight, entropy_weight):
    labels, labelled = long(1, 0, -1), flags(1, 1, 0)
    projections, logits = normal(6, 4, seed=16), cosines(6, 3, seed=17)
    result = gcd_loss(projections, logits, labels, labelled, 0.07, sup_weight=sup_weight, entropy_weight=entropy_weight)
    expected = naive_gcd_parts(
        rows(projections), rows(logits), labels.tolist(), labelled.tolist(), 0.07, sup_weight, entropy_weight
    )
    assert_parts_match(result, expected, torch.float64)


def test_gcd_loss_defaults_weigh_065_and_035():
    projections, logits = normal(6, 4, seed=18), cosines(6, 3, seed=19)
    result = gcd_loss(projections, logits, long(1, 0, 1), flags(1, 1, 0), 0.07)
    unsupervised = result.self_distillation + result.mean_entropy_gap + result.info_nce
    supervised = result.cross_entropy + result.supervised_contrastive
    assert number(result.total) == pytest.approx(number(0.65 * unsupervised + 0.35 * supervised), rel=DOUBLE)


def test_gcd_loss_parts_are_named():
    result = gcd_loss(normal(4, 3), cosines(4, 3), long(0, -1), flags(1, 0), 0.07)
    parts = result.parts()
    assert set(parts) == set(PARTS)
    for name in PARTS:
        assert isinstance(parts[name], torch.Tensor)
        assert parts[name].shape == ()
        assert torch.equal(parts[name], getattr(result, name))


def test_gcd_loss_gradient_equals_finite_differences_with_a_constant_teacher():
    labels, labelled = long(2, -1, 2), flags(1, 0, 1)
    projections, logits = normal(6, 3, seed=20).requires_grad_(), cosines(6, 4, seed=21).requires_grad_()
    result = gcd_loss(projections, logits, labels, labelled, 0.06, entropy_weight=2.0)
    by_projection, by_logit = torch.autograd.grad(result.total, (projections, logits))

    z, s, y, known = rows(projections), rows(logits), labels.tolist(), labelled.tolist()

    def total(z_, s_):
        return naive_gcd_parts(z_, s_, y, known, 0.06, entropy=2.0, teacher=s)["total"]

    assert_gradient(by_projection, finite_differences(lambda z_: total(z_, s), z), 0.07, tolerance(torch.float64))
    assert_gradient(by_logit, finite_differences(lambda s_: total(z, s_), s), 0.1, tolerance(torch.float64))


@pytest.mark.parametrize("placeholder", [-1, 0, 3, -100, 1000])
def test_labels_of_unlabelled_images_are_ignored(placeholder):
    labelled = flags(0, 1, 0, 1)
    projections, logits = normal(8, 4, seed=22), cosines(8, 4, seed=23)
    reference = gcd_loss(projections, logits, long(1, 2, 1, 2), labelled, 0.07)
    result = gcd_loss(projections, logits, long(placeholder, 2, placeholder, 2), labelled, 0.07)
    for name in PARTS:
        assert number(getattr(result, name)) == number(getattr(reference, name)), name


def test_supervised_parts_do_not_see_the_unlabelled_images():
    labels, labelled = long(0, -1, 1), flags(1, 0, 1)
    projections, logits = normal(6, 4, seed=24).requires_grad_(), cosines(6, 4, seed=25).requires_grad_()
    result = gcd_loss(projections, logits, labels, labelled, 0.07)
    supervised = result.cross_entropy + result.supervised_contrastive
    by_projection, by_logit = torch.autograd.grad(supervised, (projections, logits))
    for gradient in (by_projection, by_logit):
        moved = [bool(row.abs().sum() > 0) for row in gradient]
        assert moved == [True, False, True, True, False, True]


# --- gcd_loss on awkward batches ---


def plain(images, dtype):
    return normal(2 * images, 5, seed=26, dtype=dtype), cosines(2 * images, 4, seed=27, dtype=dtype)


def saturated_logits(images, dtype):
    projections, _ = plain(images, dtype)
    signs = torch.where(normal(2 * images, 4, seed=28) > 0, 1.0, -1.0)
    return projections, signs.to(dtype)


def confident_and_wrong(images, dtype):
    """Every row puts +1 on one category and -1 elsewhere, and the two views disagree."""
    projections, _ = plain(images, dtype)
    logits = -torch.ones(2 * images, 4)
    logits[:images, 3] = 1.0
    logits[images:, 2] = 1.0
    return projections, logits.to(dtype)


def identical_projections(images, dtype):
    _, logits = plain(images, dtype)
    return torch.full((2 * images, 5), 0.3).to(dtype), logits


def opposite_projections(images, dtype):
    """The positives point the other way: the largest possible contrastive loss."""
    _, logits = plain(images, dtype)
    half = torch.full((images, 5), 0.5)
    return torch.cat([half, -half]).to(dtype), logits


def zero_projections(images, dtype):
    _, logits = plain(images, dtype)
    return torch.zeros(2 * images, 5).to(dtype), logits


def one_zero_projection(images, dtype):
    projections, logits = plain(images, dtype)
    projections[0] = 0.0
    return projections, logits


AWKWARD_VALUES = [
    plain,
    saturated_logits,
    confident_and_wrong,
    identical_projections,
    opposite_projections,
    zero_projections,
    one_zero_projection,
]
AWKWARD_LABELS = {
    "none labelled": ((-1, -1, -1, -1), (0, 0, 0, 0)),
    "one labelled": ((-1, 1, -1, -1), (0, 1, 0, 0)),
    "a class seen once": ((0, 0, 1, -1), (1, 1, 1, 0)),
    "every class seen once": ((3, 0, 1, 2), (1, 1, 1, 1)),
    "all of one class": ((2, 2, 2, 2), (1, 1, 1, 1)),
    "one image, labelled": ((1,), (1,)),
    "one image, unlabelled": ((-1,), (0,)),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("values", AWKWARD_VALUES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("case", AWKWARD_LABELS)
def test_gcd_loss_is_finite_and_right_on_awkward_batches(case, values, dtype):
    labels, labelled = AWKWARD_LABELS[case]
    projections, logits = values(len(labels), dtype)
    projections.requires_grad_()
    logits.requires_grad_()
    result = gcd_loss(projections, logits, long(*labels), flags(*labelled), 0.04)
    expected = naive_gcd_parts(rows(projections), rows(logits), labels, labelled, 0.04)
    assert_parts_match(result, expected, dtype)
    assert_finite_loss_and_gradients(result, projections, logits)


def test_without_labelled_images_both_supervised_parts_are_exactly_zero():
    projections, logits = (tensor.requires_grad_() for tensor in plain(3, torch.float32))
    result = gcd_loss(projections, logits, long(-1, -1, -1), flags(0, 0, 0), 0.07)
    assert number(result.cross_entropy) == 0.0
    assert number(result.supervised_contrastive) == 0.0
    unsupervised = number(result.self_distillation + result.mean_entropy_gap + result.info_nce)
    assert number(result.total) == pytest.approx(0.65 * unsupervised, rel=SINGLE)
    assert_finite_loss_and_gradients(result, projections, logits)


def test_a_batch_of_one_unlabelled_image_has_no_contrast():
    projections, logits = plain(1, torch.float64)
    result = gcd_loss(projections, logits, long(-1), flags(0), 0.07)
    assert number(result.info_nce) == pytest.approx(0.0, abs=DOUBLE)


@st.composite
def batches(draw):
    images = draw(st.integers(1, 6))
    categories = draw(st.integers(2, 6))
    dimension = draw(st.integers(1, 5))
    labelled = draw(st.lists(st.booleans(), min_size=images, max_size=images))
    labels = [draw(st.integers(0, categories - 1)) if flag else -1 for flag in labelled]
    coordinate = st.sampled_from([0.0, 1.0, -1.0, 0.5, -0.25, 3.0, -8.0])
    cosine = st.one_of(st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-1.0, 1.0, width=32))
    projections = [[draw(coordinate) for _ in range(dimension)] for _ in range(2 * images)]
    logits = [[draw(cosine) for _ in range(categories)] for _ in range(2 * images)]
    dtype = draw(st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]))
    return projections, logits, labels, labelled, dtype


@settings(max_examples=60, deadline=None, derandomize=True)
@given(batch=batches(), teacher_temperature=st.sampled_from([0.04, 0.055, 0.07]))
def test_gcd_loss_on_any_batch(batch, teacher_temperature):
    projections, logits, labels, labelled, dtype = batch
    projections = torch.tensor(projections, dtype=torch.float64).to(dtype).requires_grad_()
    logits = torch.tensor(logits, dtype=torch.float64).to(dtype).requires_grad_()
    result = gcd_loss(projections, logits, long(*labels), flags(*labelled), teacher_temperature)
    expected = naive_gcd_parts(rows(projections), rows(logits), labels, labelled, teacher_temperature)
    assert_parts_match(result, expected, dtype)
    assert_finite_loss_and_gradients(result, projections, logits)
    assert number(result.mean_entropy_gap) >= -tolerance(dtype)
    assert number(result.info_nce) >= -tolerance(dtype)


def test_gradient_steps_reduce_the_gcd_loss():
    images, categories = 12, 4
    labels = torch.arange(images) % categories
    labelled = torch.arange(images) < 8
    features = normal(2 * images, 6, seed=29, dtype=torch.float32).requires_grad_()
    projections = normal(2 * images, 5, seed=30, dtype=torch.float32).requires_grad_()
    prototypes = torch.nn.functional.normalize(normal(categories, 6, seed=31, dtype=torch.float32), dim=1)
    totals, cross_entropies = [], []
    for _ in range(20):
        logits = torch.nn.functional.normalize(features, dim=1) @ prototypes.T
        result = gcd_loss(projections, logits, labels, labelled, 0.07)
        totals.append(number(result.total))
        cross_entropies.append(number(result.cross_entropy))
        gradients = torch.autograd.grad(result.total, (features, projections))
        with torch.no_grad():
            features -= gradients[0]
            projections -= gradients[1]
    assert totals[-1] < 0.8 * totals[0]
    assert cross_entropies[-1] < 0.8 * cross_entropies[0]


def test_an_empty_batch_costs_nothing():
    nothing = torch.zeros(0, 4, dtype=torch.float64, requires_grad=True)
    losses = (
        mean_entropy_gap(nothing),
        self_distillation(nothing, 0.1, 0.05),
        cross_entropy(nothing, torch.zeros(0, dtype=torch.int64), 0.1),
        info_nce(nothing),
        supervised_contrastive(nothing, torch.zeros(0, dtype=torch.int64)),
    )
    for loss in losses:
        assert loss.item() == 0
        loss.backward()
    assert nothing.grad.shape == (0, 4)
