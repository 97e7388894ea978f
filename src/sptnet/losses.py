"""Loss functions of projections and logits.

Rows are the first views of all images, then the second views. Logits are those of the head, plain cosines if it has
prototypes; the losses apply the temperatures. The formulas follow the published code, which produced the published
results; `docs/method.md` lists the differences from the text of the paper. All losses are computed in float32 or
float64, whatever the input's dtype.
"""

import math
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

INFO_NCE_TEMPERATURE = 1.0  # tau_u
SUPERVISED_CONTRASTIVE_TEMPERATURE = 0.07  # tau_c
STUDENT_TEMPERATURE = 0.1  # tau_s

Scalar = Float[Tensor, ""]


def at_least_float32(x: Tensor) -> Tensor:
    """Return `x` in float64 if it is float64, else in float32."""
    return x if x.dtype == torch.float64 else x.float()


def unit_rows(x: Float[Tensor, "n dim"]) -> Float[Tensor, "n dim"]:
    """Normalise rows to length one, in float32 or float64; a zero row stays zero and has a finite gradient."""
    x = at_least_float32(x)
    length = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / torch.where(length > 0, length, 1.0)


def _log_softmax_over_others(
    projections: Float[Tensor, "n dim"], temperature: float, teacher: Float[Tensor, "n dim"] | None = None
) -> Float[Tensor, "n n"]:
    """Return log(exp(z_i.t_a/t) / sum_{b != i} exp(z_i.t_b/t)); the diagonal is set to zero and must not be used.

    The rows t are those of the teacher, detached, or the rows z themselves without one.
    """
    with torch.autocast(projections.device.type, enabled=False):  # keep the matrix product in full precision
        z = unit_rows(projections)
        others = z if teacher is None else unit_rows(teacher.detach().to(z.dtype))
        diagonal = torch.eye(len(z), dtype=torch.bool, device=z.device)
        similarities = (z @ others.T / temperature).masked_fill(diagonal, -torch.inf)
        return F.log_softmax(similarities, dim=1).masked_fill(diagonal, 0.0)


