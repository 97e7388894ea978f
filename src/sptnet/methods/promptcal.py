"""PromptCAL (Zhang et al., CVPR 2023): contrast against a momentum teacher, calibrated by an affinity graph.

Rows are the first views of all images, then the second views. All losses are computed in float32 or float64, whatever
the input's dtype, and their gradients reach the student alone. The published code also keeps the features of ImageNet
images near those of the pre-trained backbone in the first five epochs, which the paper of SPTNet does not mention; here
a folder of any images has this effect if it is given (`distil_folder`).
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from sptnet.clustering.graph.affinity import affinity_graph
from sptnet.config import CalibratedSettings, Config, PromptCalSettings, TrainedSettings
from sptnet.errors import Misuse
from sptnet.head import CentroidHead, Head, TwinHead
from sptnet.losses import Loss, Scalar, contrastive_loss, info_nce, supervised_contrastive, unit_rows
from sptnet.methods.method import Method
from sptnet.methods.phases import JOINT, Always
from sptnet.methods.simgcd import limit, model_optimiser
from sptnet.methods.stage_plan import Anchor, Memory, Optimiser, StagePlan, Step
from sptnet.model.gcd_model import Group
from sptnet.runtime.seeds import seed_of

__all__ = [
    "affinity_graph",
    "calibrated_loss",
    "push",
    "ramp",
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


def ramp(epoch: float, epochs: float = RAMP_EPOCHS, largest: float = LARGEST_WEIGHT) -> float:
    """Weight of the calibrated loss: linear from zero at epoch 0 to `largest` at `epochs`, then constant."""
    return largest if epoch >= epochs else largest * epoch / epochs


def distillation_weight(settings: PromptCalSettings, epoch: int) -> float:
    """Weight of the features that stay: linear from `distil_first` to `distil_last`, not reached; zero afterwards."""
    first, last, epochs = settings.distil_first, settings.distil_last, settings.distil_epochs
    return first - (first - last) * epoch / epochs if epoch < epochs else 0.0


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


@dataclass(frozen=True)
class PromptCalLoss(Loss):
    """Terms of the objective of PromptCAL's first stage."""

    info_nce: Tensor
    supervised_contrastive: Tensor
    token_info_nce: Tensor
    token_supervised_contrastive: Tensor


@dataclass(frozen=True)
class CalibratedLoss(Loss):
    """Terms of the objective of PromptCAL's second stage, of the class token and of the prompt tokens."""

    supervised_contrastive: Tensor
    info_nce: Tensor
    calibrated: Tensor
    token_supervised_contrastive: Tensor
    token_info_nce: Tensor
    token_calibrated: Tensor


def remember(step: Step, size: int) -> Memory:
    """Push the teacher's features of the batch into the banks, over the oldest ones; labels beside them."""
    assert step.teacher is not None
    labels = torch.where(step.labelled, step.labels, -1).repeat(2)
    rows = {"bank": step.teacher["features"], "token_bank": step.teacher["token_features"], "bank_labels": labels}
    memory, position, filled = step.memory, int(step.memory.get("position", 0)), int(step.memory.get("filled", 0))
    pushed = {
        name: push(memory[name] if name in memory else values.new_zeros(size, *values.shape[1:]), values, position)[0]
        for name, values in rows.items()
    }
    counts = {"position": (position + len(labels)) % size, "filled": min(size, filled + len(labels))}
    return pushed | {name: torch.tensor(value) for name, value in counts.items()}


