"""DCCL: the objective against loops in float64, conceptions, their centroids and the images drawn from them."""

from collections import Counter
from dataclasses import replace

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
    make_start,
    naive_info_nce,
    naive_supcon,
    parts_of,
    plan_of,
)
from sptnet.methods.dccl import draw_instances, follow

N, ADDED = len(LABELS), CASES["dccl"].added


def added_rows():
    """Rows of the added images: those of view one, then those of view two."""
    one = torch.arange(N, N + ADDED)
    return torch.cat([one, one + N + ADDED])


def conceptions(step):
    return step.memory["targets"][step.images[N:]].repeat(2).tolist()


def naive_objective(step, epoch):
    rows = arrays(step.rows)
    main = np.concatenate([rows["projections"][:N], rows["projections"][N + ADDED :][:N]])
    nce, supcon = naive_info_nce(main), naive_supcon(main, LABELS)
    centroids = step.memory["centroids"].numpy()
    drawn = []
    for row, conception in zip(rows["features"][added_rows()].tolist(), conceptions(step), strict=True):
        drawn.append(-np.log(softmax((centroids @ unit(row)).tolist(), 0.05)[conception]))
    weight = 0.04 + 0.36 * min(epoch, 100) / 100
    return {
        "info_nce": nce,
        "supervised_contrastive": supcon,
        "conception_contrast": np.mean(drawn),
        "total": 0.65 * nce + 0.35 * supcon + weight * np.mean(drawn),
    }


@pytest.mark.parametrize("epoch", [0, 1, 50, 100, 199])
def test_the_objective_is_that_of_the_loops(epoch):
    step = CASES["dccl"].step(epoch=epoch)
    assert parts_of(plan_of("dccl").objective(step)) == pytest.approx(naive_objective(step, epoch), abs=TOLERANCE)


def test_features_of_added_images_are_drawn_to_the_centroid_of_their_conception():
    step = CASES["dccl"].step()
    gradient = gradients(step, plan_of("dccl").objective(step))["features"]
    chosen = added_rows()
    others = [i for i in range(len(gradient)) if i not in chosen.tolist()]
    assert gradient[others].abs().max() == 0
    centroids = step.memory["centroids"][conceptions(step)]

    def nearness(features):
        return (F.normalize(features[chosen], dim=1) * centroids).sum(1)

    before = nearness(step.features.detach())
    after = nearness(step.features.detach() - 20 * gradient)
    assert (after > before).all()


def test_the_weight_of_the_conceptions_grows_from_a_tenth_to_the_whole():
    def weight(epoch):
        parts = parts_of(plan_of("dccl").objective(CASES["dccl"].step(epoch=epoch)))
        rest = 0.65 * parts["info_nce"] + 0.35 * parts["supervised_contrastive"]
        return (parts["total"] - rest) / parts["conception_contrast"]

    found = [weight(epoch) for epoch in (0, 25, 50, 100, 150)]
    assert found == pytest.approx([0.04, 0.13, 0.22, 0.4, 0.4], abs=TOLERANCE)


# --- memory ---


def test_centroids_follow_every_added_view():
    step = CASES["dccl"].step()
    memory = plan_of("dccl").remember(step)
    expected = step.memory["centroids"].clone()
    features = step.features.detach()[added_rows()]
    assert len(set(conceptions(step))) < len(conceptions(step)) / 2, "views share conceptions"
    for row, conception in zip(features, conceptions(step), strict=True):
        expected[conception] = F.normalize(0.1 * expected[conception] + 0.9 * F.normalize(row, dim=0), dim=0)
    torch.testing.assert_close(memory["centroids"], expected, rtol=0, atol=TOLERANCE)
    moved = {c for c in range(len(expected)) if not torch.equal(memory["centroids"][c], step.memory["centroids"][c])}
    assert moved == set(conceptions(step))
    assert torch.equal(memory["targets"], step.memory["targets"])


def test_centroids_follow_in_the_order_of_the_images():
    centroids, features = F.normalize(normal(2, 4, seed=1), dim=1), normal(5, 4, seed=2)
    targets = torch.tensor([1, 0, 1, 1, 0])
    expected = centroids.clone()
    for row, c in zip(features, targets.tolist(), strict=True):
        expected[c] = F.normalize(0.3 * expected[c] + 0.7 * F.normalize(row, dim=0), dim=0)
    torch.testing.assert_close(follow(centroids, features, targets, 0.3), expected, rtol=0, atol=TOLERANCE)
    assert torch.equal(follow(centroids, features[:0], targets[:0], 0.3), centroids)


def two_conceptions():
    """Two tight groups of seven images and two images far from all others."""
    centres = torch.eye(DIM)[[0] * 7 + [1] * 7 + [2, 3]]
    return 3 * (centres + 0.05 * normal(16, DIM, seed=3, dtype=torch.float32))


def test_refresh_finds_the_conceptions_and_their_centroids():
    features = two_conceptions()
    memory = plan_of("dccl").refresh(make_start(features, (0, 0, *(-1,) * 14)))
    assert memory["targets"].tolist() == [0] * 7 + [1] * 7 + [-1, -1, -1], "the last one is no training image"
    points = F.normalize(features, dim=1)
    expected = F.normalize(torch.stack([points[:7].mean(0), points[7:14].mean(0)]), dim=1)
    torch.testing.assert_close(memory["centroids"], expected, rtol=0, atol=1e-6)


def test_images_are_numbered_as_in_the_image_set():
    features, images = two_conceptions(), torch.arange(16).flip(0) + 10
    memory = plan_of("dccl").refresh(make_start(features, (-1,) * 16, images=images, n_images=26))
    assert memory["targets"].tolist() == [-1] * 12 + [1] * 7 + [0] * 7


def test_instances_are_of_the_conceptions_in_turn():
    targets = torch.tensor([0] * 5 + [-1] * 3 + [1] * 2 + [2] * 9)
    drawn = draw_instances(targets, size=8, instances=4, steps=6, seed=0)
    seen = Counter()
    for batch in drawn:
        groups = targets[batch].unflatten(0, (2, 4))
        assert (groups == groups[:, :1]).all()
        assert (groups >= 0).all()
        seen.update(groups[:, 0].tolist())
        for rows in batch.unflatten(0, (2, 4)):
            assert len(set(rows.tolist())) == 4 or targets[rows[0]] == 1, "only the small conception repeats images"
    assert seen == {0: 4, 1: 4, 2: 4}
    again = draw_instances(targets, 8, 4, 6, 0)
    assert all(torch.equal(one, two) for one, two in zip(drawn, again, strict=True))
    assert [len(batch) for batch in draw_instances(torch.tensor([-1, -1]), 8, 4, 3, 0)] == [0, 0, 0]


def test_the_stage_adds_sixteen_images_of_each_conception():
    memory = {"targets": torch.arange(400) % 10}
    batches = plan_of("dccl").extra(memory, 128, 2, 0)
    assert [len(batch) for batch in batches] == [128, 128]
    assert set(Counter((batches[0] % 10).tolist()).values()) == {16}


def test_other_centroids_change_the_loss():
    step = CASES["dccl"].step()
    other = replace(step, memory={**step.memory, "centroids": step.memory["centroids"].flip(0)})
    one, two = (plan_of("dccl").objective(s).total.item() for s in (step, other))
    assert abs(one - two) > 1e-3
