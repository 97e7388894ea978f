"""Attention of the last block: per head, from the class token and from each patch to all patches."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sptnet.data.image_file import ImageSource
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.errors import Misuse
from sptnet.model.gcd_model import GcdModel
from sptnet.model.vit.embedding import rotary_positions, with_tokens
from sptnet.model.vit.last_block import run_block
from sptnet.runtime.compute import Compute, eval_mode

BATCH_SIZE = 16


@dataclass(frozen=True, eq=False)
class AttentionMaps:
    """Attention of every head of the last block for one image."""

    image: npt.NDArray[np.uint8]
    """side x side x 3: the centre view at the image size of the model, without normalisation and prompts."""
    grid: int
    """Patches per side."""
    heads: npt.NDArray[np.float32]
    """heads x (1 + grid²) x grid²: from the class token (row 0) or a patch (row 1 + i, row-major) to every patch."""


@torch.inference_mode()
def last_block_attention(
    model: GcdModel, sources: Sequence[ImageSource], crop_ratio: float, compute: Compute, prompted: bool = True
) -> list[AttentionMaps]:
    """Compute the attention of the last block for the centre view of every image; `prompted=False` omits the prompts.

    Attention is distributed over all tokens, so the sum of a row over the patches alone is less than one.
    """
    model = model.to(compute.device)
    pixels = model.backbone.pixels
    store, maker = ImageStore(sources, pixels, crop_ratio, cache_mb=0), ViewMaker(pixels)
    grid = pixels.image_size // model.backbone.patch_size
    maps = []
    for first in range(0, len(sources), BATCH_SIZE):
        batch = range(first, min(first + BATCH_SIZE, len(sources)))
        views = torch.stack([maker.centre_view(store[i]) for i in batch])
        with eval_mode(model), compute.autocast():
            weights = attention_weights(model, maker.normalise(views).to(compute.device), prompted)
        kept = torch.tensor([0, *range(weights.shape[-1] - grid * grid, weights.shape[-1])], device=weights.device)
        heads = weights[:, :, kept][..., kept[1:]].float().cpu().numpy()
        for view, image_heads in zip(views, heads, strict=True):
            maps.append(AttentionMaps(view.permute(1, 2, 0).numpy(), grid, image_heads))
    return maps


def attention_weights(
    model: GcdModel, images: Float[Tensor, "n 3 h w"], prompted: bool = True
) -> Float[Tensor, "n heads length length"]:
    """Compute the attention between all tokens: class token, prompt tokens, registers, patches. Rows sum to one."""
    backbone = model.backbone
    tokens = model.tokens.values if prompted and model.tokens is not None else None
    x = backbone.enter_last_block(model.prompt(images) if prompted else images, tokens)
    if tokens is not None:
        x = with_tokens(x, tokens[-1])
    block = backbone.vit.blocks[-1]
    with _recorded_attention(block) as weights:
        run_block(block, x, rotary_positions(backbone.vit)[-1])
    return torch.cat(weights, dim=1)


@contextmanager
def _recorded_attention(block: nn.Module) -> Iterator[list[Tensor]]:
    """Record the softmax outputs of a block: every attention layer of timm passes them to its dropout.

    Fused attention does not, so it is switched off meanwhile.
    """
    recorded: list[Tensor] = []
    layers: list[Any] = [module for module in block.modules() if hasattr(module, "fused_attn")]
    was_fused = [layer.fused_attn for layer in layers]
    hooks = [
        layer.get_submodule("attn_drop").register_forward_pre_hook(lambda _, inputs: recorded.append(inputs[0]))
        for layer in layers
    ]
    try:
        for layer in layers:
            layer.fused_attn = False
        yield recorded
    finally:
        for layer, fused, hook in zip(layers, was_fused, hooks, strict=True):
            layer.fused_attn = fused
            hook.remove()


def most_attended(weights: Float[np.ndarray, "*rows patches"], share: float) -> Bool[np.ndarray, "*rows patches"]:
    """Mark the top share of the patches per row, rounded up; ties go to earlier patches."""
    check_share(share)
    n = weights.shape[-1]
    n_top = math.ceil(round(share * n, 9))  # rounded first: 0.1 * 30 is slightly more than 3
    top = np.argsort(-weights, axis=-1, kind="stable")[..., :n_top]
    mask = np.zeros(weights.shape, dtype=np.bool_)
    np.put_along_axis(mask, top, True, axis=-1)
    return mask


def check_share(share: float) -> None:
    """Refuse a share outside (0, 1]."""
    if not 0 < share <= 1:
        raise Misuse(f"a share of {share:g} of the patches cannot be shown. Give one above 0 and up to 1, such as 0.1.")
