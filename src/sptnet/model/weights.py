"""Weights files of Vision Transformers: read them safely, translate names to timm's, load them into a model.

Supported are files of timm, DINO, DINOv2, SimGCD and SPTNet, with or without the name parts that DataParallel, FSDP
and torch.compile add.
"""

import argparse
import math
import os
import pickle
import re
import struct
import tarfile
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any, Literal

import torch
from timm.layers import resample_abs_pos_embed
from torch import Tensor

from sptnet.errors import Failure, Misuse
from sptnet.model.vit.embedding import Vit
from sptnet.runtime.readers import one_line
from sptnet.runtime.tensor_files import first_not_finite, read_tensors
from sptnet.runtime.text import printable

State = dict[str, Tensor]
StateKind = Literal["backbone", "simgcd", "sptnet", "sptnet-model", "unknown"]

# Exceptions of torch's unpickler and zip reader for bytes that are not a checkpoint.
_NOT_WEIGHTS = (
    *(RuntimeError, EOFError, OSError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError),
    *(AssertionError, ImportError, MemoryError, struct.error, tarfile.TarError, zipfile.BadZipFile, zlib.error),
)
_PLAIN_TYPES = {
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
}
MOST_SHARED = 8
"""Tensors may share memory; together they are at most this many times as large as their file."""
MOST_WRAPPERS = 4
# Checkpoints that hold more than weights keep them under one of these keys; the teacher is preferred to the student.
WRAPPERS = ("teacher", "student", "model", "state_dict")
# Name parts that wrappers of a model add.
_WRAPPER_PARTS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
_PREFIXES = ("teacher.", "student.", "backbone.")
_HEADS = ("head.", "fc.", "dino_head.", "ibot_head.")
_MASKS = {"mask_token", "masked_embed"}
_CHECKPOINTS = {"simgcd": "a SimGCD checkpoint", "sptnet": "an SPTNet checkpoint"}


def check_weights_file(path: str | Path) -> None:
    """Raise unless there is such a file; nothing is read."""
    if not os.path.isfile(path):
        raise Misuse(f"no weights file at {path}. Give the path of a .safetensors, .pth or .pt file.")


def read_weights(path: str | Path) -> State:
    """Read a state dict from a `.safetensors` or pickled file without running code from the file.

    The state dict may be inside a checkpoint; the teacher is preferred to the student.
    """
    path = Path(path)
    check_weights_file(path)
    way_out, says = "Fetch or copy it again.", "cannot be read as weights"
    is_safe = path.suffix == ".safetensors"
    state = find_state_dict(read_tensors(path, way_out, says=says) if is_safe else _read_pickled(path))
    if state is None:
        raise Misuse(f"{path} is not a plain state dict (name to tensor). Give the backbone's state dict alone.")
    _check_plain(state, path)
    return state


def _read_pickled(path: Path) -> Any:
    try:
        _refuse_packed(path)
        # Old pickle formats load correctly but warn. Authors store their options with the weights, as a Namespace.
        with warnings.catch_warnings(action="ignore"), torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Failure:
        raise
    except pickle.UnpicklingError as error:
        raise Failure(
            f"{path} cannot be read as weights: it holds more than tensors, and sptnet runs no code from a file. "
            "Give a state dict of tensors alone, or a .safetensors file."
        ) from error
    except _NOT_WEIGHTS as error:
        raise Failure(f"{path} cannot be read as weights: it is damaged or of another kind. Fetch it again.") from error


def _refuse_packed(path: Path) -> None:
    """Refuse an archive that unpacks to more than its own size: torch stores weights without compression."""
    with path.open("rb") as stream:
        if stream.read(2) != b"PK":
            return
    size = path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > size or any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise Failure(
            f"{path} cannot be read as weights: it is compressed and unpacks from {size:,} to {unpacked:,} bytes, but "
            "torch stores weights uncompressed. Save it again with torch.save, or fetch it again."
        )


def _check_plain(state: State, path: Path) -> None:
    """Refuse tensors that are not plain numbers in memory, or that together are far larger than their file."""
    total, most = 0, MOST_SHARED * path.stat().st_size
    for name, value in state.items():
        plain = value.layout == torch.strided and not value.is_nested and value.device.type == "cpu"
        if not plain or value.dtype not in _PLAIN_TYPES:
            kind = one_line(f"{value.dtype} {value.layout}".replace("torch.", ""))
            raise Failure(f"{path} cannot be read as weights: {printable(name)} is {kind}. Save plain tensors.")
        total += value.numel() * value.element_size()
        if total > most:
            raise Failure(
                f"{path} cannot be read as weights: its tensors are more than {MOST_SHARED} times as large as the "
                "file. Fetch it again."
            )


def find_state_dict(content: object, depth: int = 0) -> State | None:
    """Return the state dict in a checkpoint, None if there is none; the teacher's if there are two."""
    if not isinstance(content, dict) or depth > MOST_WRAPPERS:
        return None
    if all(isinstance(key, str) and isinstance(value, Tensor) for key, value in content.items()):
        return content
    inner = (find_state_dict(content[key], depth + 1) for key in WRAPPERS if key in content)
    return next((state for state in inner if state is not None), None)


