"""Certainty of a run: of the model itself, and calibrated by evidence."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from helpers.rounding import SINGLE
from sptnet.data.split import Split
from sptnet.inference.assess import TOO_FEW_KNOWN, assess, expectation, fit_line, kept_promise, others, toward_half
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


def sorted_points(wrong: int = 0) -> tuple[Outputs, Split, torch.Tensor]:
    """Four groups, two known with five labels each; `wrong` unsorted images are given to a known category."""
    truth = np.repeat(np.arange(4), 25)
    frozen = torch.eye(8)[truth] + 0.2 * torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
    labelled = np.flatnonzero((truth < 2) & (np.arange(100) % 25 < 5))
    unlabelled = np.setdiff1d(np.arange(100), labelled)
    guess = torch.from_numpy(truth.copy())
    guess[torch.from_numpy(unlabelled[-wrong:] if wrong else unlabelled[:0])] = 0
    nothing = np.zeros(0, np.int64)
    target = np.where(truth < 2, truth, -1)
    split = Split(("a", "b"), 2, target, labelled, unlabelled, nothing, nothing)
    logits = 0.05 * torch.randn(100, 4, generator=torch.Generator().manual_seed(1)) + 0.5 * torch.eye(4)[guess]
    return Outputs(torch.zeros(100, 8), logits), split, frozen


NAMES = ("a", "b", "new-1", "new-2")


def test_calibrated_certainty_is_that_of_the_evidence_and_finds_the_wrong_ones() -> None:
    outputs, split, frozen = sorted_points(wrong=8)
    found = assess(outputs, split, NAMES, frozen, seed=0)
    wrong, right = split.unlabelled[-8:], split.unlabelled[:-8]
    assert found.certainty[wrong].max() < found.certainty[right].min()
    assert found.expected is not None and found.reason == ""
    assert found.expected.value == pytest.approx(found.certainty[split.unlabelled].mean(), rel=1e-5)
    assert found.expected.low < found.expected.value < found.expected.high
    assert set(found.expected.categories) == set(NAMES)
    assert (found.second_certainty <= found.certainty).all()


def test_the_calibrator_gives_the_mean_certainty_from_logits() -> None:
    outputs, split, frozen = sorted_points()
    found = assess(outputs, split, NAMES, frozen, seed=0)
    assert found.calibrator is not None
    probabilities = found.calibrator.probabilities(outputs.logits, 2)
    assert (probabilities.argmax(1) == found.guess).all()
    unsorted = split.unlabelled
    assert probabilities[unsorted].max(1).mean() == pytest.approx(found.certainty[unsorted].mean(), abs=0.05)


def test_fewer_than_two_known_categories_have_no_expectation() -> None:
    outputs, split, frozen = sorted_points()
    one = replace(split, classes=("a",), n_known=1, target=np.where(split.target == 0, 0, -1))
    one = replace(one, labelled=split.labelled[:5], unlabelled=np.setdiff1d(np.arange(100), split.labelled[:5]))
    found = assess(outputs, one, NAMES, frozen, seed=0)
    assert (found.expected, found.reason) == (None, TOO_FEW_KNOWN)
    assert found.certainty.max() < 1


@pytest.mark.parametrize(("value", "n"), [(0.5, 400), (0.99, 20), (0.01, 20)])
def test_the_range_of_the_expectation_stays_between_0_and_1(value: float, n: int) -> None:
    expected, _ = expectation(np.full(n, value), np.zeros(n, np.int64), ("a", "b"), 2, n_labels=25, error=0.06)
    assert expected is not None
    assert 0 <= expected.low <= expected.value <= expected.high <= 1
    if value == 0.5:
        half = 1.65 * (0.06**2 + 0.3**2 / 25 + 0.25 / n) ** 0.5
        assert (expected.low, expected.high) == pytest.approx((0.5 - half, 0.5 + half))


def test_lines_are_fitted_by_least_squares_and_do_not_fall() -> None:
    x = np.array([0.0, 1.0, 2.0, 3.0])
    line = fit_line(x, 0.5 * x - 1, np.ones(4, bool))
    assert (line.slope, line.offset) == pytest.approx((0.5, -1.0))
    falling = fit_line(x, -x, np.ones(4, bool))
    assert (falling.slope, falling.offset) == pytest.approx((0.0, -1.5))


def test_contradicted_labels_lower_the_certainty() -> None:
    certainty = np.full(8, 0.9)
    assert kept_promise(certainty, np.ones(8, bool)) == 1
    assert kept_promise(certainty, np.arange(8) < 2) == pytest.approx(4 / 9.2)
    assert kept_promise(certainty[:0], np.ones(0, bool)) == 1


def test_images_that_all_look_alike_are_not_certain() -> None:
    """Labels of two categories on equal images: whatever the model says, it contradicts half of the labels."""
    nothing, frozen = np.zeros(0, np.int64), torch.ones(40, 3)
    target = np.r_[np.zeros(5), np.ones(5), np.full(30, -1)].astype(np.int64)
    split = Split(("a", "b"), 2, target, np.arange(10), np.arange(10, 40), nothing, nothing)
    found = assess(Outputs(frozen, torch.tensor([[1.0, 0.0]]).repeat(40, 1)), split, ("a", "b"), frozen, seed=0)
    assert found.certainty.max() < 0.65


def test_little_evidence_is_worth_little() -> None:
    sure = np.array([0.9, 0.1])
    moved = [toward_half(sure, n, labels, 3) for n, labels in ((1000, 200), (1000, 3), (5, 3), (5, 0))]
    distances = [abs(float(value[0]) - 0.5) for value in moved]
    assert distances == sorted(distances, reverse=True) and distances[0] > 0.38 and distances[-1] < 0.06
    assert all(value[0] - 0.5 == pytest.approx(0.5 - value[1]) for value in moved)
    assert toward_half(sure, 1000, 200, 1).tolist() == [0.5, 0.5], "one category for all"
