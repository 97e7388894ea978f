"""Pre-trained weights from timm's hub: kept ones first, and a plain word when there is no network."""

import os
import socket
from typing import Any
from urllib.parse import urlparse

import timm
from huggingface_hub import constants, try_to_load_from_cache

from sptnet.errors import Failure
from sptnet.runtime.progress import say

FILES = ("model.safetensors", "pytorch_model.bin")


def where_weights_are(name: str, ways_out: str) -> dict[str, Any]:
    """What timm must be told to load a model's weights: the kept file, or nothing, which makes it download.

    The hub's own client asks the network even for kept files, and without one it tries for minutes.
    """
    cfg = timm.get_pretrained_cfg(name)
    hub_id = getattr(cfg, "hf_hub_id", None)
    if not hub_id:
        return {}
    for file in FILES:
        kept = try_to_load_from_cache(hub_id, file)
        if isinstance(kept, str):
            return {"file": kept, "custom_load": False}  # hub files are plain state dicts
    if not hub_answers():
        raise Failure(f"the weights of {name} could not be downloaded. {ways_out}")
    say(f"fetching the weights of {name}; they are kept for the next time")
    return {}


def hub_answers(seconds: float = 5.0) -> bool:
    """Whether the hub can be reached; behind a proxy only trying tells, so that counts as yes."""
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
