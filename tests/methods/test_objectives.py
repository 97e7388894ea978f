"""Objectives of all compared systems: labels they must not read, degenerate batches, the order of the images."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.loops import normal
from helpers.objectives import (
    CASES,
    DIM,
    LABELS,
    TOLERANCE,
    gradients,
    make_start,
    make_step,
    parts_of,
    permuted,
    plan_of,
)
from helpers.systems import system_trainer
from sptnet.methods import METHODS

REFRESHED = ("orca", "dccl", "cipr", "gpc")


def test_every_system_has_a_case():
    systems = {name for name, method in METHODS.items() if method.start != "model"}
    systems -= {"kmeans", "sskmeans", "gcd", "simgcd", "sptnet"}
    assert {name.split(",")[0] for name in CASES} == systems
    stages = {case.plan().name for case in CASES.values()}
    assert stages == systems | {"promptcal_calibrated"}


# --- labels ---


@pytest.mark.parametrize("nonsense", [-1, 0, 4, 10**6, -(10**6)])
@pytest.mark.parametrize("name", CASES)
def test_labels_of_unlabelled_images_are_never_read(name, nonsense):
    case = CASES[name]
    step = case.step()
    other = replace(step, labels=torch.where(step.labelled, step.labels, nonsense))
    objective, remember = case.plan().objective, case.plan().remember
    expected, found = (objective(s) for s in (step, other))
    assert parts_of(found) == parts_of(expected)
    before, after = (gradients(s, loss) for s, loss in ((step, expected), (other, found)))
    assert all(torch.equal(before[key], after[key]) for key in before)
    if remember is not None:
        kept, instead = remember(step), remember(other)
        assert kept.keys() == instead.keys()
        assert all(torch.equal(kept[key], instead[key]) for key in kept)


@pytest.mark.parametrize("name", CASES)
def test_labels_of_labelled_images_are_read(name):
    case = CASES[name]
    step = case.step()
    labels = step.labels.clone()
    labels[0] = 2
    objective = case.plan().objective
    expected, found = (objective(s).total.item() for s in (step, replace(step, labels=labels)))
    assert abs(found - expected) > 1e-3


@pytest.mark.parametrize("system", REFRESHED)
def test_no_label_of_an_unlabelled_image_reaches_refresh_or_objective(system):
    trainer, starts, steps = system_trainer(system), [], []
    plan, unlabelled = trainer.plan, set(trainer.data.unlabelled.tolist())
    trainer.plan = replace(
        plan,
        refresh=lambda start: (starts.append(start), plan.refresh(start))[1],
        objective=lambda step: (steps.append(step), plan.objective(step))[1],
    )
    trainer.run_epoch()
    assert len(starts) == 1
    assert len(steps) == 5
    for seen in (*starts, *steps):
        hidden = torch.tensor([image in unlabelled for image in seen.images.tolist()])
        assert hidden.any() and not hidden.all()
        assert torch.equal(seen.labels < 0, hidden)
    assert all(torch.equal(step.labelled, step.labels >= 0) for step in steps)


# --- degenerate batches ---


BATCHES = {
    "no labelled image": (-1, -1, -1, -1),
    "one unlabelled image": (-1,),
    "one labelled image": (2,),
    "all labelled": (0, 1, 0, 1, 2, 2),
    "every class seen once": (0, 1, 2, 3),
    "one class": (1, 1, 1),
    "one labelled image among others": (-1, -1, 3, -1),
}


def assert_finite(case, step):
    loss = case.plan().objective(step)
    assert all(math.isfinite(value) for value in parts_of(loss).values())
    assert all(torch.isfinite(gradient).all() for gradient in gradients(step, loss).values())


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("name", CASES)
def test_degenerate_batches_have_a_finite_loss_and_gradient(name, batch):
    assert_finite(CASES[name], CASES[name].step(BATCHES[batch], dtype=torch.float32))


@pytest.mark.parametrize("size", [0.0, 1.0, 1e4], ids=["zero", "alike", "huge"])
@pytest.mark.parametrize("name", CASES)
def test_collapsed_outputs_have_a_finite_loss_and_gradient(name, size):
    case = CASES[name]
    step = case.step(dtype=torch.float32)
    rows = {key: (size * x.detach()[:1].expand_as(x)).clone().requires_grad_() for key, x in step.rows.items()}
    teacher = None if step.teacher is None else {key: x.detach().clone() for key, x in rows.items()}
    assert_finite(case, replace(step, rows=rows, teacher=teacher))


def test_a_batch_without_added_images_has_no_conception_to_contrast():
    case = CASES["dccl"]
    step = replace(case.step(), n_main=len(LABELS) + case.added)
    assert_finite(case, step)
    assert parts_of(case.plan().objective(step))["conception_contrast"] == 0.0
    assert torch.equal(case.plan().remember(step)["centroids"], step.memory["centroids"])


STARTS = {
    "no labelled image": (-1,) * 12,
    "all labelled": (0, 1, 2) * 4,
    "a class seen once": (0, 0, 1, *(-1,) * 9),
}


@pytest.mark.parametrize("labels", STARTS.values(), ids=STARTS)
@pytest.mark.parametrize("system", REFRESHED)
def test_degenerate_training_sets_give_a_memory_for_a_finite_loss(system, labels):
    plan, dtype = plan_of(system), torch.float32
    memory = plan.refresh(make_start(normal(12, DIM, seed=4, dtype=dtype), labels))
    assert all(torch.isfinite(values).all() for values in memory.values())
    added = torch.empty(0, dtype=torch.long) if plan.extra is None else plan.extra(memory, 4, 1, 0)[0]
    images = torch.cat([torch.tensor([0, 5, 11]), added])
    batch = (0, -1, 1, *(-1,) * len(added))
    assert_finite(CASES[system], make_step(batch, dtype=dtype, memory=memory, images=images, n_main=3))


# --- the order of the images ---


def assert_same_in_order(case, step, order):
    objective = case.plan().objective
    other = permuted(step, order)
    expected, found = objective(step), objective(other)
    assert parts_of(found) == pytest.approx(parts_of(expected), abs=TOLERANCE)
    both = torch.cat([order, order + len(order)])
    before, after = gradients(step, expected), gradients(other, found)
    for key in before:
        torch.testing.assert_close(after[key], before[key][both], rtol=0, atol=10 * TOLERANCE)


@settings(max_examples=12, deadline=None, derandomize=True)
@pytest.mark.parametrize("name", CASES)
@given(data=st.data(), seed=st.integers(0, 1000))
def test_the_order_of_the_images_does_not_matter(name, data, seed):
    """No class is seen three times, so that ORCA's partners are certain; PromptCAL takes all negatives of the bank."""
    case = CASES[name]
    step, n = case.step(seed=seed), len(LABELS)
    main, added = (data.draw(st.permutations(range(size))) for size in (n, case.added))
    assert_same_in_order(case, step, torch.tensor(main + [n + i for i in added]))
