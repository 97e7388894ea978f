"""Reading pickles that hold words, numbers and arrays of bytes, and refusing those that would run code."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sptnet.errors import Failure


class ByteArray:
    """Stands in for a numpy array of bytes, so that no code of numpy's runs on what a stranger wrote."""

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
        """Bytes have neither order nor fields, which is all that a state tells."""


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
# What damaged bytes make an unpickler raise.
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


class _Refused(Exception):
    """The pickle asks for something that is not in the list."""


class _OnlyBytes(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise _Refused(f"{module}.{name}")
        return _ALLOWED[module, name]


def read_pickle(path: Path) -> Any:
    """What the file holds; arrays come as `ByteArray`, text of Python 2 as Latin-1."""
    try:
        with path.open("rb") as stream:
            return _OnlyBytes(stream, encoding="latin1").load()
    except _Refused as error:
        raise Failure(
            f"{path} is not read: it asks for {error}, which no data set needs and which could run code. "
            "Fetch it again from its makers."
        ) from error
    except _DAMAGE as error:
        raise Failure(f"{path} is damaged ({type(error).__name__}). Fetch it again from its makers.") from error
