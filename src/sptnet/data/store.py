"""Cache of resized images, from which views are cut."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor
from torchvision.transforms import v2

from sptnet.data.image_file import ImageSource, not_enough_memory, read_array, read_image
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
        self.crop_ratio = crop_ratio
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
        image = read_image(self.sources[index])
        with not_enough_memory(self._name(index), image.size):
            return torch.from_numpy(np.array(self._resize(image))).permute(2, 0, 1).contiguous()

    def _quick(self, index: int) -> UInt8[Tensor, "3 height width"]:
        pixels = read_array(self.sources[index], least=2 * self._short_side)
        with not_enough_memory(self._name(index), pixels.shape[1::-1]):
            # The memory layout stays channels last, which torch resizes fastest.
            resized: Tensor = self._resize(torch.from_numpy(pixels).permute(2, 0, 1))
        return resized

    def _name(self, index: int) -> str:
        source = self.sources[index]
        return str(source) if isinstance(source, Path) else f"image {index}"
