"""Cache of resized images, from which views are cut."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from sptnet.data.image_file import ImageSource, read_image
from sptnet.data.pixel_format import PixelFormat


class ImageStore:
    """Images resized such that the short side is crop size / `crop_ratio`, cached up to `cache_mb`.

    `PixelFormat` describes how they are decoded and resized.
    """

    def __init__(
        self, sources: Sequence[ImageSource], pixels: PixelFormat, crop_ratio: float = 0.875, cache_mb: int = 1024
    ):
        self.sources = sources
        self.pixels = pixels
        self._short_side = int(pixels.image_size / crop_ratio)
        self._resize = v2.Resize(self._short_side, interpolation=v2.InterpolationMode(pixels.interpolation))
        self._room = cache_mb * 2**20
        self._cache: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> UInt8[Tensor, "3 height width"]:
        if index in self._cache:
            return self._cache[index]
        image = self._quick(index) if self.pixels.reading == "quick" else self._exact(index)
        if image.numel() <= self._room:
            self._room -= image.numel()
            self._cache[index] = image
        return image

    def _exact(self, index: int) -> UInt8[Tensor, "3 height width"]:
        return _as_tensor(self._resize(read_image(self.sources[index]))).contiguous()

    def _quick(self, index: int) -> UInt8[Tensor, "3 height width"]:
        image: Tensor = self._resize(_as_tensor(read_image(self.sources[index], least=2 * self._short_side)))
        return image


def _as_tensor(image: Image.Image) -> UInt8[Tensor, "3 height width"]:
    """Convert to a tensor with channels first; the memory layout stays channels last, which torch resizes fastest."""
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)
