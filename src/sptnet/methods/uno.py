"""UNO+ (Fini et al., ICCV 2021; extended to known and new classes by Vaze et al., CVPR 2022).

One cross-entropy over all categories. The targets are the labels of labelled images, and for unlabelled images the
predictions of the other view, balanced over the categories by the Sinkhorn algorithm. Logits are plain cosines.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sptnet.config import Config
from sptnet.head import Head, PrototypeHead
from sptnet.losses import Loss, at_least_float32, swapped_prediction
from sptnet.methods.method import Method
from sptnet.methods.phases import RAW, Always
from sptnet.methods.simgcd import limit, model_optimiser
from sptnet.methods.stage_plan import Optimiser, StagePlan, Step
from sptnet.model.gcd_model import Group

SINKHORN_EPSILON = 0.05
SINKHORN_ITERATIONS = 3


def sinkhorn(
    logits: Float[Tensor, "n k"], epsilon: float = SINKHORN_EPSILON, iterations: int = SINKHORN_ITERATIONS
) -> Float[Tensor, "n k"]:
    """Return exp(logits / epsilon), scaled so that categories have about equal shares; without gradient.

    Each iteration scales all categories to an equal share, then all images to a sum of one.
    """
    # Logarithms cannot underflow, whereas a category or image whose exponentials are all zero would give 0 / 0.
    # Constant factors (the total, 1/K and 1/B) cancel in the next scaling and are left out.
    log_q = at_least_float32(logits.detach()) / epsilon
    for _ in range(iterations):
        log_q = F.log_softmax(log_q, dim=0)
        log_q = F.log_softmax(log_q, dim=1)
    return log_q.exp()


def targets_of(
    logits: Float[Tensor, "2b k"],
    labels: Int[Tensor, " b"],
    labelled: Bool[Tensor, " b"],
    epsilon: float = SINKHORN_EPSILON,
    iterations: int = SINKHORN_ITERATIONS,
) -> Float[Tensor, "2b k"]:
    """Return a target per view: one-hot if labelled, else `sinkhorn` over the unlabelled images of the same view.

    Targets carry no gradient. `labels` is read only where `labelled` is true.
    """
    logits = at_least_float32(logits.detach())
    targets = torch.zeros_like(logits)
    targets[labelled.repeat(2)] = F.one_hot(labels[labelled].long(), logits.shape[1]).repeat(2, 1).to(logits.dtype)
    balanced = [sinkhorn(view[~labelled], epsilon, iterations) for view in logits.chunk(2)]
    targets[~labelled.repeat(2)] = torch.cat(balanced)
    return targets


@dataclass(frozen=True)
class UnoLoss(Loss):
    """Terms of the objective of UNO+."""

    swapped_prediction: Tensor


def stages(config: Config) -> list[StagePlan]:
    """Return the one stage of UNO+."""
    settings = config.uno

    def objective(step: Step) -> UnoLoss:
        targets = targets_of(step.logits, step.labels, step.labelled, settings.epsilon, settings.iterations)
        swapped = swapped_prediction(step.logits, targets, settings.temperature)
        return UnoLoss(swapped, swapped)

    optimisers: dict[Group, Optimiser] = {"model": model_optimiser(settings, config.training.momentum)}
    return [StagePlan("uno", settings.epochs, Always(RAW), objective, optimisers, limit=limit(settings))]


def head(config: Config, dim: int, n_categories: int) -> Head:
    """Build a cosine classifier without a projection."""
    return PrototypeHead(dim, n_categories, projects=False)


METHOD = Method(stages, head)
