"""muGCD: decay of the teacher, and distillation from it against naive loops in float64."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.loops import (
    assert_gradient,
    cosines,
    finite_differences,
    log_softmax,
    long,
    loss_tolerance,
    number,
    rows,
    softmax,
)
from helpers.rounding import DOUBLE, SINGLE
from sptnet.losses import self_distillation
from sptnet.methods.mugcd import teacher_decay, teacher_distillation

ALL_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def naive_teacher_distillation(student, teacher, student_temperature=0.1, teacher_temperature=0.04):
    half = len(student) // 2
    total = 0.0
    for i in range(half):
        for source, target in ((i, i + half), (i + half, i)):
            q = softmax(teacher[source], teacher_temperature)
            log_p = log_softmax(student[target], student_temperature)
            total -= sum(a * b for a, b in zip(q, log_p, strict=True))
    return total / (2 * half)


# --- teacher_decay ---


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 0.699), (100, 0.999 - 0.3 * 0.75), (150, 0.849), (200, 0.999 - 0.3 * 0.25)],
)
def test_teacher_decay_by_hand(step, expected):
    assert teacher_decay(step, 300) == pytest.approx(expected, rel=DOUBLE)


@pytest.mark.parametrize("step", [300, 301, 600, 10**6])
def test_teacher_decay_ends_at_the_final_value(step):
    assert teacher_decay(step, 300) == 0.999


def test_teacher_decay_rises():
    decays = [teacher_decay(step, 50) for step in range(51)]
    assert all(a < b for a, b in pairwise(decays))
    assert all(0 < decay < 1 for decay in decays)


def test_teacher_decay_of_other_settings_and_of_no_steps():
    assert teacher_decay(0, 10, base=0.9, final=1.0) == pytest.approx(0.9, rel=DOUBLE)
    assert teacher_decay(5, 10, base=0.9, final=1.0) == pytest.approx(0.95, rel=DOUBLE)
    assert teacher_decay(10, 10, base=0.9, final=1.0) == 1.0
    assert teacher_decay(0, 0) == 0.999


# --- teacher_distillation ---


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
@pytest.mark.parametrize(("images", "categories"), [(1, 1), (1, 3), (4, 2), (3, 7)])
def test_teacher_distillation_equals_the_loops(images, categories, dtype):
    student, teacher = (cosines(2 * images, categories, seed=seed, dtype=dtype) for seed in (1, 2))
    value = teacher_distillation(student, teacher)
    assert value.shape == ()
    assert value.dtype is torch.promote_types(dtype, torch.float32)
    expected = naive_teacher_distillation(rows(student), rows(teacher))
    assert number(value) == pytest.approx(expected, abs=loss_tolerance(dtype, 0.04))


@pytest.mark.parametrize(("student_temperature", "teacher_temperature"), [(1.0, 0.5), (0.1, 0.07), (0.2, 0.05)])
def test_teacher_distillation_of_other_temperatures(student_temperature, teacher_temperature):
    student, teacher = cosines(6, 4, seed=3), cosines(6, 4, seed=4)
    value = teacher_distillation(student, teacher, student_temperature, teacher_temperature)
    expected = naive_teacher_distillation(rows(student), rows(teacher), student_temperature, teacher_temperature)
    assert number(value) == pytest.approx(expected, abs=loss_tolerance(torch.float64, teacher_temperature))


def test_a_student_that_is_its_own_teacher_distils_itself():
    logits = cosines(6, 5, seed=5)
    expected = number(self_distillation(logits, 0.1, 0.04))
    assert number(teacher_distillation(logits, logits)) == pytest.approx(expected, rel=DOUBLE)


def test_the_teacher_of_a_view_is_the_other_view():
    teacher = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=torch.float64)
    assert number(teacher_distillation(teacher.flip(0), teacher)) < 1e-8
    assert number(teacher_distillation(teacher, teacher)) == pytest.approx(20.0, abs=1e-8)


def test_only_the_student_learns():
    student, teacher = cosines(4, 3, seed=6).requires_grad_(), cosines(4, 3, seed=7).requires_grad_()
    gradient, by_teacher = torch.autograd.grad(
        teacher_distillation(student, teacher), (student, teacher), allow_unused=True
    )
    assert by_teacher is None
    fixed = rows(teacher)
    expected = finite_differences(lambda s: naive_teacher_distillation(s, fixed), rows(student))
    assert_gradient(gradient, expected, 0.1, loss_tolerance(torch.float64, 0.1))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(data=st.data(), b=st.integers(1, 5), k=st.integers(1, 5), seed=st.integers(0, 1000))
def test_teacher_distillation_ignores_the_order_of_images_categories_and_views(data, b, k, seed):
    student, teacher = cosines(2 * b, k, seed=seed), cosines(2 * b, k, seed=seed + 1)
    order, categories = (long(*data.draw(st.permutations(range(size)))) for size in (b, k))
    both = data.draw(st.sampled_from([torch.cat([order, order + b]), torch.cat([order + b, order])]))
    expected = number(teacher_distillation(student, teacher))
    found = number(teacher_distillation(student[both][:, categories], teacher[both][:, categories]))
    assert found == pytest.approx(expected, abs=loss_tolerance(torch.float64, 0.04))


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_teacher_distillation_of_logits_that_overflow_half_precision(dtype):
    student = (4e4 * torch.tensor([[1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]])).to(dtype).requires_grad_()
    teacher = (4e4 * torch.tensor([[1.0, -1.0, -1.0], [-1.0, 1.0, 1.0]])).to(dtype)
    value = teacher_distillation(student, teacher)
    expected = naive_teacher_distillation(rows(student), rows(teacher))
    assert number(value) == pytest.approx(expected, rel=DOUBLE if dtype is torch.float64 else SINGLE)
    assert expected > torch.finfo(torch.float16).max
    assert torch.isfinite(torch.autograd.grad(value, student)[0]).all()


def test_one_category_has_nothing_to_teach():
    assert number(teacher_distillation(cosines(4, 1), cosines(4, 1, seed=1))) == 0.0


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_teacher_distillation_of_an_empty_batch_is_zero_with_a_graph(dtype):
    student = torch.zeros(0, 3, dtype=dtype).requires_grad_()
    value = teacher_distillation(student, torch.zeros(0, 3, dtype=dtype))
    assert number(value) == 0.0
    assert value.dtype is torch.promote_types(dtype, torch.float32)
    assert torch.autograd.grad(value, student)[0].shape == (0, 3)


def test_the_uniform_teacher_and_student_leave_log_k():
    value = teacher_distillation(torch.zeros(4, 5, dtype=torch.float64), torch.zeros(4, 5, dtype=torch.float64))
    assert number(value) == pytest.approx(math.log(5), rel=DOUBLE)


def test_teacher_distillation_keeps_its_precision_under_autocast():
    student, teacher = (cosines(6, 4, seed=seed, dtype=torch.float32) for seed in (8, 9))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = teacher_distillation(student, teacher)
    assert value.dtype is torch.float32
    expected = naive_teacher_distillation(rows(student), rows(teacher))
    assert number(value) == pytest.approx(expected, abs=loss_tolerance(torch.float32, 0.04))
