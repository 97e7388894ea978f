"""What comes before the blocks of a Vision Transformer, in both of timm's makes: VisionTransformer, and Eva.

Eva turns queries and keys by their place in the image (rotary positions); DINOv3 is one.
"""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from jaxtyping import Float
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

Vit: TypeAlias = VisionTransformer | Eva


def enter_first_block(vit: Vit, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch length dim"]:
    """Class token, registers and patches, with their absolute positions if there are any."""
    embedded = vit._pos_embed(vit.patch_embed(images))
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
    return torch.cat([x[:, :1], tokens.expand(len(x), -1, -1), x[:, 1:]], dim=1)


def without_tokens(x: Float[Tensor, "batch length dim"], n: int) -> Float[Tensor, "batch length-n dim"]:
    """The outputs at the prompt tokens' places are discarded: every block gets its own (VPT, deep)."""
    return torch.cat([x[:, :1], x[:, 1 + n :]], dim=1)
