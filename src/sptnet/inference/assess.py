"""Certainty of a finished run: the only place where the certainty of its images comes from."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from sptnet.data.split import Split
from sptnet.inference.features import Outputs
from sptnet.results.assessment import NOT_CALIBRATED, Assessment


def assess(outputs: Outputs, split: Split, names: tuple[str, ...]) -> Assessment:
    """Assess the outputs of all images of a run; `names` are its categories, the known ones first."""
    guess, probabilities = outputs.categories, outputs.probabilities
    rows = np.arange(len(guess))
    second, second_certainty = np.full_like(guess, -1), np.zeros(len(guess), dtype=np.float32)
    if len(names) > 1:
        second = others(outputs.logits).argmax(1).numpy()
        second_certainty = probabilities[rows, second]
    certainty = probabilities[rows, guess]
    return Assessment(guess, certainty, second, second_certainty, None, NOT_CALIBRATED, None)


def others(logits: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """Return the logits with the largest per image replaced by minus infinity."""
    return logits.scatter(1, logits.argmax(1, keepdim=True), -torch.inf)
