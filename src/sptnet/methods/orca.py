"""ORCA (Cao et al., ICLR 2022): supervised learning slowed down by a margin, so that new classes can keep up.

Three terms: a cross-entropy with a margin on labelled images, a pairwise loss that gives an image and its partner the
same prediction, and the negative entropy of the mean prediction. Logits are plain cosines.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from sptnet.config import Config
from sptnet.head import Head
from sptnet.losses import Loss, Scalar, at_least_float32
from sptnet.methods import uno
from sptnet.methods.method import Method
from sptnet.methods.phases import RAW, Always
from sptnet.methods.simgcd import limit, model_optimiser
from sptnet.methods.stage_plan import EpochStart, Memory, Optimiser, StagePlan, Step
from sptnet.model.gcd_model import Group
from sptnet.runtime.seeds import seed_of

SCALE = 10.0
"""Factor of the cosines in the softmax: a temperature of 0.1."""


def margin_cross_entropy(
    logits: Float[Tensor, "n k"], labels: Int[Tensor, " n"], margin: float, scale: float = SCALE
) -> Scalar:
    """Cross-entropy after adding `margin` to the cosine of the target; zero for an empty batch."""
    logits = at_least_float32(logits)
    if len(logits) == 0:
        return logits.sum()
    # The margin is added and not subtracted: the published code passes it so. It makes the target easier to reach,
    # which is a weaker push towards the known classes.
    target = F.one_hot(labels.long(), logits.shape[1]).to(logits.dtype)
    return F.cross_entropy(scale * (logits + margin * target), labels.long())


def partners(
    features: Float[Tensor, "n dim"], labels: Int[Tensor, " n"], labelled: Bool[Tensor, " n"], generator: Generator
) -> Int[Tensor, " n"]:
    """Return the row of each image's partner; without gradient.

    The partner of a labelled image is another labelled image of its class, drawn at random. The partner of an
    unlabelled image is its nearest other image by cosine, labelled or not. An image without any such image is its own
    partner. `labels` is read only where `labelled` is true.
    """
    n, device = len(features), features.device
    rows = torch.arange(n, device=device)
    if n < 2:
        return rows
    itself = torch.eye(n, dtype=torch.bool, device=device)
    with torch.autocast(device.type, enabled=False):  # keep the matrix product in full precision
        z = F.normalize(at_least_float32(features.detach()), dim=1)
        nearest = (z @ z.T).masked_fill(itself, -torch.inf).argmax(dim=1)
    classmates = (labels[:, None] == labels[None, :]) & labelled[:, None] & labelled[None, :] & ~itself
    draws = torch.rand(n, n, generator=generator, device=generator.device).to(device)
    drawn = torch.where(classmates.any(dim=1), draws.masked_fill(~classmates, -1.0).argmax(dim=1), rows)
    return torch.where(labelled, drawn, nearest)


def pairwise_loss(p: Float[Tensor, "n k"], q: Float[Tensor, "n k"], partners: Int[Tensor, " n"]) -> Scalar:
    """-mean_i log(p_i . q_partner(i)) of probabilities of the first and second views; zero for an empty batch."""
    p, q = at_least_float32(p), at_least_float32(q)
    if len(p) == 0:
        return p.sum() + q.sum()
    agreement = (p * q[partners]).sum(dim=1)
    return -agreement.clamp(min=torch.finfo(agreement.dtype).tiny).log().mean()


def negative_entropy(p: Float[Tensor, "n k"]) -> Scalar:
    """-H(mean_i p_i): -log K if the batch uses all categories equally, 0 for one category or an empty batch."""
    p = at_least_float32(p)
    if len(p) == 0:
        return p.sum()
    mean = p.mean(dim=0)
    # The clamp keeps the gradient finite at zero; 0 log 0 is 0.
    return (mean * mean.clamp(min=torch.finfo(mean.dtype).tiny).log()).sum()


def uncertainty(probabilities: Float[Tensor, "n k"]) -> float:
    """Mean of 1 - max_k p_k over the images; zero without images."""
    if len(probabilities) == 0:
        return 0.0
    return float((1 - at_least_float32(probabilities.detach()).amax(dim=1)).mean())


@dataclass(frozen=True)
class OrcaLoss(Loss):
    """Terms of the objective of ORCA."""

    margin_cross_entropy: Tensor
    pairwise_loss: Tensor
    negative_entropy: Tensor


def stages(config: Config) -> list[StagePlan]:
    """Return the one stage of ORCA."""
    settings = config.orca

    def refresh(start: EpochStart) -> Memory:
        """Measure the uncertainty of the unlabelled images, which is the margin of the epoch."""
        unsure = uncertainty((settings.scale * start.logits[start.labels < 0]).softmax(1))
        return {"margin": torch.tensor(min(unsure, settings.largest_margin))}

    def objective(step: Step) -> OrcaLoss:
        known, margin = step.labelled, float(step.memory["margin"])
        p, q = (settings.scale * at_least_float32(step.logits)).softmax(1).chunk(2)
        generator = torch.Generator().manual_seed(seed_of(config.seed, "partners", step.clock.step))
        chosen = partners(step.features.chunk(2)[0], step.labels, known, generator)
        supervised = margin_cross_entropy(step.logits.chunk(2)[0][known], step.labels[known], margin, settings.scale)
        pairs = pairwise_loss(p, q, chosen)
        spread = negative_entropy(p)
        return OrcaLoss(supervised + pairs + spread, supervised, pairs, spread)

    optimisers: dict[Group, Optimiser] = {"model": model_optimiser(settings, config.training.momentum)}
    plan = StagePlan("orca", settings.epochs, Always(RAW), objective, optimisers, limit=limit(settings))
    return [replace(plan, refresh=refresh, tells=("margin",))]


def head(config: Config, dim: int, n_categories: int) -> Head:
    """Build a cosine classifier without a projection."""
    return uno.head(config, dim, n_categories)


METHOD = Method(stages, head)
