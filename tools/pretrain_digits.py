"""Train the embedded backbone, src/sptnet/weights/digits_vit.safetensors, by self-distillation on the digits.

    python tools/pretrain_digits.py --out digits_vit.safetensors

Each of two strong views of an image predicts the sharpened assignment of the other to free prototypes (the
unsupervised loss of SimGCD). A contrastive loss is added because the features of a fresh network are almost equal, so
that the teacher has nothing to sharpen. Labels are used only for the nearest-neighbour accuracy printed at the end.
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from jaxtyping import Float
from safetensors.torch import save_file
from scipy.stats import mode
from sklearn.neighbors import NearestNeighbors
from torch import Generator, Tensor, nn

from sptnet.data.benchmarks.digits import digits
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.head import PrototypeHead
from sptnet.losses import STUDENT_TEMPERATURE, info_nce, mean_entropy_gap, self_distillation
from sptnet.model.backbone import EMBEDDED, Backbone, build_backbone
from sptnet.runtime.files import write_atomically
from sptnet.runtime.seeds import seed_of, seeded

BATCH_SIZE = 64
LEARNING_RATE = 5e-4
WEIGHT_DECAY = 0.04
PROTOTYPES = 64
CONTRAST_TEMPERATURE = 0.2
TEACHER_TEMPERATURE = 0.05

ROTATION, SHEAR, SHIFT = 12.0, 0.15, 0.12  # degrees, tangent, share of half the image
SCALE = (0.85, 1.15)
ERASED_SHARE = 0.25  # largest side of the erased square as a share of the side of the image
NOISE = 0.05


def main() -> None:
    """Train on the digits, write the weights as float16 and print their nearest-neighbour accuracy."""
    parser = argparse.ArgumentParser(description="Train the embedded backbone on the digits, without labels.")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="weights file to write (.safetensors)")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--images", type=int, help=f"number of digits, {BATCH_SIZE} or more; all if not given")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.out.exists():
        parser.error(f"{given.out} exists already")
    image_set = digits() if given.images is None else digits().subset(range(given.images))
    if len(image_set) < BATCH_SIZE:
        parser.error(f"a batch has {BATCH_SIZE} images, {len(image_set)} are too few")
    with seeded(seed_of(given.seed, "pretrain backbone")):
        backbone = build_backbone(EMBEDDED, pretrained=False)
    store, maker = ImageStore(image_set.sources, backbone.pixels), ViewMaker(backbone.pixels)
    whole = torch.stack([maker.centre_view(store[i]) for i in range(len(image_set))])
    pretrain(backbone, whole.float() / 255, given.epochs, given.seed)
    half = {name: value.half().contiguous() for name, value in backbone.vit.state_dict().items()}
    write_atomically(given.out, lambda part: save_file(half, part))
    backbone.vit.load_state_dict(half)  # the accuracy is that of the written weights
    with torch.inference_mode():
        features = torch.cat([backbone(maker.normalise(part)) for part in whole.split(256)])
    accuracy = knn_accuracy(features, image_set.labels)
    print(f"wrote {given.out}, 10-nearest-neighbour accuracy (leave one out): {100 * accuracy:.2f} %")


def pretrain(backbone: Backbone, images: Float[Tensor, "n 3 height width"], epochs: int, seed: int) -> None:
    """Train the whole backbone in place on images in [0, 1]; it is frozen again at the end."""
    generator = Generator().manual_seed(seed_of(seed, "pretrain"))
    with seeded(seed_of(seed, "pretrain head")):
        head = PrototypeHead(backbone.dim, PROTOTYPES, hidden=512, bottleneck=128)
    parts = nn.ModuleList([backbone, head]).requires_grad_(True).train()
    parameters = list(parts.parameters())
    optimiser = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": WEIGHT_DECAY},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ]
    )
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (backbone.pixels.mean, backbone.pixels.std))
    steps = len(images) // BATCH_SIZE
    total, warm_up = epochs * steps, max(1, epochs * steps // 20)
    for epoch in range(epochs):
        start, loss_sum = time.perf_counter(), 0.0
        order = torch.randperm(len(images), generator=generator)
        for step, chosen in enumerate(order[: steps * BATCH_SIZE].split(BATCH_SIZE), start=epoch * steps):
            cosine = 0.5 * (1 + math.cos(math.pi * step / total))
            for group in optimiser.param_groups:
                group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / warm_up) * cosine
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
        seconds = time.perf_counter() - start
        print(f"epoch {epoch + 1}/{epochs}  loss {loss_sum / steps:.3f}  {seconds:.1f} s", flush=True)
    backbone.requires_grad_(False).eval()


def strong_view(
    images: Float[Tensor, "batch 3 height width"], generator: Generator
) -> Float[Tensor, "batch 3 height width"]:
    """Random affine map, contrast, noise and erasing of images in [0, 1]; draws only from `generator`."""
    n, _, height, width = images.shape
    angle = _uniform(n, -ROTATION, ROTATION, generator) * math.pi / 180
    scale_x, scale_y = _uniform(n, *SCALE, generator), _uniform(n, *SCALE, generator)
    shear = _uniform(n, -SHEAR, SHEAR, generator)
    cos, sin = angle.cos(), angle.sin()
    shift = torch.stack([_uniform(n, -SHIFT, SHIFT, generator) for _ in range(2)], dim=1)
    linear = torch.stack(
        [cos * scale_x, (shear * cos - sin) * scale_y, sin * scale_x, (shear * sin + cos) * scale_y], 1
    )
    theta = torch.cat([linear.view(n, 2, 2), shift[:, :, None]], dim=2)
    grid = F.affine_grid(theta, [n, 3, height, width], align_corners=False)
    moved = F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    contrast, brightness = _uniform(n, 0.8, 1.2, generator), _uniform(n, 0.0, 0.05, generator)
    changed = moved * contrast.view(n, 1, 1, 1) + brightness.view(n, 1, 1, 1)
    # Noise on a coarse grid looks like uneven ink; noise on single pixels would vanish in the patch embedding.
    coarse = torch.randn(n, 1, 12, 12, generator=generator) * NOISE
    changed = changed + F.interpolate(coarse, size=(height, width), mode="bilinear", align_corners=False)
    return _erase(changed, generator).clamp(0, 1)


def _erase(images: Tensor, generator: Generator) -> Tensor:
    """Set a random square of each image to 0."""
    n, _, height, width = images.shape
    side = _uniform(n, 0.0, ERASED_SHARE, generator) * min(height, width)
    centre_y, centre_x = _uniform(n, 0, height, generator), _uniform(n, 0, width, generator)
    rows = (torch.arange(height)[None] - centre_y[:, None]).abs() < side[:, None] / 2
    columns = (torch.arange(width)[None] - centre_x[:, None]).abs() < side[:, None] / 2
    hole = rows[:, None, :, None] & columns[:, None, None, :]
    return images.masked_fill(hole, 0.0)


def _uniform(n: int, low: float, high: float, generator: Generator) -> Float[Tensor, " n"]:
    return low + (high - low) * torch.rand(n, generator=generator)


def knn_accuracy(features: Float[Tensor, "n d"], labels: npt.NDArray[np.int64], k: int = 10) -> float:
    """Share of images whose label is the most frequent among their k nearest others by cosine."""
    neighbours = NearestNeighbors(n_neighbors=k, metric="cosine").fit(features.numpy())
    nearest = neighbours.kneighbors(return_distance=False)  # without data: no image is its own neighbour
    return float((mode(labels[nearest], axis=1).mode == labels).mean())


if __name__ == "__main__":
    main()
