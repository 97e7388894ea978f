"""GPC: the objective against loops in float64, prototypes, temperatures, and the number of clusters over epochs."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from helpers.loops import normal, softmax, unit
from helpers.objectives import (
    CASES,
    LABELS,
    TOLERANCE,
    arrays,
    gradients,
    make_start,
    naive_info_nce,
    naive_supcon,
    parts_of,
    plan_of,
)

SPLIT_ONLY_IF_ASKED = {"accept": 0.0, "first_epoch": 0}


def naive_objective(step, labels):
    rows = arrays(step.rows)
    nce, supcon = naive_info_nce(rows["projections"]), naive_supcon(rows["projections"], labels)
    drawn = 0.0
    if "targets" in step.memory:
        prototypes, temperatures = (step.memory[name].numpy() for name in ("prototypes", "temperatures"))
        targets = step.memory["targets"][step.images].tolist() * 2
        for row, target in zip(rows["features"].tolist(), targets, strict=True):
            logits = (prototypes @ unit(row)) / temperatures
            drawn -= math.log(softmax(logits.tolist())[target]) / len(targets)
    return {
        "info_nce": nce,
        "supervised_contrastive": supcon,
        "prototype_loss": drawn,
        "total": 0.65 * nce + 0.35 * supcon + drawn,
    }


@pytest.mark.parametrize("labels", [LABELS, (-1,) * 5, (0, 1, 1)])
@pytest.mark.parametrize("name", ["gpc", "gpc, first epoch"])
def test_the_objective_is_that_of_the_loops(name, labels):
    step = CASES[name].step(labels)
    found = parts_of(plan_of("gpc").objective(step))
    assert found == pytest.approx(naive_objective(step, labels), abs=TOLERANCE)


def test_features_are_drawn_to_the_prototype_of_their_cluster():
    step = CASES["gpc"].step()
    prototypes = step.memory["prototypes"][step.memory["targets"][step.images]].repeat(2, 1)
    features = step.features.detach()

    def nearness(values):
        return (F.normalize(values, dim=1) * prototypes).sum(1)

    gradient = gradients(step, plan_of("gpc").objective(step))["features"]
    assert (nearness(features - 5 * gradient) > nearness(features) + 1e-3).all()


@pytest.mark.parametrize("changed", ["targets", "prototypes", "temperatures"])
def test_all_of_the_memory_counts(changed):
    step = CASES["gpc"].step()
    other = replace(step, memory={**step.memory, changed: step.memory[changed].roll(1, 0)})
    one, two = (parts_of(plan_of("gpc").objective(s)) for s in (step, other))
    assert {name for name in one if abs(one[name] - two[name]) > 1e-4} == {"prototype_loss", "total"}


# --- prototypes before an epoch ---


def blobs(n, size=12, seed=0, spread=0.02):
    """Directions around n axes, in float32."""
    axes = torch.eye(n + 2, dtype=torch.float32)[torch.arange(n).repeat_interleave(size)]
    return 2 * (axes + spread * normal(n * size, n + 2, seed=seed, dtype=torch.float32))


def refreshed(features, labels, memory=None, **given):
    start = make_start(features, labels, memory=memory or {}, **given)
    return plan_of("gpc", **SPLIT_ONLY_IF_ASKED).refresh(start)


def three_blobs():
    """One known class with three labelled images of twelve, and two new ones of different spread."""
    features = torch.cat([blobs(3)[:12], blobs(3, spread=0.1, seed=1)[12:24], blobs(3, spread=0.05, seed=2)[24:]])
    return features, (0, 0, 0, *(-1,) * 33)


def test_prototypes_are_the_unit_means_and_wide_clusters_have_a_high_temperature():
    features, labels = three_blobs()
    memory = refreshed(features, labels, n_categories=3)
    targets = memory["targets"]
    assert targets[36] == -1, "no training image"
    assert (targets[:12] == 0).all(), "the known class comes first"
    assert int(memory["count"]) == 3
    points = F.normalize(features.double(), dim=1)
    phi = []
    for k in range(3):
        members = points[targets[:36] == k]
        assert len(members) == 12
        expected = F.normalize(members.mean(0), dim=0)
        torch.testing.assert_close(memory["prototypes"][k].double(), expected, rtol=0, atol=1e-5)
        phi.append(float(np.mean([float((point - expected).norm()) for point in members])) / math.log(12 + 10))
    phi = np.clip(phi, np.quantile(phi, 0.1), np.quantile(phi, 0.9))
    assert memory["temperatures"].tolist() == pytest.approx((phi / phi.mean()).tolist(), abs=1e-4)
    wide, narrow = int(targets[12]), int(targets[24])
    assert memory["temperatures"][wide] > 1.2 * memory["temperatures"][narrow]


def test_the_number_of_clusters_is_carried_from_epoch_to_epoch():
    """One round splits a cluster once, so that the nine blobs are found in rounds that build on each other."""
    features, labels = blobs(9), (0,) * 6 + (-1,) * 102
    memory, counts = {}, []
    for epoch in range(5):
        memory = refreshed(features, labels, memory, n_categories=2, epoch=epoch, seed=epoch)
        counts.append(int(memory["count"]))
    assert counts[0] == 3
    assert counts[-1] == 9
    assert counts == sorted(counts)
    assert len(memory["prototypes"]) == len(memory["temperatures"]) == 9
    again = refreshed(features, labels, {}, n_categories=2, epoch=4, seed=4)
    assert int(again["count"]) == 3, "without the memory it begins again"


def test_clusters_that_belong_together_are_merged_for_the_epochs_that_follow():
    features, labels = blobs(3, size=20), (0,) * 6 + (-1,) * 54
    memory = refreshed(features, labels, n_categories=8)
    assert int(memory["count"]) < 8
    later = refreshed(features, labels, memory, n_categories=8, seed=1)
    assert int(later["count"]) <= int(memory["count"])


def test_without_split_and_merge_there_are_as_many_clusters_as_categories():
    """Nine blobs in two clusters, and three blobs in eight: with split and merge both numbers change (above)."""
    for features, labels, count in (
        (blobs(9), (0,) * 6 + (-1,) * 102, 2),
        (blobs(3, size=20), (0,) * 6 + (-1,) * 54, 8),
    ):
        memory = {}
        for epoch in range(3):
            start = make_start(features, labels, memory=memory, n_categories=count, epoch=epoch, seed=epoch)
            memory = plan_of("gpc", first_epoch=0, split_merge=False).refresh(start)
            assert int(memory["count"]) == len(memory["prototypes"]) == len(memory["temperatures"]) == count
            assert set(memory["targets"][: len(labels)].tolist()) == set(range(count))


def test_prototypes_begin_with_the_second_epoch():
    features, labels = three_blobs()
    starts = [make_start(features, labels, n_categories=3, epoch=epoch) for epoch in (0, 1)]
    assert plan_of("gpc").refresh(starts[0]) == {}
    assert set(plan_of("gpc").refresh(starts[1])) == {"targets", "prototypes", "temperatures", "count"}


def test_clusters_are_numbered_as_the_images_of_the_image_set():
    features, labels = three_blobs()
    images = torch.arange(36).flip(0) + 4
    targets = refreshed(features, labels, n_categories=3, images=images, n_images=40)["targets"]
    assert targets[:4].tolist() == [-1] * 4
    assert (targets[28:] == 0).all()
    assert (targets[4:28] > 0).all()
