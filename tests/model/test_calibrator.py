"""Calibrated probabilities are distributions whose maximum is the certainty."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sptnet.model.calibrator import Calibrator, Line, softmax_of, with_certainty


@settings(max_examples=60, deadline=None)
@given(n=st.integers(0, 8), k=st.integers(2, 7), seed=st.integers(0, 999), sharpness=st.sampled_from([0.0, 0.1, 1.0]))
def test_a_distribution_with_the_given_maximum(n: int, k: int, seed: int, sharpness: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(n, k, generator=generator)
    certainty = torch.rand(n, generator=generator).numpy()
    result = with_certainty(logits, certainty)
    assert np.allclose(result.sum(1), 1, atol=1e-12)
    assert (result >= 0).all()
    assert (result.argmax(1) == logits.argmax(1).numpy()).all()
    assert np.allclose(result.max(1) if n else [], np.maximum(certainty, 1 / k), atol=2e-6)


def test_the_rest_is_shared_by_softmax() -> None:
    logits = torch.tensor([[0.3, 0.1, 0.0]])
    raw = softmax_of(logits)[0]
    result = with_certainty(logits, np.array([0.8]))[0]
    assert result[1] / result[2] == pytest.approx(raw[1] / raw[2])


def test_lines_of_slope_one_change_nothing() -> None:
    logits = torch.randn(20, 5, generator=torch.Generator().manual_seed(0)) / 10
    unchanged = Calibrator(Line(1.0, 0.0), Line(1.0, 0.0)).probabilities(logits, 2)
    assert np.allclose(unchanged, softmax_of(logits), atol=1e-9)


def test_known_and_new_have_their_own_line() -> None:
    logits = torch.tensor([[0.2, 0.0], [0.0, 0.2]])
    result = Calibrator(Line(1.0, 0.0), Line(0.0, 0.0)).probabilities(logits, 1)
    assert result[0].max() == pytest.approx(softmax_of(logits)[0].max())
    assert result[1].max() == pytest.approx(0.5, abs=2e-6)


def test_json_form_round_trips_and_is_checked() -> None:
    calibrator = Calibrator(Line(0.5, -1.0), Line(0.25, 2.0))
    assert Calibrator.from_dict(calibrator.as_dict()) == calibrator
    with pytest.raises(ValueError, match="not finite"):
        Calibrator.from_dict({"known": [float("nan"), 0], "new": [1, 0]})


def test_one_category_has_all() -> None:
    assert (with_certainty(torch.zeros(3, 1), np.full(3, 0.2)) == 1).all()
