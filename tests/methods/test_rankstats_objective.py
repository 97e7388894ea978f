"""RankStats+: the objective against loops in float64, and the pairs that distinguish it."""

import math

import numpy as np
import pytest
import torch

from helpers.loops import normal, softmax
from helpers.objectives import (
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

TOP = 2


def naive_objective(rows, labels, epoch):
    half, new = len(labels), [i for i, label in enumerate(labels) if label < 0]
    p = np.array([softmax(row, 0.1) for row in rows["logits"].tolist()])
    one, two = p[:half], p[half:]
    top = [set(np.argsort(-row)[:TOP].tolist()) for row in rows["features"][:half]]
    pairs, n_pairs = 0.0, 0
    for i in new:
        for j in new:
            agreement = float(one[i] @ two[j])
            pairs -= math.log(agreement if top[i] == top[j] else 1 - agreement) / len(new) ** 2
            n_pairs += top[i] == top[j]
    supervised = naive_cross_entropy(rows["logits"], (*labels, *labels))
    squares = float(((one - two) ** 2).mean())
    weight = 50 * math.exp(-5 * (1 - min(epoch, 150) / 150) ** 2)
    parts = {
        "cross_entropy": supervised,
        "pairwise_bce": pairs,
        "consistency": squares,
        "total": supervised + pairs + weight * squares,
    }
    return parts, n_pairs


@pytest.mark.parametrize("epoch", [0, 75, 150, 199])
def test_the_objective_is_that_of_the_loops(epoch):
    labels = (*LABELS, -1, -1, -1)
    step = make_step(labels, epoch)
    with torch.no_grad():
        step.features[[5, 8]] += 3 * step.features[[2, 7]]
    expected, n_pairs = naive_objective(arrays(step.rows), labels, epoch)
    assert 6 < n_pairs < 36, "some pairs of different images match"
    found = parts_of(plan_of("rankstats", top=TOP).objective(step))
    assert found == pytest.approx(expected, abs=50 * TOLERANCE)


def pairs_alone(features, logits, labels=(-1, -1, -1)):
    """Gradient of the logits without consistency."""
    rows = outputs(len(labels), 1) | {"features": features, "logits": logits}
    rows = {name: x.clone().requires_grad_() for name, x in rows.items()}
    step = make_step(labels, rows=rows)
    loss = plan_of("rankstats", top=TOP, consistency=0.0).objective(step)
    return gradients(step, loss)["logits"], loss


def test_unlabelled_images_with_the_same_strongest_dimensions_are_drawn_together_and_others_apart():
    features = torch.tensor([[9.0, 8.0, 1.0, 0.0], [7.0, 9.0, 0.0, 1.0], [0.0, 1.0, 9.0, 8.0]]).repeat(2, 1)
    logits = torch.tensor([[0.1, 0.0, 0.0], [0.0, 0.1, 0.0], [0.1, 0.05, 0.0]]).double().repeat(2, 1)
    for _ in range(100):
        gradient, loss = pairs_alone(features, logits)
        assert loss.total.item() == loss.pairwise_bce.item()
        logits = logits - 0.02 * gradient
    p = torch.softmax(logits / 0.1, dim=1)
    agreement = p[:3] @ p[3:].T
    assert agreement[0, 1] > 0.9, "the same two dimensions, in another order"
    assert agreement[0, 2] < 0.1
    assert agreement[1, 2] < 0.1


def test_other_features_make_other_pairs():
    logits = 0.1 * normal(6, 3, seed=1)
    alike = torch.tensor([[3.0, 2.0, 1.0]] * 6)
    apart = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [3.0, 1.0, 2.0]] * 2)
    (one, _), (other, _) = (pairs_alone(features, logits) for features in (alike, apart))
    assert (one - other).abs().max() > 0.1


def test_pairs_neither_use_labelled_images_nor_move_features():
    labels = (0, 1, -1, -1)
    step = make_step(labels)
    loss = plan_of("rankstats", top=TOP, consistency=0.0).objective(step)
    (by_pairs,) = torch.autograd.grad(loss.pairwise_bce, step.rows["logits"], retain_graph=True)
    assert by_pairs[torch.tensor([0, 1, 4, 5])].abs().max() == 0
    assert by_pairs[torch.tensor([2, 3, 6, 7])].abs().min() > 0
    assert gradients(step, loss)["features"].abs().max() == 0
