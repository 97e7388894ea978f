"""Building blocks of naive oracles, as loops over Python floats, and small seeded batches for them."""

import math

import torch

from helpers.rounding import rounding

STEP = 1e-5
"""Step of the finite differences."""


# --- lists of Python floats ---


def rows(tensor):
    """Return a tensor as lists of Python floats."""
    return tensor.detach().to(torch.float64).tolist()


def unit(vector):
    """Return a vector of length one; zero stays zero."""
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector] if length > 0 else [0.0 for _ in vector]


def dot(u, v):
    """Return the dot product."""
    return sum(x * y for x, y in zip(u, v, strict=True))


def softmax(vector, temperature=1.0):
    """Return the softmax of a vector divided by the temperature."""
    top = max(vector)
    weights = [math.exp((x - top) / temperature) for x in vector]
    return [w / sum(weights) for w in weights]


def log_softmax(vector, temperature=1.0):
    """Return the logarithm of `softmax`, without underflow."""
    top = max(vector)
    log_sum = math.log(sum(math.exp((x - top) / temperature) for x in vector))
    return [(x - top) / temperature - log_sum for x in vector]


def finite_differences(function, values, step=STEP):
    """Return the central differences of a function of a list of rows."""
    gradient = []
    for r, row in enumerate(values):
        gradient.append([])
        for c in range(len(row)):
            up = [list(other) for other in values]
            down = [list(other) for other in values]
            up[r][c] += step
            down[r][c] -= step
            gradient[-1].append((function(up) - function(down)) / (2 * step))
    return gradient


# --- batches ---


def number(scalar):
    """Return a tensor of one number as a Python float."""
    return scalar.detach().item()


def normal(*shape, seed=0, dtype=torch.float64):
    """Return normal values, equal in all dtypes up to rounding."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def cosines(n, k, seed=0, dtype=torch.float64):
    """Return values between -1 and 1."""
    return torch.tanh(normal(n, k, seed=seed)).to(dtype)


def probabilities(n, k, seed=0, dtype=torch.float64):
    """Return rows of positive numbers that sum to one."""
    return torch.softmax(normal(n, k, seed=seed), dim=1).to(dtype)


def long(*values):
    """Return a tensor of integers."""
    return torch.tensor(values, dtype=torch.long)


def flags(*values):
    """Return a boolean tensor."""
    return torch.tensor(values, dtype=torch.bool)


# --- assertions ---


def loss_tolerance(dtype, temperature=1.0):
    """Largest error of a loss of cosines divided by `temperature`, without cancellation.

    Losses are computed in float32 at least, by at most six sums in a row of at most twelve terms each.
    """
    return rounding(12, sums=6, dtype=torch.promote_types(dtype, torch.float32)) / temperature


def assert_gradient(gradient, expected, temperature, tolerance):
    """Compare with central differences of a loss that is right up to `tolerance`.

    They lack the cubic term, (step / temperature)^2 of the slope, and divide rounding by the step.
    """
    expected = torch.tensor(expected, dtype=torch.float64)
    cubic = (STEP / temperature) ** 2 * float(expected.abs().max())
    torch.testing.assert_close(gradient, expected, rtol=0, atol=cubic + tolerance / STEP)
