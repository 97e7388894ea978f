"""What a backbone expects of its pixels: the facts that views are made from."""

from dataclasses import asdict, dataclass
from typing import Any

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class PixelFormat:
    """Size, mean, deviation and interpolation."""

    image_size: int
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    interpolation: str = "bicubic"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
