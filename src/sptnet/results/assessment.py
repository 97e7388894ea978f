"""Certainty of a finished run about its images, and the part of it that `run.json` holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sptnet.errors import Failure
from sptnet.results.expected_accuracy import ExpectedAccuracy

if TYPE_CHECKING:  # needs torch, which reading a run does not
    from sptnet.model.calibrator import Calibrator

NOT_CALIBRATED = "the certainty of this run is the model's own and was not tested."

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Assessment:
    """First and second choice of a model per image with their certainty, and the expected accuracy of the run."""

    guess: Ids
    """The model's own category, of shape (n,)."""
    certainty: Floats
    """Probability that `guess` is right, of shape (n,)."""
    second: Ids
    """The second choice, of shape (n,); -1 if there is only one category."""
    second_certainty: Floats
    """Probability that `second` is right, of shape (n,); 0 where there is none."""
    expected: ExpectedAccuracy | None
    """Expected accuracy on the unsorted images, if it can be estimated."""
    reason: str
    """Reason why there is no expected accuracy, as the end of a sentence; "" if there is one."""
    calibrator: "Calibrator | None"
    """Calibration for other images, if there is one."""

    def facts(self) -> dict[str, Any]:
        """Return the entries of `run.json`."""
        if self.expected is None:
            return {"expected_accuracy": None, "expected_accuracy_reason": self.reason}
        return {"expected_accuracy": self.expected.as_dict()}


def read_expectation(facts: Mapping[str, Any]) -> tuple[ExpectedAccuracy | None, str]:
    """Return the expected accuracy in the facts of a run, or None and the reason; "" is the reason if there is one."""
    value = facts.get("expected_accuracy")
    try:
        if value is not None:
            return ExpectedAccuracy.from_dict(value), ""
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Failure(
            f"the expected accuracy in run.json is damaged ({error!r}). Remove the entry expected_accuracy."
        ) from error
    return None, str(facts.get("expected_accuracy_reason") or NOT_CALIBRATED)
