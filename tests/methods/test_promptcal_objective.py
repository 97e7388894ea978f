"""PromptCAL: both objectives against loops in float64; teacher, banks, positives of the graph, prompt tokens."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from helpers.loops import normal, softmax, unit
from helpers.objectives import (
    CASES,
    DIM,
    LABELS,
    TOLERANCE,
    arrays,
    gradients,
    make_step,
    naive_info_nce,
    naive_supcon,
    outputs,
    parts_of,
    plan_of,
)
from sptnet.clustering.graph.affinity import affinity_graph
from sptnet.head import TwinHead

NEIGHBOURS, QUANTILE = 5, 0.8
CALIBRATED = CASES["promptcal, calibrated"]


def naive_calibrated(step, prefix, negatives):
    """Contrast of each view with the teacher's other view, its positives, and these entries of the bank."""
    filled, half = int(step.memory["filled"]), len(step.labels)
    swapped = step.teacher[f"{prefix}features"].roll(half, 0)
    nodes = torch.cat([swapped, step.memory[f"{prefix}bank"][:filled]])
    labels = step.labels.where(step.labelled, -1).repeat(2).tolist()
    labels += step.memory["bank_labels"][:filled].tolist()
    graph = affinity_graph(nodes, NEIGHBOURS, QUANTILE, torch.tensor(labels))
    student = step.rows[f"{prefix}features"].tolist()
    total, units = 0.0, [np.array(unit(node)) for node in nodes.tolist()]
    for i, row in enumerate(student):
        positives = {i} | {j for j in range(2 * half, len(nodes)) if graph[i, j]}
        others = sorted(positives | {2 * half + n for n in negatives})
        shares = softmax([float(np.dot(unit(row), units[j])) for j in others], 0.07)
        logs = [np.log(share) for j, share in zip(others, shares, strict=True) if j in positives]
        total -= sum(logs) / len(logs) / len(student)
    return total


def naive_branch(step, prefix, weight, negatives):
    student, teacher = (arrays(rows)[f"{prefix}projections"] for rows in (step.rows, step.teacher))
    labels = step.labels.where(step.labelled, -1).tolist()
    supcon, nce = naive_supcon(student, labels, teacher), naive_info_nce(student, teacher)
    calibrated = naive_calibrated(step, prefix, negatives) if weight and "filled" in step.memory else 0.0
    total = 0.35 * supcon + 0.65 * ((1 - weight) * nce + weight * calibrated)
    named = {"supervised_contrastive": supcon, "info_nce": nce, "calibrated": calibrated}
    return total, {f"{prefix}{name}": value for name, value in named.items()}


def naive_objective(step, epoch, negatives=range(8)):
    weight = 0.6 * min(epoch, 2) / 2
    (one, parts), (two, token_parts) = (naive_branch(step, prefix, weight, negatives) for prefix in ("", "token_"))
    return {**parts, **token_parts, "total": one + 0.35 * two}


@pytest.mark.parametrize("epoch", [0, 1, 2, 50])
def test_the_calibrated_objective_is_that_of_the_loops(epoch):
    step = CALIBRATED.step(epoch=epoch)
    found = parts_of(plan_of("promptcal").objective(step))
    assert found == pytest.approx(naive_objective(step, epoch), abs=TOLERANCE)


