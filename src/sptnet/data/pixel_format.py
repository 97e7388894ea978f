"""Pixel format that a backbone expects."""

from dataclasses import dataclass
from typing import Literal

Reading = Literal["quick", "exact"]

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class PixelFormat:
    """Image size, normalisation, interpolation and reading mode.

    Reading `exact`: decoded at full size and resized by Pillow, bit for bit as in the published code. `quick`: a JPEG
    is decoded at a reduced scale of at least twice the required size and resized by torch; a few pixels differ by one
    level.
    """

    image_size: int
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    interpolation: str = "bicubic"
    reading: Reading = "quick"
