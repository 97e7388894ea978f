"""Affinity graph of PromptCAL: pseudo-positives from consensus of nearest neighbours, one diffusion and labels."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy import sparse
from torch import Tensor

from sptnet.losses import unit_rows

TIE = 1e-5
"""Relative difference below which an entry equals a threshold: equal affinities differ by their rounding in float32."""
FILLED = 1 / 8
"""Share of non-zeros from which on a product with a dense matrix is faster than one with a sparse matrix."""


@torch.no_grad()
def affinity_graph(
    features: Float[Tensor, "n dim"],
    k: int,
    quantile: float,
    labels: Int[Tensor, " n"] | None = None,
) -> Bool[Tensor, "n n"]:
    """Return the pseudo-positives of every point: row a is true at the points that a is attracted to.

    1. C_ab, a != b: number of lists of the `k` nearest neighbours by cosine that contain both a and b, plus one if a
       lists b, plus one if b lists a. A point does not list itself.
    2. P is C with rows divided by their sums, and Q = P P P^T + I.
    3. Entries of Q above its `quantile` are true. The quantile is that of all entries above the mean of the non-zeros;
       both are taken over the whole graph, including the diagonal.
    4. Pairs with two labels follow these: true for equal labels, false for different ones. -1 is unlabelled.

    The graph is directed, as Q is, and read by rows; only pairs with two labels are symmetric. The diagonal is false,
    since the loss adds the own feature. Neighbours at equal cosines are taken in any order. The diagonal of Q raises
    both thresholds: clusters whose points are all alike have no positives but those of labels.
    """
    n = len(features)
    if n < 2:
        return torch.zeros(n, n, dtype=torch.bool, device=features.device)
    kept = _above_quantile(_diffused(_consensus(_nearest(features, min(k, n - 1)).cpu().numpy())), quantile)
    graph = torch.from_numpy(kept).to(features.device)
    if labels is not None:
        known = labels >= 0
        same = labels[:, None] == labels[None, :]
        graph = torch.where(known[:, None] & known[None, :], same, graph)
    return graph.fill_diagonal_(False)


def _nearest(features: Float[Tensor, "n dim"], k: int) -> Int[Tensor, "n k"]:
    """Return the k nearest other points by cosine."""
    with torch.autocast(features.device.type, enabled=False):  # keep the matrix product in full precision
        z = unit_rows(features)
        return (z @ z.T).fill_diagonal_(-torch.inf).topk(k, dim=1).indices


def _consensus(neighbours: Int[np.ndarray, "n k"]) -> Any:
    """Return C as a sparse matrix with about k^2 entries per row, and at least one if k is positive."""
    n, k = neighbours.shape
    ones = np.ones(n * k, dtype=np.float32)
    listed = sparse.csr_matrix((ones, neighbours.ravel(), np.arange(n + 1) * k), shape=(n, n))
    consensus = listed.T @ listed
    consensus = (consensus - sparse.diags(consensus.diagonal()) + listed + listed.T).tocsr()
    consensus.eliminate_zeros()
    return consensus


def _diffused(consensus: Any) -> Float[np.ndarray, "n n"]:
    """Return Q. The last product is sparse, unless P P is filled because the points do not form clusters."""
    p = consensus.copy()
    p.data /= np.repeat(np.asarray(consensus.sum(1)).ravel(), np.diff(consensus.indptr))
    squared = p @ p
    sparsely = squared.nnz < FILLED * p.shape[0] ** 2
    q: Float[np.ndarray, "n n"] = (squared @ p.T).toarray() if sparsely else (p @ squared.T.toarray()).T
    q[np.diag_indices_from(q)] += 1
    return q


def _above_quantile(affinities: Float[np.ndarray, "n n"], quantile: float) -> Bool[np.ndarray, "n n"]:
    """Return where the affinities exceed the quantile of those above the mean of the non-zeros."""
    values = affinities[affinities > 0]
    high = values[values > values.mean(dtype=np.float64) * (1 + TIE)]
    threshold = np.quantile(high, quantile) * (1 + TIE) if len(high) > 0 else np.inf
    return np.ascontiguousarray(affinities > threshold)
