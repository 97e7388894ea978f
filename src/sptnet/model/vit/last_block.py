"""The last block, computed for the class token only.

The backbone returns only the class token, and tokens interact only in the attention. So queries, output projection and
MLP of all other tokens can be left out; this is exact. With a single query, keys and values need not be computed
either, nor the scale and shift of the norm for each token (`mix_without_keys`): if the tokens themselves need no
gradient, the backward pass then writes nothing of their size.
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
    """Compute the block's output for the first token; `rope` are its rotary positions, if any.

    Blocks of other classes than timm's standard ones are run on all tokens.
    """
    token: Tensor = x[:, :1]
    if is_plain(block):
        token = token + block.drop_path1(block.ls1(attend_from_first(block.attn, block.norm1, x)))
        token = token + block.drop_path2(block.ls2(block.mlp(block.norm2(token))))
        return token
    if is_plain_eva(block):
        assert isinstance(block, EvaBlock)
        scale1, scale2 = (1.0, 1.0) if block.gamma_1 is None else (block.gamma_1, block.gamma_2)
        token = token + block.drop_path1(scale1 * attend_from_first(block.attn, block.norm1, x, rope))
        token = token + block.drop_path2(scale2 * block.mlp(block.norm2(token)))
        return token
    whole: Tensor = run_block(block, x, rope)[:, :1]
    return whole


def run_block(
    block: nn.Module, x: Float[Tensor, "batch length dim"], rope: Tensor | None = None
) -> Float[Tensor, "batch length dim"]:
    """Run a block on all tokens, with rotary positions if any."""
    y: Tensor = block(x) if rope is None else block(x, rope=rope)
    return y


def is_plain(block: nn.Module) -> TypeGuard[Block]:
    """Return True for a standard block of timm's VisionTransformer."""
    return type(block) is Block and type(block.attn) is Attention and getattr(block.attn, "gate", None) is None


def is_plain_eva(block: nn.Module) -> bool:
    """Return True for a standard block of timm's Eva with one matrix for queries, keys and values."""
    attention: Any = getattr(block, "attn", None)
    if type(block) is not EvaBlock or type(attention) is not EvaAttention:
        return False
    return attention.qkv is not None and getattr(attention, "gate", None) is None


def attend_from_first(
    attention: Attention | EvaAttention,
    norm: nn.Module,
    x: Float[Tensor, "batch length dim"],
    rope: Tensor | None = None,
) -> Float[Tensor, "batch 1 dim"]:
    """Normalise the tokens and compute self-attention for the query of the first one.

    Prefix tokens have no position in the image, so the query and the keys of prefix tokens are not rotated.
    """
    inner = attention.proj.in_features
    weight, bias = attention.qkv.weight, qkv_bias(attention)
    bias_q, bias_kv = (None, None) if bias is None else (bias[:inner], bias[inner:])

    def query_of(first: Float[Tensor, "batch dim"]) -> Float[Tensor, "batch heads part"]:
        query: Tensor = attention.q_norm(
            F.linear(first, weight[:inner], bias_q).unflatten(1, (attention.num_heads, -1))
        )
        return query

    if rope is None and _is_affine(norm) and isinstance(attention.k_norm, nn.Identity) and not _drops(attention):
        x = in_autocast_dtype(F.layer_norm(x, norm.normalized_shape, eps=norm.eps))
        query = query_of(x[:, 0] * norm.weight + norm.bias) * attention.scale
        mixed = mix_without_keys(query, x, norm.weight, norm.bias, weight[inner:], bias_kv)
    else:
        x = norm(x)
        mixed = mix_with_keys(attention, query_of(x[:, 0]), x, weight[inner:], bias_kv, rope)
    out: Tensor = attention.proj_drop(attention.proj(attention.norm(mixed).unsqueeze(1)))
    return out


def mix_without_keys(
    query: Float[Tensor, "batch heads part"],
    x: Float[Tensor, "batch length dim"],
    scale: Float[Tensor, " dim"],
    shift: Float[Tensor, " dim"],
    weight: Float[Tensor, "twice dim"],
    bias: Float[Tensor, " twice"] | None,
) -> Float[Tensor, "batch inner"]:
    """Compute the attention of a single query to tokens `x * scale + shift`, by reordering the products.

    q (W x) = (q W) x, so the query is multiplied by the key matrix once per head, and by the scale. The shift and the
    bias of the keys add the same number to all scores and are ignored by softmax. The attention weights sum to one, so
    tokens are averaged before they are scaled, shifted and multiplied by the value matrix.
    """
    keys, values = weight.unflatten(0, (2, query.shape[1], -1)).unbind(0)
    projected = torch.einsum("bhp,hpd->bhd", query, keys) * scale
    attended = (projected @ x.mT).softmax(dim=-1) @ x
    mixed = torch.einsum("bhd,hpd->bhp", attended * scale + shift, values).flatten(1)
    return mixed if bias is None else mixed + bias[bias.shape[0] // 2 :]


def in_autocast_dtype(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Convert to the type that autocast would convert to in each product, so that it happens once."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


def mix_with_keys(
    attention: Attention | EvaAttention,
    query: Float[Tensor, "batch heads part"],
    x: Float[Tensor, "batch length dim"],
    weight: Float[Tensor, "twice dim"],
    bias: Float[Tensor, " twice"] | None,
    rope: Tensor | None,
) -> Float[Tensor, "batch inner"]:
    """Compute the attention of a single query with the keys and values of all tokens.

    Needed where each key is normalised or rotated.
    """
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


def _is_affine(norm: nn.Module) -> TypeGuard[nn.LayerNorm]:
    return isinstance(norm, nn.LayerNorm) and norm.weight is not None and norm.bias is not None


def _drops(attention: Attention | EvaAttention) -> bool:
    return bool(attention.training and attention.attn_drop.p > 0)


def qkv_bias(attention: Attention | EvaAttention) -> Tensor | None:
    """Return the bias of queries, keys and values as one vector, None if there is none."""
    if isinstance(attention, Attention):
        bias: Tensor | None = attention.qkv.bias
        return bias
    parts = (attention.q_bias, attention.k_bias, attention.v_bias)
    return None if parts[0] is None else torch.cat(parts)
