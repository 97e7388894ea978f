"""Memory that is needed again and again is kept, instead of given back to the system and fetched anew.

The C library of Linux returns every large block the moment it is free, and the system clears each page of the next one
before it may be written: for activations of tens of megabytes that costs as much as the arithmetic between two matrix
products. While training and looking at images, blocks are kept; afterwards all of them go back.
"""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# Parameters of mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_NEVER, _NONE = -1, 0
# Where the library's own adaptive thresholds end up in any process that frees large blocks; 65536 is its start value.
_USUAL_MMAP_MAX, _USUAL_MMAP_THRESHOLD, _USUAL_TRIM_THRESHOLD = 65536, 32 * 2**20, 64 * 2**20

_lock = threading.Lock()
_users = 0


@contextmanager
def memory_kept() -> Iterator[None]:
    """May be nested, and entered from several threads; does nothing where the C library is another."""
    _enter(+1)
    try:
        yield
    finally:
        _enter(-1)


def _enter(step: int) -> None:
    global _users
    library = _glibc()
    if library is None:
        return
    with _lock:
        before, _users = _users, _users + step
        if before == 0:
            library.mallopt(_MMAP_MAX, _NONE)
            library.mallopt(_TRIM_THRESHOLD, _NEVER)
        elif _users == 0:
            library.mallopt(_MMAP_MAX, _USUAL_MMAP_MAX)
            library.mallopt(_MMAP_THRESHOLD, _USUAL_MMAP_THRESHOLD)
            library.mallopt(_TRIM_THRESHOLD, _USUAL_TRIM_THRESHOLD)
            library.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libc.so.6")
    except OSError:
        return None
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
