"""A block that nothing trains, written over its own input.

Where no graph is kept nobody reads a block's input again, so what the block adds goes straight into the tokens and the
activation replaces its argument: the same sums with fewer passes through memory.
"""

from typing import TypeGuard

import torch
import torch.nn.functional as F
from jaxtyping import Float
from timm.layers import Mlp
from timm.models.vision_transformer import Block, LayerScale
from torch import Tensor, nn

from sptnet.model.vit.last_block import is_plain


def can_run_in_place(block: nn.Module, x: Float[Tensor, "batch length dim"]) -> TypeGuard[Block]:
    """Whether the block is of the usual make, drops nothing, and leaves no graph behind."""
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(x.device.type) or not is_plain(block):
        return False
    if torch.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in block.parameters())):
        return False
    usual = all(isinstance(part, nn.Identity) for part in (block.attn.norm, block.drop_path1, block.drop_path2))
    return usual and _is_usual(block.mlp) and _drops_nothing(block)


def run_in_place(block: Block, x: Float[Tensor, "batch length dim"]) -> None:
    """`x` becomes what the block makes of it; ask `can_run_in_place` first."""
    attention, mlp = block.attn, block.mlp
    batch, length, _ = x.shape
    queries, keys, values = attention.qkv(block.norm1(x)).view(batch, length, 3, attention.num_heads, -1).unbind(2)
    queries, keys = attention.q_norm(queries), attention.k_norm(keys)
    mixed = F.scaled_dot_product_attention(queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2))
    _add_projected(x, mixed.transpose(1, 2).flatten(2), attention.proj, block.ls1)
    hidden = mlp.fc1(block.norm2(x))
    torch.ops.aten.gelu_(hidden, approximate=mlp.act.approximate)
    _add_projected(x, hidden, mlp.fc2, block.ls2)


def _add_projected(
    x: Float[Tensor, "batch length dim"], y: Float[Tensor, "batch length inner"], linear: nn.Linear, scale: nn.Module
) -> None:
    if isinstance(scale, LayerScale):
        x.addcmul_(linear(y), scale.gamma)
        return
    tokens = x.view(-1, x.shape[-1])
    if linear.bias is not None:
        tokens += linear.bias
    tokens.addmm_(y.flatten(0, 1), linear.weight.T)


def _is_usual(mlp: nn.Module) -> bool:
    return type(mlp) is Mlp and isinstance(mlp.act, nn.GELU) and isinstance(mlp.norm, nn.Identity)


def _drops_nothing(block: nn.Module) -> bool:
    return not block.training or all(part.p == 0 for part in block.modules() if isinstance(part, nn.Dropout))
