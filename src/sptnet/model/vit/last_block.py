"""The last block for the class token alone.

Only that token leaves the backbone, and tokens meet nowhere but in the attention. So queries, output projection and MLP
of all other tokens are never read: leaving them out is exact. With a single query, keys and values need not be made
either (`mix_without_keys`), and next to nothing is left of the block.
"""

from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from jaxtyping import Float
from timm.layers import Attention, apply_rot_embed_cat
from timm.models.eva import EvaAttention, EvaBlock
from timm.models.vision_transformer import Block
from torch import Tensor, nn


def class_token_of_block(
    block: nn.Module, x: Float[Tensor, "batch length dim"], rope: Tensor | None = None
) -> Float[Tensor, "batch 1 dim"]:
    """What the block makes of the first token, given the rotary positions if it has any; other makes are run whole."""
    token: Tensor = x[:, :1]
    if is_plain(block):
        token = token + block.drop_path1(block.ls1(attend_from_first(block.attn, block.norm1(x))))
        token = token + block.drop_path2(block.ls2(block.mlp(block.norm2(token))))
        return token
    if is_plain_eva(block):
        assert isinstance(block, EvaBlock)
        scale1, scale2 = (1.0, 1.0) if block.gamma_1 is None else (block.gamma_1, block.gamma_2)
        token = token + block.drop_path1(scale1 * attend_from_first(block.attn, block.norm1(x), rope))
        token = token + block.drop_path2(scale2 * block.mlp(block.norm2(token)))
        return token
    whole: Tensor = run_block(block, x, rope)[:, :1]
    return whole


def run_block(
    block: nn.Module, x: Float[Tensor, "batch length dim"], rope: Tensor | None = None
) -> Float[Tensor, "batch length dim"]:
    """All tokens through a block, with rotary positions if there are any."""
    y: Tensor = block(x) if rope is None else block(x, rope=rope)
    return y


def is_plain(block: nn.Module) -> TypeGuard[Block]:
    return type(block) is Block and type(block.attn) is Attention and getattr(block.attn, "gate", None) is None


def is_plain_eva(block: nn.Module) -> bool:
    attention: Any = getattr(block, "attn", None)
    if type(block) is not EvaBlock or type(attention) is not EvaAttention:
        return False
    return attention.qkv is not None and getattr(attention, "gate", None) is None


def attend_from_first(
    attention: Attention | EvaAttention, x: Float[Tensor, "batch length dim"], rope: Tensor | None = None
) -> Float[Tensor, "batch 1 dim"]:
    """Self-attention with the first token's query only.

    The first token has no place in the image: its query is not rotated, nor are the keys of the other prefix tokens.
    """
    inner = attention.proj.in_features
    weight, bias = attention.qkv.weight, qkv_bias(attention)
    bias_q, bias_kv = (None, None) if bias is None else (bias[:inner], bias[inner:])
    query = attention.q_norm(F.linear(x[:, 0], weight[:inner], bias_q).unflatten(1, (attention.num_heads, -1)))
    if rope is None and isinstance(attention.k_norm, nn.Identity) and not _drops(attention):
        mixed = mix_without_keys(query * attention.scale, x, weight[inner:], bias_kv)
    else:
        mixed = mix_with_keys(attention, query, x, weight[inner:], bias_kv, rope)
    out: Tensor = attention.proj_drop(attention.proj(attention.norm(mixed).unsqueeze(1)))
    return out


def mix_without_keys(
    query: Float[Tensor, "batch heads part"],
    x: Float[Tensor, "batch length dim"],
    weight: Float[Tensor, "twice dim"],
    bias: Float[Tensor, " twice"] | None,
) -> Float[Tensor, "batch inner"]:
    """One query needs no key and no value of any token: products may be taken in another order.

    q (W x) = (q W) x, so a head's query is turned once and meets the tokens as they are; a key's bias adds the same to
    all scores, which softmax ignores. And the shares, which add up to one, mix the tokens before W makes them a value.
    """
    keys, values = weight.unflatten(0, (2, query.shape[1], -1)).unbind(0)
    turned = torch.einsum("bhp,hpd->bhd", query, keys)
    shares = (turned @ x.mT).softmax(dim=-1)
    mixed = torch.einsum("bhd,hpd->bhp", shares @ x, values).flatten(1)
    return mixed if bias is None else mixed + bias[bias.shape[0] // 2 :]


def mix_with_keys(
    attention: Attention | EvaAttention,
    query: Float[Tensor, "batch heads part"],
    x: Float[Tensor, "batch length dim"],
    weight: Float[Tensor, "twice dim"],
    bias: Float[Tensor, " twice"] | None,
    rope: Tensor | None,
) -> Float[Tensor, "batch inner"]:
    """Where every key is normed or turned by itself: keys and values of all tokens."""
    both = F.linear(x, weight, bias).unflatten(2, (2, attention.num_heads, -1))
    key, value = both.permute(2, 0, 3, 1, 4).unbind(0)
    key = attention.k_norm(key)
    if rope is not None:
        prefix, half = attention.num_prefix_tokens, attention.rotate_half
        rotated = apply_rot_embed_cat(key[:, :, prefix:], rope, half=half)
        key = torch.cat([key[:, :, :prefix], rotated], dim=2).type_as(value)
    dropout = attention.attn_drop.p if attention.training else 0.0
    query = query.unsqueeze(2)
    mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=attention.scale)
    return mixed.flatten(1)


def _drops(attention: Attention | EvaAttention) -> bool:
    return bool(attention.training and attention.attn_drop.p > 0)


def qkv_bias(attention: Attention | EvaAttention) -> Tensor | None:
    if isinstance(attention, Attention):
        bias: Tensor | None = attention.qkv.bias
        return bias
    parts = (attention.q_bias, attention.k_bias, attention.v_bias)
    return None if parts[0] is None else torch.cat(parts)
