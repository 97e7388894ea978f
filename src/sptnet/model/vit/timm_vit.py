"""Vision Transformers with a class token by timm name: building, pre-trained weights, pixel format."""

import difflib
import os
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlparse

import timm
from huggingface_hub import constants, try_to_load_from_cache
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from sptnet.data.pixel_format import PixelFormat
from sptnet.errors import Failure, Misuse
from sptnet.model.vit.embedding import Vit
from sptnet.runtime.progress import say

SIZES = {"patch_size", "embed_dim", "depth", "num_heads", "mlp_ratio"}
FILES = ("model.safetensors", "pytorch_model.bin")
_MODULES = (".vision_transformer", ".deit", ".eva")


def check_name(name: str) -> None:
    """Raise unless timm has a Vision Transformer of that name. No model is built."""
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        close = difflib.get_close_matches(architecture, timm.list_models("vit_*"), n=4, cutoff=0.4)
        known = ", ".join(["vit_base_patch16_224.dino", *close])
        raise Misuse(f"timm knows no model named {name!r}. Some that it knows: {known}.")
    tags = [tagged.partition(".")[2] for tagged in timm.list_pretrained(f"{architecture}.*")]
    if tag and tag not in tags:
        rest = f"Those it has: {', '.join(tags)}." if tags else "It has none: give a file of weights, or another model."
        raise Misuse(f"timm has no weights {tag!r} for {architecture}. {rest}")
    if not timm.model_entrypoint(architecture).__module__.endswith(_MODULES):
        raise _not_a_vit(name)


def create_vit(name: str, image_size: int, download: bool, architecture: Mapping[str, Any], ways_out: str) -> Vit:
    """Build timm's model without a classifier; `architecture` may override its sizes only."""
    if not architecture.keys() <= SIZES:
        raise ValueError(f"{sorted(architecture.keys() - SIZES)} are no sizes of a ViT")
    if download:
        _check_class_token(name, timm.create_model(name, num_classes=0, depth=1))  # before anything is downloaded
    source = weights_overlay(name, ways_out) if download else {}
    sizes = {"num_classes": 0, "img_size": image_size, **architecture}
    try:
        vit = timm.create_model(name, pretrained=download, pretrained_cfg_overlay=source, **sizes)
    except (OSError, RuntimeError) as error:
        if not download:
            raise Misuse(
                f"{name} cannot be built at {image_size} px: {error}. Give another `backbone.image_size`."
            ) from error
        raise Failure(f"the weights of {name} could not be downloaded ({error}). {ways_out}") from error
    _check_class_token(name, vit)
    return vit


def _check_class_token(name: str, vit: nn.Module) -> None:
    """Raise unless the final norm is applied to a class token; some models apply it to the mean of all tokens."""
    if type(vit) not in (VisionTransformer, Eva) or vit.cls_token is None or isinstance(vit.norm, nn.Identity):
        raise _not_a_vit(name)
    pools = (
        ("token", "avg") if type(vit) is Eva else ("token",)
    )  # DINOv3 is avg in timm, but its class token is trained
    if vit.global_pool not in pools:
        raise _not_a_vit(name)


def _not_a_vit(name: str) -> Misuse:
    return Misuse(
        f"{name} is not a Vision Transformer with a class token. Give one, such as vit_base_patch16_224.dino."
    )


def pixel_format(name: str, image_size: int | None) -> PixelFormat:
    """Return image size, mean, standard deviation and interpolation that the weights were trained with."""
    cfg = timm.get_pretrained_cfg(name)
    if cfg is None:
        return PixelFormat(image_size or 224)
    size = image_size or min(224, int(cfg.input_size[-1]))  # the paper's 224 px, also for DINOv2 trained at 518
    return PixelFormat(size, tuple(cfg.mean), tuple(cfg.std), cfg.interpolation)


def weights_overlay(name: str, ways_out: str) -> dict[str, Any]:
    """Return an overlay for timm's pretrained_cfg: the cached file, or {}, with which timm downloads the weights.

    The hub's client sends requests even for cached files, and retries for minutes without a network.
    """
    if not _hub_id(name):
        return {}
    cached = cached_weights(name)
    if cached is not None:
        return {"file": cached, "custom_load": False}  # hub files are plain state dicts
    if not hub_is_reachable():
        raise Failure(f"the weights of {name} could not be downloaded. {ways_out}")
    say(f"downloading the weights of {name}; they are cached for the next time")
    return {}


def cached_weights(name: str) -> str | None:
    """Return the path of the weights that the hub's client has downloaded before, None if there are none."""
    found = (try_to_load_from_cache(_hub_id(name), file) for file in FILES) if _hub_id(name) else ()
    return next((path for path in found if isinstance(path, str)), None)


def _hub_id(name: str) -> str:
    return getattr(timm.get_pretrained_cfg(name), "hf_hub_id", None) or ""


def hub_is_reachable(seconds: float = 5.0) -> bool:
    """Return True if the hub accepts connections, or if there is a proxy, where only a download can tell."""
    if constants.HF_HUB_OFFLINE:
        return False
    if any(os.environ.get(key) for key in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")):
        return True
    endpoint = urlparse(constants.ENDPOINT)
    port = endpoint.port or (80 if endpoint.scheme == "http" else 443)
    try:
        socket.create_connection((endpoint.hostname or "", port), timeout=seconds).close()
    except OSError:
        return False
    return True
