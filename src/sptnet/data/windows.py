"""Where a view is cut out of a stored image, and the cutting."""

from dataclasses import dataclass

import torch
from jaxtyping import UInt8
from torch import Tensor

Image = UInt8[Tensor, "3 height width"]


@dataclass(frozen=True)
class Window:
    """A square of an image by its upper left corner, as it is or mirrored."""

    top: int
    left: int
    mirrored: bool


def draw_window(image: Image, size: int, flip: float, seed: int) -> Window:
    """Anywhere in the image, mirrored with probability `flip`."""
    dice = torch.Generator().manual_seed(seed)
    # A side that leaves no choice costs no draw: thus these are the windows of torchvision's random crop and flip.
    top, left = (
        int(torch.randint(0, side - size + 1, (), generator=dice)) if side > size else 0 for side in image.shape[1:]
    )
    return Window(top, left, bool(torch.rand(1, generator=dice) < flip))


def cut(image: Image, window: Window, size: int) -> UInt8[Tensor, "3 size size"]:
    view = image[:, window.top : window.top + size, window.left : window.left + size]
    return view.flip(2) if window.mirrored else view
