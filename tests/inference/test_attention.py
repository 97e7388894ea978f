"""The attention of the last block equals softmax(q k^T / sqrt(d)), computed here step by step from the weights."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from timm.models.eva import Eva
from timm.models.vision_transformer import ParallelScalingBlock, ParallelThingsBlock, VisionTransformer
from torch import Tensor, nn

from helpers.rounding import assert_differs, assert_same, terms_of
from sptnet.config import PromptSettings
from sptnet.data.pixel_format import PixelFormat
from sptnet.errors import Misuse
from sptnet.head import PrototypeHead
from sptnet.inference.attention import BATCH_SIZE, attention_weights, last_block_attention, most_attended
from sptnet.model.backbone import Backbone
from sptnet.model.gcd_model import GcdModel
from sptnet.runtime.compute import Compute

SIZES: dict[str, Any] = {
    "img_size": 32,
    "patch_size": 8,
    "embed_dim": 24,
    "depth": 2,
    "num_heads": 3,
    "num_classes": 0,
}
DINOV3: dict[str, Any] = {
    "rope_type": "dinov3",
    "use_rot_pos_emb": True,
    "use_abs_pos_emb": False,
    "rope_rotate_half": True,
    "num_reg_tokens": 4,
    "init_values": 0.1,
    "qkv_bias": False,
}


def model_of(vit: nn.Module, prompt: PromptSettings | None = None) -> GcdModel:
    """Build a model with noise on every weight, so that no bias is zero and no two heads are equal."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in vit.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model = GcdModel(Backbone("small", vit, PixelFormat(32)), PrototypeHead(24, 3, hidden=8, bottleneck=4))  # type: ignore[arg-type]
    if prompt is not None:
        model.attach_prompt(prompt)
    return model.double().eval()


def assert_same_weights(found: Any, expected: Any, model: GcdModel) -> None:
    """Compare attention weights; their rows sum to one, so the scale is one."""
    assert_same(found, expected, terms_of(model.backbone), scale=1.0)


def plain(**settings: object) -> VisionTransformer:
    return VisionTransformer(**{**SIZES, **settings})


def rotary(**settings: object) -> Eva:
    return Eva(**{**SIZES, **DINOV3, **settings})


