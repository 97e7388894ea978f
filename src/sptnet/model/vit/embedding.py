"""Patch embedding, positions and prompt tokens for both of timm's classes: VisionTransformer and Eva.

Eva, which DINOv3 is built on, has rotary position embeddings.
"""

from collections.abc import Sequence
from typing import TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from timm.layers import nchw_to
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

Vit: TypeAlias = VisionTransformer | Eva


def embed_patches(vit: Vit, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch *patches dim"]:
    """Compute the patch embeddings, without positions."""
    patches: Tensor = vit.patch_embed(images)
    return patches


def embed_shift(vit: Vit, picture: Float[Tensor, "1 3 height width"]) -> Float[Tensor, "1 *patches dim"]:
    """Compute the shift of the patch embeddings that adding a picture to the images causes.

    The embedding is affine: embedding(x + p) = embedding(x) + W p. So a prompt costs as much as one image, whatever
    the batch size, and its gradient needs only the sum of the patch gradients over the batch.
    """
    embed = vit.patch_embed
    projected = F.conv2d(picture, embed.proj.weight, None, embed.proj.stride, embed.proj.padding)
    if embed.flatten:
        return projected.flatten(2).transpose(1, 2)
    shift: Tensor = nchw_to(projected, embed.output_fmt)
    return shift


def embeds_linearly(vit: Vit) -> bool:
    """Return True if the patch embedding is a projection without a norm, as in most Vision Transformers."""
    return isinstance(vit.patch_embed.norm, nn.Identity)


def enter_first_block(vit: Vit, patches: Float[Tensor, "batch *patches dim"]) -> Float[Tensor, "batch length dim"]:
    """Compute the input of the first block: class token, registers and patches, with absolute positions if any."""
    embedded = vit._pos_embed(patches)
    x: Tensor = vit.norm_pre(embedded[0] if isinstance(vit, Eva) else vit.patch_drop(embedded))
    return x


def rotary_positions(vit: Vit) -> Sequence[Tensor | None]:
    """Return the rotary position embedding per block, None where there is none. It depends on the image size only."""
    if not isinstance(vit, Eva) or vit.rope is None:
        return [None] * len(vit.blocks)
    grid = list(vit.patch_embed.grid_size)
    positions: Tensor = vit.rope.get_embed(shape=grid) if vit.dynamic_img_size else vit.rope.get_embed()
    return list(positions) if vit.rope_mixed else [positions] * len(vit.blocks)


def with_tokens(
    x: Float[Tensor, "batch length dim"], tokens: Float[Tensor, "n dim"]
) -> Float[Tensor, "batch length+n dim"]:
    """Insert prompt tokens after the class token."""
    return torch.cat([x[:, :1], tokens.expand(x.shape[0], -1, -1), x[:, 1:]], dim=1)


def run_block_with_tokens(
    block: nn.Module, x: Float[Tensor, "batch length dim"], tokens: Float[Tensor, "n dim"]
) -> Float[Tensor, "batch length dim"]:
    """Run a block with prompt tokens inserted, and drop their outputs."""
    return without_tokens(block(with_tokens(x, tokens)), len(tokens))


def without_tokens(x: Float[Tensor, "batch length dim"], n: int) -> Float[Tensor, "batch length-n dim"]:
    """Drop the outputs at the n prompt tokens: each block has its own tokens (VPT-deep)."""
    return torch.cat([x[:, :1], x[:, 1 + n :]], dim=1)
