"""What a model makes of images: a feature each, and from it the logits of the categories."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sptnet.head import Head
from sptnet.losses import STUDENT_TEMPERATURE
from sptnet.model.gcd_model import GcdModel
from sptnet.runtime.compute import Compute, eval_mode
from sptnet.runtime.memory import memory_kept


@dataclass(frozen=True)
class Outputs:
    """Features and logits of images, in their order."""

    features: Tensor
    logits: Tensor

    @property
    def categories(self) -> npt.NDArray[np.int64]:
        return self.logits.argmax(1).numpy()

    @property
    def probabilities(self) -> npt.NDArray[np.float32]:
        return (self.logits / STUDENT_TEMPERATURE).softmax(1).numpy()

    @property
    def unit_features(self) -> npt.NDArray[np.float32]:
        """Features of length one."""
        return F.normalize(self.features, dim=1).numpy()


def run_model(model: GcdModel, views: Iterable[Tensor], compute: Compute, prompted: bool = True) -> Outputs:
    """Features and logits of normalised views, batch by batch, in float32 on the CPU."""
    features = model_features(model, views, compute, prompted)
    return Outputs(features, classify(model.head, features, compute))


@memory_kept()
@torch.inference_mode()
def model_features(
    model: GcdModel, views: Iterable[Tensor], compute: Compute, prompted: bool = True
) -> Float[Tensor, "n dim"]:
    features = [torch.empty(0, model.backbone.dim)]
    with eval_mode(model):
        for batch in views:
            with compute.autocast():
                features.append(model.features(batch.to(compute.device), prompted).float().cpu())
    return torch.cat(features)


@torch.inference_mode()
def classify(head: Head, features: Float[Tensor, "n dim"], compute: Compute, rows: int = 4096) -> Float[Tensor, "n k"]:
    """Logits of features on the CPU, some rows at a time."""
    with compute.autocast():
        parts = [head.classify(part.to(compute.device)).float().cpu() for part in features.split(rows)]
    return torch.cat(parts)
