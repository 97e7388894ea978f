"""What a model makes of images: features, logits, categories, probabilities."""

import numpy as np
import pytest
import torch

from sptnet.config import PromptSettings
from sptnet.inference.features import Outputs, classify, compute_outputs


def test_categories_and_probabilities_of_outputs():
    outputs = Outputs(torch.zeros(2, 4), torch.tensor([[0.1, 0.3, 0.2], [0.0, -0.1, -1.0]]))
    assert outputs.categories.tolist() == [1, 0]
    first = np.exp(np.array([1.0, 3.0, 2.0]))
    assert outputs.probabilities[0] == pytest.approx(first / first.sum(), rel=1e-5)


@pytest.fixture
def prompted_model(make_model):
    model = make_model()
    model.attach_prompt(PromptSettings(kind="spatial", width=2), torch.Generator().manual_seed(0))
    return model


def test_compute_outputs_keeps_the_order_across_batches(prompted_model, cpu):
    images = torch.randn(7, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    whole = compute_outputs(prompted_model, [images], cpu)
    parts = compute_outputs(prompted_model, images.split(3), cpu)
    assert torch.allclose(whole.features, parts.features, atol=1e-5)
    assert torch.allclose(whole.logits, parts.logits, atol=1e-5)
    assert not torch.allclose(whole.features[0], whole.features[1], atol=1e-3)


def test_compute_outputs_with_and_without_prompts(prompted_model, cpu):
    images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    prompted, plain = (compute_outputs(prompted_model, [images], cpu, prompted=p) for p in (True, False))
    delta = prompted_model.prompt.delta().detach()
    assert torch.allclose(prompted.features, prompted_model.backbone(images + delta), atol=1e-5)
    assert torch.allclose(plain.features, prompted_model.backbone(images), atol=1e-5)
    assert not torch.allclose(prompted.features, plain.features, atol=1e-2)
    assert not prompted.features.requires_grad


def test_compute_outputs_gives_the_mode_back(prompted_model, cpu):
    for training in (True, False):
        prompted_model.train(training)
        compute_outputs(prompted_model, [torch.zeros(1, 3, 32, 32)], cpu)
        assert prompted_model.training is training


def test_compute_outputs_on_nothing(prompted_model, cpu):
    outputs = compute_outputs(prompted_model, [], cpu)
    assert outputs.features.shape == (0, 96)
    assert outputs.categories.shape == (0,)
    assert outputs.probabilities.shape == (0, 10)


def test_logits_come_a_few_rows_at_a_time(prompted_model, cpu):
    features = torch.randn(11, prompted_model.backbone.dim)
    whole = prompted_model.head.classify(features)
    torch.testing.assert_close(classify(prompted_model.head, features, cpu, rows=4), whole, rtol=0, atol=1e-6)


def test_a_model_is_as_it_was_even_if_looking_fails(prompted_model, cpu):
    def views():
        yield torch.zeros(1, 3, 32, 32)
        assert not prompted_model.training
        raise ValueError("unreadable")

    prompted_model.train()
    with pytest.raises(ValueError, match="unreadable"):
        compute_outputs(prompted_model, views(), cpu)
    assert prompted_model.training
