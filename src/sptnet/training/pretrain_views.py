"""Strong views of small drawings for pre-training: random affine maps, contrast, noise and erasing, by the batch."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor

ROTATION, SHEAR, SHIFT = 12.0, 0.15, 0.12  # degrees, tangent, share of half the image
SCALE = (0.85, 1.15)
ERASED_SHARE = 0.25  # side of the erased square as a share of the image's side, at most
NOISE = 0.05


def _uniform(n: int, low: float, high: float, generator: Generator) -> Float[Tensor, " n"]:
    return low + (high - low) * torch.rand(n, generator=generator)


def strong_view(
    images: Float[Tensor, "batch 3 height width"], generator: Generator
) -> Float[Tensor, "batch 3 height width"]:
    """A strongly changed copy of images in [0, 1]; draws only from `generator`."""
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
    n, _, height, width = images.shape
    side = _uniform(n, 0.0, ERASED_SHARE, generator) * min(height, width)
    centre_y, centre_x = _uniform(n, 0, height, generator), _uniform(n, 0, width, generator)
    rows = (torch.arange(height)[None] - centre_y[:, None]).abs() < side[:, None] / 2
    columns = (torch.arange(width)[None] - centre_x[:, None]).abs() < side[:, None] / 2
    hole = rows[:, None, :, None] & columns[:, None, None, :]
    return images.masked_fill(hole, 0.0)
