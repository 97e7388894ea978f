"""Certainty of a finished run: the only place where the certainty of its images comes from.

The certainty is a logistic regression on evidence in features that training has not changed: neighbours, lead over
other categories, and stability under repeated clustering (`clustering/sorting_evidence.py`). Its coefficients were
chosen on folders drawn from CUB and CIFAR-100, where the truth is known (docs/results.md).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from sptnet.clustering.sorting_evidence import SortingEvidence, sorting_evidence
from sptnet.data.split import Split
from sptnet.inference.features import Outputs
from sptnet.model.calibrator import Calibrator, Line, log_odds, softmax_of, with_certainty
from sptnet.results.assessment import NOT_CALIBRATED, Assessment
from sptnet.results.expected_accuracy import ExpectedAccuracy

LEAST_LEAD, MOST_LEAD = -0.3, 0.5
LEAST_SHARE = 0.05  # shares are kept this far from 0 and 1
FEW_IMAGES, FEW_LABELS = 10, 2  # numbers that halve the weight of the evidence, about
PRIOR_IMAGES = 2  # labelled images that are taken to be as certain as expected
ERROR_PER_LABEL, RANGE = 0.3, 1.65  # standard deviation for one label; of a 90 % range
LEAST_KNOWN = 2
TOO_FEW_KNOWN = "to tell takes at least two known categories."
NOTHING_UNSORTED = "no image is unsorted."

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Coefficients:
    """Logistic regression on the evidence, and the standard deviation of its mean over many images."""

    offset: float
    neighbours: float
    """Of the log-odds of the share of neighbours."""
    lead: float
    stability: float
    """Of the log-odds of the stability."""
    new: float
    """For images in new categories."""
    error: float


CLUSTERED = Coefficients(-0.63, 0.195, 4.05, 0.48, 0.37, error=0.06)
TRAINED = Coefficients(0.5, 0.26, 5.6, 0.2, -0.83, error=0.085)
"""A trained model departs from the clusters of frozen features, mostly rightly where it names a known category."""


def assess(
    outputs: Outputs,
    split: Split,
    names: tuple[str, ...],
    frozen: Float[Tensor, "n dim"] | None = None,
    seed: int = 0,
    trained: bool = False,
) -> Assessment:
    """Assess the outputs of all images of a run; `names` are its categories, the known ones first.

    `frozen` are features of the same images before training, if the model was `trained`, or its own features. Without
    them the certainty is the softmax of the logits, which is not calibrated: features that were trained on their own
    categories show no errors.
    """
    guess, n_known, unsorted = outputs.categories, split.n_known, split.unlabelled
    coefficients = TRAINED if trained else CLUSTERED
    expected: ExpectedAccuracy | None = None
    reason, calibrator = NOT_CALIBRATED, None
    if frozen is None:
        certainty = softmax_of(outputs.logits).max(1)
    else:
        ranks = np.full(len(guess), -1, dtype=np.int64)
        ranks[split.labelled] = split.target[split.labelled]
        evidence = sorting_evidence(F.normalize(frozen, dim=1).numpy(), ranks, guess, len(names), seed)
        certainty = certainty_from(evidence, guess >= n_known, coefficients)
        certainty = toward_half(certainty, len(guess), len(split.labelled), len(np.unique(guess)))
        certainty *= kept_promise(certainty[split.labelled], guess[split.labelled] == split.target[split.labelled])
    second, second_certainty = np.full_like(guess, -1), np.zeros(len(guess), dtype=np.float32)
    if len(names) > 1:
        probabilities = with_certainty(outputs.logits, certainty)
        certainty = probabilities.max(1)
        second = others(outputs.logits).argmax(1).numpy()
        second_certainty = probabilities[np.arange(len(guess)), second].astype(np.float32)
    if frozen is not None:
        n_labels, error = len(split.labelled), coefficients.error
        expected, reason = expectation(certainty[unsorted], guess[unsorted], names, n_known, n_labels, error)
        if len(names) > 1:
            calibrator = fit_calibrator(outputs.logits[unsorted], certainty[unsorted], n_known)
    return Assessment(guess, certainty.astype(np.float32), second, second_certainty, expected, reason, calibrator)


def certainty_from(evidence: SortingEvidence, is_new: npt.NDArray[np.bool_], by: Coefficients = CLUSTERED) -> Floats:
    """Return the probability per image that its category is right."""
    score = by.offset + by.neighbours * log_odds(evidence.neighbours, LEAST_SHARE) + by.new * is_new
    score += by.lead * np.clip(evidence.lead, LEAST_LEAD, MOST_LEAD)
    score += by.stability * log_odds(evidence.stability, LEAST_SHARE)
    probabilities: Floats = 1 / (1 + np.exp(-score))
    return probabilities


def toward_half(certainty: Floats, n_images: int, n_labels: int, n_used: int) -> Floats:
    """Move the certainty towards one half, the less is known; a single category in use says nothing at all."""
    weight = n_images / (n_images + FEW_IMAGES) * (n_labels + 1) / (n_labels + 1 + FEW_LABELS) * (n_used > 1)
    return 0.5 + weight * (certainty - 0.5)


def kept_promise(certainty: Floats, right: npt.NDArray[np.bool_]) -> float:
    """Return a factor of at most 1 for the certainty: less if labels contradict the model more often than it expects.

    Labelled images take part in the sorting, so that they are right more often than others. If they are not, as with
    images that all look alike, nothing is.
    """
    return min(1.0, (float(right.sum()) + PRIOR_IMAGES) / (float(certainty.sum()) + PRIOR_IMAGES))


def expectation(
    certainty: Floats, guess: Ids, names: tuple[str, ...], n_known: int, n_labels: int, error: float
) -> tuple[ExpectedAccuracy | None, str]:
    """Return the expected share of right images with a 90 % range, or None and the reason."""
    if len(certainty) == 0:
        return None, NOTHING_UNSORTED
    if n_known < LEAST_KNOWN:
        return None, TOO_FEW_KNOWN
    value = float(certainty.mean())
    by_chance = math.sqrt(value * (1 - value) / len(certainty))
    half = RANGE * math.hypot(error, ERROR_PER_LABEL / math.sqrt(max(n_labels, 1)), by_chance)
    shares = {names[i]: float(certainty[guess == i].mean()) for i in np.unique(guess)}
    return ExpectedAccuracy(value, max(0.0, value - half), min(1.0, value + half), shares), ""


def fit_calibrator(logits: Float[Tensor, "n k"], certainty: Floats, n_known: int) -> Calibrator | None:
    """Fit the certainty that logits alone give: a line between log-odds for known and for new categories each."""
    if len(certainty) == 0:
        return None
    raw, known = log_odds(softmax_of(logits).max(1)), logits.argmax(1).numpy() < n_known
    wanted = log_odds(certainty)
    both = fit_line(raw, wanted, np.ones_like(known))
    return Calibrator(*(fit_line(raw, wanted, kind) if kind.sum() >= 10 else both for kind in (known, ~known)))


def fit_line(raw: Floats, wanted: Floats, which: npt.NDArray[np.bool_]) -> Line:
    """Fit a line by least squares; its slope is not negative."""
    x, y = raw[which], wanted[which]
    spread = float(((x - x.mean()) ** 2).sum())
    slope = max(0.0, float(((x - x.mean()) * (y - y.mean())).sum()) / spread) if spread > 0 else 0.0
    return Line(slope, float(y.mean() - slope * x.mean()))


def others(logits: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """Return the logits with the largest per image replaced by minus infinity."""
    return logits.scatter(1, logits.argmax(1, keepdim=True), -torch.inf)
