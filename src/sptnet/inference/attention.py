"""Where the last block looks: the attention of every head, from the class token and from each patch to the patches."""

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
    """One image and what every head of the last block makes of it."""

    image: npt.NDArray[np.uint8]
    """side x side x 3: the centre view at the model's own size, without normalisation and prompts."""
    grid: int
    """Patches a side."""
    heads: npt.NDArray[np.float32]
    """heads x (1 + grid²) x grid²: from the class token (row 0) or a patch (row 1 + i, line by line) to every patch."""


@torch.inference_mode()
def last_block_attention(
    model: GcdModel, sources: Sequence[ImageSource], crop_ratio: float, compute: Compute, prompted: bool = True
) -> list[AttentionMaps]:
    """The attention of the last block for the centre view of every image; `prompted=False` leaves the prompts out.

    A token shares its attention among all tokens, so over the patches alone a row sums to less than one.
    """
    model = model.to(compute.device)
    pixels = model.backbone.pixels
    store, maker = ImageStore(sources, pixels, crop_ratio, cache_mb=0), ViewMaker(pixels)
    grid = pixels.image_size // model.backbone.patch_size
    found = []
    for first in range(0, len(sources), BATCH_SIZE):
        batch = range(first, min(first + BATCH_SIZE, len(sources)))
        views = torch.stack([maker.centre_view(store[i]) for i in batch])
        with eval_mode(model), compute.autocast():
            weights = all_weights(model, maker.normalise(views).to(compute.device), prompted)
        kept = torch.tensor([0, *range(weights.shape[-1] - grid * grid, weights.shape[-1])], device=weights.device)
        heads = weights[:, :, kept][..., kept[1:]].float().cpu().numpy()
        for view, of_image in zip(views, heads, strict=True):
            found.append(AttentionMaps(view.permute(1, 2, 0).numpy(), grid, of_image))
    return found


def all_weights(
    model: GcdModel, images: Float[Tensor, "n 3 h w"], prompted: bool = True
) -> Float[Tensor, "n heads length length"]:
    """From every token to every token: class token, prompt tokens, registers, patches. Rows sum to one."""
    backbone = model.backbone
    tokens = model.tokens.values if prompted and model.tokens is not None else None
    x = backbone.enter_last_block(model.prompt(images) if prompted else images, tokens)
    if tokens is not None:
        x = with_tokens(x, tokens[-1])
    block = backbone.vit.blocks[-1]
    with _heard(block) as weights:
        run_block(block, x, rotary_positions(backbone.vit)[-1])
    return torch.cat(weights, dim=1)


@contextmanager
def _heard(block: nn.Module) -> Iterator[list[Tensor]]:
    """Collects what the softmax of the block gives, whatever its make: all of timm's hand it to their dropout.

    Only the computation in single steps does so; it takes the place of the fused one meanwhile.
    """
    heard: list[Tensor] = []
    makers: list[Any] = [module for module in block.modules() if hasattr(module, "fused_attn")]
    was_fused = [module.fused_attn for module in makers]
    hooks = [
        module.get_submodule("attn_drop").register_forward_pre_hook(lambda _, given: heard.append(given[0]))
        for module in makers
    ]
    try:
        for module in makers:
            module.fused_attn = False
        yield heard
    finally:
        for module, fused, hook in zip(makers, was_fused, hooks, strict=True):
            module.fused_attn = fused
            hook.remove()


def most_attended(weights: Float[np.ndarray, "*rows patches"], share: float) -> Bool[np.ndarray, "*rows patches"]:
    """True on the top share of the patches, rounded up; of equal ones the earlier."""
    check_share(share)
    n = weights.shape[-1]
    n_top = math.ceil(round(share * n, 9))  # 0.1 * 30 is a little more than 3
    top = np.argsort(-weights, axis=-1, kind="stable")[..., :n_top]
    mask = np.zeros(weights.shape, dtype=np.bool_)
    np.put_along_axis(mask, top, True, axis=-1)
    return mask


def check_share(share: float) -> None:
    if not 0 < share <= 1:
        raise Misuse(f"a share of {share:g} of the patches cannot be shown. Give one above 0 and up to 1, such as 0.1.")
