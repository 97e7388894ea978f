"""UNO+: the objective against loops in float64, and the balanced targets that distinguish it."""

import numpy as np
import pytest
import torch

from helpers.loops import cosines, softmax
from helpers.objectives import CATEGORIES, LABELS, TOLERANCE, arrays, gradients, make_step, outputs, parts_of, plan_of


def naive_targets(logits, labels):
    """One-hot of the labels; for the other images the published scalings, categories before images."""
    targets = np.zeros_like(logits)
    new = [i for i, label in enumerate(labels) if label < 0]
    q = np.exp(logits[new] / 0.05).T
    q /= q.sum()
    for _ in range(3):
        for c in range(len(q)):
            q[c] /= q[c].sum() * len(q)
        for i in range(len(new)):
            q[:, i] /= q[:, i].sum() * len(new)
    targets[new] = q.T * len(new)
    for i, label in enumerate(labels):
        if label >= 0:
            targets[i, label] = 1.0
    return targets


def naive_objective(rows, labels):
    half, total = len(labels), 0.0
    views = rows["logits"][:half], rows["logits"][half:]
    for source, other in (views, views[::-1]):
        targets = naive_targets(other, labels)
        for row, target in zip(source.tolist(), targets, strict=True):
            total -= float(target @ np.log(softmax(row, 0.1))) / (2 * half)
    return {"swapped_prediction": total, "total": total}


@pytest.mark.parametrize("labels", [LABELS, (-1,) * 5, (0, 1, -1)])
def test_the_objective_is_that_of_the_loops(labels):
    step = make_step(labels)
    found = parts_of(plan_of("uno").objective(step))
    assert found == pytest.approx(naive_objective(arrays(step.rows), labels), abs=TOLERANCE)


def targets_by_gradient(logits, labels):
    """Return the target of each view, read from the gradient (softmax - target) / (rows * temperature)."""
    rows = outputs(len(labels), 1) | {"logits": logits.clone().requires_grad_()}
    step = make_step(labels, rows=rows)
    loss = plan_of("uno").objective(step)
    (gradient,) = torch.autograd.grad(loss.total, step.rows["logits"])
    return torch.softmax(logits / 0.1, dim=1) - gradient * len(logits) * 0.1


def test_unlabelled_images_that_all_prefer_one_category_get_balanced_targets():
    logits = 0.02 * cosines(24, CATEGORIES, seed=2)
    logits[:, 3] += 0.5
    assert (logits.argmax(1) == 3).all()
    targets = targets_by_gradient(logits, (-1,) * 12)
    for view in targets.chunk(2):
        shares = view.sum(0)
        assert shares.min() > 1.9 and shares.max() < 2.1, "two of twelve images each"
    assert len(set(targets.argmax(1).tolist())) >= 4


def test_each_view_learns_the_target_of_the_other():
    logits = cosines(8, CATEGORIES, seed=3)
    targets = targets_by_gradient(logits, (-1,) * 4)
    one, two = (naive_targets(view.numpy(), (-1,) * 4) for view in logits.chunk(2))
    torch.testing.assert_close(targets, torch.from_numpy(np.concatenate([two, one])), rtol=0, atol=TOLERANCE)


def test_labelled_images_keep_their_class_and_take_no_part_in_the_balance():
    logits = cosines(10, CATEGORIES, seed=4)
    labels = (3, 3, -1, -1, -1)
    targets = targets_by_gradient(logits, labels)
    assert targets[[0, 1, 5, 6]].argmax(1).tolist() == [3] * 4
    alone = targets_by_gradient(logits[[2, 3, 4, 7, 8, 9]], (-1,) * 3)
    torch.testing.assert_close(targets[[2, 3, 4, 7, 8, 9]], alone, rtol=0, atol=10 * TOLERANCE)


def test_only_the_logits_learn():
    step = make_step()
    made = gradients(step, plan_of("uno").objective(step))
    assert [name for name, gradient in made.items() if gradient.abs().max() > 0] == ["logits"]
