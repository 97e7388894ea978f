"""Predict images with a trained model: `sptnet.load` and its result."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from sptnet.data.loader import iterate_centre_views
from sptnet.data.store import ImageStore
from sptnet.data.views import ViewMaker
from sptnet.errors import Misuse
from sptnet.inference.features import Outputs, compute_outputs
from sptnet.model.folding import fold_prompt
from sptnet.model.gcd_model import GcdModel
from sptnet.model.model_folder import ModelCard, load_model
from sptnet.runtime.compute import Compute, choose_compute

ImageInputs = Sequence[str | Path | Image.Image | npt.NDArray[Any]] | npt.NDArray[Any] | str | Path | Image.Image


class Predictor:
    """Trained model with its category names; takes paths, PIL images and arrays."""

    def __init__(self, model: GcdModel, card: ModelCard, compute: Compute, batch_size: int = 64):
        self.model = model.to(compute.device).eval()
        self.card, self.compute, self.batch_size = card, compute, batch_size

    @cached_property
    def folded(self) -> GcdModel:
        """Model used for prediction, with pixel prompts folded into the position embedding where possible."""
        return fold_prompt(self.model)

    @property
    def categories(self) -> tuple[str, ...]:
        """Names of the categories: known ones first, then discovered ones."""
        return self.card.categories

    @property
    def n_known(self) -> int:
        """Number of known categories."""
        return self.card.n_known

    def outputs(self, images: ImageInputs, prompted: bool = True) -> Outputs:
        """Compute features and logits; `prompted=False` omits the prompts."""
        sources = as_sources(images)
        pixels = self.model.backbone.pixels
        store = ImageStore(sources, pixels, self.card.crop_ratio, cache_mb=0)
        views = iterate_centre_views(store, ViewMaker(pixels), np.arange(len(sources)), self.batch_size)
        return compute_outputs(self.folded if prompted else self.model, views, self.compute, prompted)

    def predict(self, images: ImageInputs) -> npt.NDArray[np.int64]:
        """Return the category per image, as an index into `categories`."""
        return self.outputs(images).categories

    def predict_proba(self, images: ImageInputs) -> npt.NDArray[np.float32]:
        """Return class probabilities, images x categories; calibrated if the model has a calibrator."""
        return self.probabilities(self.outputs(images))

    def probabilities(self, outputs: Outputs) -> npt.NDArray[np.float32]:
        """Return the class probabilities of outputs, images x categories; calibrated if the model has a calibrator."""
        calibrator = self.card.calibrator
        if calibrator is None:
            return outputs.probabilities
        return calibrator.probabilities(outputs.logits, self.n_known).astype(np.float32)

    def features(self, images: ImageInputs) -> npt.NDArray[np.float32]:
        """Return the class token per image, images x dim, with prompts."""
        return self.outputs(images).features.numpy()

    @torch.inference_mode()
    def logits(self, x: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n k"]:
        """Compute logits, which are cosines, for a batch of normalised images, with prompts."""
        with self.compute.autocast():
            logits: Tensor = self.folded(x.to(self.compute.device))[1]
        return logits.float()


def as_sources(images: ImageInputs) -> list[Any]:
    """Return a list of images from one image, a sequence of images or an array with the images on its first axis."""
    if isinstance(images, str | Path | Image.Image):
        return [Path(images) if isinstance(images, str) else images]
    if isinstance(images, np.ndarray) and (images.ndim == 2 or (images.ndim == 3 and images.shape[-1] in (1, 3, 4))):
        return [images]
    if isinstance(images, np.ndarray) and images.ndim not in (3, 4):
        raise Misuse(f"an array of images has 3 or 4 axes, the first for images. Got shape {images.shape}.")
    return [Path(image) if isinstance(image, str) else image for image in images]


def load(path: str | Path, device: str = "auto", local_rank: int = 0) -> Predictor:
    """Load the model of a run or of a model directory for prediction; device `auto` is the GPU of the local rank."""
    model, card = load_model(path)
    return Predictor(model, card, choose_compute(device, local_rank=local_rank))
