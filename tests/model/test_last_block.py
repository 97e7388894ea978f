"""The last block computed for the class token only equals the whole block."""

from collections.abc import Callable

import pytest
import timm
import torch
from timm.models.eva import Eva
from timm.models.vision_transformer import Block, ParallelScalingBlock, VisionTransformer
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.rounding import PASSES, assert_differs, assert_same, terms_of
from sptnet.model.vit import last_block as class_token
from sptnet.model.vit.last_block import class_token_of_block, is_plain, is_plain_eva, run_block


def vit(**settings: object) -> VisionTransformer:
    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 0}
    return VisionTransformer(**{**sizes, **settings}).double().eval()


SETTINGS = [{}, {"qkv_bias": False}, {"qk_norm": True}, {"init_values": 0.1}, {"scale_attn_norm": True}]


@pytest.mark.parametrize("settings", SETTINGS)
def test_values_and_gradients_equal_the_whole_block(settings: dict[str, object]) -> None:
    block = vit(**settings).blocks[-1]
    assert is_plain(block)
    assert_same_as_whole(block, None)


def eva(**settings: object) -> Eva:
    """Build a small DINOv3: registers, layer scale, rotary positions on halves."""
    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 0}
    dinov3 = {"rope_type": "dinov3", "use_rot_pos_emb": True, "use_abs_pos_emb": False, "rope_rotate_half": True}
    rest = {"num_reg_tokens": 4, "init_values": 0.1, "qkv_bias": False}
    return Eva(**{**sizes, **dinov3, **rest, **settings}).double().eval()


EVA_SETTINGS = [
    {},
    {"qkv_bias": True},
    {"init_values": None},
    {"num_reg_tokens": 0},
    {"rope_type": "cat", "rope_rotate_half": False},
    {"swiglu_mlp": True, "swiglu_align_to": 8},
    {"use_rot_pos_emb": False, "use_abs_pos_emb": True},
    {"scale_attn_inner": True},
]


@pytest.mark.parametrize("settings", EVA_SETTINGS)
def test_values_and_gradients_equal_the_whole_rotary_block(settings: dict[str, object]) -> None:
    model = eva(**settings)
    assert is_plain_eva(model.blocks[-1])
    rope = None if model.rope is None else model.rope.get_embed()
    assert_same_as_whole(model.blocks[-1], rope, length=16 + model.num_prefix_tokens)


def assert_same_as_whole(block: nn.Module, rope: Tensor | None, length: int = 17) -> None:
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x = torch.randn(4, length, 24, dtype=torch.float64, requires_grad=True)
    results = []
    for run in (lambda: run_block(block, x, rope)[:, :1], lambda: class_token_of_block(block, x, rope)):
        output = run()
        weight = torch.arange(output.numel(), dtype=torch.float64).view_as(output)
        gradients = torch.autograd.grad((output * weight).sum(), [x, *block.parameters()])
        results.append((output, gradients))
    (whole, whole_gradients), (short, short_gradients) = results
    assert_same(short, whole, terms_of(block))
    largest = max(float(gradient.abs().max()) for gradient in whole_gradients)  # some are zero but for rounding
    for ours, theirs in zip(short_gradients, whole_gradients, strict=True):
        assert_same(ours, theirs, terms_of(block), PASSES, scale=largest)


@pytest.mark.parametrize("make", [vit, eva])
def test_the_other_tokens_are_not_computed(make: Callable[[], nn.Module]) -> None:
    block = make().blocks[-1]
    seen: list[int] = []
    block.mlp.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].shape[1]))
    class_token_of_block(block, torch.randn(2, 17, 24, dtype=torch.float64))
    assert seen == [1]


def test_a_block_of_another_class_is_run_whole() -> None:
    block = vit(block_fn=ParallelScalingBlock).blocks[-1]
    assert not is_plain(block)
    x = torch.randn(2, 17, 24, dtype=torch.float64)
    assert_same(class_token_of_block(block, x), block(x)[:, :1], terms_of(block))


