"""GPC (Zhao et al., ICCV 2023): clusters that are split and merged while features are learned around their prototypes.

The loss attracts the class token of every view to the prototype of its cluster, with a temperature per cluster that
grows with the spread of the cluster.
"""

import warnings
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from sptnet.clustering.lloyd import cluster_sums
from sptnet.clustering.mixture.niw import log_split_ratio
from sptnet.clustering.mixture.split_merge import split_and_merge
from sptnet.clustering.mixture.split_merge_mixture import SplitMergeMixture
from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans
from sptnet.config import Config, GpcSettings
from sptnet.head import ContrastiveHead, Head
from sptnet.losses import Loss, at_least_float32, contrastive_loss, unit_rows
from sptnet.methods.method import Labels, Method, Points
from sptnet.methods.phases import RAW, Always
from sptnet.methods.simgcd import limit, model_optimiser
from sptnet.methods.stage_plan import EpochStart, Memory, StagePlan, Step

__all__ = ["density_temperatures", "log_split_ratio", "prototype_loss"]

STARTS = 4  # of k-means before every epoch
SMOOTHING = 10  # added to the sizes of clusters, so that small ones have no extreme temperature
LOWEST, HIGHEST = 0.1, 0.9  # quantiles between which temperatures are kept


def density_temperatures(
    distances: Float[Tensor, " n"], assignment: Int[Tensor, " n"], n_clusters: int, temperature: float = 1.0
) -> Float[Tensor, " k"]:
    """Return a temperature per cluster from the distance of each point to the prototype of its cluster.

    phi_k = (mean distance in cluster k) / log(n_k + 10), clipped to the 10 and 90 percentiles over all clusters and
    scaled to the mean `temperature`. A cluster without spread (empty, a single point, or points that are all alike)
    takes the largest phi before clipping, as its own would be zero; if no cluster has a spread, all have `temperature`.
    Points with the assignment -1 are left out.
    """
    distances = at_least_float32(distances.detach())
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
    features = at_least_float32(features)[(targets >= 0).repeat(2)]
    if len(features) == 0:
        return features.sum()
    with torch.autocast(features.device.type, enabled=False):  # keep the matrix product in full precision
        cosines = unit_rows(features) @ prototypes.detach().to(features.dtype).T
        logits = cosines / temperatures.detach().to(features.dtype)
        return F.cross_entropy(logits, targets[targets >= 0].long().repeat(2))


@dataclass(frozen=True)
class GpcLoss(Loss):
    """Terms of the objective of GPC."""

    info_nce: Tensor
    supervised_contrastive: Tensor
    prototype_loss: Tensor


def find_prototypes(start: EpochStart, settings: GpcSettings) -> Memory:
    """Cluster the features, split and merge clusters, and return prototypes, temperatures and the cluster per image.

    Without `split_merge` there are as many clusters as categories. With it, the number of clusters is carried from
    epoch to epoch; the published code begins every epoch with the true one. Its other slips are not made here either:
    sub-clusters looked up by class, and ids of labelled images that are not those of their clusters unless the known
    classes are sorted.
    """
    points = F.normalize(start.features, dim=1)
    count = int(start.memory.get("count", start.n_categories))
    kmeans = SemiSupervisedKMeans(count, STARTS, random_state=start.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # an empty cluster draws no image
        kmeans.fit(points.numpy(), start.labels.numpy())
    found = kmeans.labels_
    if settings.split_merge:
        mean = points.mean(0).numpy()
        found, count = split_and_merge(points.numpy(), found, start.n_known, mean, start.seed, accept=settings.accept)
    assignment = torch.from_numpy(found).long()
    sums, _ = cluster_sums(points, assignment, count)
    prototypes = F.normalize(sums, dim=1)
    distances = torch.linalg.vector_norm(points - prototypes[assignment], dim=1)
    targets = torch.full((start.n_images,), -1)
    targets[start.images] = assignment
    return {
        "targets": targets,
        "prototypes": prototypes,
        "temperatures": density_temperatures(distances, assignment, count, settings.temperature),
        "count": torch.tensor(count),
    }


def stages(config: Config) -> list[StagePlan]:
    """Return the one stage of GPC."""
    settings = config.gpc

    def refresh(start: EpochStart) -> Memory:
        return find_prototypes(start, settings) if start.epoch >= settings.first_epoch else {}

    def objective(step: Step) -> GpcLoss:
        contrast = contrastive_loss(step.projections, step.labels, step.labelled, settings.sup_weight)
        if "targets" in step.memory:
            targets = step.memory["targets"][step.images]
            drawn = prototype_loss(step.features, step.memory["prototypes"], step.memory["temperatures"], targets)
        else:
            drawn = torch.zeros_like(contrast.total)
        return GpcLoss(contrast.total + drawn, contrast.info_nce, contrast.supervised_contrastive, drawn)

    optimiser = replace(model_optimiser(settings, config.training.momentum), decay_vectors=True)
    plan = StagePlan("gpc", settings.epochs, Always(RAW), objective, {"model": optimiser}, limit=limit(settings))
    return [replace(plan, refresh=refresh, tells=("count",))]


def head(config: Config, dim: int, n_categories: int) -> Head:
    """Build a projection head."""
    return ContrastiveHead(dim, n_categories, config.head.hidden, config.head.bottleneck, config.gpc.output)


def count_by_split_and_merge(points: Points, labels: Labels, seed: int) -> int:
    """Number of clusters after rounds of k-means, split and merge."""
    return int(SplitMergeMixture(random_state=seed).fit(points, labels).n_clusters_)


METHOD = Method(stages, head, clusters="semi-supervised", count=count_by_split_and_merge)
