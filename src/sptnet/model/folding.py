"""Fold pixel prompts into the position embedding, so that a trained model costs as much as a plain ViT.

Adding one picture to all images adds constant vectors to their patch embeddings (`vit.embedding.embed_shift`). These
vectors are added to the position embedding once.

Not folded are deep prompt tokens (vpt), which take part in the attention, and pixel prompts where the patch embedding
has a norm after its projection: there the shift depends on the image.
"""

from copy import deepcopy

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sptnet.model.gcd_model import GcdModel
from sptnet.model.vit.embedding import Vit, embed_shift, embeds_linearly
from sptnet.prompts import build_prompt


def can_fold(model: GcdModel) -> bool:
    """Return True if the model has pixel prompts that shift its patch embeddings by constants."""
    return len(model.prompt.parts) > 0 and embeds_linearly(model.backbone.vit)


@torch.no_grad()
def fold_prompt(model: GcdModel) -> GcdModel:
    """Return a model with equal features and logits whose position embedding contains the pixel prompts.

    The same model is returned if its prompts cannot be folded. All other weights are shared with the given model.
    The folded model is for inference: its features are prompted even with `prompted=False`, and it cannot be saved
    as a model directory if the Vision Transformer had no position embedding before.
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
    """Return the position embedding with the shift added to its patches; a new one if positions were only rotary.

    Class token and registers precede the patches, unless the embedding is for patches only.
    """
    patches = shift.flatten(1, -2)
    prefix = 0 if vit.no_embed_class else int(vit.num_prefix_tokens)
    whole = torch.cat([patches.new_zeros(1, prefix, patches.shape[-1]), patches], dim=1)
    return whole if vit.pos_embed is None else vit.pos_embed + whole
