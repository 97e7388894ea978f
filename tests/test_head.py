"""The projection MLP and the cosine classifier, against loops and by their invariances."""

import math

import pytest
import torch

from helpers.rounding import DOUBLE
from sptnet.head import PrototypeHead

DIM, CATEGORIES, HIDDEN, BOTTLENECK = 6, 5, 7, 4


def generator(seed):
    return torch.Generator().manual_seed(seed)


def trained(head):
    return [parameter for parameter in head.parameters() if parameter.requires_grad]


def small_head(seed=0):
    """Head in float64 with random parameters, biases included."""
    head = PrototypeHead(DIM, CATEGORIES, hidden=HIDDEN, bottleneck=BOTTLENECK).double()
    source = generator(seed)
    with torch.no_grad():
        for parameter in trained(head):
            parameter.copy_(torch.randn(parameter.shape, generator=source, dtype=torch.float64))
    return head


def features(n=3, dim=DIM, seed=1):
    return torch.randn(n, dim, generator=generator(seed), dtype=torch.float64)


def prototypes(head, categories=CATEGORIES, dim=DIM):
    """The only K x dim parameter; the sizes are chosen such that no other has this shape."""
    (prototypes,) = [parameter for parameter in head.parameters() if parameter.shape == (categories, dim)]
    return prototypes


def mlp_parameters(head):
    """The other parameters: three weights and three biases in the order of the layers."""
    stored = prototypes(head)
    return [parameter for parameter in trained(head) if parameter is not stored]


# --- oracles ---


def gelu(x):
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def dot(u, v):
    return sum(x * y for x, y in zip(u, v, strict=True))


def affine(weight, bias, vector):
    return [dot(row, vector) + b for row, b in zip(weight, bias, strict=True)]


def naive_projection(parameters, vector):
    w1, b1, w2, b2, w3, b3 = (parameter.tolist() for parameter in parameters)
    first = [gelu(x) for x in affine(w1, b1, vector)]
    second = [gelu(x) for x in affine(w2, b2, first)]
    return affine(w3, b3, second)


def cosine(u, v):
    return dot(u, v) / math.sqrt(dot(u, u) * dot(v, v))


# --- values ---


def test_projection_equals_the_loops():
    head, inputs = small_head(), features()
    projections, _ = head(inputs)
    for vector, projection in zip(inputs.tolist(), projections.tolist(), strict=True):
        expected = naive_projection(mlp_parameters(head), vector)
        assert projection == pytest.approx(expected, rel=DOUBLE, abs=DOUBLE)


def test_logits_are_plain_cosines():
    head, inputs = small_head(), features()
    _, logits = head(inputs)
    for vector, row in zip(inputs.tolist(), logits.tolist(), strict=True):
        expected = [cosine(vector, prototype) for prototype in prototypes(head).tolist()]
        assert row == pytest.approx(expected, rel=DOUBLE, abs=DOUBLE)


def test_shapes_with_the_default_sizes():
    head = PrototypeHead(12, 9)
    projections, logits = head(torch.randn(4, 12, generator=generator(2)))
    assert projections.shape == (4, 256)
    assert logits.shape == (4, 9)
    shapes = [tuple(parameter.shape) for parameter in trained(head)]
    expected = [(2048, 12), (2048,), (2048, 2048), (2048,), (256, 2048), (256,), (9, 12)]
    assert sorted(shapes) == sorted(expected)


def test_logits_reach_but_do_not_pass_one():
    head = small_head()
    rows = prototypes(head).detach()
    _, logits = head(torch.cat([rows * 3.0, -rows * 0.5]))
    assert torch.diagonal(logits[:CATEGORIES]).tolist() == pytest.approx([1.0] * CATEGORIES)
    assert torch.diagonal(logits[CATEGORIES:]).tolist() == pytest.approx([-1.0] * CATEGORIES)
    _, logits = head(features(200))
    assert logits.abs().max() <= 1 + DOUBLE


# --- invariances ---


@pytest.mark.parametrize("scale", [1e-3, 0.5, 7.3, 1e4])
def test_logits_ignore_the_length_of_the_features(scale):
    head, inputs = small_head(), features()
    _, logits = head(inputs)
    _, scaled = head(inputs * scale)
    torch.testing.assert_close(scaled, logits, rtol=DOUBLE, atol=DOUBLE)
    _, flipped = head(-inputs)
    torch.testing.assert_close(flipped, -logits, rtol=DOUBLE, atol=DOUBLE)


def test_projections_see_the_raw_features():
    head, inputs = small_head(), features()
    projections, _ = head(inputs)
    scaled, _ = head(inputs * 2.0)
    assert (scaled - projections).abs().max() > 0.1
    lengths = projections.norm(dim=1)
    assert (lengths - 1).abs().min() > 0.01


@pytest.mark.parametrize("scale", [1e-2, 3.0, 1e3])
def test_logits_ignore_the_length_of_the_stored_prototypes(scale):
    head, inputs = small_head(), features()
    _, logits = head(inputs)
    with torch.no_grad():
        prototypes(head).mul_(scale)
    _, rescaled = head(inputs)
    torch.testing.assert_close(rescaled, logits, rtol=DOUBLE, atol=DOUBLE)


def test_logits_ignore_the_length_of_each_prototype_by_itself():
    head, inputs = small_head(), features()
    _, logits = head(inputs)
    with torch.no_grad():
        prototypes(head).mul_(torch.tensor([0.1, 1.0, 5.0, 30.0, 0.7], dtype=torch.float64)[:, None])
    _, rescaled = head(inputs)
    torch.testing.assert_close(rescaled, logits, rtol=DOUBLE, atol=DOUBLE)


