"""What a backbone expects of its pixels: the facts that views are made from."""

from dataclasses import dataclass
from typing import Literal

Reading = Literal["quick", "exact"]

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class PixelFormat:
    """Size, mean, deviation, interpolation, and how pictures are brought to size.

    `exact`: decoded whole and resized by Pillow, to the last bit what the published code sees. `quick`: a JPEG is
    decoded at a reduced scale that leaves at least twice the size needed, and torch resizes; a few pixels differ by a
    level.
    """

    image_size: int
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    interpolation: str = "bicubic"
    reading: Reading = "quick"
