"""The derived tolerances hold for sums in any order, and are not so wide that mistakes pass."""

import numpy as np
import pytest
import torch
from torch import nn

from conftest import random_backbone
from helpers.rounding import (
    DOUBLE,
    HALF,
    PRINTED,
    SINGLE,
    assert_differs,
    assert_same,
    assert_same_training,
    rounding,
    terms_of,
)


def in_order(terms: np.ndarray) -> np.ndarray:
    """Sums of the rows, term by term, in the dtype of the terms."""
    return np.cumsum(terms, axis=1, dtype=terms.dtype)[:, -1]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [10, 100, 1000])
def test_sums_in_two_orders_are_the_same(n: int, dtype: type) -> None:
    """A thousand sums of positive terms; the largest difference is between a hundredth and half of the tolerance."""
    terms = np.random.default_rng(n).random((1000, n)).astype(dtype)
    forward, backward = in_order(terms), in_order(np.ascontiguousarray(terms[:, ::-1]))
    assert_same(forward, backward, n)
    difference = np.abs(forward - backward).max() / np.abs(backward).max()
    tolerance = rounding(n, dtype=torch.from_numpy(terms).dtype)
    assert tolerance / 100 < difference < tolerance / 2


def test_layers_in_a_row_are_a_chain() -> None:
    """Ten products with matrices of 64 columns in float32 against the same in float64."""
    generator = torch.Generator().manual_seed(0)
    matrices = torch.randn(10, 64, 64, dtype=torch.float64, generator=generator).float() / 8
    x = torch.randn(64, 50, dtype=torch.float64, generator=generator).float()
    narrow, wide = x, x.double()
    for matrix in matrices:
        narrow, wide = matrix @ narrow, matrix.double() @ wide
    assert_same(narrow, wide, terms=64, sums=10)
    with pytest.raises(AssertionError):
        assert_same(narrow.bfloat16().float(), wide, terms=64, sums=10)


def test_a_mean_over_rows_is_off_by_less() -> None:
    rows = torch.rand(400, 1000, generator=torch.Generator().manual_seed(0))
    sums = torch.from_numpy(in_order(rows.numpy()))
    wide = rows.double().sum(1)
    assert_same(sums, wide, 1000)
    assert_same(sums.double().mean().float(), wide.mean(), 1000, averaged=400)
    assert rounding(1000, averaged=400) == pytest.approx(rounding(1000) / 20)


def test_the_numbers() -> None:
    assert rounding(100) == pytest.approx(2 * 6 * 10 * 2**-24)
    assert rounding(25, sums=4) == rounding(100)
    assert rounding(100, dtype=torch.float64) == pytest.approx(rounding(100) * 2**-29)
    assert 2.2e-6 < SINGLE < 2.3e-6
    assert 1.3e-12 < DOUBLE < 1.4e-12
    halves = torch.linspace(0.001, 2, 10_001)  # below 6e-5 float16 has fewer bits
    assert ((halves.half().float() - halves).abs() <= HALF * halves).all()
    assert abs(float(f"{0.12345001:.4f}") - float(f"{0.12344999:.4f}")) <= PRINTED * (1 + DOUBLE)


def test_terms_are_counted_by_the_inputs_of_all_matrices() -> None:
    assert terms_of(nn.Linear(7, 3), nn.LayerNorm(3), nn.Linear(3, 2)) == 2 * (7 + 3)
    assert terms_of(nn.Conv2d(3, 8, 16)) == 2 * 768
    assert terms_of(random_backbone()) == 2 * (768 + 4 * (96 + 96 + 96 + 384))


def test_the_tolerance_goes_by_the_coarser_dtype_and_the_largest_value() -> None:
    assert_same(torch.tensor([100.0, 1e-5]), torch.tensor([100.0, 0.0], dtype=torch.float64), 1)
    with pytest.raises(AssertionError):
        assert_same(np.array([100.0, 1e-5]), np.array([100.0, 0.0]), 1)
    assert_same(np.array([100.0, 1e-5]), np.array([100.0, 0.0]), 1, dtype=torch.float32)
    with pytest.raises(AssertionError):
        assert_same(torch.tensor([100.0, 1e-5]), torch.tensor([100.0, 0.0]), 1, scale=1.0)
    with pytest.raises(AssertionError):
        assert_same([1.0 + 1e-9], [1.0], 1)
    with pytest.raises(AssertionError, match="shape"):
        assert_same(torch.ones(2), torch.ones(2, 1), 1)
    with pytest.raises(AssertionError):
        assert_same(torch.tensor([torch.nan]), torch.ones(1), 1)


def test_this_file_is_numerical(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("numerical") is not None


def test_what_differs_must_differ_by_far() -> None:
    one = torch.ones(3)
    assert_differs(one, one + torch.tensor([0.0, 0.0, 1e-4]), 1)
    for other in (one, one + 2e-6):
        with pytest.raises(AssertionError, match="may be rounding"):
            assert_differs(one, other, 1)


def test_trained_weights_may_be_off_in_proportion_to_how_far_they_moved() -> None:
    start = {"far": torch.zeros(2), "near": torch.ones(2)}
    end = {"far": torch.ones(2), "near": torch.ones(2) + 1e-3}
    tolerance = 1e-4
    assert_same_training({**end, "far": end["far"] + tolerance}, end, start, steps=10, rows=24)
    with pytest.raises(AssertionError, match="near"):
        assert_same_training({**end, "near": end["near"] + tolerance}, end, start, steps=10, rows=24)
    with pytest.raises(AssertionError):
        assert_same_training({"far": end["far"]}, end, start, steps=10, rows=24)
