"""Pixel prompts folded into the position embedding: a trained model that costs what a plain Vision Transformer costs.

Adding the same picture to all images adds the same vectors to their patches (`vit_parts.embed_shift`), and adding a
fixed vector to each patch is just what a position embedding does. So the shift joins it once and for all.

Three things stay as they are. Deep prompt tokens (vpt) take part in the attention. Where a norm stands behind the
projection the shift depends on the image, so the prompts are kept and go on being added to the pixels. And a model
without pixel prompts has nothing to fold.
"""

from copy import deepcopy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sptnet.model.gcd_model import GcdModel
from sptnet.model.vit.embedding import Vit, embed_shift, embeds_linearly
from sptnet.prompts import build_prompt


def can_fold(model: GcdModel) -> bool:
    """Whether the model has pixel prompts, and they only shift its patches."""
    return len(model.prompt.parts) > 0 and embeds_linearly(model.backbone.vit)


@torch.no_grad()
def fold_prompt(model: GcdModel) -> GcdModel:
    """A model of the same features and logits whose positions hold the pixel prompts; itself if they cannot.

    It shares all other weights with the model, so it takes no memory to speak of. It is there to be run: what it
    gives with `prompted=False` is prompted all the same, and its weights do not fit a model directory where the
    Vision Transformer had no position embedding before.
    """
    if not can_fold(model):
        return model
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    folded = deepcopy(model, shared)
    backbone = folded.backbone
    positions = shifted_positions(backbone.vit, embed_shift(backbone.vit, model.prompt.delta()))
    backbone.vit.pos_embed = nn.Parameter(positions, requires_grad=False)
    folded.prompt = build_prompt("none", backbone.pixels.image_size, backbone.patch_size).to(positions.device)
    return folded


def shifted_positions(vit: Vit, shift: Float[Tensor, "1 *patches dim"]) -> Float[Tensor, "1 length dim"]:
    """The position embedding with the patches' part shifted; one is made where positions were only rotary.

    Class token and registers come before the patches, unless the embedding is for patches alone.
    """
    patches = shift.flatten(1, -2)
    prefix = 0 if vit.no_embed_class else int(vit.num_prefix_tokens)
    whole = torch.cat([patches.new_zeros(1, prefix, patches.shape[-1]), patches], dim=1)
    return whole if vit.pos_embed is None else vit.pos_embed + whole
