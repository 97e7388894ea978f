"""Read safetensors files that may be damaged, and compare tensors with those that a model needs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from sptnet.errors import Failure
from sptnet.runtime.readers import Problem, file_size, one_line, reading

Tensors = dict[str, Tensor]


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


def load_tensors(path: Path) -> tuple[Tensors, dict[str, str]]:
    """Return the tensors and the metadata of a safetensors file; call it inside `reading_tensors`."""
    file_size(path)
    with safe_open(path, framework="pt") as file:
        tensors = {}
        for name in file.keys():  # noqa: SIM118
            try:
                tensors[name] = file.get_tensor(name)
            except (TypeError, AttributeError, KeyError, RuntimeError) as problem:  # a dtype that torch does not have
                raise ValueError(f"{name} cannot be read: {one_line(problem)}") from problem
        return tensors, dict(file.metadata() or {})


def read_tensors(path: Path, way_out: str, error: Problem = Failure, says: str = "is damaged") -> Tensors:
    """Read all tensors of a safetensors file."""
    with reading_tensors(path, way_out, error, says):
        return load_tensors(path)[0]


def first_misfit(tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor], exact: bool = True) -> str | None:
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


def first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor that holds NaN or infinity; None if all values are finite."""
    for name in sorted(tensors):
        if tensors[name].is_floating_point() and not bool(tensors[name].detach().isfinite().all()):
            return name
    return None


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