def calibrated_branch(
    step: Step, prefix: str, settings: CalibratedSettings, sup_weight: float, seed: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss of the class token (`prefix` "") or of the prompt tokens ("token_"): total, SupCon, InfoNCE, calibrated."""
    assert step.teacher is not None
    student, teacher = step.rows[f"{prefix}projections"], step.teacher[f"{prefix}projections"]
    known = step.labelled.repeat(2)
    contrast = supervised_contrastive(student[known], step.labels[step.labelled], teacher=teacher[known])
    nce = info_nce(student, teacher=teacher)
    clock = step.clock
    weight = ramp(clock.step * clock.epochs / clock.steps, settings.ramp_up, settings.calibration)
    ready = weight > 0 and int(step.memory.get("filled", 0)) > 0
    calibrated = calibrate(step, prefix, settings, seed) if ready else student.sum() * 0
    total = sup_weight * contrast + (1 - sup_weight) * ((1 - weight) * nce + weight * calibrated)
    return total, contrast, nce, calibrated


def calibrate(step: Step, prefix: str, settings: CalibratedSettings, seed: int) -> Tensor:
    """Calibrated contrast of the student's features with the teacher's of the other view and with a filled bank.

    The graph is that of batch and bank; positives and negatives are taken from the bank. The published code adds the
    same view of the teacher for the class token and the other view for the prompt tokens; the other view is taken for
    both here.
    """
    assert step.teacher is not None
    filled = int(step.memory["filled"])
    one, two = step.teacher[f"{prefix}features"].chunk(2)
    own, bank = torch.cat([two, one]), step.memory[f"{prefix}bank"][:filled]
    labels = torch.where(step.labelled, step.labels, -1).repeat(2)
    nodes, labels = torch.cat([own, bank.to(own.dtype)]), torch.cat([labels, step.memory["bank_labels"][:filled]])
    positives = affinity_graph(nodes, settings.neighbors, settings.quantile, labels)[: len(own), len(own) :]
    generator = torch.Generator().manual_seed(seed)
    negatives = torch.zeros(1, filled, dtype=torch.bool, device=own.device)
    negatives[0, torch.randperm(filled, generator=generator)[: settings.negatives].to(own.device)] = True
    return calibrated_loss(step.rows[f"{prefix}features"], own, bank, positives, negatives)


def stages(config: Config) -> list[StagePlan]:
    """Return the two stages of PromptCAL: contrast, then calibrated contrast with a mean teacher."""
    first, second, momentum = config.promptcal, config.promptcal_calibrated, config.training.momentum
    if first.supervised_tokens > config.prompt.tokens:
        raise Misuse(
            f"`promptcal.supervised_tokens` is {first.supervised_tokens}, but there are {config.prompt.tokens} prompt "
            "tokens. Give at most that many, or more `prompt.tokens`."
        )

    def objective(step: Step) -> PromptCalLoss:
        of_class, of_tokens = (
            contrastive_loss(step.rows[name], step.labels, step.labelled, first.sup_weight)
            for name in ("projections", "token_projections")
        )
        parts = (of_class.info_nce, of_class.supervised_contrastive, of_tokens.info_nce)
        total = of_class.total + first.token_weight * of_tokens.total
        return PromptCalLoss(total, *parts, of_tokens.supervised_contrastive)

    def calibrated_objective(step: Step) -> CalibratedLoss:
        branches = [
            calibrated_branch(step, prefix, second, first.sup_weight, seed_of(config.seed, prefix, step.clock.step))
            for prefix in ("", "token_")
        ]
        total = branches[0][0] + first.token_weight * branches[1][0]
        return CalibratedLoss(total, *branches[0][1:], *branches[1][1:])

    def renewed(present: Head, dim: int, n_categories: int) -> Head:
        """Keep the projection of the class token; that of the prompt tokens begins anew, as published."""
        fresh = head(config, dim, n_categories)
        if isinstance(present, TwinHead):
            fresh.mlp, fresh.directions, fresh.classifier = present.mlp, present.directions, present.classifier
        elif isinstance(present, CentroidHead):  # a resumed stage, whose checkpoint holds the projections
            fresh.classifier = present
        return fresh

    def optimisers(settings: TrainedSettings) -> dict[Group, Optimiser]:
        optimiser = replace(model_optimiser(settings, momentum), decay_vectors=True)
        return {"model": optimiser, "prompt": optimiser}

    contrast = StagePlan("promptcal", first.epochs, Always(JOINT), objective, optimisers(first), "deep", limit(first))
    if first.distil_folder is not None:
        anchor = Anchor(first.distil_folder, lambda epoch: distillation_weight(first, epoch))
        contrast = replace(contrast, anchor=anchor)
    calibrated = StagePlan(
        "promptcal_calibrated",
        second.epochs,
        Always(JOINT),
        calibrated_objective,
        optimisers(second),
        "deep",
        limit(second),
        remember=lambda step: remember(step, second.bank),
        teacher=lambda step, steps: second.decay,
        head=renewed,
        keeps_prompt=True,
    )
    return [replace(stage, token_outputs=first.supervised_tokens) for stage in (contrast, calibrated)]


def head(config: Config, dim: int, n_categories: int) -> TwinHead:
    """Build two wide projections, of the class token and of the prompt tokens."""
    return TwinHead(dim, n_categories, config.head.hidden, config.head.bottleneck, config.promptcal.output)


METHOD = Method(stages, head, clusters="semi-supervised")