def info_nce(
    projections: Float[Tensor, "2b dim"],
    temperature: float = INFO_NCE_TEMPERATURE,
    teacher: Float[Tensor, "2b dim"] | None = None,
) -> Scalar:
    """L_nce^un: identify the other view of the same image among all other views of the batch; zero for an empty one.

    With the projections of a teacher, these are compared with, and get no gradient.
    """
    n = len(projections)
    if n == 0:
        return at_least_float32(projections).sum()
    log_p = _log_softmax_over_others(projections, temperature, teacher)
    rows = torch.arange(n, device=projections.device)
    return -log_p[rows, rows.roll(n // 2)].mean()


def supervised_contrastive(
    projections: Float[Tensor, "2b dim"],
    labels: Int[Tensor, " b"],
    temperature: float = SUPERVISED_CONTRASTIVE_TEMPERATURE,
    teacher: Float[Tensor, "2b dim"] | None = None,
) -> Scalar:
    """L_nce^sup: attract each view to all other views of its class; zero for an empty batch.

    With the projections of a teacher, views are attracted to these, which get no gradient.
    """
    if len(projections) == 0:
        return at_least_float32(projections).sum()
    log_p = _log_softmax_over_others(projections, temperature, teacher)
    row_labels = labels.repeat(2)
    positive = (row_labels[:, None] == row_labels[None, :]).fill_diagonal_(False)
    return -((log_p * positive).sum(1) / positive.sum(1)).mean()


def swapped_prediction(
    logits: Float[Tensor, "2b k"], targets: Float[Tensor, "2b k"], temperature: float = STUDENT_TEMPERATURE
) -> Scalar:
    """Cross-entropy of each view against the detached target of the other view; zero for an empty batch."""
    logits = at_least_float32(logits)
    if len(logits) == 0:
        return logits.sum()
    log_p = F.log_softmax(logits / temperature, dim=1)
    one, two = targets.detach().to(log_p.dtype).chunk(2)
    return -(torch.cat([two, one]) * log_p).sum(1).mean()


def self_distillation(logits: Float[Tensor, "2b k"], student_temperature: float, teacher_temperature: float) -> Scalar:
    """L_cls^un: cross-entropy of each view against the sharpened, detached prediction of the other view."""
    sharp = F.softmax(at_least_float32(logits.detach()) / teacher_temperature, dim=1)
    return swapped_prediction(logits, sharp, student_temperature)


def cross_entropy(logits: Float[Tensor, "2b k"], labels: Int[Tensor, " b"], temperature: float) -> Scalar:
    """L_cls^sup: cross-entropy of both views against the label; zero for an empty batch."""
    logits = at_least_float32(logits)
    if len(logits) == 0:
        return logits.sum()
    return F.cross_entropy(logits / temperature, labels.repeat(2))


def mean_entropy_gap(logits: Float[Tensor, "2b k"], temperature: float = STUDENT_TEMPERATURE) -> Scalar:
    """log K - H(mean prediction): zero if the batch uses all categories equally; minimising it maximises Delta.

    Zero for an empty batch.
    """
    logits = at_least_float32(logits)
    if len(logits) == 0:
        return logits.sum()
    log_p = F.log_softmax(logits / temperature, dim=1)
    log_mean = torch.logsumexp(log_p, dim=0) - math.log(len(log_p))
    return math.log(log_p.shape[1]) + (log_mean.exp() * log_mean).sum()


@dataclass(frozen=True)
class Loss:
    """Terms of an objective and their weighted sum."""

    total: Tensor

    def parts(self) -> dict[str, Tensor]:
        """Return all terms by name, the total last."""
        names = [field.name for field in fields(self) if field.name != "total"]
        return {name: getattr(self, name) for name in (*names, "total")}


@dataclass(frozen=True)
class GcdLoss(Loss):
    """Terms of `gcd_loss`."""

    info_nce: Tensor
    supervised_contrastive: Tensor
    self_distillation: Tensor
    cross_entropy: Tensor
    mean_entropy_gap: Tensor


@dataclass(frozen=True)
class ContrastiveLoss(Loss):
    """Terms of `contrastive_loss`."""

    info_nce: Tensor
    supervised_contrastive: Tensor


def gcd_loss(
    projections: Float[Tensor, "2b dim"],
    logits: Float[Tensor, "2b k"],
    labels: Int[Tensor, " b"],
    labelled: Bool[Tensor, " b"],
    teacher_temperature: float,
    sup_weight: float = 0.35,
    entropy_weight: float = 1.0,
) -> GcdLoss:
    """Objective of SimGCD and of both stages of SPTNet.

    (1 - lambda) (self-distillation + epsilon * mean-entropy gap + InfoNCE) + lambda (cross-entropy + SupCon), with
    lambda = `sup_weight` and epsilon = `entropy_weight`. `labels` is read only where `labelled` is true.
    """
    known = labelled.repeat(2)
    nce = info_nce(projections, INFO_NCE_TEMPERATURE)
    contrast = supervised_contrastive(projections[known], labels[labelled], SUPERVISED_CONTRASTIVE_TEMPERATURE)
    distilled = self_distillation(logits, STUDENT_TEMPERATURE, teacher_temperature)
    supervised = cross_entropy(logits[known], labels[labelled], STUDENT_TEMPERATURE)
    gap = mean_entropy_gap(logits, STUDENT_TEMPERATURE)
    unsupervised_part = distilled + entropy_weight * gap + nce
    supervised_part = supervised + contrast
    total = (1 - sup_weight) * unsupervised_part + sup_weight * supervised_part
    return GcdLoss(total, nce, contrast, distilled, supervised, gap)


def contrastive_loss(
    projections: Float[Tensor, "2b dim"],
    labels: Int[Tensor, " b"],
    labelled: Bool[Tensor, " b"],
    sup_weight: float = 0.35,
) -> ContrastiveLoss:
    """Objective of the GCD method: (1 - lambda) InfoNCE + lambda SupCon, with lambda = `sup_weight`."""
    nce = info_nce(projections, INFO_NCE_TEMPERATURE)
    known = labelled.repeat(2)
    contrast = supervised_contrastive(projections[known], labels[labelled], SUPERVISED_CONTRASTIVE_TEMPERATURE)
    return ContrastiveLoss((1 - sup_weight) * nce + sup_weight * contrast, nce, contrast)