def kind_of(state: State) -> StateKind:
    """Return the kind of a state dict: backbone, published SimGCD or SPTNet, model of this package, or unknown."""
    names = strip_wrappers(state).keys()
    if any(name.startswith("backbone.vit.") for name in names):
        return "sptnet-model"
    if "1.0.cls_token" in names:
        return "sptnet"
    if "0.cls_token" in names:
        return "simgcd"
    return "backbone" if "patch_embed.proj.weight" in as_backbone(state) else "unknown"


def as_backbone(state: State) -> State:
    """Translate a ViT to timm's names, without projection heads and mask tokens; the teacher's if there are two.

    No model is needed, since the model of a published checkpoint is built from the translated names. timm's
    checkpoint_filter_fn needs one, and renames DINOv2 weights only if they contain a mask token.
    """
    state = strip_wrappers(state)
    for prefix in _PREFIXES:
        if any(name.startswith(prefix) for name in state):
            state = select_prefix(state, prefix)
    state = {name: value for name, value in state.items() if not name.startswith(_HEADS) and name not in _MASKS}
    state = {re.sub(r"^blocks\.\d+\.(\d+)\.", r"blocks.\1.", name): value for name, value in state.items()}
    if any(".mlp.w12." in name for name in state):  # SwiGLU with gate and value in one matrix
        for theirs, timms in ((".mlp.w12.", ".mlp.fc1."), (".mlp.w3.", ".mlp.fc2.")):
            state = {name.replace(theirs, timms): value for name, value in state.items()}
    return _with_registers(state) if "register_tokens" in state else state


def strip_wrappers(state: State) -> State:
    """Remove the name parts that DataParallel, FSDP and torch.compile add."""
    stripped = {}
    for name, value in state.items():
        stripped[".".join(part for part in name.split(".") if part not in _WRAPPER_PARTS)] = value
    return stripped


def select_prefix(state: State, prefix: str) -> State:
    """Return the entries whose names begin with the prefix, with the prefix removed."""
    stripped = strip_wrappers(state)
    return {name.removeprefix(prefix): value for name, value in stripped.items() if name.startswith(prefix)}


def _with_registers(state: State) -> State:
    """Translate DINOv2's registers to timm's form: only patches have positions; the class token's is added to it."""
    named = {("reg_token" if name == "register_tokens" else name): value for name, value in state.items()}
    cls_token, positions = named.get("cls_token"), named.get("pos_embed")
    if cls_token is None or positions is None or (cls_token.ndim, positions.ndim) != (3, 3):
        return named
    if positions.shape[1] > 0 and positions[:, :1].shape == cls_token.shape:
        named["cls_token"] = named["cls_token"] + positions[:, :1]
        named["pos_embed"] = positions[:, 1:]
    return named


def load_weights(vit: Vit, state: State, source: str) -> None:
    """Load a state dict into the ViT. Names are translated, and positions for another image size interpolated."""
    _refuse_other_kinds(state, source)
    state = as_backbone({name: value.float() for name, value in state.items()})
    wanted = vit.state_dict()
    _resample_positions(vit, state)
    missing, extra = sorted(wanted.keys() - state.keys()), sorted(state.keys() - wanted.keys())
    shape = [name for name in sorted(wanted.keys() & state.keys()) if wanted[name].shape != state[name].shape]
    if missing or extra or shape:
        reasons = [f"missing {missing[:3]}"] * bool(missing) + [f"unexpected {extra[:3]}"] * bool(extra)
        reasons += [f"other shape {n}: {tuple(state[n].shape)}, wanted {tuple(wanted[n].shape)}" for n in shape[:3]]
        raise Misuse(
            f"{source} does not fit the backbone: {'; '.join(reasons)}. Give the timm name that the file was made "
            "for with `backbone.name=NAME`."
        )
    bad = first_not_finite(state)
    if bad is not None:
        raise Failure(f"{source} is damaged ({bad} is not finite). Fetch or copy it again.")
    vit.load_state_dict(state)


def _refuse_other_kinds(state: State, source: str) -> None:
    kind = kind_of(state)
    if kind == "sptnet-model":
        raise Misuse(
            f"{source} is a model of sptnet, not a backbone. Start from its folder with `sptnet.start_from=FOLDER`."
        )
    if kind in _CHECKPOINTS:
        command = f"`import_({source!r}, out='MODEL_DIR')`"
        raise Misuse(f"{source} is {_CHECKPOINTS[kind]}, not a backbone. Turn it into a model with: {command}")


def _resample_positions(vit: Vit, state: State) -> None:
    """Interpolate a square grid of positions to the ViT's grid; others are kept, so that the error names their shape.

    timm's checkpoint_filter_fn fails on some of the others with its own error. It also interpolates the patch
    embedding, so a file for another patch size would load silently.
    """
    ours, theirs = vit.pos_embed, state.get("pos_embed")
    if ours is None or theirs is None or theirs.shape == ours.shape:
        return
    if theirs.ndim != 3 or theirs.shape[2] != ours.shape[2]:
        return
    prefix = 0 if vit.no_embed_class else vit.num_prefix_tokens
    patches = theirs.shape[1] - prefix
    if patches > 0 and math.isqrt(patches) ** 2 == patches:
        state["pos_embed"] = resample_abs_pos_embed(theirs, list(vit.patch_embed.grid_size), num_prefix_tokens=prefix)
