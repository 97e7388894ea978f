"""ORCA: the objective against loops in float64, the margin of the epoch, and the partners."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.loops import cosines, normal, softmax, unit
from helpers.objectives import (
    CATEGORIES,
    DIM,
    LABELS,
    TOLERANCE,
    arrays,
    make_start,
    make_step,
    naive_cross_entropy,
    outputs,
    parts_of,
    plan_of,
)


def naive_partner(features, labels, i):
    """Return the partner; no class of `labels` is seen three times."""
    others = [j for j in range(len(labels)) if j != i]
    if labels[i] >= 0:
        return ([j for j in others if labels[j] == labels[i]] or [i])[0]
    return max(others, key=lambda j: float(np.dot(unit(features[i].tolist()), unit(features[j].tolist()))))


def naive_objective(rows, labels, margin):
    half = len(labels)
    moved = rows["logits"][:half].copy()
    for i, label in enumerate(labels):
        if label >= 0:
            moved[i, label] += margin
    supervised = naive_cross_entropy(moved, labels)
    p = np.array([softmax(row, 0.1) for row in rows["logits"].tolist()])
    chosen = [naive_partner(rows["features"], labels, i) for i in range(half)]
    pairs = -float(np.mean([np.log(p[i] @ p[half + j]) for i, j in enumerate(chosen)]))
    mean = p[:half].mean(0)
    spread = float((mean * np.log(mean)).sum())
    return {
        "margin_cross_entropy": supervised,
        "pairwise_loss": pairs,
        "negative_entropy": spread,
        "total": supervised + pairs + spread,
    }


def with_margin(margin, **given):
    return make_step(memory={"margin": torch.tensor(margin, dtype=torch.float64)}, **given)


@pytest.mark.parametrize("margin", [0.0, 0.25, 0.5])
def test_the_objective_is_that_of_the_loops(margin):
    step = with_margin(margin)
    found = parts_of(plan_of("orca").objective(step))
    assert found == pytest.approx(naive_objective(arrays(step.rows), LABELS, margin), abs=TOLERANCE)


# --- the margin of the epoch ---


def refreshed(logits, labels):
    start = make_start(normal(len(labels), DIM), labels, logits=logits)
    return float(plan_of("orca").refresh(start)["margin"])


def test_the_margin_is_the_uncertainty_of_the_unlabelled_images():
    logits, labels = 0.5 + 0.1 * cosines(6, CATEGORIES, seed=5), (0, 1, -1, -1, -1, 2)
    logits[2:5, 4] += 0.3
    expected = np.mean([1 - max(softmax(row, 0.1)) for row in logits[2:5].tolist()])
    assert 0.1 < expected < 0.5
    assert refreshed(logits, labels) == pytest.approx(expected, abs=1e-6)
    surer = logits.clone()
    surer[[0, 1, 5], 0] += 5.0
    assert refreshed(surer, labels) == pytest.approx(expected, abs=1e-6), "labelled images do not count"
    surer[2:5, 4] += 0.2
    assert refreshed(surer, labels) < expected - 0.1, "it shrinks as the images become certain"


def test_the_margin_is_at_most_a_half():
    assert refreshed(torch.zeros(4, CATEGORIES), (-1,) * 4) == 0.5


def test_the_margin_of_the_memory_changes_the_loss_of_labelled_images_alone():
    losses = [parts_of(plan_of("orca").objective(with_margin(margin))) for margin in (0.0, 0.1, 0.5)]
    assert losses[0]["margin_cross_entropy"] > losses[1]["margin_cross_entropy"] + 0.1
    assert losses[1]["margin_cross_entropy"] > losses[2]["margin_cross_entropy"] + 0.1
    assert len({loss["pairwise_loss"] for loss in losses}) == len({loss["negative_entropy"] for loss in losses}) == 1


# --- partners ---


def test_an_unlabelled_image_is_drawn_to_its_nearest_neighbour_and_a_labelled_one_to_its_class():
    """Both views prefer a category of their own, so that the pairwise loss tells the partners."""
    angles = torch.tensor([0.0, 10.0, 90.0, 97.0, 200.0]).double().deg2rad()
    features = torch.stack([angles.cos(), angles.sin()], dim=1).repeat(2, 1)
    labels = (0, -1, -1, 0, -1)
    partners = [3, 0, 3, 0, 3]
    rows = outputs(5, 1) | {"features": features, "logits": cosines(10, CATEGORIES, seed=6)}
    rows = {name: x.clone().requires_grad_() for name, x in rows.items()}
    step = with_margin(0.0, labels=labels, rows=rows)
    loss = plan_of("orca").objective(step)
    p, q = torch.softmax(rows["logits"].detach() / 0.1, dim=1).chunk(2)
    expected = -(p * q[partners]).sum(1).log().mean()
    assert loss.pairwise_loss.item() == pytest.approx(expected.item(), abs=TOLERANCE)


def test_a_class_seen_often_has_another_partner_at_another_step():
    """The loss of every step is one of those that partners of the class can give."""
    labels = (0, 0, 0)
    step = with_margin(0.0, labels=labels)
    p, q = torch.softmax(step.logits.detach() / 0.1, dim=1).chunk(2)
    agreement = -(p @ q.T).log()
    possible = {
        round(float(agreement[0, a] + agreement[1, b] + agreement[2, c]) / 3, 9)
        for a in (1, 2)
        for b in (0, 2)
        for c in (0, 1)
    }
    clocks = [replace(step.clock, step=number) for number in range(100)]
    losses = [plan_of("orca").objective(replace(step, clock=clock)).pairwise_loss.item() for clock in clocks]
    assert {round(loss, 9) for loss in losses} == possible
    assert len(possible) == 8
    again = plan_of("orca").objective(replace(step, clock=clocks[0])).pairwise_loss.item()
    assert again == losses[0], "the same partners at the same step"
