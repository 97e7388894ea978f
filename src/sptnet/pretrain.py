"""Pre-training a backbone without labels by self-distillation: a student learns what its own running mean says.

Caron et al., "Emerging properties in self-supervised vision transformers" (ICCV 2021), with two strong views.
"""

import copy
import math
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sptnet.backbone import Backbone, PixelFormat
from sptnet.pretrain_views import strong_view


class SelfDistillationHead(nn.Module):
    """MLP to a unit-norm bottleneck, then unit-norm prototypes."""

    def __init__(self, dim: int, n_prototypes: int, hidden: int = 512, bottleneck: int = 64):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, bottleneck)
        )
        self.prototypes = nn.Parameter(torch.randn(n_prototypes, bottleneck))

    def forward(self, features: Float[Tensor, "n dim"]) -> Float[Tensor, "n prototypes"]:
        return F.normalize(self.mlp(features), dim=1) @ F.normalize(self.prototypes, dim=1).T


def normalise(images: Tensor, pixels: PixelFormat) -> Tensor:
    mean, std = (torch.tensor(v, device=images.device).view(1, 3, 1, 1) for v in (pixels.mean, pixels.std))
    return (images - mean) / std


def pretrain(
    backbone: Backbone,
    images: Float[Tensor, "n 3 height width"],
    *,
    epochs: int = 120,
    batch_size: int = 64,
    learning_rate: float = 1e-3,
    weight_decay: float = 0.04,
    n_prototypes: int = 512,
    teacher_momentum: float = 0.99,
    seed: int = 0,
    on_epoch: Callable[[dict[str, Any]], None] = lambda metrics: None,
) -> Backbone:
    """Trains a copy of the whole backbone on images in [0, 1]; returns the teacher, the running mean of the weights."""
    generator = torch.Generator().manual_seed(seed)
    student = nn.Sequential(copy.deepcopy(backbone), SelfDistillationHead(backbone.dim, n_prototypes))
    student.requires_grad_(True).train()
    teacher = copy.deepcopy(student).requires_grad_(False).eval()
    decayed = [p for p in student.parameters() if p.ndim > 1]
    plain = [p for p in student.parameters() if p.ndim <= 1]
    optimiser = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}],
        lr=learning_rate,
        betas=(0.9, 0.98),
    )
    steps_per_epoch = len(images) // batch_size
    total, warm_up = epochs * steps_per_epoch, 10 * steps_per_epoch
    centre = torch.zeros(1, n_prototypes)
    step = 0
    for epoch in range(epochs):
        start, loss_sum = time.perf_counter(), 0.0
        order = torch.randperm(len(images), generator=generator)
        for i in range(steps_per_epoch):
            progress = step / total
            for group in optimiser.param_groups:
                group["lr"] = learning_rate * min(1.0, (step + 1) / warm_up) * 0.5 * (1 + math.cos(math.pi * progress))
            batch = images[order[i * batch_size : (i + 1) * batch_size]]
            views = torch.cat([strong_view(batch, generator), strong_view(batch, generator)])
            x = normalise(views, backbone.pixels)
            with torch.no_grad():
                targets = teacher(x)
            loss = distillation_loss(student(x), targets, centre)
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(student.parameters(), 3.0)
            optimiser.step()
            momentum = 1 - (1 - teacher_momentum) * 0.5 * (1 + math.cos(math.pi * progress))
            with torch.no_grad():
                for ours, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
                    ours.lerp_(theirs, 1 - momentum)
            centre = 0.9 * centre + 0.1 * targets.mean(0, keepdim=True)
            loss_sum += loss.item()
            step += 1
        seconds = time.perf_counter() - start
        on_epoch({"epoch": epoch + 1, "loss": loss_sum / steps_per_epoch, "seconds": seconds, "teacher": teacher[0]})
    trained = teacher[0].eval()
    assert isinstance(trained, Backbone)
    return trained


def distillation_loss(
    student: Float[Tensor, "views prototypes"],
    teacher: Float[Tensor, "views prototypes"],
    centre: Float[Tensor, "1 prototypes"],
    student_temperature: float = 0.1,
    teacher_temperature: float = 0.04,
) -> Float[Tensor, ""]:
    """Cross-entropy of each view's student with the other view's centred and sharpened teacher."""
    targets = F.softmax((teacher - centre) / teacher_temperature, dim=1).detach()
    first, second = targets.chunk(2)
    swapped = torch.cat([second, first])
    return -(swapped * F.log_softmax(student / student_temperature, dim=1)).sum(1).mean()
