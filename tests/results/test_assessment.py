"""Expected accuracy in the facts of a run."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sptnet.errors import Failure
from sptnet.results.assessment import NOT_CALIBRATED, Assessment, read_expectation
from sptnet.results.expected_accuracy import ExpectedAccuracy

NOTHING = (np.zeros(0, np.int64), np.zeros(0, np.float32))


def test_the_facts_hold_an_expectation_or_a_reason() -> None:
    expected = ExpectedAccuracy(0.6, 0.5, 0.75, {"cat": 0.9})
    without = Assessment(*NOTHING, *NOTHING, None, "there are too few labels.", None)
    assert without.facts() == {"expected_accuracy": None, "expected_accuracy_reason": "there are too few labels."}
    assert read_expectation(without.facts()) == (None, "there are too few labels.")
    having = replace(without, expected=expected, reason="")
    assert having.facts() == {"expected_accuracy": {"value": 0.6, "low": 0.5, "high": 0.75, "categories": {"cat": 0.9}}}
    assert read_expectation(having.facts()) == (expected, "")


@pytest.mark.parametrize("facts", [{}, {"expected_accuracy": None}])
def test_earlier_runs_are_not_calibrated(facts: dict[str, Any]) -> None:
    assert read_expectation(facts) == (None, NOT_CALIBRATED)


@pytest.mark.parametrize(
    "value", [{}, {"value": "x", "low": 0, "high": 1}, [1], 0.5, {"value": None, "low": 0, "high": 1}]
)
def test_a_damaged_expectation_is_named(value: object) -> None:
    with pytest.raises(Failure, match=r"the expected accuracy in run\.json is damaged \(.*\)\. Remove the entry"):
        read_expectation({"expected_accuracy": value})
