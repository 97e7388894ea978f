"""Steps of k-means as matrix products. Points must be centred: |x|² - 2x·c + |c|² loses digits far from the origin.

Distances are computed in blocks, which bounds the memory for any number of points and clusters.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

CPU_BLOCK = 2**17  # number of distances that fit into the processor's cache
GPU_BLOCK = 2**26
SEEDING_BLOCK = 2**25
LEAST_ROWS = 256

Points = Float[Tensor, "n dim"]
Centres = Float[Tensor, "k dim"]


def widest(device: torch.device) -> torch.dtype:
    """Return the widest float type of the device: float64, or float32 on MPS."""
    return torch.float32 if device.type == "mps" else torch.float64


def rows_at_once(n_columns: int, device: torch.device) -> int:
    """Return the number of rows per block for a matrix with this many columns."""
    block = CPU_BLOCK if device.type == "cpu" else GPU_BLOCK
    return max(LEAST_ROWS, block // n_columns)


def squared_norms(x: Points) -> Float[Tensor, " n"]:
    """Return the squared length of every row."""
    norms: Tensor = torch.linalg.vector_norm(x, dim=1)
    return norms.square()


def total(values: Float[Tensor, " n"]) -> float:
    """Return the sum, computed in float64."""
    return float(values.cpu().double().sum())


def nearest(x: Points, centres: Centres) -> Int[Tensor, " n"]:
    """Return the index of the nearest centre per point; the first one for ties."""
    half_norms = squared_norms(centres) / 2
    parts = x.split(rows_at_once(len(centres), x.device))
    return torch.cat([torch.addmm(half_norms, part, centres.T, alpha=-1).argmin(1) for part in parts])


def distances(x: Points, centres: Centres) -> Float[Tensor, "n k"]:
    """Return the distances between all points and all centres, computed in the widest float type."""
    wide, wide_centres = x.to(widest(x.device)), centres.to(widest(x.device))
    squared = torch.addmm(squared_norms(wide_centres), wide, wide_centres.T, alpha=-2)
    return squared.add_(squared_norms(wide)[:, None]).clamp_(min=0).sqrt_().to(x.dtype)


def squared_distances_to(x: Points, centres: Centres, labels: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Return the squared distance of each point to the centre of its label.

    Computed from differences, which is accurate also where point and centre nearly coincide.
    """
    rows = rows_at_once(x.shape[1], x.device)
    parts = zip(x.split(rows), labels.split(rows), strict=True)
    return torch.cat([(part - centres[of_part]).square_().sum(1) for part, of_part in parts])


def cluster_sums(x: Points, labels: Int[Tensor, " n"], k: int) -> tuple[Centres, Int[Tensor, " k"]]:
    """Return the sum and the number of the points per cluster; points are added in their order (deterministic)."""
    counts = torch.bincount(labels, minlength=k)
    order = labels.argsort(stable=True)
    return F.embedding_bag(order, x, counts.cumsum(0) - counts, mode="sum"), counts


def seed_by_distance(
    x: Points,
    norms: Float[Tensor, " n"],
    known: Float[Tensor, "known dim"],
    uniforms: Float[Tensor, "starts new trials"],
) -> Int[Tensor, "starts new"]:
    """Choose new centres by greedy k-means++, for several starts at once; returns indices of points.

    Each step draws several points with probability proportional to the squared distance to the nearest centre so far,
    `known` centres included, and keeps the one that lowers the inertia most. `norms` are the squared norms of `x`;
    `uniforms` are random numbers in [0, 1), one per draw.
    """
    closest = torch.full_like(norms, torch.inf)
    if len(known):
        closest = squared_distances_to(x, known, nearest(x, known))
    starts_at_once = max(1, SEEDING_BLOCK // max(1, uniforms.shape[2] * len(x)))
    return torch.cat([_seed_together(x, norms, closest, part) for part in uniforms.split(starts_at_once)])


def _seed_together(
    x: Points, norms: Float[Tensor, " n"], closest: Float[Tensor, " n"], uniforms: Float[Tensor, "starts new trials"]
) -> Int[Tensor, "starts new"]:
    starts, new, trials = uniforms.shape
    all_starts = torch.arange(starts, device=x.device)
    chosen = torch.empty(starts, new, dtype=torch.int64, device=x.device)
    so_far = closest.repeat(starts, 1)
    for step in range(new):
        weights = torch.where(so_far.isinf(), 1.0, so_far)  # equal weights before the first centre
        cumulative = weights.cumsum(1, dtype=widest(x.device))
        thresholds = uniforms[:, step].to(cumulative.dtype) * cumulative[:, -1:]
        drawn = torch.searchsorted(cumulative, thresholds, right=True).clamp_(max=len(x) - 1)
        candidates = drawn.flatten()
        squared = torch.addmm(norms, x[candidates], x.T, alpha=-2)
        squared.add_(norms[candidates, None]).clamp_(min=0)
        after = squared.view(starts, trials, -1)
        torch.minimum(after, so_far[:, None], out=after)
        best = after.sum(2).argmin(1)
        so_far = after[all_starts, best]
        chosen[:, step] = drawn[all_starts, best]
    return chosen


@dataclass(frozen=True)
class Pinned:
    """Constant contribution of the labelled points to each cluster."""

    sums: Centres
    counts: Int[Tensor, " k"]


@dataclass(frozen=True)
class Run:
    """Result of `lloyd`."""

    centres: Centres
    labels: Int[Tensor, " n"]
    n_iter: int


def lloyd(x: Points, pinned: Pinned, centres: Centres, max_iter: int, tol: float) -> Run:
    """Average free and pinned points and assign the free ones, until the squared shift of the centres is <= `tol`.

    Unchanged assignments give identical averages, hence a shift of zero, which ends the run for every `tol`.
    """
    labels, n_iter = nearest(x, centres), 0
    while True:
        before, centres = centres, averages(x, labels, pinned, centres)
        n_iter += 1
        shift = float((centres - before).square().sum())
        if shift > 0:
            labels = nearest(x, centres)
        if shift <= tol or n_iter == max_iter:
            return Run(centres, labels, n_iter)


def averages(x: Points, labels: Int[Tensor, " n"], pinned: Pinned, centres: Centres) -> Centres:
    """Return the mean per cluster; an empty cluster moves to a free point that is farthest from its own mean."""
    sums, counts = cluster_sums(x, labels, len(centres))
    counts = counts + pinned.counts
    means = torch.where(counts[:, None] > 0, (sums + pinned.sums) / counts.clamp(min=1)[:, None], centres)
    empty = (counts == 0).nonzero().flatten()
    if len(empty):
        far = squared_distances_to(x, means, labels).topk(min(len(empty), len(x)))
        off_centre = far.indices[far.values > 0]
        means[empty[: len(off_centre)]] = x[off_centre]
    return means
