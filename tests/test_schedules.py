"""Learning rates and teacher temperature against hand-computed numbers and other implementations."""

import math

import numpy as np
import pytest
import torch

from helpers.rounding import DOUBLE
from sptnet.schedules import cosine_by_epoch, teacher_temperature, warm_up_then_cosine


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0.025),
        (1, 0.05),
        (499, 12.5),
        (998, 24.975),
        (999, 25.0),
        (1000, 25.0),
        (1000 + 15000, 18.75),  # a third of the way down: cos 60 degrees
        (1000 + 22500, 12.5),
        (1000 + 30000, 6.25),
        (46000, 0.0),
    ],
)
def test_the_prompt_rate_rises_for_1000_steps_then_falls_to_zero(step, expected):
    assert warm_up_then_cosine(25.0, 1000, step, 46000) == pytest.approx(expected, rel=DOUBLE, abs=DOUBLE)


def test_the_prompt_rate_without_warm_up_starts_at_the_top():
    assert warm_up_then_cosine(2.0, 0, 0, 10) == 2.0
    assert warm_up_then_cosine(2.0, 0, 5, 10) == pytest.approx(1.0)


def test_a_warm_up_longer_than_the_run_never_reaches_the_top():
    rates = [warm_up_then_cosine(1.0, 100, step, 10) for step in range(10)]
    assert rates == pytest.approx([(step + 1) / 100 for step in range(10)])


def test_a_warm_up_as_long_as_the_run_is_no_division_by_zero():
    assert warm_up_then_cosine(1.0, 10, 9, 10) == 1.0
    assert math.isfinite(warm_up_then_cosine(1.0, 10, 10, 10))


@pytest.mark.parametrize(
    ("epoch", "expected"), [(0, 0.1), (100, 0.05005), (50, 0.08536998372), (150, 0.01473001628), (200, 1e-4)]
)
def test_the_model_rate_of_simgcd(epoch, expected):
    assert cosine_by_epoch(0.1, 1e-3, epoch, 200) == pytest.approx(expected, abs=1e-11)  # eleven decimals above


def test_the_model_rate_of_sptnet_ends_at_a_tenth():
    assert cosine_by_epoch(0.05, 0.1, 0, 1000) == pytest.approx(0.05)
    assert cosine_by_epoch(0.05, 0.1, 500, 1000) == pytest.approx(0.0275)
    assert cosine_by_epoch(0.05, 0.1, 1000, 1000) == pytest.approx(0.005)


def test_the_model_rate_is_the_cosine_annealing_of_torch():
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    oracle = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=17, eta_min=0.1 * 1e-3)
    for epoch in range(17):
        assert cosine_by_epoch(0.1, 1e-3, epoch, 17) == pytest.approx(optimiser.param_groups[0]["lr"], abs=DOUBLE)
        optimiser.step()
        oracle.step()


@pytest.mark.parametrize("warm_up", [1, 2, 10, 30])
@pytest.mark.parametrize("epochs", [1, 5, 40])
def test_the_teacher_sharpens_as_published(warm_up, epochs):
    """The published schedule is np.linspace over the warm-up, then a constant; it may be longer than the run."""
    published = np.concatenate([np.linspace(0.07, 0.04, warm_up), np.full(40, 0.04)])[:epochs].tolist()
    ours = [teacher_temperature(0.07, 0.04, warm_up, epoch) for epoch in range(epochs)]
    assert ours == pytest.approx(published, rel=DOUBLE)


def test_the_teacher_in_numbers():
    assert teacher_temperature(0.07, 0.04, 30, 0) == 0.07
    assert teacher_temperature(0.07, 0.04, 4, 1) == pytest.approx(0.06)
    assert teacher_temperature(0.07, 0.04, 4, 2) == pytest.approx(0.05)
    assert teacher_temperature(0.07, 0.04, 4, 3) == pytest.approx(0.04)
    assert teacher_temperature(0.07, 0.04, 4, 1000) == 0.04
