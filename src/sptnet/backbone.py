"""The Vision Transformer: from images to one feature each, the class token after the final norm."""

import difflib
import math
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import timm
import torch
from jaxtyping import Float
from timm.layers import resample_abs_pos_embed
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from sptnet.class_token import class_token_of_block
from sptnet.errors import Failure, Misuse
from sptnet.fetch import where_weights_are
from sptnet.pixels import PixelFormat
from sptnet.weights_file import read_weights

EMBEDDED = "sptnet_digits_vit"
EMBEDDED_WEIGHTS = "digits_vit.safetensors"
EMBEDDED_ARCHITECTURE: dict[str, Any] = {
    "img_size": 96,
    "patch_size": 16,
    "embed_dim": 96,
    "depth": 4,
    "num_heads": 3,
}
WAYS_OUT = (
    "Ways out: connect to the network and try again; give a local file with --set backbone.weights=FILE; or, for small "
    f"drawings, use the embedded backbone with --set backbone.name={EMBEDDED}."
)


class Backbone(nn.Module):
    """A timm Vision Transformer reduced to its class token; everything is frozen until a phase says otherwise."""

    def __init__(self, name: str, vit: VisionTransformer, pixels: PixelFormat):
        super().__init__()
        self.name = name
        self.vit = vit
        self.pixels = pixels
        self.requires_grad_(False)

    @property
    def dim(self) -> int:
        return int(self.vit.embed_dim)

    @property
    def depth(self) -> int:
        return len(self.vit.blocks)

    @property
    def patch_size(self) -> int:
        return int(self.vit.patch_embed.patch_size[0])

    def last_blocks(self, n: int) -> Iterator[nn.Parameter]:
        """The parameters that fine-tuning trains: the last n blocks, never the final norm."""
        if not 1 <= n <= self.depth:
            raise Misuse(f"backbone.trainable_blocks must be from 1 to {self.depth} for {self.name}. Got {n}.")
        for block in cast(nn.Sequential, self.vit.blocks)[-n:]:
            yield from block.parameters()

    def forward(
        self,
        images: Float[Tensor, "batch 3 height width"],
        tokens: Float[Tensor, "depth n dim"] | None = None,
    ) -> Float[Tensor, "batch dim"]:
        """Class token after the final norm; `tokens` are deep prompt tokens, fresh ones for every block."""
        return self.finish(self.enter_last_block(images, tokens), tokens)

    def enter_last_block(
        self,
        images: Float[Tensor, "batch 3 height width"],
        tokens: Float[Tensor, "depth n dim"] | None = None,
    ) -> Float[Tensor, "batch length dim"]:
        """All tokens as they enter the last block: whatever fine-tuning of that block leaves unchanged."""
        vit = self.vit
        x: Tensor = vit.norm_pre(vit.patch_drop(vit._pos_embed(vit.patch_embed(images))))
        for i, block in enumerate(vit.blocks[:-1]):
            x = block(x) if tokens is None else without_tokens(block(with_tokens(x, tokens[i])), len(tokens[i]))
        return x

    def finish(
        self, x: Float[Tensor, "batch length dim"], tokens: Float[Tensor, "depth n dim"] | None = None
    ) -> Float[Tensor, "batch dim"]:
        """The last block and the final norm, for the class token alone."""
        if tokens is not None:
            x = with_tokens(x, tokens[-1])
        features: Tensor = self.vit.norm(class_token_of_block(self.vit.blocks[-1], x))[:, 0]
        return features


def with_tokens(
    x: Float[Tensor, "batch length dim"], tokens: Float[Tensor, "n dim"]
) -> Float[Tensor, "batch length+n dim"]:
    """Prompt tokens set in behind the class token."""
    return torch.cat([x[:, :1], tokens.expand(len(x), -1, -1), x[:, 1:]], dim=1)


def without_tokens(x: Float[Tensor, "batch length dim"], n: int) -> Float[Tensor, "batch length-n dim"]:
    """The outputs at the prompt tokens' places are discarded: every block gets its own (VPT, deep)."""
    return torch.cat([x[:, :1], x[:, 1 + n :]], dim=1)


