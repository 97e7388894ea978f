"""Pre-training a backbone without any label, by self-distillation.

Two strong views of every image; each must predict the other's sharpened assignment to free prototypes (the method's
own unsupervised loss). The contrastive term gets a fresh network off the ground: its features are all but equal at
first, so that there is nothing yet for the teacher to sharpen.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from safetensors.torch import save_file
from torch import Tensor, nn

from sptnet.data.image_set import ImageSet
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.errors import Misuse
from sptnet.head import PrototypeHead
from sptnet.losses import STUDENT_TEMPERATURE, info_nce, mean_entropy_gap, self_distillation
from sptnet.model.backbone import Backbone, build_backbone
from sptnet.runtime.files import write_atomically
from sptnet.runtime.seeds import seed_of, seeded
from sptnet.training.knn import knn_accuracy
from sptnet.training.pretrain_views import strong_view

CONTRAST_TEMPERATURE = 0.2
TEACHER_TEMPERATURE = 0.05


@dataclass(frozen=True)
class PretrainEpoch:
    epoch: int
    loss: float
    seconds: float


def pretrain(
    backbone: Backbone,
    images: Float[Tensor, "n 3 height width"],
    *,
    epochs: int = 60,
    batch_size: int = 64,
    learning_rate: float = 5e-4,
    weight_decay: float = 0.04,
    n_prototypes: int = 64,
    seed: int = 0,
    on_epoch: Callable[[PretrainEpoch], None] = lambda epoch: None,
) -> None:
    """Trains the whole backbone in place on images in [0, 1]; freezes it again at the end."""
    generator = torch.Generator().manual_seed(seed_of(seed, "pretrain"))
    with seeded(seed_of(seed, "pretrain head")):
        head = PrototypeHead(backbone.dim, n_prototypes, hidden=512, bottleneck=128)
    parts = nn.ModuleList([backbone, head]).requires_grad_(True).train()
    parameters = list(parts.parameters())
    optimiser = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ]
    )
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (backbone.pixels.mean, backbone.pixels.std))
    steps = len(images) // batch_size
    total, warm_up = epochs * steps, max(1, epochs * steps // 20)
    for epoch in range(epochs):
        start, loss_sum = time.perf_counter(), 0.0
        order = torch.randperm(len(images), generator=generator)
        for step, chosen in enumerate(order[: steps * batch_size].split(batch_size), start=epoch * steps):
            for group in optimiser.param_groups:
                group["lr"] = learning_rate * min(1.0, (step + 1) / warm_up) * cosine_down(step / total)
            batch = images[chosen]
            views = torch.cat([strong_view(batch, generator), strong_view(batch, generator)])
            projections, logits = head(backbone((views - mean) / std))
            loss = (
                self_distillation(logits, STUDENT_TEMPERATURE, TEACHER_TEMPERATURE)
                + mean_entropy_gap(logits, STUDENT_TEMPERATURE)
                + info_nce(projections, CONTRAST_TEMPERATURE)
            )
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 3.0)
            optimiser.step()
            loss_sum += loss.item()
        on_epoch(PretrainEpoch(epoch + 1, loss_sum / steps, time.perf_counter() - start))
    backbone.requires_grad_(False).eval()


def cosine_down(progress: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * progress))


def pretrain_image_set(
    image_set: ImageSet, backbone_name: str, out: Path, *, seed: int = 0, **settings: Any
) -> float | None:
    """Pre-trains a fresh backbone on a pile and writes its weights as float16; returns its nearest-neighbour accuracy.

    The labels are used for that number alone, after training; it is None where the pile has none.
    """
    batch_size = settings.get("batch_size", 64)
    if len(image_set) < batch_size:
        raise Misuse(
            f"there are only {len(image_set)} images. Give --batch-size {max(2, len(image_set) // 2)} or more images."
        )
    with seeded(seed_of(seed, "pretrain backbone")):
        backbone = build_backbone(backbone_name, pretrained=False)
    store, maker = ImageStore(image_set.sources, backbone.pixels), ViewMaker(backbone.pixels)
    whole = torch.stack([maker.centre_view(store[i]) for i in range(len(image_set))])
    pretrain(backbone, whole.float() / 255, seed=seed, **settings)
    out.parent.mkdir(parents=True, exist_ok=True)
    half = {name: value.half().contiguous() for name, value in backbone.vit.state_dict().items()}
    write_atomically(out, lambda part: save_file(half, part))
    backbone.vit.load_state_dict(half)  # measure what was written
    labelled = np.flatnonzero(image_set.labels >= 0)
    if len(labelled) <= 10:
        return None
    with torch.inference_mode():
        features = torch.cat([backbone(maker.normalise(part)) for part in whole[labelled].split(256)])
    return knn_accuracy(features, image_set.labels[labelled])
