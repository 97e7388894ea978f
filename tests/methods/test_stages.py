"""Stages of the methods: known names, optimisers and the objective of an epoch."""

import pytest
import torch

from helpers.rounding import DOUBLE
from sptnet.config import Config, SimGcdSettings, SptNetSettings
from sptnet.errors import Misuse
from sptnet.losses import gcd_loss
from sptnet.methods import stages_of
from sptnet.methods.simgcd import model_optimiser, objective
from sptnet.methods.sptnet import prompt_optimiser
from sptnet.methods.stage_plan import Clock, Step


def test_unknown_methods_are_refused_with_the_known_ones() -> None:
    with pytest.raises(Misuse, match=r"unknown method 'simgdc'.*simgcd, sptnet"):
        stages_of(Config(method="simgdc"))


def test_the_methods_use_the_published_numbers_by_default():
    simgcd, sptnet = SimGcdSettings(), SptNetSettings()
    model = model_optimiser(simgcd, 0.9)
    assert model.learning_rate(100, 12345, 200, 9200) == pytest.approx(0.05005)
    assert (model.weight_decay, model.momentum) == (5e-5, 0.9)
    tuned = model_optimiser(sptnet, 0.9)
    assert tuned.learning_rate(500, 0, 1000, 46000) == pytest.approx(0.0275)
    assert tuned.weight_decay == 5e-4
    prompt = prompt_optimiser(sptnet, 0.9)
    assert prompt.learning_rate(999, 499, 1000, 46000) == pytest.approx(0.5), "by step, not by epoch"
    assert (prompt.weight_decay, prompt.momentum) == (0.0, 0.9)
    assert (simgcd.teacher_warm_up, sptnet.teacher_warm_up) == (30, 10)


def test_the_objective_takes_the_temperature_of_the_epoch():
    random = torch.Generator().manual_seed(0)
    projections, logits = (torch.randn(8, n, dtype=torch.float64, generator=random) for n in (5, 6))
    labels, labelled = torch.tensor([0, 1, -1, -1]), torch.tensor([True, True, False, False])
    stage = SptNetSettings(teacher_warm_up=4, sup_weight=0.2, entropy_weight=3.0)
    for epoch, temperature in ((0, 0.07), (1, 0.06), (2, 0.05), (3, 0.04), (9, 0.04)):
        rows = {"projections": projections, "logits": logits}
        step = Step(rows, labels, labelled, torch.arange(4), Clock(epoch, 10, epoch, 10))
        ours = objective(stage)(step).total
        expected = gcd_loss(projections, logits, labels, labelled, temperature, 0.2, 3.0).total
        assert float(ours) == pytest.approx(float(expected), rel=DOUBLE)
        other = gcd_loss(projections, logits, labels, labelled, temperature + 0.005, 0.2, 3.0).total
        assert abs(float(ours - other)) > 0.001
