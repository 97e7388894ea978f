"""Windows: where a view is cut out of a stored image, and the cutting, one by one or a whole batch on the device."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Int64, UInt8
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


@dataclass(frozen=True)
class Uncut:
    """Whole images one after the other, and for each draw a window of each image.

    The device cuts all windows of a draw at once. The loader only hands the images over, each of them once, which takes
    less room than two views of it.
    """

    pixels: UInt8[Tensor, "pixels 3"]
    starts: Int64[Tensor, " n"]
    widths: Int64[Tensor, " n"]
    windows: Int64[Tensor, "draws n 3"]

    @staticmethod
    def of(images: Sequence[Image], draws: Sequence[Sequence[Window]]) -> "Uncut":
        areas = torch.tensor([image.shape[1] * image.shape[2] for image in images])
        return Uncut(
            torch.cat([image.permute(1, 2, 0).reshape(-1, 3) for image in images]),
            areas.cumsum(0) - areas,
            torch.tensor([image.shape[2] for image in images]),
            torch.tensor([[[w.top, w.left, w.mirrored] for w in windows] for windows in draws]),
        )

    def cut(self, size: int) -> list[UInt8[Tensor, "n 3 size size"]]:
        """For each draw the same views as `cut` makes one by one."""
        steps = torch.arange(size, device=self.pixels.device)
        draws = []
        for top, left, mirrored in (windows.unbind(1) for windows in self.windows):
            rows = top[:, None] + steps
            columns = left[:, None] + torch.where(mirrored[:, None] > 0, steps.flip(0), steps)
            firsts = self.starts[:, None] + rows * self.widths[:, None]
            views = self.pixels[firsts[:, :, None] + columns[:, None, :]]
            draws.append(views.permute(0, 3, 1, 2).contiguous())
        return draws

    def to(self, device: torch.device) -> "Uncut":
        return Uncut(*(getattr(self, field.name).to(device, non_blocking=True) for field in fields(self)))

    def pin_memory(self) -> "Uncut":
        return Uncut(*(getattr(self, field.name).pin_memory() for field in fields(self)))
