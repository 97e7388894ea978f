"""The Vision Transformer backbone: one feature vector per image, the class token after the final norm."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sptnet.config import BackboneSettings, Config
from sptnet.config.sections import MOST_PIXELS
from sptnet.data.pixel_format import PixelFormat, Reading
from sptnet.errors import Misuse
from sptnet.model.vit.embedding import (
    Vit,
    embed_patches,
    embed_shift,
    embeds_linearly,
    enter_first_block,
    rotary_positions,
    run_block_with_tokens,
    with_tokens,
)
from sptnet.model.vit.last_block import class_token_of_block, run_block
from sptnet.model.vit.timm_vit import cached_weights, check_name, create_vit, pixel_format
from sptnet.model.weights import check_weights_file, load_weights, read_weights
from sptnet.runtime.distributed import World

EMBEDDED = "sptnet_digits_vit"
EMBEDDED_WEIGHTS = "digits_vit.safetensors"
EMBEDDED_ARCHITECTURE: dict[str, Any] = {
    "img_size": 96,
    "patch_size": 16,
    "embed_dim": 96,
    "depth": 4,
    "num_heads": 3,
}
WAYS_OUT = (
    "Ways out: connect to the network and try again; give a local file with `backbone.weights=FILE`; or, for small "
    f"drawings, use the embedded backbone with `backbone.name={EMBEDDED}`."
)


class Backbone(nn.Module):
    """A timm Vision Transformer that returns its class token. All parameters are frozen at first."""

    def __init__(self, name: str, vit: Vit, pixels: PixelFormat, architecture: Mapping[str, Any] | None = None):
        super().__init__()
        self.name = name
        self.vit = vit
        self.pixels = pixels
        self.architecture = dict(architecture or {})
        """Sizes that differ from timm's for this name."""
        self.checkpointing = False
        """Use gradient checkpointing: recompute the activations of blocks in the backward pass."""
        self.requires_grad_(False)

    @property
    def dim(self) -> int:
        """Length of the features."""
        return int(self.vit.embed_dim)

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return len(self.vit.blocks)

    @property
    def patch_size(self) -> int:
        """Side of a patch in pixels."""
        return int(self.vit.patch_embed.patch_size[0])

    @property
    def tokens_per_view(self) -> int:
        """Number of tokens per view: class token, registers and patches."""
        return int(self.vit.num_prefix_tokens) + int(self.vit.patch_embed.num_patches)

    def last_blocks(self, n: int) -> Iterator[nn.Parameter]:
        """Parameters of the last n blocks, without the final norm."""
        if not 1 <= n <= self.depth:
            raise Misuse(f"`backbone.trainable_blocks` must be from 1 to {self.depth} for {self.name}. Got {n}.")
        for block in cast(nn.Sequential, self.vit.blocks)[-n:]:
            yield from block.parameters()

    def forward(
        self,
        images: Float[Tensor, "batch 3 height width"],
        tokens: Float[Tensor, "depth n dim"] | None = None,
    ) -> Float[Tensor, "batch dim"]:
        """Compute the class token after the final norm; `tokens` are deep prompt tokens, n per block."""
        return self.finish(self.enter_last_block(images, tokens), tokens)

    def enter_last_block(
        self,
        images: Float[Tensor, "batch 3 height width"],
        tokens: Float[Tensor, "depth n dim"] | None = None,
    ) -> Float[Tensor, "batch length dim"]:
        """Compute the input of the last block. Fine-tuning of the last block does not change it."""
        return self.run_to_last_block(self.embed(images), tokens)

    def embed(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch *patches dim"]:
        """Compute the patch embeddings, without positions."""
        return embed_patches(self.vit, images)

    def with_picture(
        self,
        patches: Float[Tensor, "batch *patches dim"],
        images: Float[Tensor, "batch 3 height width"],
        picture: Float[Tensor, "1 3 height width"],
    ) -> Float[Tensor, "batch *patches dim"]:
        """Compute the patch embeddings of `images + picture` from the patch embeddings of `images`."""
        linear = embeds_linearly(self.vit)
        return patches + embed_shift(self.vit, picture) if linear else embed_patches(self.vit, images + picture)

    def run_to_last_block(
        self, patches: Float[Tensor, "batch *patches dim"], tokens: Float[Tensor, "depth n dim"] | None = None
    ) -> Float[Tensor, "batch length dim"]:
        """Add positions and prefix tokens, then run all blocks but the last."""
        if tokens is not None:
            self.check_takes_tokens()
        vit = self.vit
        x = enter_first_block(vit, patches)
        recompute = self.checkpointing and torch.is_grad_enabled()
        run: Callable[..., Tensor] = partial(checkpoint, use_reentrant=False) if recompute else _call
        for number, block in enumerate(vit.blocks[:-1]):
            if tokens is None:
                x = run(run_block, block, x, rotary_positions(vit)[number])
            else:
                x = run(run_block_with_tokens, block, x, tokens[number])
        return x

    def finish(
        self, x: Float[Tensor, "batch length dim"], tokens: Float[Tensor, "depth n dim"] | None = None
    ) -> Float[Tensor, "batch dim"]:
        """Run the last block and the final norm for the class token only."""
        if tokens is not None:
            self.check_takes_tokens()
            x = with_tokens(x, tokens[-1])
        token = class_token_of_block(self.vit.blocks[-1], x, rotary_positions(self.vit)[-1])
        features: Tensor = self.vit.norm(token)[:, 0]
        return features

    def finish_with_tokens(
        self, x: Float[Tensor, "batch length dim"], tokens: Float[Tensor, "depth n dim"], n_outputs: int
    ) -> tuple[Float[Tensor, "batch dim"], Float[Tensor, "batch dim"]]:
        """Run the last block and the final norm; returns the class token and the mean of the first prompt tokens."""
        self.check_takes_tokens()
        normed: Tensor = self.vit.norm(run_block(self.vit.blocks[-1], with_tokens(x, tokens[-1])))
        return normed[:, 0], normed[:, 1 : 1 + n_outputs].mean(1)

    def check_takes_tokens(self) -> None:
        """Raise if the backbone cannot take deep prompt tokens.

        Rotary positions are indexed from the first patch; inserted tokens would shift the positions of all patches.
        """
        if isinstance(self.vit, Eva):
            raise Misuse(
                f"{self.name} has rotary positions, which do not allow deep prompt tokens. Give a backbone such as "
                "vit_base_patch16_224.dino, or a method with other prompts, such as sptnet with "
                "`prompt.kind=spatial+global`."
            )


def awaits_download(name: str, weights: str | Path | None) -> bool:
    """Return True if building the backbone would download its weights."""
    return name != EMBEDDED and weights is None and cached_weights(name) is None


def build_backbone(
    name: str = "vit_base_patch16_224.dino",
    weights: str | Path | None = None,
    image_size: int | None = None,
    pretrained: bool = True,
    architecture: Mapping[str, Any] | None = None,
    ways_out: str = WAYS_OUT,
    reading: Reading = "quick",
) -> Backbone:
    """Build a backbone by timm name, or the embedded one.

    It has pre-trained weights, those of the file `weights`, or random ones if not `pretrained`. `architecture`
    overrides timm's sizes for the name; there are no pre-trained weights for other sizes. `ways_out` ends the error
    message if the weights cannot be downloaded.
    """
    if name == EMBEDDED:
        pixels = PixelFormat(image_size or EMBEDDED_ARCHITECTURE["img_size"])
        weights = weights or (Path(str(files("sptnet") / "weights" / EMBEDDED_WEIGHTS)) if pretrained else None)
        _check_pixels(pixels.image_size)
        _check_size(pixels.image_size, EMBEDDED_ARCHITECTURE["patch_size"])
        vit = VisionTransformer(**{**EMBEDDED_ARCHITECTURE, "img_size": pixels.image_size}, num_classes=0)
    else:
        check_name(name)
        pixels = pixel_format(name, image_size)
        _check_pixels(pixels.image_size)
        download = pretrained and weights is None
        vit = create_vit(name, pixels.image_size, download, architecture or {}, ways_out)
        _check_size(pixels.image_size, int(vit.patch_embed.patch_size[0]))
    if weights is not None:
        load_weights(vit, read_weights(weights), str(weights))
    return Backbone(name, vit, replace(pixels, reading=reading), architecture)


def check_backbone(settings: BackboneSettings) -> None:
    """Refuse a name that timm does not have and a missing weights file, before time is spent on images."""
    if settings.name != EMBEDDED:
        check_name(settings.name)
    if settings.weights is not None:
        check_weights_file(settings.weights)


def backbone_from(config: Config, world: World, ways_out: str = WAYS_OUT) -> Backbone:
    """Build the backbone of the settings. With several ranks per machine, local rank 0 downloads the weights first."""
    settings, reading = config.backbone, config.reading
    return world.local_rank_zero_first(
        lambda: build_backbone(settings.name, settings.weights, settings.image_size, ways_out=ways_out, reading=reading)
    )


def _call(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
    return function(*arguments)


def _check_pixels(image_size: int) -> None:
    if not 1 <= image_size <= MOST_PIXELS:
        raise Misuse(
            f"an image of {image_size} pixels is too large or too small. Give 1 to {MOST_PIXELS} with "
            "`backbone.image_size`."
        )


def _check_size(image_size: int, patch_size: int) -> None:
    if image_size % patch_size:
        below = max(1, image_size // patch_size) * patch_size
        raise Misuse(
            f"an image of {image_size} pixels cannot be cut into patches of {patch_size}. Give a multiple, such as "
            f"`backbone.image_size={below}`."
        )
