"""Reading a file of weights without running anything that is in it."""

import pickle
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from sptnet.errors import Failure, Misuse


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """A state dict from a `.safetensors` file, or from a pickled one of tensors only (`weights_only`)."""
    path = Path(path)
    if not path.is_file():
        raise Misuse(f"no weights file at {path}. Give the path of a .safetensors, .pth or .pt file.")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, RuntimeError, EOFError, OSError, pickle.UnpicklingError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Failure(f"{path} cannot be read as weights ({reason}). Fetch or copy it again.") from error
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise Misuse(f"{path} is not a plain state dict (name to tensor). Give the backbone's state dict alone.")
    return state
