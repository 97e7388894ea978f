"""Restricted unpickling: strings, numbers and arrays of bytes; anything that could run code is refused."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sptnet.errors import Failure


class ByteArray:
    """Replacement for a NumPy array of bytes, so that no NumPy code runs on untrusted data."""

    values: npt.NDArray[np.uint8]

    def __setstate__(self, state: tuple[int, tuple[int, ...], "_ByteType", bool, str | bytes]) -> None:
        _, shape, kind, by_columns, raw = state
        if not isinstance(kind, _ByteType) or not isinstance(raw, str | bytes):
            raise TypeError("an array of something else than bytes")
        data = raw.encode("latin1") if isinstance(raw, str) else raw
        self.values = np.frombuffer(data, dtype=np.uint8).reshape(shape, order="F" if by_columns else "C")


class _ByteType:
    def __init__(self, kind: str, *_: object) -> None:
        if kind != "u1":
            raise TypeError(f"an array of {kind}")

    def __setstate__(self, state: object) -> None:
        """Ignore the state: bytes have neither byte order nor fields."""


def _reconstruct(*_: object) -> ByteArray:
    return ByteArray()


def _encode(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise ValueError(f"bytes in the encoding {encoding}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): ByteArray,
    ("numpy", "dtype"): _ByteType,
    ("_codecs", "encode"): _encode,
}
# Exceptions that an unpickler raises on damaged files.
_DAMAGE = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    MemoryError,
)


class _ForbiddenClass(Exception):
    """The pickle refers to a class or function that is not allowed."""


class _OnlyBytes(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise _ForbiddenClass(f"{module}.{name}")
        return _ALLOWED[module, name]


def read_pickle(path: Path) -> Any:
    """Return the content of a pickle; arrays are `ByteArray`, strings of Python 2 are decoded as Latin-1."""
    try:
        with path.open("rb") as stream:
            return _OnlyBytes(stream, encoding="latin1").load()
    except _ForbiddenClass as error:
        raise Failure(
            f"{path} is not read: it asks for {error}, which no data set needs and which could run code. "
            "Fetch it again from its makers."
        ) from error
    except _DAMAGE as error:
        raise Failure(f"{path} is damaged ({type(error).__name__}). Fetch it again from its makers.") from error
