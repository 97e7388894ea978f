"""muGCD (Vaze et al., NeurIPS 2023): a student learns strong views from a mean teacher that sees weak views.

The weights of the teacher are a moving average of those of the student. Logits are plain cosines.
"""

import math
from dataclasses import dataclass, replace

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sptnet.config import Config
from sptnet.head import Head, PrototypeHead
from sptnet.losses import (
    STUDENT_TEMPERATURE,
    Loss,
    Scalar,
    at_least_float32,
    cross_entropy,
    mean_entropy_gap,
    swapped_prediction,
)
from sptnet.methods import gcd
from sptnet.methods.method import Method
from sptnet.methods.phases import STRONG, Always
from sptnet.methods.simgcd import limit, model_optimiser
from sptnet.methods.stage_plan import Optimiser, StagePlan, Step
from sptnet.model.gcd_model import Group
from sptnet.schedules import teacher_temperature

TEACHER_TEMPERATURE = 0.04


def teacher_decay(step: int, steps: int, base: float = 0.7, final: float = 0.999) -> float:
    """Decay of the teacher's moving average: cosine from `final - (1 - base)` to `final`, constant after `steps`.

    The published formula subtracts from `final` and not from 1, so the first value is 0.699 and not `base`.
    """
    if step >= steps:
        return final
    return final - (1 - base) * (math.cos(math.pi * step / steps) + 1) / 2


def teacher_distillation(
    student_logits: Float[Tensor, "2b k"],
    teacher_logits: Float[Tensor, "2b k"],
    student_temperature: float = STUDENT_TEMPERATURE,
    teacher_temperature: float = TEACHER_TEMPERATURE,
) -> Scalar:
    """Cross-entropy of each student view against the sharpened, detached teacher prediction of the other view.

    Rows of the student are strong views, rows of the teacher weak views of the same images. Zero for an empty batch.
    """
    sharp = F.softmax(at_least_float32(teacher_logits.detach()) / teacher_temperature, dim=1)
    return swapped_prediction(student_logits, sharp, student_temperature)


@dataclass(frozen=True)
class MuGcdLoss(Loss):
    """Terms of the objective of muGCD."""

    teacher_distillation: Tensor
    cross_entropy: Tensor
    mean_entropy_gap: Tensor


def stages(config: Config) -> list[StagePlan]:
    """Return the stages of muGCD: GCD, unless it starts from a run, then muGCD with a new head."""
    settings = config.mugcd

    def objective(step: Step) -> MuGcdLoss:
        assert step.teacher is not None
        known, epoch = step.labelled.repeat(2), step.clock.epoch
        sharp = teacher_temperature(settings.teacher_start, settings.teacher_end, settings.teacher_warm_up, epoch)
        taught = teacher_distillation(step.logits, step.teacher["logits"], STUDENT_TEMPERATURE, sharp)
        supervised = cross_entropy(step.logits[known], step.labels[step.labelled], STUDENT_TEMPERATURE)
        gap = mean_entropy_gap(step.logits, STUDENT_TEMPERATURE)
        weight = settings.sup_weight
        # The entropy stands beside the weighted sum, not inside the bracket as in SimGCD; no code was published.
        total = (1 - weight) * taught + weight * supervised + settings.entropy_weight * gap
        return MuGcdLoss(total, taught, supervised, gap)

    optimisers: dict[Group, Optimiser] = {"model": model_optimiser(settings, config.training.momentum)}
    plan = StagePlan("mugcd", settings.epochs, Always(STRONG), objective, optimisers, limit=limit(settings))
    stage = replace(
        plan,
        teacher=lambda step, steps: teacher_decay(step, steps, settings.base_decay, settings.final_decay),
        decides="teacher",
        head=lambda present, dim, n_categories: PrototypeHead(dim, n_categories, projects=False),
    )
    if settings.start_from:
        return [stage]
    return [*(replace(first, sorts_as="gcd") for first in gcd.stages(config)), stage]


def head(config: Config, dim: int, n_categories: int) -> Head:
    """Build the head of the first stage: GCD's, or the cosine classifier if a GCD run is given."""
    if config.mugcd.start_from:
        return PrototypeHead(dim, n_categories, projects=False)
    return gcd.head(config, dim, n_categories)


METHOD = Method(stages, head, start="backbone", starts_from=("gcd",))
