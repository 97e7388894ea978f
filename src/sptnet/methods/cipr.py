"""CiPR (Hao et al., TMLR 2024): contrast with pseudo-labels of a semi-supervised hierarchical clustering.

Before every epoch, selective neighbour clustering groups the features of all images; the clusters of a fine level are
positives of each other. The same clustering assigns the categories in the end, and can find their number.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from sptnet.clustering.hierarchy.count_neighbors import count_by_neighbors
from sptnet.clustering.hierarchy.selective_neighbors import SelectiveNeighborClustering
from sptnet.config import Config
from sptnet.head import ContrastiveHead, Head
from sptnet.losses import SUPERVISED_CONTRASTIVE_TEMPERATURE, Loss, info_nce, supervised_contrastive
from sptnet.methods.method import Method
from sptnet.methods.phases import RAW, Always
from sptnet.methods.simgcd import limit, model_optimiser
from sptnet.methods.stage_plan import EpochStart, Memory, StagePlan, Step


@dataclass(frozen=True)
class CiprLoss(Loss):
    """Terms of the objective of CiPR."""

    supervised_contrastive: Tensor
    pseudo_label_contrast: Tensor


def pseudo_labels(start: EpochStart, level: int) -> Memory:
    """Cluster of each training image at a level of the hierarchy, the finest being 0; -1 for all other images."""
    points = F.normalize(start.features, dim=1).numpy()
    levels = SelectiveNeighborClustering().fit(points, start.labels.numpy()).levels_
    targets = torch.full((start.n_images,), -1)
    targets[start.images] = torch.from_numpy(levels[min(level, len(levels) - 1)]).long()
    return {"targets": targets, "clusters": targets.max() + 1}


def stages(config: Config) -> list[StagePlan]:
    """Return the one stage of CiPR."""
    settings = config.cipr

    def refresh(start: EpochStart) -> Memory:
        return pseudo_labels(start, settings.level) if start.epoch >= settings.warm_up else {}

    def objective(step: Step) -> CiprLoss:
        known = step.labelled.repeat(2)
        supervised = supervised_contrastive(
            step.projections[known], step.labels[step.labelled], SUPERVISED_CONTRASTIVE_TEMPERATURE
        )
        if "targets" in step.memory:
            targets = step.memory["targets"][step.images]
            grouped = supervised_contrastive(step.projections, targets, settings.temperature)
        else:
            grouped = info_nce(step.projections)
        return CiprLoss(supervised + grouped, supervised, grouped)

    optimiser = replace(model_optimiser(settings, config.training.momentum), decay_vectors=True)
    plan = StagePlan("cipr", settings.epochs, Always(RAW), objective, {"model": optimiser}, limit=limit(settings))
    return [replace(plan, refresh=refresh, tells=("clusters",))]


def head(config: Config, dim: int, n_categories: int) -> Head:
    """Build a wide projection head."""
    widths = config.head.hidden, config.head.bottleneck, config.cipr.output
    return ContrastiveHead(dim, n_categories, *widths, short=True)


METHOD = Method(stages, head, clusters="neighbors", count=count_by_neighbors, count_least=2)
