"""Checksum of tensors, equal on all machines."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def digest(tensors: Mapping[str, Tensor], facts: str = "") -> str:
    """Return the SHA-256 of `facts` and of the names, shapes, dtypes and values of the tensors."""
    total = hashlib.sha256(facts.encode())
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        total.update(f"{name}{tuple(value.shape)}{value.dtype}".encode())
        total.update(value.flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()
