"""Certainty of a run as its model gives it."""

import numpy as np
import pytest
import torch

from helpers.rounding import SINGLE
from sptnet.data.split import Split
from sptnet.inference.assess import assess, others
from sptnet.inference.features import Outputs
from sptnet.results.assessment import NOT_CALIBRATED


def split_of(n: int, n_known: int) -> Split:
    nothing = np.zeros(0, np.int64)
    classes = tuple(f"c{i}" for i in range(n_known))
    return Split(classes, n_known, np.full(n, -1, np.int64), nothing, np.arange(n), nothing, nothing)


def test_first_and_second_choice_have_their_probabilities() -> None:
    logits = torch.randn(30, 5, generator=torch.Generator().manual_seed(0)) / 5
    outputs = Outputs(torch.zeros(30, 2), logits)
    found = assess(outputs, split_of(30, 2), ("a", "b", "new-1", "new-2", "new-3"))
    order = logits.argsort(1, descending=True)
    assert np.array_equal(found.guess, order[:, 0].numpy())
    assert np.array_equal(found.second, order[:, 1].numpy())
    largest = np.sort(outputs.probabilities, axis=1)
    assert found.certainty == pytest.approx(largest[:, -1], rel=SINGLE)
    assert found.second_certainty == pytest.approx(largest[:, -2], rel=SINGLE)
    assert (found.certainty.dtype, found.second_certainty.dtype) == (np.float32, np.float32)
    assert (found.expected, found.reason, found.calibrator) == (None, NOT_CALIBRATED, None)


def test_equal_logits_have_two_choices() -> None:
    found = assess(Outputs(torch.zeros(1, 2), torch.zeros(1, 3)), split_of(1, 1), ("a", "b", "c"))
    assert (found.guess.tolist(), found.second.tolist()) == ([0], [1])


def test_a_probability_that_vanishes_does_not_change_the_second_choice() -> None:
    logits = torch.tensor([[0.0, 100.0, 1.0, 2.0]])
    assert assess(Outputs(torch.zeros(1, 2), logits), split_of(1, 1), ("a", "b", "c", "d")).second.tolist() == [3]


@pytest.mark.parametrize("n", [0, 3])
def test_one_category_has_no_second(n: int) -> None:
    found = assess(Outputs(torch.zeros(n, 2), torch.ones(n, 1)), split_of(n, 1), ("a",))
    assert (found.guess.tolist(), found.certainty.tolist()) == ([0] * n, [1.0] * n)
    assert (found.second.tolist(), found.second_certainty.tolist()) == ([-1] * n, [0.0] * n)


def test_the_logits_stay_as_they_are() -> None:
    logits = torch.tensor([[0.1, 0.3, 0.2]])
    assert others(logits).tolist() == [[logits[0, 0].item(), -torch.inf, logits[0, 2].item()]]
    assert logits.isfinite().all()
