"""muGCD: the objective against loops in float64, and the teacher that distinguishes it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from helpers.loops import softmax
from helpers.objectives import (
    CASES,
    CATEGORIES,
    LABELS,
    TOLERANCE,
    arrays,
    gradients,
    make_step,
    naive_cross_entropy,
    outputs,
    parts_of,
    plan_of,
)
from sptnet.head import PrototypeHead
from sptnet.methods.phases import STRONG
from sptnet.training.checkpoint import load_checkpoint, newest_checkpoint

CASE = CASES["mugcd"]


def naive_objective(step, labels, epoch):
    half = len(labels)
    student, teacher = (arrays(rows)["logits"] for rows in (step.rows, step.teacher))
    sharp = np.linspace(0.07, 0.04, 30)[min(epoch, 29)]
    log_p = np.log([softmax(row, 0.1) for row in student.tolist()])
    q = np.array([softmax(row, sharp) for row in teacher.tolist()])
    taught = -float(np.mean([q[(i + half) % (2 * half)] @ log_p[i] for i in range(2 * half)]))
    supervised = naive_cross_entropy(student, (*labels, *labels))
    mean = np.exp(log_p).mean(0)
    gap = float(np.log(CATEGORIES) + (mean * np.log(mean)).sum())
    return {
        "teacher_distillation": taught,
        "cross_entropy": supervised,
        "mean_entropy_gap": gap,
        "total": 0.65 * taught + 0.35 * supervised + gap,
    }


@pytest.mark.parametrize("epoch", [0, 10, 29, 30, 199])
@pytest.mark.parametrize("labels", [LABELS, (-1,) * 4, (0, 1, 1)])
def test_the_objective_is_that_of_the_loops(labels, epoch):
    step = CASE.step(labels, epoch=epoch)
    found = parts_of(plan_of("mugcd").objective(step))
    assert found == pytest.approx(naive_objective(step, labels, epoch), abs=TOLERANCE)


def drawn_to(teacher_logits, labels=(-1, -1, -1)):
    """Category that each view of the student is drawn to most, from equal logits and without the entropy."""
    rows = outputs(len(labels), 1) | {"logits": torch.zeros(2 * len(labels), CATEGORIES).double().requires_grad_()}
    step = make_step(labels, rows=rows, teacher={"logits": teacher_logits})
    loss = plan_of("mugcd", entropy_weight=0.0).objective(step)
    return (-torch.autograd.grad(loss.total, rows["logits"])[0]).argmax(1).tolist()


def test_each_view_is_drawn_to_the_prediction_of_the_teacher_for_the_other_view():
    predicted = torch.tensor([0, 1, 2, 3, 4, 5])
    logits = torch.nn.functional.one_hot(predicted, CATEGORIES).double()
    assert drawn_to(logits) == [3, 4, 5, 0, 1, 2]
    assert drawn_to(logits.flip(1)) == [2, 1, 0, 5, 4, 3], "another teacher"


def test_the_prediction_of_the_student_is_no_target():
    step = CASE.step((-1, -1, -1))
    rows = step.rows | {"logits": step.teacher["logits"].clone().requires_grad_()}
    alike = replace(step, rows=rows)
    other = replace(alike, teacher={"logits": outputs(3, 8)["logits"]})
    one, two = (plan_of("mugcd").objective(s).teacher_distillation.item() for s in (alike, other))
    assert abs(one - two) > 1e-2


def test_the_teacher_sharpens():
    losses = []
    for epoch in (0, 15, 29):
        step = CASE.step((-1,) * 3, epoch=epoch)
        agreeing = step.teacher["logits"].roll(3, 0).clone().requires_grad_()
        losses.append(plan_of("mugcd").objective(replace(step, rows=step.rows | {"logits": agreeing})))
    values = [loss.teacher_distillation.item() for loss in losses]
    assert values == sorted(values, reverse=True)
    assert values[0] > values[2] + 1e-2


def test_the_student_alone_learns_and_by_its_logits_alone():
    step = CASE.step()
    teacher = {"logits": step.teacher["logits"].clone().requires_grad_()}
    loss = plan_of("mugcd").objective(replace(step, teacher=teacher))
    made = gradients(step, loss)
    assert [name for name, gradient in made.items() if gradient.abs().max() > 0] == ["logits"]
    assert torch.autograd.grad(loss.total, teacher["logits"], allow_unused=True) == (None,)


def test_the_student_has_strong_views_and_a_new_classifier():
    plan = plan_of("mugcd")
    assert plan.turns.phases == (STRONG,)
    assert plan.teacher(0, 100) == pytest.approx(0.699)
    assert plan.teacher(100, 100) == 0.999
    head = plan.head(PrototypeHead(8, 3), 8, CATEGORIES)
    assert isinstance(head, PrototypeHead) and head.n_categories == CATEGORIES


def test_a_run_hands_on_the_weights_of_the_teacher(tiny_config, few_digits, run_it, tmp_path):
    short = {"epochs": 1, "learning_rate": 0.5}
    config = tiny_config.changed(gcd=short | {"output": 32, "n_init": 1}, mugcd=short)
    folder = run_it(tmp_path / "run", config.model_copy(update={"method": "mugcd"}), few_digits)
    tensors = load_checkpoint(newest_checkpoint(folder / "checkpoints")).tensors
    saved = load_file(folder / "model" / "model.safetensors")["head.prototypes"]
    student, teacher = (tensors[f"{who}.head.prototypes"] for who in ("model", "teacher"))
    assert torch.equal(saved, teacher)
    assert not torch.equal(saved, student)
