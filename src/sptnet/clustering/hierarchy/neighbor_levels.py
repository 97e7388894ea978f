"""Hierarchy of selective-neighbour clustering: links between points, levels of clusters, and single merges.

Similarity is the cosine of unit rows. It is computed in blocks of rows; the matrix of all pairs is never held.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from sptnet.clustering.lloyd import cluster_sums, rows_at_once
from sptnet.losses import unit_rows

CLASS_BLOCK = 2**24  # similarities within classes that are held at once

Ids = npt.NDArray[np.int64]
Rows = Float[Tensor, "n dim"]
Classes = Int[Tensor, " n"]


@dataclass(frozen=True)
class NeighborLevel:
    """Clusters of one level."""

    members: Int[Tensor, " n"]
    """Cluster per point."""
    sums: Float[Tensor, "k dim"]
    """Sum of the unit features of the points per cluster."""
    classes: Int[Tensor, " k"]
    """Known class per cluster, -1 without labelled points."""


def single_points(unit: Rows, classes: Classes) -> NeighborLevel:
    """Return the level below the first: every point, a unit row, is a cluster."""
    return NeighborLevel(torch.arange(len(unit)), unit, classes)


def build_levels(points: NeighborLevel) -> list[NeighborLevel]:
    """Return all levels above single points, finest first; the first one is kept even if it merges nothing."""
    levels = [next_level(points)]
    while len((coarser := next_level(levels[-1])).sums) < len(levels[-1].sums):
        levels.append(coarser)
    return levels


def next_level(level: NeighborLevel) -> NeighborLevel:
    """Merge linked clusters: pairs in which one picks the other, or both pick the same.

    Clusters of a known class pick within the class, and every path of picks that enters a class stays in it. So no
    component has labelled points of two classes: there is no link to remove and no majority to count.
    """
    picks = pick_neighbors(unit_rows(level.sums), level.classes).numpy()
    n = len(picks)
    # Two that pick the same are connected by it.
    graph = csr_array((np.ones(n, bool), (np.arange(n), picks)), shape=(n, n))
    _, of_cluster = connected_components(graph, directed=False)
    return merge_clusters(level, torch.from_numpy(of_cluster.astype(np.int64)))


def merge_clusters(level: NeighborLevel, into: Int[Tensor, " k"]) -> NeighborLevel:
    """Merge clusters with the same number in `into` (0, 1, ... without gaps)."""
    n_clusters = int(into.max()) + 1
    classes = torch.full((n_clusters,), -1).scatter_reduce(0, into, level.classes, "amax")
    return NeighborLevel(into[level.members], cluster_sums(level.sums, into, n_clusters)[0], classes)


def pick_neighbors(unit: Rows, classes: Classes) -> Int[Tensor, " n"]:
    """Return the neighbour of each row: the nearest row if unlabelled, else the next one in a chain of its class."""
    picks = torch.arange(len(unit))
    free = torch.nonzero(classes < 0)[:, 0]
    picks[free] = nearest_rows(unit, free)[1]
    for rows, sizes in class_groups(classes):
        pick_in_chains(unit, rows, sizes, picks)
    return picks


def nearest_rows(
    unit: Rows, rows: Int[Tensor, " r"], classes: Classes | None = None
) -> tuple[Float[Tensor, " r"], Int[Tensor, " r"]]:
    """Return the similarity and the index of the nearest other row; the first one for ties.

    With `classes`, rows of two different known classes are no neighbours. The similarity is -inf without a neighbour.
    """
    values, indices = unit.new_empty(len(rows)), torch.empty(len(rows), dtype=torch.int64)
    step = rows_at_once(len(unit), unit.device)
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        similar = unit[part] @ unit.T
        similar[torch.arange(len(part)), part] = -torch.inf
        if classes is not None:
            similar.masked_fill_(differ(classes[part, None], classes), -torch.inf)
        best = similar.argmax(1)
        indices[start : start + step] = best
        values[start : start + step] = similar[torch.arange(len(part)), best]
    return values, indices


def differ(one: Int[Tensor, "*n"], other: Int[Tensor, "*m"]) -> Tensor:
    """Return True for pairs of two different known classes (broadcast)."""
    return (one >= 0) & (other >= 0) & (one != other)


def class_groups(classes: Classes) -> Iterator[tuple[Int[Tensor, "c most"], Int[Tensor, " c"]]]:
    """Yield groups of known classes of similar size: row numbers per class, padded with -1, and sizes."""
    sizes = torch.bincount(classes[classes >= 0])
    ends = sizes.cumsum(0)
    ordered = torch.nonzero(classes >= 0)[:, 0]
    ordered = ordered[classes[ordered].argsort(stable=True)]
    by_size = sizes.argsort(descending=True, stable=True)
    by_size = by_size[sizes[by_size] > 0]
    while len(by_size):
        most = int(sizes[by_size[0]])
        group, by_size = by_size.split([n := min(len(by_size), max(1, CLASS_BLOCK // most**2)), len(by_size) - n])
        place = torch.arange(most)
        inside = place < sizes[group, None]
        at = ((ends - sizes)[group, None] + place).clamp(max=len(ordered) - 1)
        yield torch.where(inside, ordered[at], -1), sizes[group]


def pick_in_chains(unit: Rows, rows: Int[Tensor, "c most"], sizes: Int[Tensor, " c"], picks: Int[Tensor, " n"]) -> None:
    """Write the picks of the members of some classes, all classes step by step together.

    A class of n members is divided into chains of ceil(sqrt(n)). A chain starts at the unused member that is farthest
    from the mean of the class, so that no chain is left with scattered members, and goes to the nearest unused member
    repeatedly; the last one picks itself.
    """
    n_classes, most = rows.shape
    length = sizes.double().sqrt().ceil().long()
    absent = rows < 0
    features = unit[rows.clamp(min=0)].masked_fill_(absent[:, :, None], 0)
    from_mean = -(features @ unit_rows(features.sum(1))[:, :, None])[:, :, 0]
    held = features @ features.mT if n_classes * most**2 <= CLASS_BLOCK else None  # else one class, row by row
    used, every, last = absent.clone(), torch.arange(n_classes), torch.zeros(n_classes, dtype=torch.int64)
    for step in range(most):
        starts = step % length == 0
        similar = held[every, last] if held is not None else (features @ features[every, last][:, :, None])[:, :, 0]
        now = torch.where(starts[:, None], from_mean, similar).masked_fill_(used, -torch.inf).argmax(1)
        goes_on = (step < sizes) & ~starts
        picks[rows[every, last][goes_on]] = rows[every, now][goes_on]
        used[every, now] = True
        last = now


def closest_merges(level: NeighborLevel, n_clusters: int) -> Iterator[tuple[int, int]]:
    """Merge the two closest clusters repeatedly until `n_clusters` are left; yield the kept and the dropped one.

    Two different known classes are never merged, so `n_clusters` must be at least 1 and the number of known classes.
    Each cluster remembers its nearest one, which is searched for again only if that one moved away in a merge.
    """
    left = len(level.sums)
    sums, classes, names = level.sums.clone(), level.classes.clone(), torch.arange(left)
    unit = unit_rows(sums)
    values, nearest = nearest_rows(unit, names, classes)
    while left > n_clusters:
        one = int(values[:left].argmax())
        kept, dropped = sorted((one, int(nearest[one])))
        yield int(names[kept]), int(names[dropped])
        sums[kept] += sums[dropped]
        unit[kept] = unit_rows(sums[kept, None])[0]
        classes[kept] = torch.maximum(classes[kept], classes[dropped])
        lost = (nearest == kept) | (nearest == dropped)
        left -= 1
        for each in (sums, unit, classes, names, values, nearest, lost):
            each[dropped] = each[left]  # the rows before `left` are the clusters that are left
        nearest[nearest == left] = dropped
        similar = (unit[:left] @ unit[kept]).masked_fill_(differ(classes[kept], classes[:left]), -torch.inf)
        similar[kept] = -torch.inf
        closer = similar >= values[:left]
        values[:left][closer], nearest[:left][closer] = similar[closer], kept
        nearest[kept] = similar.argmax()
        values[kept] = similar[nearest[kept]]
        lost[kept] = False
        again = torch.nonzero(lost[:left] & ~closer)[:, 0]
        values[again], nearest[again] = nearest_rows(unit[:left], again, classes[:left])
