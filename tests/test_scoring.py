"""Scores of predictions, and the model's outputs that they are taken from."""

import math

import numpy as np
import pytest
import torch

from sptnet.config import PromptSettings
from sptnet.scoring import Outputs, run_model, score


def ids(*values):
    return np.array(values, dtype=np.int64)


def test_images_without_truth_are_left_out():
    truth, predicted = ids(0, 0, 1, 2, 2), ids(4, 4, 3, 0, 1)
    with_strangers = score(ids(-1, 0, 0, -1, 1, 2, 2, -1), ids(0, 4, 4, 3, 3, 0, 1, 0), 2)
    assert with_strangers == score(truth, predicted, 2)
    assert with_strangers["images"] == 5
    assert (with_strangers["all"], with_strangers["old"], with_strangers["new"]) == (0.8, 1.0, 0.5)


def test_no_truth_no_scores():
    assert score(ids(-1, -1, -1), ids(0, 1, 2), 2) == {}
    assert score(ids(), ids(), 2) == {}


def test_fewer_clusters_than_classes():
    scores = score(ids(0, 0, 0, 1, 1, 2), ids(5, 5, 5, 5, 5, 5), 1)
    assert (scores["all"], scores["old"], scores["new"]) == (0.5, 1.0, 0.0)
    assert scores["balanced"] == {"all": pytest.approx(1 / 3), "old": 1.0, "new": 0.0}
    assert scores["ari"] == pytest.approx(0.0)


def test_more_clusters_than_classes():
    scores = score(ids(0, 0, 0, 0, 1, 1), ids(0, 1, 2, 2, 7, 9), 1)
    assert scores["all"] == 0.5  # two of class 0 by cluster 2, one of class 1
    assert (scores["old"], scores["new"]) == (0.5, 0.5)


def test_separate_matching_lets_one_cluster_serve_twice():
    scores = score(ids(0, 0, 1, 1), ids(3, 3, 3, 3), 1)
    assert scores["all"] == 0.5
    assert scores["separate"] == {"all": 1.0, "old": 1.0, "new": 1.0}


def test_the_numbers_of_one_mixed_example():
    scores = score(ids(0, 0, 1, 1, 1, 2), ids(1, 1, 0, 0, 2, 2), 2)
    assert scores["all"] == pytest.approx(5 / 6)
    assert scores["old"] == pytest.approx(4 / 5)
    assert scores["new"] == 1.0
    assert scores["balanced"]["all"] == pytest.approx((1 + 2 / 3 + 1) / 3)
    assert scores["balanced"]["old"] == pytest.approx((1 + 2 / 3) / 2)
    assert 0 < scores["nmi"] < 1
    assert 0 < scores["ari"] < 1


def test_without_new_images_new_is_no_number():
    scores = score(ids(0, 1), ids(1, 0), 2)
    assert (scores["all"], scores["old"]) == (1.0, 1.0)
    assert math.isnan(scores["new"])


def test_the_truth_is_not_changed_by_scoring():
    truth, predicted = ids(-1, 0, 1), ids(2, 2, 1)
    score(truth, predicted, 1)
    assert truth.tolist() == [-1, 0, 1]
    assert predicted.tolist() == [2, 2, 1]


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


def test_run_model_keeps_the_order_across_batches(prompted_model, cpu):
    images = torch.randn(7, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    whole = run_model(prompted_model, [images], cpu)
    parts = run_model(prompted_model, images.split(3), cpu)
    assert torch.allclose(whole.features, parts.features, atol=1e-5)
    assert torch.allclose(whole.logits, parts.logits, atol=1e-5)
    assert not torch.allclose(whole.features[0], whole.features[1], atol=1e-3)


def test_run_model_with_and_without_prompts(prompted_model, cpu):
    images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    prompted, plain = (run_model(prompted_model, [images], cpu, prompted=p) for p in (True, False))
    delta = prompted_model.prompt.delta().detach()
    assert torch.allclose(prompted.features, prompted_model.backbone(images + delta), atol=1e-5)
    assert torch.allclose(plain.features, prompted_model.backbone(images), atol=1e-5)
    assert not torch.allclose(prompted.features, plain.features, atol=1e-2)
    assert not prompted.features.requires_grad


def test_run_model_gives_the_mode_back(prompted_model, cpu):
    for training in (True, False):
        prompted_model.train(training)
        run_model(prompted_model, [torch.zeros(1, 3, 32, 32)], cpu)
        assert prompted_model.training is training


def test_run_model_on_nothing(prompted_model, cpu):
    outputs = run_model(prompted_model, [], cpu)
    assert outputs.features.shape == (0, 96)
    assert outputs.categories.shape == (0,)
    assert outputs.probabilities.shape == (0, 10)
