"""Learnable pixel prompts: a frame inside every patch (spatial) and a border round the image (global).

Prompts are added to normalised pixels. A module's parameters are only the pixels of its frame, listed row by row;
`delta()` scatters them into an image of zeros.
"""

from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from sptnet.errors import Misuse

Size = int | tuple[int, int]
KINDS = ("none", "global", "shared", "spatial", "shared+global", "spatial+global")


def as_pair(size: Size) -> tuple[int, int]:
    """Return (height, width); an int means a square."""
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


def frame_mask(height: int, width: int, thickness: int, name: str) -> Bool[Tensor, "height width"]:
    """Mask of the outermost `thickness` pixels of a rectangle; at least one inner pixel must remain."""
    largest = (min(height, width) - 1) // 2
    if not 1 <= thickness <= largest:
        raise Misuse(
            f"{name} must be at least 1 and leave an inside: the largest allowed is {largest} for "
            f"{height} x {width} pixels. Got {thickness}."
        )
    mask = torch.ones(height, width, dtype=torch.bool)
    mask[thickness : height - thickness, thickness : width - thickness] = False
    return mask


class Prompt(nn.Module):
    """Base class of prompts that add the same learned pixels to every image."""

    def delta(self) -> Float[Tensor, "1 3 height width"]:
        """Return the pixels that are added to an image."""
        raise NotImplementedError

    def forward(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch 3 height width"]:
        """Add the prompt to every image."""
        return images + self.delta()


class GlobalPrompt(Prompt):
    """Border of width m+ round the whole image: 6 m+ (H + W - 2 m+) parameters."""

    mask: Tensor

    def __init__(self, image_size: Size, width: int = 30, generator: Generator | None = None):
        super().__init__()
        height, breadth = as_pair(image_size)
        self.register_buffer(
            "mask", frame_mask(height, breadth, width, "the border width (prompt.border)"), persistent=False
        )
        self.values = nn.Parameter(torch.randn(3, int(self.mask.sum()), generator=generator))

    def delta(self) -> Float[Tensor, "1 3 height width"]:
        """Return the border on an image of zeros."""
        canvas = self.values.new_zeros(3, *self.mask.shape)
        return canvas.masked_scatter(self.mask, self.values)[None]


class SpatialPrompt(Prompt):
    """Frame of width m inside every patch: 6 m (h + w - 2 m) parameters per patch, or one frame shared by all."""

    mask: Tensor

    def __init__(
        self,
        image_size: Size,
        patch_size: Size,
        width: int = 1,
        shared: bool = False,
        generator: Generator | None = None,
    ):
        super().__init__()
        (height, breadth), (h, w) = as_pair(image_size), as_pair(patch_size)
        if height % h or breadth % w:
            raise Misuse(
                f"an image of {height} x {breadth} pixels cannot be cut into patches of {h} x {w}. "
                f"Give a multiple, such as {height // h * h or h} x {breadth // w * w or w}."
            )
        self.grid = (height // h, breadth // w)
        self.shared = shared
        self.register_buffer("mask", frame_mask(h, w, width, "the frame width (prompt.width)"), persistent=False)
        n_frames = 1 if shared else self.grid[0] * self.grid[1]
        self.values = nn.Parameter(torch.randn(n_frames, 3, int(self.mask.sum()), generator=generator))

    def delta(self) -> Float[Tensor, "1 3 height width"]:
        """Return the frames of all patches as one image."""
        (rows, columns), (h, w) = self.grid, self.mask.shape
        frames = self.values.new_zeros(len(self.values), 3, h, w).masked_scatter(self.mask, self.values)
        frames = frames.expand(rows * columns, 3, h, w).view(rows, columns, 3, h, w)
        return frames.permute(2, 0, 3, 1, 4).reshape(1, 3, rows * h, columns * w)


class SummedPrompt(Prompt):
    """Sum of several prompts, added in the given order; without prompts, images are returned unchanged."""

    nothing: Tensor

    def __init__(self, image_size: Size, *parts: Prompt):
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.register_buffer("nothing", torch.zeros(1, 3, *as_pair(image_size)), persistent=False)

    def delta(self) -> Float[Tensor, "1 3 height width"]:
        """Return the sum of all parts; zeros without parts."""
        return sum((cast(Prompt, part).delta() for part in self.parts), start=self.nothing)

    def forward(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch 3 height width"]:
        """Add all prompts to every image."""
        return super().forward(images) if len(self.parts) else images


class DeepTokens(nn.Module):
    """Learnable tokens for every block of a ViT (VPT-deep), a baseline in feature space: depth x n_tokens x dim.

    They start uniform, as in VPT, or `normal` with a standard deviation of 0.02, as in PromptCAL.
    """

    def __init__(
        self,
        depth: int,
        n_tokens: int,
        dim: int,
        patch_size: int,
        generator: Generator | None = None,
        normal: bool = False,
    ):
        super().__init__()
        bound = (6.0 / (3 * patch_size * patch_size + dim)) ** 0.5
        if normal:
            values = 0.02 * torch.randn(depth, n_tokens, dim, generator=generator)
        else:
            values = (2 * torch.rand(depth, n_tokens, dim, generator=generator) - 1) * bound
        self.values = nn.Parameter(values)


def build_prompt(
    kind: str,
    image_size: Size,
    patch_size: Size,
    width: int = 1,
    border: int = 30,
    generator: Generator | None = None,
) -> SummedPrompt:
    """Build the prompts of a kind: SPTNet uses "spatial+global", SPTNet-P "spatial", SPTNet-S "shared"."""
    if kind not in KINDS:
        raise Misuse(f"unknown kind of prompt {kind!r}. Use one of: {', '.join(KINDS)}.")
    parts: list[Prompt] = []
    if "global" in kind:
        parts.append(GlobalPrompt(image_size, border, generator))
    if "shared" in kind or "spatial" in kind:
        parts.append(SpatialPrompt(image_size, patch_size, width, "shared" in kind, generator))
    return SummedPrompt(image_size, *parts)