@pytest.mark.parametrize("step_number", [0, 3, 15, 19, 20, 21])
def test_the_weight_of_the_calibrated_contrast_grows_step_by_step(step_number):
    """The stage has ten steps per epoch."""
    step = CALIBRATED.step(epoch=step_number // 10)
    step = replace(step, clock=replace(step.clock, step=step_number))
    found = parts_of(plan_of("promptcal").objective(step))
    assert found == pytest.approx(naive_objective(step, step_number / 10), abs=TOLERANCE)


def test_without_a_bank_there_is_no_calibrated_contrast():
    step = CASES["promptcal, empty bank"].step()
    found = parts_of(plan_of("promptcal").objective(step))
    assert found == pytest.approx(naive_objective(step, 1, negatives=()), abs=TOLERANCE)


@pytest.mark.parametrize("labels", [LABELS, (-1, -1, -1), (0, 1, 2)])
def test_the_objective_of_the_first_stage_is_that_of_the_loops(labels):
    step = make_step(labels)
    rows, expected = arrays(step.rows), {"total": 0.0}
    for prefix, weight in (("", 1.0), ("token_", 0.35)):
        nce, supcon = (
            f(rows[f"{prefix}projections"], *a) for f, a in ((naive_info_nce, ()), (naive_supcon, (labels,)))
        )
        expected |= {f"{prefix}info_nce": nce, f"{prefix}supervised_contrastive": supcon}
        expected["total"] += weight * (0.65 * nce + 0.35 * supcon)
    assert parts_of(plan_of("promptcal", "promptcal").objective(step)) == pytest.approx(expected, abs=TOLERANCE)


# --- negatives ---


def test_a_step_draws_some_negatives_of_the_bank_and_another_step_others():
    plan = plan_of("promptcal", "promptcal_calibrated", negatives=2)
    step = CALIBRATED.step((-1, -1, 0))
    possible = {round(naive_calibrated(step, "", pair), 9) for pair in combinations(range(8), 2)}
    losses = [plan.objective(replace(step, clock=replace(step.clock, step=n))).calibrated.item() for n in range(1, 41)]
    found = {round(loss, 9) for loss in losses}
    assert found <= possible
    assert len(found) > 5
    assert plan.objective(replace(step, clock=replace(step.clock, step=1))).calibrated.item() == losses[0]


# --- positives of the graph ---


def around(axis, n, seed):
    """Unit rows near an axis."""
    return F.normalize(torch.eye(DIM, dtype=torch.float64)[axis] + 0.2 * normal(n, DIM, seed=seed), dim=1)


def clustered_step(n=60):
    """Two unlabelled images near two axes, student and teacher being equal; the bank has n entries near each axis."""
    pair = torch.cat([around(0, 1, 1), around(4, 1, 2)]).repeat(2, 1)
    rows = {name: x.requires_grad_() for name, x in outputs(2, 1).items()}
    rows["features"] = pair.clone().requires_grad_()
    memory = {
        "bank": torch.cat([around(0, n, 3), around(4, n, 4)]),
        "token_bank": normal(2 * n, DIM, seed=5),
        "bank_labels": torch.full((2 * n,), -1),
        "filled": torch.tensor(2 * n),
    }
    return make_step((-1, -1), rows=rows, teacher=outputs(2, 7) | {"features": pair}, memory=memory)


def banked_positives(step):
    """Positives in the bank per view of the batch."""
    nodes = torch.cat([step.teacher["features"].roll(2, 0), step.memory["bank"]])
    return affinity_graph(nodes, NEIGHBOURS, QUANTILE)[:4, 4:]


def test_a_filled_bank_adds_positives_beyond_the_own_view():
    """The student equals its own positive, so that without further positives a negative could only repel it."""
    step = clustered_step()
    positives, bank = banked_positives(step), step.memory["bank"]
    assert positives.any(dim=1).all()
    assert not positives[::2, 60:].any() and not positives[1::2, :60].any(), "they are of the same axis"
    objective = plan_of("promptcal", "promptcal_calibrated", negatives=1).objective
    before = after = step.features.detach()
    for _ in range(100):
        rows = {**step.rows, "features": after.clone().requires_grad_()}
        (gradient,) = torch.autograd.grad(objective(replace(step, rows=rows)).calibrated, rows["features"])
        after = F.normalize(after - 0.02 * gradient, dim=1)
    for row in range(4):
        mates = bank[positives[row]]
        assert (after[row] @ mates.T).mean() > (before[row] @ mates.T).mean() + 0.02


def test_a_class_in_the_bank_takes_its_members_from_the_positives_of_another_class():
    step = clustered_step()
    known = {"labels": torch.tensor([3, 4]), "labelled": torch.tensor([True, True])}
    of_classes = [
        replace(step, **known, memory={**step.memory, "bank_labels": torch.tensor(labels).repeat_interleave(60)})
        for labels in ([3, 4], [4, 3])
    ]
    right, wrong = (plan_of("promptcal").objective(s).calibrated.item() for s in of_classes)
    assert wrong > right + 1, "images of the other axis are must-links"


# --- teacher, tokens, banks ---


def total(step):
    return plan_of("promptcal").objective(step)


@pytest.mark.parametrize("prefix", ["", "token_"])
def test_the_outputs_of_the_teacher_are_the_targets(prefix):
    step = CALIBRATED.step()
    expected = parts_of(total(step))
    for name, changed in (("projections", ("supervised_contrastive", "info_nce")), ("features", ("calibrated",))):
        teacher = step.teacher | {f"{prefix}{name}": step.teacher[f"{prefix}{name}"].flip(0)}
        found = parts_of(total(replace(step, teacher=teacher)))
        differ = {key for key in expected if abs(found[key] - expected[key]) > 1e-6}
        assert differ == {"total", *(f"{prefix}{key}" for key in changed)}


def test_gradients_reach_all_four_outputs_of_the_student_and_none_of_the_teacher():
    step = CALIBRATED.step()
    teacher = {name: x.clone().requires_grad_() for name, x in step.teacher.items()}
    step = replace(step, teacher=teacher)
    loss = total(step)
    used = {name for name, gradient in gradients(step, loss).items() if gradient.abs().max() > 0}
    assert used == {"projections", "features", "token_projections", "token_features"}
    by_teacher = torch.autograd.grad(loss.total, list(teacher.values()), allow_unused=True)
    assert by_teacher == (None,) * len(teacher)


@pytest.mark.parametrize("section", ["promptcal", "promptcal_calibrated"])
def test_the_losses_of_the_prompt_tokens_count_with_a_third(section):
    step = CALIBRATED.step()
    rows = step.rows | {name: x for name, x in outputs(len(LABELS), 9).items() if name.startswith("token_")}
    objective = plan_of("promptcal", section).objective
    one, two = (parts_of(objective(s)) for s in (step, replace(step, rows=rows)))
    assert {name for name in one if one[name] != two[name]} == {n for n in one if n.startswith("token_")} | {"total"}
    change = {name: two[name] - one[name] for name in one}
    unsupervised = change["token_info_nce"]
    if "calibrated" in one:
        unsupervised = 0.7 * unsupervised + 0.3 * change["token_calibrated"]
    expected = 0.35 * (0.65 * unsupervised + 0.35 * change["token_supervised_contrastive"])
    assert abs(expected) > 1e-3
    assert change["total"] == pytest.approx(expected, abs=TOLERANCE)


def test_the_banks_keep_the_latest_outputs_of_the_teacher():
    plan = plan_of("promptcal", "promptcal_calibrated", bank=20)
    steps = [replace(CASES["promptcal, empty bank"].step(), teacher=outputs(8, seed)) for seed in (7, 8)]
    memory = plan.remember(steps[0])
    labels = torch.tensor(LABELS).repeat(2)
    assert int(memory["filled"]) == int(memory["position"]) == 16
    for name, of_teacher in (("bank", "features"), ("token_bank", "token_features")):
        assert torch.equal(memory[name][:16], steps[0].teacher[of_teacher])
    assert torch.equal(memory["bank_labels"][:16], labels)
    memory = plan.remember(replace(steps[1], memory=memory))
    assert (int(memory["filled"]), int(memory["position"])) == (20, 12)
    for name, of_teacher in (("bank", "features"), ("token_bank", "token_features")):
        first, second = (step.teacher[of_teacher] for step in steps)
        assert torch.equal(memory[name], torch.cat([second[4:], first[12:], second[:4]]))


def test_the_projection_of_the_prompt_tokens_begins_anew_in_the_second_stage():
    plan, first = plan_of("promptcal"), TwinHead(DIM, 6, 16, 8, 12)
    second = plan.head(first, DIM, 6)
    assert second.directions is first.directions
    assert second.mlp is first.mlp
    assert second.token_directions is not first.token_directions
    assert plan.keeps_prompt
    assert plan.token_outputs == plan_of("promptcal", "promptcal").token_outputs == 2
    assert plan.teacher(0, 10) == 0.999
