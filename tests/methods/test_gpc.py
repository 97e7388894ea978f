"""Temperatures and loss of GPC against loops over points, and on degenerate clusters and batches."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.rounding import assert_differs, assert_same
from sptnet.clustering.mixture import niw
from sptnet.methods import gpc
from sptnet.methods.gpc import density_temperatures, prototype_loss

TERMS = 40
"""Terms of the longest chain of sums in these tests."""
SHARPEST = 0.2
"""Smallest temperature of the losses here: cosines divided by it are 1 / 0.2 large."""


def test_the_ratio_is_at_hand():
    assert gpc.log_split_ratio is niw.log_split_ratio


# --- temperatures ---


def percentile(values, share):
    """Linear interpolation between the sorted values."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def naive_temperatures(distances, assignment, n_clusters, temperature):
    phi = []
    for cluster in range(n_clusters):
        own = [d for d, c in zip(distances, assignment, strict=True) if c == cluster]
        phi.append(sum(own) / len(own) / math.log(len(own) + 10) if len(own) > 1 else 0.0)
    if max(phi) == 0:
        return [temperature] * n_clusters
    phi = [value if value > 0 else max(phi) for value in phi]
    low, high = percentile(phi, 0.1), percentile(phi, 0.9)
    phi = [min(max(value, low), high) for value in phi]
    mean = sum(phi) / n_clusters
    return [temperature * value / mean for value in phi]


def spread_points(seed, n=60, k=9, dtype=torch.float64):
    random = np.random.RandomState(seed)
    assignment = random.randint(-1, k - 1, n)  # the last cluster is empty
    assignment[assignment == k - 2] = 0
    assignment[0] = k - 2  # a cluster of one point
    return torch.from_numpy(random.uniform(0.1, 2.0, n)).to(dtype), torch.from_numpy(assignment), k


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(4))
def test_temperatures_are_those_of_the_loop(seed, dtype):
    distances, assignment, k = spread_points(seed, dtype=dtype)
    found = density_temperatures(distances, assignment, k, 0.7)
    assert found.dtype == dtype and found.shape == (k,)
    assert_same(found, naive_temperatures(distances.double().tolist(), assignment.tolist(), k, 0.7), terms=60, sums=3)
    assert_same(found.mean(), 0.7, terms=k, sums=3)


def test_empty_and_single_clusters_have_the_largest_temperature():
    distances, assignment, k = spread_points(0)
    found = density_temperatures(distances, assignment, k)
    assert found[k - 1] == found[k - 2] == found.max() > found.min()


def test_wide_clusters_are_warmer_and_large_ones_cooler():
    distances = torch.cat([torch.full((20,), 1.0), torch.full((20,), 2.0), torch.full((200,), 1.0)])
    narrow, wide, large = density_temperatures(distances, torch.repeat_interleave(torch.tensor([20, 20, 200])), 3)
    assert large < narrow < wide


def test_extreme_temperatures_are_clipped():
    distances = torch.ones(110, dtype=torch.float64)
    distances[:10] = 1e6
    found = density_temperatures(distances, torch.arange(11).repeat_interleave(10), 11)
    assert_same(found, torch.ones(11, dtype=torch.float64), terms=11)


@pytest.mark.parametrize(
    "distances, assignment",
    [
        (torch.zeros(6), torch.tensor([0, 0, 1, 1, 2, 2])),
        (torch.ones(3), torch.tensor([0, 1, 2])),
        (torch.ones(3), torch.tensor([-1, -1, -1])),
        (torch.ones(0), torch.ones(0, dtype=torch.int64)),
    ],
    ids=["points all alike", "one point each", "no point in a cluster", "no point"],
)
def test_clusters_without_spread_all_have_the_temperature(distances, assignment):
    assert density_temperatures(distances, assignment, 3, 0.3).tolist() == [pytest.approx(0.3)] * 3


def test_clusters_of_equal_points_are_never_divided_by():
    distances = torch.tensor([0.0] * 16 + [1.0, 3.0])
    found = density_temperatures(distances, torch.arange(9).repeat_interleave(2), 9)
    assert_same(found, torch.ones(9), terms=9)


def test_temperatures_have_no_gradient():
    distances = torch.rand(6, requires_grad=True)
    assert not density_temperatures(distances, torch.tensor([0, 0, 0, 1, 1, 1]), 2).requires_grad


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_temperatures_follow_the_points_and_the_clusters(seed):
    distances, assignment, k = spread_points(seed)
    found = density_temperatures(distances, assignment, k)
    generator = torch.Generator().manual_seed(seed)
    order, rename = torch.randperm(60, generator=generator), torch.randperm(k, generator=generator)
    renamed = torch.where(assignment >= 0, rename[assignment], -1)
    other = density_temperatures(distances[order], renamed[order], k)
    assert_same(other[rename], found, terms=60, sums=3)


# --- the loss ---


