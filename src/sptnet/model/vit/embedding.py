"""What comes before the blocks of a Vision Transformer, in both of timm's makes: VisionTransformer, and Eva.

Eva turns queries and keys by their place in the image (rotary positions); DINOv3 is one.
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
    """Patches as vectors, before they learn their place."""
    patches: Tensor = vit.patch_embed(images)
    return patches


def embed_shift(vit: Vit, picture: Float[Tensor, "1 3 height width"]) -> Float[Tensor, "1 *patches dim"]:
    """What adding a picture to all images adds to their patches.

    The embedding is linear but for its bias: embedding(x + p) = embedding(x) + W p. So a prompt costs as much as one
    image, whatever the batch, and its gradient needs the patches' gradients summed over the batch only.
    """
    embed = vit.patch_embed
    moved = F.conv2d(picture, embed.proj.weight, None, embed.proj.stride, embed.proj.padding)
    if embed.flatten:
        return moved.flatten(2).transpose(1, 2)
    shift: Tensor = nchw_to(moved, embed.output_fmt)
    return shift


def embeds_linearly(vit: Vit) -> bool:
    """Whether nothing but the projection stands between pixels and patches, as in all but a few Vision Transformers."""
    return isinstance(vit.patch_embed.norm, nn.Identity)


def enter_first_block(vit: Vit, patches: Float[Tensor, "batch *patches dim"]) -> Float[Tensor, "batch length dim"]:
    """Class token, registers and patches, with their absolute positions if there are any."""
    embedded = vit._pos_embed(patches)
    x: Tensor = vit.norm_pre(embedded[0] if isinstance(vit, Eva) else vit.patch_drop(embedded))
    return x


def rotary_positions(vit: Vit) -> Sequence[Tensor | None]:
    """For every block its rotary positions, which the image size alone decides; nothing where there are none."""
    if not isinstance(vit, Eva) or vit.rope is None:
        return [None] * len(vit.blocks)
    grid = list(vit.patch_embed.grid_size)
    positions: Tensor = vit.rope.get_embed(shape=grid) if vit.dynamic_img_size else vit.rope.get_embed()
    return list(positions) if vit.rope_mixed else [positions] * len(vit.blocks)


def with_tokens(
    x: Float[Tensor, "batch length dim"], tokens: Float[Tensor, "n dim"]
) -> Float[Tensor, "batch length+n dim"]:
    """Prompt tokens set in behind the class token."""
    return torch.cat([x[:, :1], tokens.expand(x.shape[0], -1, -1), x[:, 1:]], dim=1)


def run_block_with_tokens(
    block: nn.Module, x: Float[Tensor, "batch length dim"], tokens: Float[Tensor, "n dim"]
) -> Float[Tensor, "batch length dim"]:
    return without_tokens(block(with_tokens(x, tokens)), len(tokens))


def without_tokens(x: Float[Tensor, "batch length dim"], n: int) -> Float[Tensor, "batch length-n dim"]:
    """The outputs at the prompt tokens' places are discarded: every block gets its own (VPT, deep)."""
    return torch.cat([x[:, :1], x[:, 1 + n :]], dim=1)
