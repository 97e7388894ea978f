"""Blocks written over their own input give what they give otherwise, and are used only where nobody looks back."""

import pytest
import torch
from timm.models.vision_transformer import ParallelScalingBlock, VisionTransformer
from torch import nn

from sptnet.data.pixel_format import PixelFormat
from sptnet.model.backbone import Backbone
from sptnet.model.vit.frozen_blocks import can_run_in_place, run_in_place

SETTINGS = [
    {},
    {"qkv_bias": False, "proj_bias": False},
    {"qk_norm": True},
    {"init_values": 0.1},
    {"act_layer": lambda: nn.GELU("tanh")},
    {"reg_tokens": 4},
    {"no_embed_class": True},
    {"pos_embed": "none"},
]


def vit(**settings: object) -> VisionTransformer:
    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 3, "num_classes": 0}
    made = VisionTransformer(**{**sizes, **settings}).double().eval().requires_grad_(False)
    for parameter in made.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    return made


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_block_over_its_own_input_gives_the_same(settings: dict[str, object]) -> None:
    block, x = vit(**settings).blocks[0], torch.randn(4, 17, 24, dtype=torch.float64)
    assert can_run_in_place(block, x)
    expected, given = block(x), x.clone()
    run_in_place(block, given)
    torch.testing.assert_close(given, expected, rtol=0, atol=1e-12)
    assert (expected - x).abs().max() > 0.1


@pytest.mark.parametrize("settings", SETTINGS)
def test_neither_images_nor_patches_nor_weights_change(settings: dict[str, object]) -> None:
    backbone = Backbone("small", vit(**settings), PixelFormat(32))
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    patches = backbone.embed(images)
    kept, kept_images, weights = patches.clone(), images.clone(), [p.clone() for p in backbone.parameters()]
    x = backbone.vit.forward_features(images)[:, 0]
    for _ in range(2):
        entering = backbone.run_to_last_block(patches)
        torch.testing.assert_close(backbone.finish(entering), x, rtol=0, atol=1e-12)
    assert torch.equal(patches, kept) and torch.equal(images, kept_images)
    assert all(torch.equal(now, then) for now, then in zip(backbone.parameters(), weights, strict=True))


def test_blocks_that_a_gradient_passes_are_left_alone() -> None:
    block, x = vit().blocks[0], torch.randn(4, 17, 24, dtype=torch.float64)
    assert can_run_in_place(block, x)
    assert not can_run_in_place(block, x.clone().requires_grad_(True))
    block.norm1.weight.requires_grad_(True)
    assert not can_run_in_place(block, x)
    with torch.no_grad():
        assert can_run_in_place(block, x) and can_run_in_place(block, x.clone().requires_grad_(True))


@pytest.mark.parametrize(
    "settings",
    [
        {"block_fn": ParallelScalingBlock},
        {"scale_attn_norm": True},
        {"scale_mlp_norm": True},
        {"act_layer": nn.ReLU},
        {"drop_path_rate": 0.5},
    ],
)
def test_other_makes_are_left_alone(settings: dict[str, object]) -> None:
    made, images = vit(**settings), torch.randn(2, 3, 32, 32, dtype=torch.float64)
    assert not can_run_in_place(made.blocks[-1], torch.randn(4, 17, 24, dtype=torch.float64))
    found = Backbone("other", made, PixelFormat(32))(images)
    torch.testing.assert_close(found, made.forward_features(images)[:, 0], rtol=0, atol=1e-12)


def test_dropout_counts_only_in_training() -> None:
    block, x = vit(proj_drop_rate=0.1).blocks[0], torch.randn(4, 17, 24, dtype=torch.float64)
    assert can_run_in_place(block, x)
    assert not can_run_in_place(block.train(), x)
    assert can_run_in_place(vit().blocks[0].train(), x)


def test_mixed_precision_is_left_alone() -> None:
    block, x = vit().float().blocks[0], torch.randn(4, 17, 24)
    with torch.autocast("cpu", torch.bfloat16):
        assert not can_run_in_place(block, x)
        assert Backbone("small", vit().float(), PixelFormat(32))(torch.randn(2, 3, 32, 32)).isfinite().all()
