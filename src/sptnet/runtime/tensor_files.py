"""Read safetensors files that may be damaged, and compare tensors with those that a model needs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from sptnet.errors import Failure
from sptnet.runtime.readers import Problem, file_size, one_line, reading

if TYPE_CHECKING:  # results are read without torch, which takes seconds to import
    from torch import Tensor

Arrays = dict[str, npt.NDArray[Any]]


@contextmanager
def reading_tensors(path: Path, way_out: str, error: Problem = Failure, says: str = "is damaged") -> Iterator[None]:
    """Turn the problems of a file of tensors into one error: the file, what `says` of it, the reason, the way out.

    Reasons are raised inside as ValueError.
    """
    with reading(path, way_out, error, says):
        try:
            yield
        except SafetensorError as problem:
            raise ValueError(one_line(problem)) from problem


def load_tensors(path: Path) -> "tuple[dict[str, Tensor], dict[str, str]]":
    """Return the tensors and the metadata of a safetensors file; call it inside `reading_tensors`."""
    return _load(path, "pt")


def load_arrays(path: Path) -> Arrays:
    """Return the arrays of a safetensors file, read without torch; call it inside `reading_tensors`."""
    arrays: Arrays = _load(path, "numpy")[0]
    return arrays


def _load(path: Path, framework: Literal["pt", "numpy"]) -> tuple[dict[str, Any], dict[str, str]]:
    file_size(path)
    with safe_open(path, framework=framework) as file:
        tensors = {}
        for name in file.keys():  # noqa: SIM118
            try:
                tensors[name] = file.get_tensor(name)
            except (TypeError, AttributeError, KeyError, RuntimeError) as problem:  # an unknown dtype
                raise ValueError(f"{name} cannot be read: {one_line(problem)}") from problem
        return tensors, dict(file.metadata() or {})


def read_tensors(path: Path, way_out: str, error: Problem = Failure, says: str = "is damaged") -> "dict[str, Tensor]":
    """Read all tensors of a safetensors file."""
    with reading_tensors(path, way_out, error, says):
        return load_tensors(path)[0]


def read_arrays(path: Path, way_out: str) -> Arrays:
    """Read all arrays of a safetensors file, without torch."""
    with reading_tensors(path, way_out):
        return load_arrays(path)


def first_misfit(tensors: "Mapping[str, Tensor]", wanted: "Mapping[str, Tensor]", exact: bool = True) -> str | None:
    """Return the first way in which tensors differ from the wanted ones in name, shape or dtype; None if they fit.

    Without `exact` there may be others besides the wanted ones.
    """
    for name in sorted(wanted):
        if name not in tensors:
            return f"{name} is missing"
        ours, theirs = wanted[name], tensors[name]
        if ours.shape != theirs.shape:
            return f"{name} has the shape {tuple(theirs.shape)}, not {tuple(ours.shape)}"
        if ours.dtype != theirs.dtype:
            return f"{name} has the type {_dtype(theirs)}, not {_dtype(ours)}"
    strangers = sorted(tensors.keys() - wanted.keys()) if exact else []
    return f"{strangers[0]} is not part of it" if strangers else None


def first_not_finite(tensors: "Mapping[str, Tensor]") -> str | None:
    """Return the name of the first tensor that holds NaN or infinity; None if all values are finite."""
    for name in sorted(tensors):
        if tensors[name].is_floating_point() and not bool(tensors[name].detach().isfinite().all()):
            return name
    return None


def _dtype(tensor: "Tensor") -> str:
    return str(tensor.dtype).removeprefix("torch.")