# --- gradients ---


def is_silent(gradient):
    return gradient is None or not gradient.any()


def test_the_classifier_does_not_see_the_mlp():
    head, inputs = small_head(), features()
    parameters = mlp_parameters(head)
    assert len(parameters) == 6
    _, logits = head(inputs)
    gradients = torch.autograd.grad(logits.square().sum(), [*parameters, prototypes(head)], allow_unused=True)
    assert all(is_silent(gradient) for gradient in gradients[:-1])
    assert not is_silent(gradients[-1])


def test_the_projection_does_not_see_the_prototypes():
    head, inputs = small_head(), features()
    parameters = mlp_parameters(head)
    projections, _ = head(inputs)
    gradients = torch.autograd.grad(projections.square().sum(), [*parameters, prototypes(head)], allow_unused=True)
    assert is_silent(gradients[-1])
    assert not any(is_silent(gradient) for gradient in gradients[:-1])


def test_prototype_gradient_is_tangential():
    head, inputs = small_head(), features(8)
    stored = prototypes(head)
    _, logits = head(inputs)
    targets = torch.tensor([0, 1, 2, 3, 4, 0, 1, 2])
    loss = torch.nn.functional.cross_entropy(logits / 0.1, targets)
    (gradient,) = torch.autograd.grad(loss, stored)
    assert gradient.norm(dim=1).min() > 1e-3
    along = (gradient * stored.detach()).sum(dim=1)
    assert along.abs().max() < DOUBLE


def test_both_outputs_send_gradients_to_the_features():
    head = small_head()
    inputs = features().requires_grad_()
    projections, logits = head(inputs)
    (by_logit,) = torch.autograd.grad(logits[:, 0].sum(), inputs, retain_graph=True)
    assert by_logit.norm(dim=1).min() > 1e-3
    assert (by_logit * inputs.detach()).sum(dim=1).abs().max() < DOUBLE
    (by_projection,) = torch.autograd.grad(projections.square().sum(), inputs)
    assert by_projection.norm(dim=1).min() > 1e-3


def test_a_gradient_step_keeps_the_logits_within_one():
    head, inputs = small_head(), features(16)
    stored = prototypes(head)
    _, before = head(inputs)
    (gradient,) = torch.autograd.grad(before.sum(), stored)
    with torch.no_grad():
        stored += 10.0 * gradient
    _, after = head(inputs)
    assert after.sum() > before.sum()
    assert after.abs().max() <= 1 + DOUBLE


# --- initialisation ---


def test_initial_weights_are_normal_with_deviation_two_hundredths():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        head = PrototypeHead(DIM * 8, CATEGORIES, hidden=300, bottleneck=64)
    stored = prototypes(head, dim=DIM * 8)
    others = [parameter for parameter in trained(head) if parameter is not stored]
    weights = [parameter.detach() for parameter in others if parameter.dim() == 2]
    biases = [parameter.detach() for parameter in others if parameter.dim() == 1]
    assert len(weights) == len(biases) == 3
    for weight in weights:  # within five standard deviations each
        assert abs(weight.mean().item()) < 5 * 0.02 / weight.numel() ** 0.5
        assert weight.std().item() == pytest.approx(0.02, rel=5 / (2 * weight.numel()) ** 0.5)
        within_one = (weight.abs() < 0.02).double().mean().item()
        assert within_one == pytest.approx(0.6827, abs=5 * (0.6827 * 0.3173 / weight.numel()) ** 0.5)
    for bias in biases:
        assert not bias.any()


def test_initial_prototypes_are_distinct_directions():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        head = PrototypeHead(64, 10, hidden=8, bottleneck=4)
    directions = torch.nn.functional.normalize(prototypes(head, 10, 64).detach().double(), dim=1)
    similarity = directions @ directions.T - torch.eye(10, dtype=torch.float64)
    assert similarity.abs().max() < 0.7


# --- lengths ---


def test_lengths_are_absent_by_default():
    head = small_head()
    assert head.lengths is None
    assert set(head.state_dict()) == {f"mlp.{i}.{kind}" for i in (0, 2, 4) for kind in ("weight", "bias")} | {
        "prototypes"
    }


def test_lengths_multiply_the_logits_and_nothing_else():
    head, inputs = small_head(), features()
    other = PrototypeHead(DIM, CATEGORIES, hidden=HIDDEN, bottleneck=BOTTLENECK, with_lengths=True).double()
    lengths = torch.tensor([1.0, 0.5, 2.0, -1.0, 3.0], dtype=torch.float64)
    other.load_state_dict({**head.state_dict(), "lengths": lengths})
    (projections, logits), (other_projections, other_logits) = head(inputs), other(inputs)
    assert torch.equal(other_projections, projections)
    for j, length in enumerate(lengths.tolist()):
        assert other_logits[:, j].tolist() == pytest.approx((length * logits[:, j]).tolist(), rel=DOUBLE)


def test_lengths_start_at_one_and_are_not_trained():
    head = PrototypeHead(DIM, CATEGORIES, hidden=HIDDEN, bottleneck=BOTTLENECK, with_lengths=True)
    assert head.lengths.tolist() == [1.0] * CATEGORIES
    assert len(trained(head)) == len(trained(small_head())) == 7


def test_without_a_projection_the_features_are_contrasted():
    head = PrototypeHead(DIM, CATEGORIES, projects=False).double()
    x = features()
    projections, logits = head(x)
    assert torch.equal(projections, x)
    assert torch.equal(logits, head.classify(x))
    assert [parameter.shape for parameter in head.parameters()] == [(CATEGORIES, DIM)]
