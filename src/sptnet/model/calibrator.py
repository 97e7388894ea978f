"""Calibrated probabilities from logits: the largest one is the probability that the category is right."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from sptnet.losses import STUDENT_TEMPERATURE

LEAST_MARGIN = 1e-6  # between the largest probability and all others

Floats = npt.NDArray[np.float64]


def softmax_of(logits: Float[Tensor, "n k"]) -> Floats:
    """Return the uncalibrated probabilities, n x k."""
    return (logits.double() / STUDENT_TEMPERATURE).softmax(1).numpy()


def log_odds(probabilities: Floats, least: float = 1e-6) -> Floats:
    """Return the logarithm of p / (1 - p); probabilities are kept at least `least` away from 0 and 1."""
    clipped = np.clip(probabilities, least, 1 - least)
    odds: Floats = np.log(clipped / (1 - clipped))
    return odds


@dataclass(frozen=True)
class Line:
    """Straight line between log-odds."""

    slope: float
    offset: float

    def __call__(self, values: Floats) -> Floats:
        """Apply the line to probabilities."""
        return 1 / (1 + np.exp(-(self.slope * log_odds(values) + self.offset)))


@dataclass(frozen=True)
class Calibrator:
    """Maps the largest softmax probability to the probability of being right, for known and new categories apart."""

    known: Line
    new: Line

    def probabilities(self, logits: Float[Tensor, "n k"], n_known: int) -> Floats:
        """Return calibrated probabilities, n x k; the most likely category stays the same."""
        raw = softmax_of(logits)
        if raw.size == 0:
            return raw
        largest = raw.max(1)
        certainty = np.where(logits.argmax(1).numpy() < n_known, self.known(largest), self.new(largest))
        return with_certainty(logits, certainty)

    def as_dict(self) -> dict[str, list[float]]:
        """Return slope and offset by kind of category."""
        return {name: [line.slope, line.offset] for name, line in (("known", self.known), ("new", self.new))}

    @staticmethod
    def from_dict(facts: Mapping[str, Any]) -> "Calibrator":
        """Read what `as_dict` returns."""
        known, new = (Line(*(float(value) for value in facts[name])) for name in ("known", "new"))
        if not np.isfinite([known.slope, known.offset, new.slope, new.offset]).all():
            raise ValueError("the calibrator is not finite")
        return Calibrator(known, new)


def with_certainty(logits: Float[Tensor, "n k"], certainty: npt.NDArray[Any]) -> Floats:
    """Return probabilities, n x k, whose maximum is at the largest logit and has the given value.

    The other categories share the rest in proportion to their softmax, evened out as far as needed to stay below the
    maximum. A certainty below 1 / k is raised to it, as no distribution has a smaller maximum.
    """
    n, k = logits.shape
    if k == 1:
        return np.ones((n, 1))
    best = logits.argmax(1).numpy()
    top = np.clip(certainty.astype(np.float64), 1 / k + LEAST_MARGIN, 1.0)
    others = logits.double().clone()
    others[torch.arange(n), torch.from_numpy(best)] = -torch.inf
    shares = softmax_of(others) * (1 - top)[:, None]
    even = ((1 - top) / (k - 1))[:, None]
    most, limit = shares.max(1, keepdims=True), (top - LEAST_MARGIN)[:, None]
    mix = np.where(most > limit, (most - limit) / np.maximum(most - even, 1e-300), 0.0)
    result = (1 - mix) * shares + mix * even
    result[np.arange(n), best] = top
    return result
