"""Views: random crops for training and centre crops for inference, cut from resized images."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import v2

from sptnet.data.pixel_format import PixelFormat
from sptnet.data.store import ImageStore
from sptnet.data.strong_views import strong_view

StoredImage = UInt8[Tensor, "3 height width"]


@dataclass(frozen=True)
class Window:
    """Upper left corner of a square crop, and whether it is mirrored."""

    top: int
    left: int
    mirrored: bool


def draw_window(image: StoredImage, size: int, flip: float, seed: int) -> Window:
    """Draw a window uniformly from the image, mirrored with probability `flip`."""
    generator = torch.Generator().manual_seed(seed)
    # No draw for a side without choice, as in torchvision's random crop and flip, which thus give the same windows.
    top, left = (
        int(torch.randint(0, side - size + 1, (), generator=generator)) if side > size else 0
        for side in image.shape[1:]
    )
    return Window(top, left, bool(torch.rand(1, generator=generator) < flip))


def cut(image: StoredImage, window: Window, size: int) -> UInt8[Tensor, "3 size size"]:
    """Cut a window out of an image."""
    view = image[:, window.top : window.top + size, window.left : window.left + size]
    return view.flip(2) if window.mirrored else view


class ViewMaker:
    """Cut views: random crop and flip for training, centre crop for inference."""

    def __init__(self, pixels: PixelFormat, flip: float = 0.5):
        self.size, self.flip = pixels.image_size, flip
        self._centre = v2.CenterCrop(self.size)
        self._finish = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(pixels.mean, pixels.std)])

    def window(self, image: UInt8[Tensor, "3 h w"], seed: int) -> Window:
        """Draw the window of a random view."""
        # The published transform has a colour jitter without arguments, which changes nothing.
        return draw_window(image, self.size, self.flip, seed)

    def random_view(self, image: UInt8[Tensor, "3 h w"], seed: int) -> UInt8[Tensor, "3 size size"]:
        """Return a random crop, mirrored with probability `flip`."""
        return cut(image, self.window(image, seed), self.size)

    def strong_view(self, image: UInt8[Tensor, "3 h w"], seed: int) -> UInt8[Tensor, "3 size size"]:
        """Return a strongly augmented view: a crop of random size, with colours, blur or inversion of bright pixels."""
        return strong_view(image, self.size, self.flip, seed)

    def centre_view(self, image: UInt8[Tensor, "3 h w"]) -> UInt8[Tensor, "3 size size"]:
        """Return the centre crop."""
        view: Tensor = self._centre(image)
        return view

    def normalise(self, views: UInt8[Tensor, "n 3 size size"]) -> Float[Tensor, "n 3 size size"]:
        """Convert bytes to normalised floats, to which prompts are added."""
        finished: Tensor = self._finish(views)
        return finished


class CentreViews(Dataset[Tensor]):
    """Data set of the centre crops of chosen images."""

    def __init__(self, store: ImageStore, maker: ViewMaker, indices: Sequence[int] | npt.NDArray[np.int64]):
        self.store, self.maker, self.indices = store, maker, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: int) -> Tensor:
        return self.maker.centre_view(self.store[int(self.indices[position])])
