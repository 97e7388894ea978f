"""PromptCAL (Zhang et al., CVPR 2023): contrast against a momentum teacher, calibrated by an affinity graph.

Rows are the first views of all images, then the second views. All losses are computed in float32 or float64, whatever
the input's dtype, and their gradients reach the student alone.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from sptnet.losses import INFO_NCE_TEMPERATURE, SUPERVISED_CONTRASTIVE_TEMPERATURE, Scalar
from sptnet.methods.affinity import affinity_graph, unit_rows

__all__ = [
    "affinity_graph",
    "calibrated_loss",
    "push",
    "ramp",
    "teacher_info_nce",
    "teacher_supervised_contrastive",
]

CALIBRATED_TEMPERATURE = 0.07
RAMP_EPOCHS = 2
LARGEST_WEIGHT = 0.6


def calibrated_loss(
    student: Float[Tensor, "m dim"],
    own: Float[Tensor, "m dim"],
    bank: Float[Tensor, "n dim"],
    positives: Bool[Tensor, "m n"],
    negatives: Bool[Tensor, "#m n"],
    temperature: float = CALIBRATED_TEMPERATURE,
) -> Scalar:
    """L_cal: attract each row to its own teacher feature and to its positives in the bank; zero for an empty batch.

    The softmax of a row runs over its own teacher feature, its positives and its negatives. The mean of -log p is taken
    over the positives of a row, the own feature included, then over rows. A negative that is also a positive counts
    once, as a positive. `negatives` are true at the sampled entries, with one row for all or one each; they must leave
    out the entry that holds the own feature of a row.
    """
    if len(student) == 0:
        return unit_rows(student).sum()
    with torch.autocast(student.device.type, enabled=False):  # keep the matrix product in full precision
        z = unit_rows(student)
        own, bank = (unit_rows(x.detach().to(z.dtype)) for x in (own, bank))
        others = (z @ bank.T).masked_fill(~(positives | negatives), -torch.inf)
        similarities = torch.cat([(z * own).sum(1, keepdim=True), others], dim=1)
        log_p = F.log_softmax(similarities / temperature, dim=1)
    attracts = F.pad(positives, (1, 0), value=True)
    return -(log_p.masked_fill(~attracts, 0.0).sum(1) / attracts.sum(1)).mean()


def _log_softmax_over_others(
    student: Float[Tensor, "n dim"], teacher: Float[Tensor, "n dim"], temperature: float
) -> Float[Tensor, "n n"]:
    """Return log(exp(s_i.t_a/t) / sum_{b != i} exp(s_i.t_b/t)); the diagonal is set to zero and must not be used."""
    with torch.autocast(student.device.type, enabled=False):  # keep the matrix product in full precision
        z = unit_rows(student)
        diagonal = torch.eye(len(z), dtype=torch.bool, device=z.device)
        similarities = z @ unit_rows(teacher.detach().to(z.dtype)).T / temperature
        return F.log_softmax(similarities.masked_fill(diagonal, -torch.inf), dim=1).masked_fill(diagonal, 0.0)


def teacher_info_nce(
    student: Float[Tensor, "2b dim"], teacher: Float[Tensor, "2b dim"], temperature: float = INFO_NCE_TEMPERATURE
) -> Scalar:
    """Identify the teacher's other view of the same image among all other views; zero for an empty batch.

    The teacher's feature of the same view is left out, so that this is `losses.info_nce` if the teacher equals the
    student.
    """
    n = len(student)
    if n == 0:
        return unit_rows(student).sum()
    log_p = _log_softmax_over_others(student, teacher, temperature)
    rows = torch.arange(n, device=student.device)
    return -log_p[rows, rows.roll(n // 2)].mean()


def teacher_supervised_contrastive(
    student: Float[Tensor, "2b dim"],
    teacher: Float[Tensor, "2b dim"],
    labels: Int[Tensor, " b"],
    temperature: float = SUPERVISED_CONTRASTIVE_TEMPERATURE,
) -> Scalar:
    """Attract each view to the teacher's features of all other views of its class; zero for an empty batch.

    All images are labelled: select the rows before. The teacher's feature of the same view is left out, so that this is
    `losses.supervised_contrastive` if the teacher equals the student.
    """
    if len(student) == 0:
        return unit_rows(student).sum()
    log_p = _log_softmax_over_others(student, teacher, temperature)
    row_labels = labels.repeat(2)
    positive = (row_labels[:, None] == row_labels[None, :]).fill_diagonal_(False)
    return -((log_p * positive).sum(1) / positive.sum(1)).mean()


def ramp(epoch: float, epochs: float = RAMP_EPOCHS, largest: float = LARGEST_WEIGHT) -> float:
    """Weight of the calibrated loss: linear from zero at epoch 0 to `largest` at `epochs`, then constant."""
    return largest if epoch >= epochs else largest * epoch / epochs


def push(
    bank: Shaped[Tensor, "size ..."], rows: Shaped[Tensor, "m ..."], position: int
) -> tuple[Shaped[Tensor, "size ..."], int]:
    """Write rows into a ring buffer from `position` on, over the oldest ones; return a new buffer and its position.

    Features and labels alike; rows are detached and take the dtype of the buffer, which has at least one entry. If
    there are more rows than entries, the last ones stay.
    """
    size, m = len(bank), len(rows)
    kept = min(size, m)
    slots = (position + torch.arange(m - kept, m, device=bank.device)) % size
    pushed = bank.detach().clone()
    pushed[slots] = rows[m - kept :].detach().to(bank.dtype)
    return pushed, (position + m) % size
