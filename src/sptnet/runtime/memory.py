"""Keep freed memory for reuse instead of returning it to the system.

glibc returns every large block as soon as it is freed, and the kernel clears each page of the next block: for
activations of tens of megabytes that takes as long as the arithmetic between two matrix products. Freed blocks are kept
during training and inference, and returned afterwards.
"""

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# Parameters of mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_NEVER, _NONE = -1, 0
# The values that glibc's adaptive thresholds reach in any process that frees large blocks; 65536 is the default.
_USUAL_MMAP_MAX, _USUAL_MMAP_THRESHOLD, _USUAL_TRIM_THRESHOLD = 65536, 32 * 2**20, 64 * 2**20

_lock = threading.Lock()
_users = 0


@contextmanager
def memory_kept() -> Iterator[None]:
    """Keep freed memory inside the context; may be nested and used by several threads. No effect without glibc."""
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
