"""A checksum of tensors, the same on every machine."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def digest(tensors: Mapping[str, Tensor], facts: str = "") -> str:
    """SHA-256 over facts, names, shapes and values."""
    total = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        total.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        total.update(value.flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()
