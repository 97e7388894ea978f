"""Views: from stored images to the tensors a step trains on or a score is taken from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import v2

from sptnet.images import read_image
from sptnet.pixels import PixelFormat
from sptnet.seeds import seed_of, seeded

Source = Path | Image.Image | npt.NDArray[Any]


class ImageStore:
    """Images at the size that views are cut from (short side = crop / ratio), kept in memory while they fit."""

    def __init__(self, sources: Sequence[Source], pixels: PixelFormat, crop_ratio: float = 0.875, cache_mb: int = 1024):
        self.sources = sources
        self.pixels = pixels
        short_side = int(pixels.image_size / crop_ratio)
        self._resize = v2.Resize(short_side, interpolation=v2.InterpolationMode(pixels.interpolation))
        self._room = cache_mb * 2**20
        self._cache: dict[int, Tensor] = {}

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> UInt8[Tensor, "3 height width"]:
        if index in self._cache:
            return self._cache[index]
        resized: Image.Image = self._resize(read_image(self.sources[index]))
        image = torch.from_numpy(np.array(resized)).permute(2, 0, 1).contiguous()
        if image.numel() <= self._room:
            self._room -= image.numel()
            self._cache[index] = image
        return image


class ViewMaker:
    """Cuts views: random crop and flip for training, centre crop for scoring."""

    def __init__(self, pixels: PixelFormat, flip: float = 0.5):
        size = pixels.image_size
        # The published transform also names a colour jitter, but without arguments, which changes nothing.
        self._random = v2.Compose([v2.RandomCrop(size), v2.RandomHorizontalFlip(flip)])
        self._centre = v2.CenterCrop(size)
        self._finish = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(pixels.mean, pixels.std)])

    def random_view(self, image: UInt8[Tensor, "3 h w"], seed: int) -> UInt8[Tensor, "3 size size"]:
        with seeded(seed):
            view: Tensor = self._random(image)
            return view

    def centre_view(self, image: UInt8[Tensor, "3 h w"]) -> UInt8[Tensor, "3 size size"]:
        view: Tensor = self._centre(image)
        return view

    def normalise(self, views: UInt8[Tensor, "n 3 size size"]) -> Float[Tensor, "n 3 size size"]:
        """Bytes to normalised floats, the space that prompts live in."""
        finished: Tensor = self._finish(views)
        return finished


@dataclass(frozen=True)
class Batch:
    """One training step's images: `draws[i]` is the i-th random view of all of them, normalised."""

    draws: list[Float[Tensor, "b 3 size size"]]
    labels: Tensor
    labelled: Tensor
    indices: Tensor

    def to(self, device: torch.device) -> "Batch":
        def move(x: Tensor) -> Tensor:
            return x.to(device, non_blocking=True)

        return Batch([move(d) for d in self.draws], move(self.labels), move(self.labelled), self.indices)

    def pin_memory(self) -> "Batch":
        return Batch(
            [d.pin_memory() for d in self.draws], self.labels.pin_memory(), self.labelled.pin_memory(), self.indices
        )


class EpochBatches(Dataset[Batch]):
    """The batches of one epoch, each with as many random draws of its images as its step needs.

    Every view has a seed of its own, so the result depends on no order of work.
    """

    def __init__(
        self,
        store: ImageStore,
        maker: ViewMaker,
        labels: npt.NDArray[np.int64],
        batches: list[Tensor],
        draws: list[int],
        seed: int,
    ):
        self.store, self.maker, self.labels = store, maker, labels
        self.batches, self.draws, self.seed = batches, draws, seed

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> Batch:
        indices = self.batches[number]
        images = [self.store[int(i)] for i in indices]
        draws = []
        for draw in range(self.draws[number]):
            seeds = (seed_of(self.seed, number, position, draw) for position in range(len(images)))
            views = [self.maker.random_view(image, s) for image, s in zip(images, seeds, strict=True)]
            draws.append(self.maker.normalise(torch.stack(views)))
        labels = torch.from_numpy(self.labels[indices.numpy()])
        return Batch(draws, labels, labels >= 0, indices)


class CentreViews(Dataset[Tensor]):
    """Centre crops of chosen images, for features, predictions and scores."""

    def __init__(self, store: ImageStore, maker: ViewMaker, indices: Sequence[int] | npt.NDArray[np.int64]):
        self.store, self.maker, self.indices = store, maker, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: int) -> Tensor:
        return self.maker.centre_view(self.store[int(self.indices[position])])
