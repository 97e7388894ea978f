"""DCCL (Pu et al., CVPR 2023): contrast with conceptions, the clusters that Infomap finds before every epoch.

The losses of GCD stay. Beside the images of a batch come as many images of some conceptions; their features are drawn
to the centroid of their conception, which follows them.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from sptnet.clustering.graph.infomap import SemiSupervisedInfomap
from sptnet.config import Config
from sptnet.head import ContrastiveHead, Head
from sptnet.losses import Loss, Scalar, at_least_float32, contrastive_loss
from sptnet.methods.method import Method
from sptnet.methods.phases import RAW, Always
from sptnet.methods.simgcd import limit
from sptnet.methods.stage_plan import EpochStart, Memory, Optimiser, StagePlan, Step
from sptnet.schedules import cosine_by_epoch


@dataclass(frozen=True)
class DcclLoss(Loss):
    """Terms of the objective of DCCL."""

    info_nce: Tensor
    supervised_contrastive: Tensor
    conception_contrast: Tensor


def conception_contrast(
    features: Float[Tensor, "n dim"], centroids: Float[Tensor, "c dim"], targets: Int[Tensor, " n"], temperature: float
) -> Scalar:
    """Cross-entropy of the cosines to all centroids against the own conception; zero for an empty batch."""
    features = at_least_float32(features)
    if len(features) == 0:
        return features.sum()
    with torch.autocast(features.device.type, enabled=False):  # keep the matrix product in full precision
        cosines = F.normalize(features, dim=1) @ centroids.to(features.dtype).T
    return F.cross_entropy(cosines / temperature, targets.long())


def follow(
    centroids: Float[Tensor, "c dim"], features: Float[Tensor, "n dim"], targets: Int[Tensor, " n"], kept: float
) -> Float[Tensor, "c dim"]:
    """Move each centroid towards the features of its conception, one after the other, to unit length after each.

    The n-th images of all conceptions are applied together, since they change different centroids.
    """
    unit, moved = F.normalize(features.detach().to(centroids.dtype), dim=1), centroids.clone()
    order = targets.argsort(stable=True)
    sorted_targets = targets[order]
    first = torch.searchsorted(sorted_targets, sorted_targets)
    turn = torch.arange(len(order), device=targets.device) - first
    for n in range(int(turn.max()) + 1 if len(turn) else 0):
        rows, which = order[turn == n], sorted_targets[turn == n]
        moved[which] = F.normalize(kept * moved[which] + (1 - kept) * unit[rows], dim=1)
    return moved


def draw_instances(targets: Int[Tensor, " n"], size: int, instances: int, steps: int, seed: int) -> list[Tensor]:
    """Draw `instances` images of each of some conceptions for every step; none without conceptions.

    As many conceptions as fit into `size` images, one at least. They come in a random order that is used up before it
    begins again. One with fewer images repeats some.
    """
    generator = torch.Generator().manual_seed(seed)
    members = [(targets == c).nonzero()[:, 0] for c in range(int(targets.max()) + 1)] if len(targets) else []
    members = [rows for rows in members if len(rows)]
    if not members:
        return [torch.empty(0, dtype=torch.int64) for _ in range(steps)]
    per_step, drawn = max(1, size // instances), []
    queue: list[int] = []
    for _ in range(steps):
        while len(queue) < per_step:
            queue += torch.randperm(len(members), generator=generator).tolist()
        chosen, queue = queue[:per_step], queue[per_step:]
        drawn.append(torch.cat([_some(members[c], instances, generator) for c in chosen]))
    return drawn


def _some(rows: Tensor, n: int, generator: torch.Generator) -> Tensor:
    if len(rows) >= n:
        return rows[torch.randperm(len(rows), generator=generator)[:n]]
    return rows[torch.randint(len(rows), (n,), generator=generator)]


def stages(config: Config) -> list[StagePlan]:
    """Return the one stage of DCCL."""
    settings = config.dccl

    def refresh(start: EpochStart) -> Memory:
        """Find the conceptions of the epoch."""
        points = F.normalize(start.features, dim=1).numpy()
        found = SemiSupervisedInfomap(settings.neighbors, settings.threshold, settings.least_size, start.seed)
        found.fit(points, start.labels.numpy())
        targets = torch.full((start.n_images,), -1)
        targets[start.images] = torch.from_numpy(found.labels_).long()
        centroids = torch.from_numpy(found.cluster_centers_).float()
        return {"targets": targets, "centroids": centroids, "conceptions": torch.tensor(len(centroids))}

    def extra(memory: Memory, batch_size: int, steps: int, seed: int) -> list[Tensor]:
        return draw_instances(memory["targets"], batch_size, settings.instances, steps, seed)

    def added(step: Step) -> tuple[Tensor, Tensor]:
        """Features of both views of the added images, and their conceptions."""
        features = torch.cat([view[step.n_main :] for view in step.features.chunk(2)])
        return features, step.memory["targets"][step.images[step.n_main :]].repeat(2)

    def objective(step: Step) -> DcclLoss:
        n = step.n_main
        projections = torch.cat([view[:n] for view in step.projections.chunk(2)])
        contrast = contrastive_loss(projections, step.labels[:n], step.labelled[:n], settings.sup_weight)
        features, targets = added(step)
        drawn = conception_contrast(features, step.memory["centroids"], targets, settings.temperature)
        grown = min(1.0, step.clock.epoch / settings.weight_epochs)
        weight = settings.first_weight + (settings.last_weight - settings.first_weight) * grown
        total = contrast.total + weight * drawn
        return DcclLoss(total, contrast.info_nce, contrast.supervised_contrastive, drawn)

    def remember(step: Step) -> Memory:
        features, targets = added(step)
        moved = follow(step.memory["centroids"], features, targets, settings.kept)
        return {**step.memory, "centroids": moved}

    def learning_rate(epoch: int, step: int, epochs: int, steps: int) -> float:
        if epoch < settings.warm_up:
            return settings.learning_rate * (epoch + 1) / (settings.warm_up + 1)
        left = max(1, epochs - settings.warm_up)
        return cosine_by_epoch(settings.learning_rate, settings.final_ratio, epoch - settings.warm_up, left)

    momentum, ratio = config.training.momentum, settings.backbone_ratio
    optimiser = Optimiser(learning_rate, settings.weight_decay, momentum, decay_vectors=True, backbone_ratio=ratio)
    plan = StagePlan("dccl", settings.epochs, Always(RAW), objective, {"model": optimiser}, limit=limit(settings))
    return [replace(plan, refresh=refresh, remember=remember, extra=extra, tells=("conceptions",))]


def head(config: Config, dim: int, n_categories: int) -> Head:
    """Build a wide projection head."""
    widths = config.head.hidden, config.head.bottleneck, config.dccl.output
    return ContrastiveHead(dim, n_categories, *widths, short=True)


METHOD = Method(stages, head, clusters="semi-supervised")
