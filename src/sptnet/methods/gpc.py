"""GPC (Zhao et al., ICCV 2023): clusters that are split and merged while features are learned around their prototypes.

The loss attracts the class token of every view to the prototype of its cluster, with a temperature per cluster that
grows with the spread of the cluster.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sptnet.clustering.lloyd import cluster_sums
from sptnet.clustering.niw import log_split_ratio

__all__ = ["density_temperatures", "log_split_ratio", "prototype_loss"]

SMOOTHING = 10  # added to the sizes of clusters, so that small ones have no extreme temperature
LOWEST, HIGHEST = 0.1, 0.9  # quantiles between which temperatures are kept


def _at_least_float32(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def density_temperatures(
    distances: Float[Tensor, " n"], assignment: Int[Tensor, " n"], n_clusters: int, temperature: float = 1.0
) -> Float[Tensor, " k"]:
    """Return a temperature per cluster from the distance of each point to the prototype of its cluster.

    phi_k = (mean distance in cluster k) / log(n_k + 10), clipped to the 10 and 90 percentiles over all clusters and
    scaled to the mean `temperature`. A cluster without spread (empty, a single point, or points that are all alike)
    takes the largest phi before clipping, as its own would be zero; if no cluster has a spread, all have `temperature`.
    Points with the assignment -1 are left out.
    """
    distances = _at_least_float32(distances.detach())
    used = assignment >= 0
    clusters = assignment[used].long()
    totals, counts = cluster_sums(distances[used, None], clusters, n_clusters)
    sizes = counts.to(distances.dtype)  # the logarithm of whole numbers would be float32
    phi = totals[:, 0] / sizes.clamp(min=1) / (sizes + SMOOTHING).log()
    spread = (sizes > 1) & (phi > 0)
    if not spread.any():
        return torch.full_like(phi, temperature)
    phi = torch.where(spread, phi, phi[spread].max())
    phi = phi.clamp(phi.quantile(LOWEST), phi.quantile(HIGHEST))
    return temperature * phi / phi.mean()


def prototype_loss(
    features: Float[Tensor, "2b dim"],
    prototypes: Float[Tensor, "k dim"],
    temperatures: Float[Tensor, " k"],
    targets: Int[Tensor, " b"],
) -> Float[Tensor, ""]:
    """L_proto: cross-entropy of both views against the cluster of their image; zero if no image has one.

    The logits are f.c_k / phi_k with f the normalised features, c_k the unit `prototypes` and phi_k the `temperatures`.
    Images with the target -1 are left out. The gradient flows to the features alone.
    """
    features = _at_least_float32(features)[(targets >= 0).repeat(2)]
    if len(features) == 0:
        return features.sum()
    with torch.autocast(features.device.type, enabled=False):  # keep the matrix product in full precision
        length = torch.linalg.vector_norm(features, dim=1, keepdim=True)
        unit = features / torch.where(length > 0, length, 1.0)  # the gradient is finite for a row of zeros too
        cosines = unit @ prototypes.detach().to(features.dtype).T
        logits = cosines / temperatures.detach().to(features.dtype)
        return F.cross_entropy(logits, targets[targets >= 0].long().repeat(2))