def naive_loss(features, prototypes, temperatures, targets):
    losses = []
    for row, feature in enumerate(features):
        target = targets[row % len(targets)]
        if target < 0:
            continue
        length = math.sqrt(sum(x * x for x in feature))
        cosines = [sum(x / length * c for x, c in zip(feature, p, strict=True)) for p in prototypes]
        logits = [cosine / phi for cosine, phi in zip(cosines, temperatures, strict=True)]
        top = max(logits)
        losses.append(top + math.log(sum(math.exp(x - top) for x in logits)) - logits[target])
    return sum(losses) / len(losses) if losses else 0.0


def batch(seed, b=6, k=4, dim=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(2 * b, dim, generator=generator, dtype=torch.float64).to(dtype)
    prototypes = torch.randn(k, dim, generator=generator, dtype=torch.float64)
    prototypes = (prototypes / prototypes.norm(dim=1, keepdim=True)).to(dtype)
    temperatures = (SHARPEST + torch.rand(k, generator=generator, dtype=torch.float64)).to(dtype)
    return features, prototypes, temperatures, torch.randint(-1, k, (b,), generator=generator)


def in_lists(*tensors):
    return [tensor.detach().double().tolist() if tensor.is_floating_point() else tensor.tolist() for tensor in tensors]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("seed", range(4))
def test_the_loss_is_that_of_the_loop(seed, dtype):
    arguments = batch(seed, dtype=dtype)
    found = prototype_loss(*arguments)
    assert found.dtype == torch.promote_types(dtype, torch.float32)
    assert_same(found, naive_loss(*in_lists(*arguments)), terms=TERMS, scale=1 / SHARPEST)


def test_the_loss_keeps_full_precision_under_autocast():
    arguments = batch(0, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = prototype_loss(*arguments)
    assert torch.equal(found, prototype_loss(*arguments))


def test_every_prototype_has_its_own_temperature():
    features, prototypes, temperatures, targets = batch(1)
    warmer = temperatures * torch.tensor([3.0, 1, 1, 1], dtype=torch.float64)
    usual = prototype_loss(features, prototypes, temperatures, targets)
    assert_differs(prototype_loss(features, prototypes, warmer, targets), usual, terms=TERMS, scale=1 / SHARPEST)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 6))
def test_the_order_of_images_clusters_and_views_does_not_matter(seed, b, k):
    features, prototypes, temperatures, targets = batch(seed, b, k)
    generator = torch.Generator().manual_seed(seed)
    images, rename = torch.randperm(b, generator=generator), torch.randperm(k, generator=generator)
    moved = torch.empty_like(prototypes).index_copy(0, rename, prototypes)
    warmth = torch.empty_like(temperatures).index_copy(0, rename, temperatures)
    renamed = torch.where(targets >= 0, rename[targets], -1)
    usual = prototype_loss(features, prototypes, temperatures, targets)
    both = torch.cat([images, images + b])
    others = (
        prototype_loss(features[both], prototypes, temperatures, targets[images]),
        prototype_loss(features, moved, warmth, renamed),
        prototype_loss(features.roll(b, 0), prototypes, temperatures, targets),
        prototype_loss(3 * features, prototypes, temperatures, targets),
    )
    for other in others:
        assert_same(other, usual, terms=TERMS, scale=1 / SHARPEST)


def test_only_features_of_images_with_a_cluster_have_a_gradient():
    features, prototypes, temperatures, _ = batch(2)
    targets = torch.tensor([0, -1, 3, 1, -1, 2])
    for tensor in (features, prototypes, temperatures):
        tensor.requires_grad_()
    prototype_loss(features, prototypes, temperatures, targets).backward()
    assert prototypes.grad is None and temperatures.grad is None
    moved = features.grad.abs().sum(1) > 0
    assert moved.tolist() == (targets >= 0).repeat(2).tolist()


def test_the_gradient_is_that_of_finite_differences():
    features, prototypes, temperatures, targets = batch(3)
    assert torch.autograd.gradcheck(
        lambda x: prototype_loss(x, prototypes, temperatures, targets), features.requires_grad_()
    )


@pytest.mark.parametrize("b", [0, 4])
def test_without_clusters_the_loss_is_zero(b):
    features, prototypes, temperatures, _ = batch(0, b=b)
    loss = prototype_loss(features.requires_grad_(), prototypes, temperatures, torch.full((b,), -1))
    loss.backward()
    assert loss == 0 and features.grad.abs().sum() == 0


def test_an_image_left_out_does_not_count():
    features, prototypes, temperatures, _ = batch(0)
    targets = torch.tensor([2, -1, -1, -1, -1, -1])
    alone = prototype_loss(features[[0, 6]], prototypes, temperatures, targets[:1])
    assert_same(prototype_loss(features, prototypes, temperatures, targets), alone, terms=TERMS, scale=1 / SHARPEST)


def test_a_row_of_zeros_has_a_finite_gradient():
    features, prototypes, temperatures, _ = batch(0)
    features[0] = 0
    loss = prototype_loss(features.requires_grad_(), prototypes, temperatures, torch.zeros(6, dtype=torch.int64))
    loss.backward()
    assert math.isfinite(loss.item()) and features.grad.abs().max() < 1e3
