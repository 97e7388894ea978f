"""Reading a file of weights without running anything that is in it."""

import argparse
import pickle
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from sptnet.errors import Failure, Misuse
from sptnet.model.state_dicts import unwrapped

# What torch's unpickler and zip reader raise on bytes that are not a checkpoint.
_NOT_WEIGHTS = (RuntimeError, EOFError, OSError, KeyError, IndexError, ValueError, TypeError, AttributeError)


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """A state dict from a `.safetensors` file or a pickled one (`weights_only`), also from inside a checkpoint.

    Of a checkpoint's teacher and student, the teacher is taken.
    """
    path = Path(path)
    if not path.is_file():
        raise Misuse(f"no weights file at {path}. Give the path of a .safetensors, .pth or .pt file.")
    state = unwrapped(_read_safetensors(path) if path.suffix == ".safetensors" else _read_pickled(path))
    if state is None:
        raise Misuse(f"{path} is not a plain state dict (name to tensor). Give the backbone's state dict alone.")
    return state


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise Failure(f"{path} cannot be read as weights ({error}). Fetch or copy it again.") from error


def _read_pickled(path: Path) -> Any:
    try:
        # Old pickle formats warn and read well. Authors store their options beside the weights: plain values.
        with warnings.catch_warnings(action="ignore"), torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise Failure(
            f"{path} cannot be read as weights: it holds more than tensors, and sptnet runs no code from a file. "
            "Give a state dict of tensors alone, or a .safetensors file."
        ) from error
    except _NOT_WEIGHTS as error:
        raise Failure(f"{path} cannot be read as weights: it is damaged or of another kind. Fetch it again.") from error