@pytest.mark.parametrize("settings", [{"use_post_norm": True}, {"qkv_fused": False}, {"attn_type": "rope"}])
def test_a_rotary_block_of_another_class_is_run_whole_with_its_positions(settings: dict[str, object]) -> None:
    model = eva(num_reg_tokens=0, **settings)
    block, rope = model.blocks[-1], model.rope.get_embed()
    assert not is_plain(block)
    assert not is_plain_eva(block)
    x = torch.randn(2, 17, 24, dtype=torch.float64)
    assert_same(class_token_of_block(block, x, rope), block(x, rope=rope)[:, :1], terms_of(block))
    assert_differs(class_token_of_block(block, x, rope), block(x)[:, :1], terms_of(block))


def test_real_backbones_have_plain_blocks() -> None:
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False)
    assert all(type(block) is Block and is_plain(block) for block in model.blocks)
    for name in ("vit_small_patch16_dinov3", "vit_base_patch16_dinov3_qkvb"):
        assert is_plain_eva(timm.create_model(name, pretrained=False, depth=1).blocks[0])


@pytest.mark.parametrize(
    ("settings", "training", "keys"),
    [
        ({}, True, False),
        ({"attn_drop_rate": 0.5}, False, False),
        ({"attn_drop_rate": 0.5}, True, True),
        ({"qk_norm": True}, False, True),
    ],
)
def test_keys_are_computed_only_if_normalised_rotated_or_dropped(
    settings: dict[str, object], training: bool, keys: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attention weights with dropout do not sum to one, and normalised keys are not linear in the tokens."""
    ways: list[str] = []
    for name in ("mix_with_keys", "mix_without_keys"):
        way = getattr(class_token, name)
        monkeypatch.setattr(class_token, name, lambda *words, n=name, way=way: ways.append(n) or way(*words))
    block = vit(**settings).blocks[-1].train(training)
    class_token_of_block(block, torch.randn(2, 17, 24, dtype=torch.float64))
    assert ways == ["mix_with_keys" if keys else "mix_without_keys"]


class Sizes(TorchDispatchMode):
    """Note the number of entries of every tensor that is computed; views of other tensors do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        made = func(*args, **(kwargs or {}))
        given = {x.untyped_storage().data_ptr() for x in args if isinstance(x, Tensor)}
        all_made = [x for x in (made if isinstance(made, (tuple, list)) else [made]) if isinstance(x, Tensor)]
        self.seen += [x.numel() for x in all_made if x.untyped_storage().data_ptr() not in given]
        return made


@pytest.mark.parametrize("make", [vit, lambda: eva(use_rot_pos_emb=False, use_abs_pos_emb=True)], ids=["vit", "eva"])
def test_the_backward_pass_computes_nothing_per_token(make: Callable[[], nn.Module]) -> None:
    """Tokens that come from a bank need no gradient, and the norm's scale and shift get theirs without them."""
    block = make().blocks[-1]
    x = torch.randn(50, 97, 24, dtype=torch.float64)
    output = class_token_of_block(block, x)
    with Sizes() as sizes:
        output.square().sum().backward()
    assert block.norm1.weight.grad.abs().min() > 0
    assert 0 < max(sizes.seen) < x.numel() / 4


def test_tokens_are_converted_once_under_autocast() -> None:
    block, x = vit().float().blocks[-1], torch.randn(6, 17, 24)
    whole = class_token_of_block(block, x)
    with torch.autocast("cpu", torch.bfloat16):
        assert class_token.in_autocast_dtype(x).dtype == torch.bfloat16
        rounded = class_token_of_block(block, x)
    assert class_token.in_autocast_dtype(x) is x
    error, step = (rounded.float() - whole).abs().max() / whole.abs().max(), 2.0**-8
    assert 0 < error < 6 * step  # a rounding per product on the way: query, key, score, mean, value, output
