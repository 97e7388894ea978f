"""What a model makes of images: features, logits, categories, probabilities."""

import numpy as np
import pytest
import torch

from helpers.rounding import SINGLE, assert_differs, assert_same, terms_of
from sptnet.config import PromptSettings
from sptnet.head import PrototypeHead
from sptnet.inference.features import Outputs, classify, compute_outputs, extract_features
from sptnet.runtime.compute import choose_compute


def test_categories_and_probabilities_of_outputs():
    outputs = Outputs(torch.zeros(2, 4), torch.tensor([[0.1, 0.3, 0.2], [0.0, -0.1, -1.0]]))
    assert outputs.categories.tolist() == [1, 0]
    first = np.exp(np.array([1.0, 3.0, 2.0]))
    assert outputs.probabilities[0] == pytest.approx(first / first.sum(), rel=SINGLE)


@pytest.fixture
def prompted_model(make_model):
    model = make_model()
    model.attach_prompt(PromptSettings(kind="spatial", width=2), torch.Generator().manual_seed(0))
    return model


@pytest.fixture
def precise_model(prompted_model):
    """All but the head in float64: features are rounded to float32 once, and logits follow from them."""
    prompted_model.backbone.double()
    prompted_model.prompt.double()
    return prompted_model


def some_images(n):
    return torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(1)).double()


def test_run_model_keeps_the_order_across_batches(precise_model, cpu):
    images = some_images(7)
    whole = compute_outputs(precise_model, [images], cpu)
    parts = compute_outputs(precise_model, images.split(3), cpu)
    assert_same(parts.features, whole.features, terms=1)
    assert_same(parts.logits, whole.logits, terms_of(precise_model.head))
    assert_differs(whole.features[0], whole.features[1], terms=1)


def test_run_model_with_and_without_prompts(precise_model, cpu):
    images = some_images(3)
    prompted, plain = (compute_outputs(precise_model, [images], cpu, prompted=p) for p in (True, False))
    delta = precise_model.prompt.delta().detach()
    assert_same(prompted.features, precise_model.backbone(images + delta), terms=1)
    assert_same(plain.features, precise_model.backbone(images), terms=1)
    assert_differs(prompted.features, plain.features, terms=1)
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
    assert_same(classify(prompted_model.head, features, cpu, rows=4), whole, terms_of(prompted_model.head))


def test_a_model_is_as_it_was_even_if_looking_fails(prompted_model, cpu):
    def views():
        yield torch.zeros(1, 3, 32, 32)
        assert not prompted_model.training
        raise ValueError("unreadable")

    prompted_model.train()
    with pytest.raises(ValueError, match="unreadable"):
        compute_outputs(prompted_model, views(), cpu)
    assert prompted_model.training


def test_features_come_in_order_and_report_progress(few_digits, make_model, cpu):
    backbone = make_model().backbone.train()
    progress: list[int] = []
    sources = few_digits.image_set.sources
    twice = [*sources, *sources]
    features = extract_features(backbone, twice, 0.875, cpu, on_progress=progress.append)
    assert features.shape == (120, 96) and features.dtype == torch.float32
    assert progress == [64, 120]
    assert_same(features[:60], features[60:], terms_of(backbone))
    assert_differs(features[0], features[1], terms_of(backbone))
    assert backbone.training
    assert extract_features(backbone, [], 0.875, cpu).shape == (0, 96)


def test_categories_are_decided_in_full_precision():
    """In bfloat16 many cosines to a hundred prototypes would be equal, and the first one would win."""
    generator = torch.Generator().manual_seed(0)
    head, features = PrototypeHead(96, 100, projects=False), 3 + torch.randn(500, 96, generator=generator)
    head.prototypes.data = 3 + torch.randn(100, 96, generator=generator)
    expected = head.classify(features)
    half = choose_compute("cpu", "bf16")
    with torch.no_grad():
        assert torch.equal(classify(head, features, half), expected)
    with half.autocast():
        assert (head.classify(features).argmax(1) != expected.argmax(1)).sum() > 50, "else this test could not tell"
