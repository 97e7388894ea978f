"""The token bank of a run: where it lies, and what its tokens depend on."""

from pathlib import Path

import torch

from sptnet.backbone import Backbone
from sptnet.checkpoint import digest
from sptnet.config import Views
from sptnet.token_bank import TokenBank


def open_bank(views: Views, run: Path, backbone: Backbone, n_images: int, fingerprint: str) -> TokenBank | None:
    """The bank that the settings ask for; a later stage finds what an earlier one filled in."""
    if views.bank == 0:
        return None
    folder = Path(views.bank_folder) if views.bank_folder else run / "tokens"
    last_block = f"vit.blocks.{backbone.depth - 1}."
    weights = {name: value for name, value in backbone.state_dict().items() if not name.startswith(last_block)}
    device = next(backbone.parameters()).device
    with torch.no_grad():
        length = backbone.enter_last_block(torch.zeros(1, 3, *(backbone.pixels.image_size,) * 2, device=device)).shape[
            1
        ]
    key = f"{digest(weights)} {fingerprint} {backbone.pixels} {views.crop_ratio} {views.flip}"
    return TokenBank(folder, n_images, views.bank, length, backbone.dim, key)