def build_backbone(
    name: str = "vit_base_patch16_224.dino",
    weights: str | Path | None = None,
    image_size: int | None = None,
    pretrained: bool = True,
) -> Backbone:
    """A backbone by timm name or the embedded one, with its pre-trained weights, those of a file, or none."""
    if name == EMBEDDED:
        pixels = PixelFormat(image_size or EMBEDDED_ARCHITECTURE["img_size"])
        weights = weights or (Path(str(files("sptnet") / "weights" / EMBEDDED_WEIGHTS)) if pretrained else None)
        _check_size(pixels.image_size, EMBEDDED_ARCHITECTURE["patch_size"])
        vit = VisionTransformer(**{**EMBEDDED_ARCHITECTURE, "img_size": pixels.image_size}, num_classes=0)
    else:
        _check_name(name)
        pixels = _pixel_format(name, image_size)
        vit = _create(name, pixels.image_size, download=pretrained and weights is None)
        _check_size(pixels.image_size, int(vit.patch_embed.patch_size[0]))
    if weights is not None:
        _load(vit, read_weights(weights), str(weights))
    return Backbone(name, vit, pixels)


def _check_name(name: str) -> None:
    """Known to timm, and one of its Vision Transformers: asked before anything is downloaded."""
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        close = difflib.get_close_matches(architecture, timm.list_models("vit_*"), n=4, cutoff=0.4)
        raise Misuse(
            f"timm knows no model named {name!r}. Some that it knows: vit_base_patch16_224.dino, {', '.join(close)}."
        )
    tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{architecture}.*")]
    if tag and tag not in tags:
        raise Misuse(f"timm has no weights {tag!r} for {architecture}. Those it has: {', '.join(tags)}.")
    if not timm.model_entrypoint(architecture).__module__.endswith(".vision_transformer"):
        raise _not_a_vit(name)


def _not_a_vit(name: str) -> Misuse:
    return Misuse(
        f"{name} is not a Vision Transformer with a class token. Give one, such as vit_base_patch16_224.dino."
    )


def _check_size(image_size: int, patch_size: int) -> None:
    if image_size % patch_size:
        below = max(1, image_size // patch_size) * patch_size
        raise Misuse(
            f"an image of {image_size} pixels cannot be cut into patches of {patch_size}. Give a multiple, such as "
            f"--set backbone.image_size={below}."
        )


def _create(name: str, image_size: int, download: bool) -> VisionTransformer:
    source = where_weights_are(name, WAYS_OUT) if download else {}
    try:
        vit = timm.create_model(
            name, pretrained=download, pretrained_cfg_overlay=source, num_classes=0, img_size=image_size
        )
    except (OSError, RuntimeError) as error:
        if not download:
            raise Misuse(f"{name} cannot be built at {image_size} px: {error}.") from error
        raise Failure(f"the weights of {name} could not be downloaded ({error}). {WAYS_OUT}") from error
    if not isinstance(vit, VisionTransformer) or vit.cls_token is None or vit.global_pool != "token":
        raise _not_a_vit(name)
    return vit


def _pixel_format(name: str, image_size: int | None) -> PixelFormat:
    cfg = timm.get_pretrained_cfg(name)
    if cfg is None:
        return PixelFormat(image_size or 224)
    size = image_size or min(224, int(cfg.input_size[-1]))  # the paper's 224 px, also for DINOv2 made for 518
    return PixelFormat(size, tuple(cfg.mean), tuple(cfg.std), cfg.interpolation)


def _load(vit: VisionTransformer, state: dict[str, Tensor], source: str) -> None:
    state = {key: value.float() for key, value in state.items() if not key.startswith("head.")}
    wanted = vit.state_dict()
    _resample_positions(vit, state)
    missing, extra = sorted(wanted.keys() - state.keys()), sorted(state.keys() - wanted.keys())
    shape = [k for k in wanted.keys() & state.keys() if wanted[k].shape != state[k].shape]
    if missing or extra or shape:
        what = [f"missing {missing[:3]}"] * bool(missing) + [f"unexpected {extra[:3]}"] * bool(extra)
        what += [f"other shape {k}: {tuple(state[k].shape)}, wanted {tuple(wanted[k].shape)}" for k in shape[:3]]
        raise Misuse(
            f"{source} does not fit the backbone: {'; '.join(what)}. Give the timm name that the file was made "
            "for with --set backbone.name=NAME."
        )
    vit.load_state_dict(state)


def _resample_positions(vit: VisionTransformer, state: dict[str, Tensor]) -> None:
    """Position embeddings made for another image size are interpolated to this one."""
    ours, theirs = vit.pos_embed, state.get("pos_embed")
    if theirs is None or theirs.shape == ours.shape or theirs.ndim != 3 or theirs.shape[2] != ours.shape[2]:
        return
    prefix = 0 if vit.no_embed_class else vit.num_prefix_tokens
    if math.isqrt(theirs.shape[1] - prefix) ** 2 == theirs.shape[1] - prefix:
        state["pos_embed"] = resample_abs_pos_embed(theirs, list(vit.patch_embed.grid_size), num_prefix_tokens=prefix)
