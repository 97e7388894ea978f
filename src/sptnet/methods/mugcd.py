"""muGCD (Vaze et al., NeurIPS 2023): a student learns strong views from a mean teacher that sees weak views.

The weights of the teacher are a moving average of those of the student. Logits are plain cosines.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sptnet.losses import STUDENT_TEMPERATURE, Scalar, at_least_float32

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
    student_logits = at_least_float32(student_logits)
    if len(student_logits) == 0:
        return student_logits.sum()
    log_p = F.log_softmax(student_logits / student_temperature, dim=1)
    teacher = at_least_float32(teacher_logits.detach()) / teacher_temperature
    one, two = F.softmax(teacher, dim=1).to(log_p.dtype).chunk(2)
    return -(torch.cat([two, one]) * log_p).sum(1).mean()
