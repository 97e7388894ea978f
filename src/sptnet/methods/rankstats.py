"""RankStats+ (Han et al., ICLR 2020; extended to known and new classes by Vaze et al., CVPR 2022).

Two unlabelled images are taken for one class if the same dimensions of their features are the largest. One classifier
over all categories learns to give such pairs the same prediction.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from sptnet.config import Config
from sptnet.errors import Misuse
from sptnet.head import Head, LinearHead
from sptnet.losses import STUDENT_TEMPERATURE, Loss, Scalar, at_least_float32, cross_entropy
from sptnet.methods.method import Method
from sptnet.methods.phases import RAW, Always
from sptnet.methods.simgcd import limit, model_optimiser
from sptnet.methods.stage_plan import Optimiser, StagePlan, Step
from sptnet.model.gcd_model import Group

TOP_DIMENSIONS = 5
EPSILON = 1e-7
"""Distance that `pairwise_bce` keeps from the probabilities 0 and 1."""


def rank_statistics_pairs(features: Float[Tensor, "n dim"], k: int = TOP_DIMENSIONS) -> Bool[Tensor, "n n"]:
    """Return True for pairs of rows whose k largest dimensions are the same set; without gradient.

    Values are ranked with their sign: features of a ViT may be negative, unlike those after a ReLU that the method was
    published with. Equal values are ranked by dimension, so that equal rows always match.
    """
    dim = features.shape[1]
    if not 1 <= k <= dim:
        raise Misuse(f"`k` is {k}, but features have {dim} dimensions. Give a `k` between 1 and {dim}.")
    order = features.detach().argsort(dim=1, descending=True, stable=True)
    top = order[:, :k].sort(dim=1).values
    return (top[:, None, :] == top[None, :, :]).all(dim=2)


def pairwise_bce(p: Float[Tensor, "n k"], q: Float[Tensor, "n k"], same: Bool[Tensor, "n n"]) -> Scalar:
    """Binary cross-entropy of p_i.q_j, the probability that images i and j share a class; zero for an empty batch.

    `p` and `q` are probabilities of the first and of the second views. All ordered pairs count, i = j included.
    """
    p, q = at_least_float32(p), at_least_float32(q)
    if len(p) == 0:
        return p.sum() + q.sum()
    with torch.autocast(p.device.type, enabled=False):  # keep the matrix product in full precision
        agreement = (p @ q.T).clamp(EPSILON, 1 - EPSILON)
    return -torch.where(same, agreement, 1 - agreement).log().mean()


def consistency(p: Float[Tensor, "n k"], q: Float[Tensor, "n k"]) -> Scalar:
    """Mean squared difference of the probabilities of both views; zero for an empty batch."""
    p, q = at_least_float32(p), at_least_float32(q)
    if len(p) == 0:
        return p.sum() + q.sum()
    return F.mse_loss(p, q)


def ramp_up(epoch: float, epochs: int, largest: float) -> float:
    """Weight of `consistency`: largest * exp(-5 (1 - epoch / epochs)^2), constant after `epochs`."""
    left = 0.0 if epoch >= epochs else 1 - epoch / epochs
    return largest * math.exp(-5 * left**2)


@dataclass(frozen=True)
class RankStatsLoss(Loss):
    """Terms of the objective of RankStats+."""

    cross_entropy: Tensor
    pairwise_bce: Tensor
    consistency: Tensor


def stages(config: Config) -> list[StagePlan]:
    """Return the one stage of RankStats+."""
    settings = config.rankstats

    def objective(step: Step) -> RankStatsLoss:
        known, new = step.labelled.repeat(2), ~step.labelled
        p, q = (at_least_float32(step.logits) / STUDENT_TEMPERATURE).softmax(1).chunk(2)
        supervised = cross_entropy(step.logits[known], step.labels[step.labelled], STUDENT_TEMPERATURE)
        same = rank_statistics_pairs(step.features.chunk(2)[0][new], settings.top)
        pairs = pairwise_bce(p[new], q[new], same)
        agreement = consistency(p, q)
        weight = ramp_up(step.clock.epoch, settings.ramp_up, settings.consistency)
        return RankStatsLoss(supervised + pairs + weight * agreement, supervised, pairs, agreement)

    optimisers: dict[Group, Optimiser] = {"model": model_optimiser(settings, config.training.momentum)}
    return [StagePlan("rankstats", settings.epochs, Always(RAW), objective, optimisers, limit=limit(settings))]


def head(config: Config, dim: int, n_categories: int) -> Head:
    """Build one linear head over all categories."""
    if config.rankstats.top > dim:
        raise Misuse(f"`rankstats.top` is {config.rankstats.top}, but features have {dim} dimensions. Give fewer.")
    return LinearHead(dim, n_categories)


METHOD = Method(stages, head)