def entering(vit: Any, images: Tensor) -> Tensor:
    """Return the input of the last block in timm's own forward pass."""
    seen: list[Tensor] = []
    hook = vit.blocks[-1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    vit.forward_features(images)
    hook.remove()
    return seen[0]


def by_hand(attention: Any, x: Tensor, rope: Tensor | None = None) -> Tensor:
    """Compute the attention per image and head; with `rope`, queries and keys are rotated by their position."""
    length, dim, heads = x.shape[1], attention.qkv.in_features, attention.num_heads
    width = dim // heads
    bias = attention.qkv.bias
    if getattr(attention, "q_bias", None) is not None:
        bias = torch.cat([attention.q_bias, attention.k_bias, attention.v_bias])
    weights = torch.empty(len(x), heads, length, length, dtype=x.dtype)
    for i, tokens in enumerate(x):
        both = tokens @ attention.qkv.weight.T + (0 if bias is None else bias)
        for head in range(heads):
            query = attention.q_norm(both[:, head * width : (head + 1) * width])
            key = attention.k_norm(both[:, dim + head * width : dim + (head + 1) * width])
            if rope is not None:
                query, key = (rotated(part, rope, attention.rotate_half) for part in (query, key))
            score = (query @ key.T / width**0.5).exp()
            weights[i, head] = score / score.sum(1, keepdim=True)
    return weights


def rotated(part: Tensor, rope: Tensor, halves: bool) -> Tensor:
    """Rotate pairs of numbers by the angles of the patches; tokens before the patches stay."""
    sine, cosine = rope.chunk(2, dim=-1)
    prefix = len(part) - len(rope)
    out, width = part.clone(), part.shape[1]
    for a in range(width // 2):
        first, second = (a, a + width // 2) if halves else (2 * a, 2 * a + 1)
        x, y = part[prefix:, first], part[prefix:, second]
        out[prefix:, first] = x * cosine[:, first] - y * sine[:, first]
        out[prefix:, second] = y * cosine[:, second] + x * sine[:, second]
    return out


@pytest.fixture
def images() -> Tensor:
    return torch.randn(2, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "settings",
    [{}, {"qkv_bias": False}, {"qk_norm": True}, {"reg_tokens": 4}, {"init_values": 0.1}, {"scale_attn_norm": True}],
)
@torch.no_grad()
def test_plain_transformers(settings: dict[str, object], images: Tensor) -> None:
    model = model_of(plain(**settings))
    block = model.backbone.vit.blocks[-1]
    expected = by_hand(block.attn, block.norm1(entering(model.backbone.vit, images)))
    weights = attention_weights(model, images)
    assert weights.shape[-1] == 17 + settings.get("reg_tokens", 0)  # type: ignore[operator]
    assert_same_weights(weights, expected, model)
    assert_same(weights.sum(-1), torch.ones_like(weights[..., 0]), terms=weights.shape[-1])
    assert expected.std() > 0.01  # the weights differ


@pytest.mark.parametrize(
    "settings", [{}, {"qkv_bias": True}, {"rope_type": "cat", "rope_rotate_half": False}, {"num_reg_tokens": 0}]
)
@torch.no_grad()
def test_rotary_transformers(settings: dict[str, object], images: Tensor) -> None:
    model = model_of(rotary(**settings))
    vit: Any = model.backbone.vit
    block, rope = vit.blocks[-1], vit.rope.get_embed()
    x = block.norm1(entering(vit, images))
    weights = attention_weights(model, images)
    assert_same_weights(weights, by_hand(block.attn, x, rope), model)
    assert_differs(weights, by_hand(block.attn, x), terms_of(model.backbone), scale=1.0)


@torch.no_grad()
def test_a_block_that_is_an_attention_layer(images: Tensor) -> None:
    """Queries, keys and values come from one projection, after the inputs of the MLP."""
    model = model_of(plain(block_fn=ParallelScalingBlock, qkv_bias=False))
    block: Any = model.backbone.vit.blocks[-1]
    x = block.in_norm(entering(model.backbone.vit, images)) @ block.in_proj.weight.T
    query, key, _ = x[..., -3 * 24 :].unflatten(-1, (3, 3, 8)).permute(2, 0, 3, 1, 4)
    expected = (query @ key.transpose(-1, -2) / 8**0.5).softmax(-1)
    assert_same_weights(attention_weights(model, images), expected, model)


@torch.no_grad()
def test_a_block_with_parallel_attention_layers(images: Tensor) -> None:
    """The heads of its attention layers are concatenated."""
    model = model_of(plain(block_fn=ParallelThingsBlock))
    block: Any = model.backbone.vit.blocks[-1]
    x = entering(model.backbone.vit, images)
    expected = [by_hand(side.attn, side.norm(x)) for side in block.attns]
    assert_same_weights(attention_weights(model, images), torch.cat(expected, 1), model)


@pytest.mark.parametrize(
    "prompt",
    [PromptSettings(kind="spatial+global", width=1, border=4), PromptSettings(kind="vpt", tokens=3)],
    ids=["pixels", "tokens"],
)
@torch.no_grad()
def test_prompts_are_applied_or_left_out(prompt: PromptSettings, images: Tensor) -> None:
    model = model_of(plain(), prompt)
    vit: Any = model.backbone.vit
    block = vit.blocks[-1]
    bare = by_hand(block.attn, block.norm1(entering(vit, images)))
    assert_same_weights(attention_weights(model, images, prompted=False), bare, model)
    if model.tokens is None:
        x = entering(vit, images + model.prompt.delta())
    else:
        first, last = (values.expand(2, -1, -1) for values in model.tokens.values)
        x = vit._pos_embed(vit.patch_embed(images))
        x = vit.blocks[0](torch.cat([x[:, :1], first, x[:, 1:]], dim=1))
        x = torch.cat([x[:, :1], last, x[:, 4:]], dim=1)
    weights = attention_weights(model, images)
    assert_same_weights(weights, by_hand(block.attn, block.norm1(x)), model)


@pytest.mark.parametrize("make", [plain, rotary])
def test_the_model_is_unchanged_afterwards(make: Callable[[], nn.Module], images: Tensor) -> None:
    model = model_of(make())
    attention: Any = model.backbone.vit.blocks[-1].attn
    before = model.features(images)
    attention_weights(model, images)
    assert attention.fused_attn
    assert len(attention.attn_drop._forward_pre_hooks) == 0
    assert torch.equal(model.features(images), before)
    with pytest.raises(RuntimeError):
        attention_weights(model, images[:, :2])
    assert attention.fused_attn
    assert len(attention.attn_drop._forward_pre_hooks) == 0


def squares(n: int) -> list[np.ndarray[Any, Any]]:
    return list(np.random.default_rng(0).integers(0, 256, (n, 40, 40, 3), dtype=np.uint8))


@pytest.mark.parametrize("kind", ["none", "vpt"])
def test_only_the_class_token_and_the_patches_are_kept(kind: str, cpu: Compute) -> None:
    model = model_of(plain(reg_tokens=4), PromptSettings(kind=kind, tokens=3)).float()  # type: ignore[arg-type]
    model.train()
    images = squares(BATCH_SIZE + 1)
    found = last_block_attention(model, images, 0.8, cpu)
    assert model.training
    model.eval()
    assert len(found) == BATCH_SIZE + 1
    n_before = 5 + (3 if kind == "vpt" else 0)
    for image, attention in zip(images[-2:], found[-2:], strict=True):
        assert np.array_equal(attention.image, image[4:36, 4:36])  # 32 of 40 pixels, from the middle
        assert attention.grid == 4
        assert attention.heads.shape == (3, 17, 16)
        assert attention.heads.dtype == np.float32
        pixels = torch.from_numpy(attention.image).permute(2, 0, 1)[None] / 255
        mean, deviation = (
            torch.tensor(values).view(3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
        )
        whole = attention_weights(model, (pixels - mean) / deviation)[0].detach().numpy()
        assert_same_weights(attention.heads[:, 0], whole[:, 0, n_before:], model)
        assert_same_weights(attention.heads[:, 1:], whole[:, n_before:, n_before:], model)
        assert (attention.heads.sum(-1) < 1).all()


def test_no_images_give_no_attention(cpu: Compute) -> None:
    assert last_block_attention(model_of(plain()).float(), [], 0.8, cpu) == []


@pytest.mark.parametrize(
    ("weights", "share", "expected"),
    [
        ([0.1, 0.4, 0.2, 0.3], 0.5, [0, 1, 0, 1]),
        ([0.1, 0.4, 0.2, 0.3], 0.01, [0, 1, 0, 0]),
        ([0.1, 0.4, 0.2, 0.3], 0.51, [0, 1, 1, 1]),
        ([0.2, 0.5, 0.2, 0.2], 0.75, [1, 1, 1, 0]),
        ([[0.1, 0.2], [0.2, 0.1]], 0.5, [[0, 1], [1, 0]]),
        ([0.0, 0.0, 0.0], 1.0, [1, 1, 1]),
    ],
)
def test_most_attended(weights: Sequence[object], share: float, expected: Sequence[object]) -> None:
    mask = most_attended(np.array(weights, dtype=np.float32), share)
    assert mask.dtype == np.bool_
    assert np.array_equal(mask, np.array(expected, dtype=bool))


@given(st.integers(1, 400), st.integers(1, 100))
def test_the_number_of_patches_is_rounded_up_exactly(n: int, percent: int) -> None:
    assert most_attended(np.zeros(n), percent / 100).sum() == -(-percent * n // 100)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.01, float("nan")])
def test_an_impossible_share_is_refused(share: float) -> None:
    with pytest.raises(Misuse, match=r"a share of .* cannot be shown\. Give one above 0 and up to 1, such as 0\.1\."):
        most_attended(np.zeros(4), share)
