"""Prompts attached to a model: the scale of their initial values."""

import pytest
import torch

from helpers.rounding import assert_same, terms_of
from sptnet.config import PromptSettings


def generator(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("kind", ["spatial+global", "shared", "vpt"])
def test_the_noise_scales_the_initial_prompts(kind, make_model):
    started = {}
    for noise in (1.0, 0.25, 0.0):
        model = make_model()
        model.attach_prompt(PromptSettings(kind=kind, border=4, noise=noise), generator(0))
        started[noise] = torch.cat([parameter.detach().flatten() for parameter in model.group("prompt")])
    assert started[1.0].std() > 0
    assert torch.equal(started[0.25], 0.25 * started[1.0])
    assert not started[0.0].any()


@torch.no_grad()
def test_without_noise_images_are_unchanged_at_the_start(make_model):
    model = make_model()
    images = torch.randn(2, 3, 32, 32, generator=generator(1)).double()
    model.attach_prompt(PromptSettings(kind="spatial+global", border=4, noise=0.0), generator(0))
    model.double()
    for prompted, plain in zip(model(images), model(images, prompted=False), strict=True):
        assert_same(prompted, plain, terms_of(model))


def test_prompts_without_noise_learn(make_model):
    model = make_model()
    model.attach_prompt(PromptSettings(kind="spatial+global", border=4, noise=0.0), generator(0))
    model.train_only(frozenset({"prompt"}))
    projections, logits = model(torch.randn(4, 3, 32, 32, generator=generator(1)))
    (projections.square().sum() + logits[:, 0].sum()).backward()
    assert all(values.grad.abs().max() > 1e-6 for values in model.group("prompt"))
