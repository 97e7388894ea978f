"""The last block for the class token alone.

Only that token leaves the backbone, and tokens meet nowhere but in the attention. So queries, output projection and MLP
of all other tokens are never read: leaving them out is exact, and saves most of the block.
"""

import torch.nn.functional as F
from jaxtyping import Float
from timm.layers import Attention
from timm.models.vision_transformer import Block
from torch import Tensor, nn


def class_token_of_block(block: nn.Module, x: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch 1 dim"]:
    """What the block makes of the first token; a block of another make is run whole."""
    if not is_plain(block):
        whole: Tensor = block(x)[:, :1]
        return whole
    assert isinstance(block, Block)
    token: Tensor = x[:, :1]
    token = token + block.drop_path1(block.ls1(attend_from_first(block.attn, block.norm1(x))))
    token = token + block.drop_path2(block.ls2(block.mlp(block.norm2(token))))
    return token


def is_plain(block: nn.Module) -> bool:
    return type(block) is Block and type(block.attn) is Attention and getattr(block.attn, "gate", None) is None


def attend_from_first(attention: Attention, x: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch 1 dim"]:
    """Self-attention with the first token's query only; keys and values of all tokens."""
    batch, inner, heads = len(x), attention.proj.in_features, attention.num_heads
    weight, bias = attention.qkv.weight, attention.qkv.bias
    bias_q, bias_kv = (None, None) if bias is None else (bias[:inner], bias[inner:])
    query = F.linear(x[:, :1], weight[:inner], bias_q).view(batch, 1, heads, -1).transpose(1, 2)
    both = F.linear(x, weight[inner:], bias_kv).view(batch, x.shape[1], 2, heads, -1)
    key, value = both.permute(2, 0, 3, 1, 4).unbind(0)
    dropout = attention.attn_drop.p if attention.training else 0.0
    mixed = F.scaled_dot_product_attention(
        attention.q_norm(query), attention.k_norm(key), value, dropout_p=dropout, scale=attention.scale
    )
    mixed = attention.norm(mixed.transpose(1, 2).reshape(batch, 1, inner))
    out: Tensor = attention.proj_drop(attention.proj(mixed))
    return out
