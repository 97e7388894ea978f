"""CiPR: the objective against loops in float64, and the pseudo-labels of the clustering that distinguish it."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from helpers.loops import normal
from helpers.objectives import (
    CASES,
    LABELS,
    TOLERANCE,
    arrays,
    make_start,
    make_step,
    naive_contrast,
    naive_info_nce,
    naive_supcon,
    parts_of,
    plan_of,
)


def naive_objective(step, labels):
    projections = arrays(step.rows)["projections"]
    supervised = naive_supcon(projections, labels)
    if "targets" in step.memory:
        targets = step.memory["targets"][step.images].tolist()
        grouped = naive_contrast(projections, projections, targets * 2, 0.12)
    else:
        grouped = naive_info_nce(projections)
    return {
        "supervised_contrastive": supervised,
        "pseudo_label_contrast": grouped,
        "total": supervised + grouped,
    }


@pytest.mark.parametrize("labels", [LABELS, (-1,) * 5, (0, 1, 1)])
@pytest.mark.parametrize("name", ["cipr", "cipr, warm-up"])
def test_the_objective_is_that_of_the_loops(name, labels):
    step = CASES[name].step(labels)
    found = parts_of(plan_of("cipr").objective(step))
    assert found == pytest.approx(naive_objective(step, labels), abs=TOLERANCE)


def test_unlabelled_images_of_a_pseudo_label_are_drawn_together_and_others_apart():
    images = torch.arange(4)
    step = make_step((-1,) * 4, images=images, memory={"targets": torch.tensor([0, 0, 1, 1])})
    projections = F.normalize(normal(8, 7, seed=1), dim=1)
    for _ in range(100):
        rows = step.rows | {"projections": projections.clone().requires_grad_()}
        loss = plan_of("cipr").objective(replace(step, rows=rows))
        (gradient,) = torch.autograd.grad(loss.total, rows["projections"])
        projections = F.normalize(projections - 0.2 * gradient, dim=1)
    cosines = projections @ projections.T
    groups = torch.tensor([0, 0, 1, 1]).repeat(2)
    same = groups[:, None] == groups[None, :]
    assert cosines[same].min() > cosines[~same].max() + 0.5


# --- pseudo-labels ---


GROUPS = [0] * 4 + [1] * 4 + [2] * 4


def pairs_in_groups():
    """Three groups of two pairs: an unlabelled image picks the other of its pair, and the pair the other pair."""
    angles = torch.tensor(
        [base + pair + one for base in (0, 60, 120) for pair in (0, 12) for one in (0, 1 + base / 100)]
    )
    return torch.stack([angles.deg2rad().cos(), angles.deg2rad().sin()], dim=1)


def refreshed(labels, level=None, **given):
    plan = plan_of("cipr") if level is None else plan_of("cipr", level=level)
    return plan.refresh(make_start(3 * pairs_in_groups(), labels, **given))["targets"]


def partition(targets):
    """Return the sets of images with the same target."""
    return {frozenset(i for i, t in enumerate(targets) if t == target) for target in set(targets)}


def test_pseudo_labels_are_the_clusters_of_level_one():
    targets = refreshed((-1,) * 12)
    assert targets[12] == -1, "no training image"
    assert partition(targets[:12].tolist()) == partition(GROUPS)
    pairs = [i // 2 for i in range(12)]
    assert partition(refreshed((-1,) * 12, level=0)[:12].tolist()) == partition(pairs)


def test_labels_keep_clusters_of_two_classes_apart():
    labels = (0, 0, 1, 1, *(-1,) * 8)
    targets = refreshed(labels)[:12].tolist()
    assert partition(targets) == partition([0, 0, 3, 3, *GROUPS[4:]])


def test_pseudo_labels_are_numbered_as_the_images_of_the_image_set():
    images = torch.arange(12).flip(0) + 5
    targets = refreshed((-1,) * 12, images=images, n_images=17)
    assert targets[:5].tolist() == [-1] * 5
    assert partition(targets[5:].flip(0).tolist()) == partition(GROUPS)


def test_there_are_no_pseudo_labels_before_the_warm_up_is_over():
    plan = plan_of("cipr", warm_up=3)
    starts = [make_start(pairs_in_groups(), (-1,) * 12, epoch=epoch) for epoch in (0, 2, 3)]
    assert [set(plan.refresh(start)) for start in starts] == [set(), set(), {"targets", "clusters"}]
    assert set(plan_of("cipr").refresh(starts[0])) == {"targets", "clusters"}, "no warm-up by default"


def test_a_level_beyond_the_last_is_the_last():
    assert partition(refreshed((-1,) * 12, level=99)[:12].tolist()) == partition([0] * 12)


def test_the_backbone_learns_ten_times_slower_than_the_head():
    assert plan_of("cipr").optimisers["model"].backbone_ratio == 0.1
