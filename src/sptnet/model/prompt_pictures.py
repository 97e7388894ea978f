"""Pictures of the learned pixel prompts.

Prompts are added to normalised pixels, so their values are unbounded. In a picture zero is middle grey; the scale is
symmetric, the same in all channels, and reaches black and white at the 99th percentile of the prompted pixels.
"""

import io
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from sptnet.model.gcd_model import GcdModel
from sptnet.prompts import Prompt, SpatialPrompt

LEAST_SIDE = 224
PERCENTILE = 99
GREY = 128
COMPOSED = "composed"


@dataclass(frozen=True)
class Picture:
    """A picture of a prompt as PNG."""

    title: str
    """spatial, shared, global or composed."""
    png: bytes


def prompt_pictures(model: GcdModel) -> list[Picture]:
    """Draw each part of the prompts at its own scale, and all composed if there are several; [] without prompts."""
    pictures = []
    for title, delta in prompt_deltas(model).items():
        stream = io.BytesIO()
        enlarged(as_picture(delta, scale_of([delta]))).save(stream, format="PNG")
        pictures.append(Picture(title, stream.getvalue()))
    return pictures


@torch.no_grad()
def prompt_deltas(model: GcdModel) -> dict[str, Float[Tensor, "3 height width"]]:
    """Return the values added to normalised images by title: parts inside patches, the border, and all composed."""
    parts = [cast(Prompt, part) for part in model.prompt.parts]
    inner_first = sorted(parts, key=lambda part: not isinstance(part, SpatialPrompt))
    deltas = {_title(part): part.delta()[0].float().cpu() for part in inner_first}
    if len(parts) > 1:
        deltas[COMPOSED] = model.prompt.delta()[0].float().cpu()
    return deltas


def _title(part: Prompt) -> str:
    return ("shared" if part.shared else "spatial") if isinstance(part, SpatialPrompt) else "global"


def scale_of(deltas: Iterable[Float[Tensor, "3 height width"]]) -> float:
    """Return the value drawn as white: the 99th percentile of the non-zero magnitudes; 1 if all values are zero."""
    magnitudes = np.concatenate([delta[delta != 0].abs().numpy() for delta in deltas])
    return float(np.percentile(magnitudes, PERCENTILE)) if len(magnitudes) else 1.0


def as_picture(delta: Float[Tensor, "3 height width"], scale: float) -> npt.NDArray[np.uint8]:
    """Return height x width x 3 levels: 1 at minus the scale and below, 128 at zero, 255 at the scale and above."""
    levels = GREY + (GREY - 1) * np.clip(delta.permute(1, 2, 0).numpy() / scale, -1, 1)
    return np.rint(levels).astype(np.uint8)


def enlarged(pixels: npt.NDArray[np.uint8]) -> Image.Image:
    """Enlarge by a whole factor to at least 224 pixels per side, without interpolation."""
    height, width = pixels.shape[:2]
    factor = math.ceil(LEAST_SIDE / min(height, width))
    return Image.fromarray(pixels).resize((width * factor, height * factor), Image.Resampling.NEAREST)
