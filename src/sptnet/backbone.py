"""The Vision Transformer: from images to one feature each, the class token after the final norm."""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import timm
import torch
from jaxtyping import Float
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from sptnet.errors import Failure, Misuse
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
        vit = self.vit
        x = vit.norm_pre(vit.patch_drop(vit._pos_embed(vit.patch_embed(images))))
        for i, block in enumerate(vit.blocks):
            x = block(x) if tokens is None else block_with_tokens(block, x, tokens[i])
        features: Tensor = vit.norm(x)[:, 0]
        return features


def block_with_tokens(
    block: nn.Module, x: Float[Tensor, "batch length dim"], tokens: Float[Tensor, "n dim"]
) -> Float[Tensor, "batch length dim"]:
    """One block with prompt tokens set in behind the class token; their outputs are discarded (VPT, deep)."""
    n = tokens.shape[0]
    x = block(torch.cat([x[:, :1], tokens.expand(len(x), -1, -1), x[:, 1:]], dim=1))
    return torch.cat([x[:, :1], x[:, 1 + n :]], dim=1)


def build_backbone(
    name: str = "vit_base_patch16_224.dino",
    weights: str | Path | None = None,
    image_size: int | None = None,
    pretrained: bool = True,
) -> Backbone:
    """A backbone by timm name or the embedded one, with its pre-trained weights, those of a file, or none."""
    if name == EMBEDDED:
        return _build_embedded(weights, image_size, pretrained)
    return _build_timm(name, weights, image_size, pretrained)


def _build_embedded(weights: str | Path | None, image_size: int | None, pretrained: bool) -> Backbone:
    size = image_size or EMBEDDED_ARCHITECTURE["img_size"]
    vit = VisionTransformer(**{**EMBEDDED_ARCHITECTURE, "img_size": size}, num_classes=0)
    if weights is not None or pretrained:
        source = weights or Path(str(files("sptnet") / "weights" / EMBEDDED_WEIGHTS))
        _load(vit, read_weights(source), str(source))
    return Backbone(EMBEDDED, vit, PixelFormat(size))


def _build_timm(name: str, weights: str | Path | None, image_size: int | None, pretrained: bool) -> Backbone:
    if not timm.is_model(name):
        close = timm.list_models(f"*{name.split('.')[0]}*")[:5] or timm.list_models("vit_*patch16_224*")[:5]
        raise Misuse(f"timm knows no model named {name!r}. Some that it knows: {', '.join(close)}.")
    pixels = _pixel_format(name, image_size)
    download = pretrained and weights is None
    try:
        vit = timm.create_model(name, pretrained=download, num_classes=0, img_size=pixels.image_size)
    except (OSError, RuntimeError) as error:
        if not download:
            raise Misuse(f"{name} cannot be built at {pixels.image_size} px: {error}.") from error
        raise Failure(
            f"the weights of {name} could not be downloaded ({type(error).__name__}). Ways out: connect to the "
            "network and try again; give a local file with --set backbone.weights=FILE; or use the embedded "
            f"backbone with --set backbone.name={EMBEDDED}."
        ) from error
    except TypeError as error:
        raise Misuse(
            f"{name} is not a Vision Transformer that sptnet can prompt. Give a timm ViT with a class token, "
            "such as vit_base_patch16_224.dino."
        ) from error
    if not isinstance(vit, VisionTransformer) or vit.cls_token is None:
        raise Misuse(
            f"{name} is not a Vision Transformer with a class token. Give one, such as vit_base_patch16_224.dino."
        )
    if weights is not None:
        _load(vit, read_weights(weights), str(weights))
    return Backbone(name, vit, pixels)


def _pixel_format(name: str, image_size: int | None) -> PixelFormat:
    cfg = timm.get_pretrained_cfg(name)
    if cfg is None:
        return PixelFormat(image_size or 224)
    size = image_size or min(224, int(cfg.input_size[-1]))  # the paper's 224 px, also for DINOv2 made for 518
    return PixelFormat(size, tuple(cfg.mean), tuple(cfg.std), cfg.interpolation)  # type: ignore[arg-type]


def _load(vit: VisionTransformer, state: dict[str, Tensor], source: str) -> None:
    state = {key: value.float() for key, value in state.items() if not key.startswith("head.")}
    wanted = vit.state_dict()
    missing, extra = sorted(wanted.keys() - state.keys()), sorted(state.keys() - wanted.keys())
    shape = [k for k in wanted.keys() & state.keys() if wanted[k].shape != state[k].shape]
    if missing or extra or shape:
        what = [f"missing {missing[:3]}"] * bool(missing) + [f"unexpected {extra[:3]}"] * bool(extra)
        what += [f"other shape {k}: {tuple(state[k].shape)}, wanted {tuple(wanted[k].shape)}" for k in shape[:3]]
        raise Misuse(
            f"{source} does not fit the backbone: {'; '.join(what)}. Give the timm name that the file was made "
            "for with --set backbone.name=NAME and its size with --set backbone.image_size=PIXELS."
        )
    vit.load_state_dict(state)
