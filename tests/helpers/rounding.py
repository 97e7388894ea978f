"""Tolerances of the numerical tests, derived from the number of roundings.

Two correct programs may give different floating-point numbers: another processor, number of threads or batch size adds
the terms of a sum in another order. One operation is off by at most u = eps / 2 relative to its result. Errors of a
chain of n operations are as often up as down, so they add up like a random walk, to about sqrt(n) u; more than
6 sqrt(n) u has a probability below 2 exp(-6^2 / 2) = 3e-8 (N. J. Higham and T. Mary, A New Approach to Probabilistic
Rounding Error Analysis, SIAM Journal on Scientific Computing 41, 2019). Both results that a test compares are off,
hence a factor of 2. The bound is relative to the size of the terms, and n is the number of terms of a sum times the
number of sums in a row. A mean over m rows is off by 1 / sqrt(m) of it, as the rows are rounded independently.

Training passes an error on from step to step. A rounded sum is the exact sum of weights that are a little off, so the
error behind a step is that of weights changed by a relative `rounding(...)`, times how much training amplifies such a
change: see `AMPLIFICATION`.

Where the code under test works in any precision, test it in float64, whose u is smaller by a factor of 5e8.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from sptnet.losses import STUDENT_TEMPERATURE

STANDARD_DEVIATIONS = 6
RESULTS = 2

HALF = 2.0**-11
"""Largest relative error of one number stored in float16; 11 of its bits are significant."""

PRINTED = 1e-4
"""Largest difference of two equal certainties printed with four digits: half a unit of the last digit each."""

LONGEST_SUM = 3 * 16 * 16
"""Terms of the longest sum of the backbone that tests train: the pixels of a patch."""

PASSES = 3
"""Sums that a weight takes part in per training step: forward, and backward to its input and to itself."""

AMPLIFICATION = 32.0
"""Largest change of the losses and of the way that weights move, relative to that of the weights at the start.

`test_training_amplifies_no_more_than_assumed` in training/test_trainer.py measures 20 at most and holds this bound.
"""

MARGIN = 10
"""Results that must differ do so by this many tolerances at least."""


def rounding(terms: int, sums: int = 1, dtype: torch.dtype = torch.float32, averaged: int = 1) -> float:
    """Largest difference of two results relative to the size of their terms.

    `terms` per sum, `sums` in a row, then a mean over `averaged` independent rows.
    """
    u = torch.finfo(dtype).eps / 2
    return RESULTS * STANDARD_DEVIATIONS * (terms * sums / averaged) ** 0.5 * u


SINGLE = rounding(10)
"""Ten operations in float32 at most: about 2e-6."""

DOUBLE = rounding(10**6, dtype=torch.float64)
"""A million operations in float64, more than any chain in these tests: about 1e-12."""


def terms_of(*modules: nn.Module) -> int:
    """Number of terms of all sums in a row on the way through the modules.

    An output of a matrix or a convolution is a sum over its inputs. Norms and attention between them sum over as many
    numbers again at most. Parameters with a single row, such as position embeddings, are added and not multiplied.
    """
    matrices = [p for module in modules for p in module.parameters() if p.ndim > 1 and len(p) > 1]
    return 2 * sum(p[0].numel() for p in matrices)


def certainty_rounding(terms: int, size: float = 1.0) -> float:
    """Largest difference of two certainties in files.

    A certainty is a softmax of logits divided by the temperature, written with four digits. `size` is that of the terms
    of a logit: 1 for a cosine, 2 for a squared distance of unit vectors.
    """
    return rounding(terms) * size / STUDENT_TEMPERATURE + PRINTED


def assert_same(
    found: Any,
    expected: Any,
    terms: int,
    sums: int = 1,
    scale: float | None = None,
    averaged: int = 1,
    dtype: torch.dtype | None = None,
) -> None:
    """Assert that two arrays of one shape differ by rounding alone.

    The tolerance is absolute: `rounding(...)`, times `scale`, the size of the terms; without it the largest absolute
    value of `expected`. `dtype` is that of the roundings; without it the coarser one of the two arrays.
    """
    found, expected = _tensor(found), _tensor(expected)
    tolerance = _tolerance(found, expected, terms, sums, scale, averaged, dtype)
    torch.testing.assert_close(found.double(), expected.double(), rtol=0, atol=tolerance)


def assert_differs(found: Any, other: Any, terms: int, sums: int = 1, scale: float | None = None) -> None:
    """Assert that two arrays of one shape differ by far more than rounding somewhere."""
    found, other = _tensor(found), _tensor(other)
    difference = float((found.double() - other.double()).abs().max())
    tolerance = _tolerance(found, other, terms, sums, scale, 1, None)
    assert difference >= MARGIN * tolerance, f"they differ by {difference:.2g} only; {tolerance:.2g} may be rounding"


def training_rounding(rows: int, dtype: torch.dtype = torch.float32, banked: int = 0) -> float:
    """Largest difference of a loss of two trainings, and of a weight relative to how far it moved.

    `rows` are the views of a batch, over which gradients are averaged. `banked` is the number of terms on the way to
    the tokens of a bank, which are kept in float16: those within rounding of the middle of two neighbours, a share of
    `rounding(banked) / (2 HALF)` at most, may go to the one or the other, a step of 2 HALF.
    """
    steps = 2 * HALF * (rounding(banked) / (2 * HALF)) ** 0.5
    return AMPLIFICATION * (rounding(LONGEST_SUM, PASSES, dtype, rows) + steps / rows**0.5)


def assert_same_training(
    weights: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    start: Mapping[str, Tensor],
    steps: int,
    rows: int,
    banked: int = 0,
) -> None:
    """Assert that two trainings from `start` differ by rounding alone.

    A tensor may be off in proportion to how far it moved, and by one rounding of its own per step.
    """
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        moved, size = (float(x.abs().max()) for x in (value - start[name], value))
        own = rounding(steps, dtype=value.dtype) * size
        tolerance = training_rounding(rows, value.dtype, banked) * moved + own
        torch.testing.assert_close(
            weights[name], value, rtol=0, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )


def _tensor(value: Any) -> Tensor:
    """Python numbers are float64; arrays keep their dtype."""
    has_dtype = hasattr(value, "dtype")
    return torch.as_tensor(value, dtype=None if has_dtype else torch.float64).detach().cpu()


def _tolerance(
    one: Tensor,
    other: Tensor,
    terms: int,
    sums: int,
    scale: float | None,
    averaged: int,
    dtype: torch.dtype | None,
) -> float:
    coarser = max(one.dtype, other.dtype, key=lambda dtype: torch.finfo(dtype).eps)
    size = float(other.abs().max()) if scale is None else scale
    return rounding(terms, sums, dtype or coarser, averaged) * size
