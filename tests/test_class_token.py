"""The last block for the class token alone gives what the whole block gives."""

import pytest
import timm
import torch
from timm.models.vision_transformer import Block, ParallelScalingBlock, VisionTransformer

from sptnet.class_token import class_token_of_block, is_plain


def vit(**settings: object) -> VisionTransformer:
    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 0}
    return VisionTransformer(**{**sizes, **settings}).double().eval()


SETTINGS = [{}, {"qkv_bias": False}, {"qk_norm": True}, {"init_values": 0.1}, {"scale_attn_norm": True}]


@pytest.mark.parametrize("settings", SETTINGS)
def test_values_and_gradients_equal_the_whole_block(settings: dict[str, object]) -> None:
    block = vit(**settings).blocks[-1]
    assert is_plain(block)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x = torch.randn(4, 17, 24, dtype=torch.float64, requires_grad=True)
    results = []
    for run in (lambda: block(x)[:, :1], lambda: class_token_of_block(block, x)):
        output = run()
        weight = torch.arange(output.numel(), dtype=torch.float64).view_as(output)
        gradients = torch.autograd.grad((output * weight).sum(), [x, *block.parameters()])
        results.append((output, gradients))
    (whole, whole_gradients), (short, short_gradients) = results
    torch.testing.assert_close(short, whole, rtol=1e-10, atol=1e-12)
    for ours, theirs in zip(short_gradients, whole_gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


def test_the_other_tokens_are_not_computed() -> None:
    block = vit().blocks[-1]
    seen: list[int] = []
    block.mlp.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].shape[1]))
    class_token_of_block(block, torch.randn(2, 17, 24, dtype=torch.float64))
    assert seen == [1]


def test_a_block_of_another_make_is_run_whole() -> None:
    block = vit(block_fn=ParallelScalingBlock).blocks[-1]
    assert not is_plain(block)
    x = torch.randn(2, 17, 24, dtype=torch.float64)
    torch.testing.assert_close(class_token_of_block(block, x), block(x)[:, :1])


def test_real_backbones_have_plain_blocks() -> None:
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False)
    assert all(type(block) is Block and is_plain(block) for block in model.blocks)
