"""Data files of a token bank: read and write the tokens of views.

Checksums and tokens may reach the disk in any order; a view whose tokens do not match its checksum is not stored. The
files are read and written by offset and never mapped into memory, where a full disk or a shortened file would kill the
process with SIGBUS.
"""

import errno
import os
import stat
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sptnet.errors import Failure, Misuse
from sptnet.model.bank_header import FLAGS, SUMS, TOKENS, Header, is_marked
from sptnet.runtime.disk import disk_problems
from sptnet.runtime.locks import Locked, try_lock

Slots = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Tokens = npt.NDArray[np.float16]
Sums = npt.NDArray[np.uint64]

_TOGETHER = 64  # views per check, so that it needs little memory
_LONGEST_WRITE = 60.0  # seconds to wait for another process that stores a batch


class BankFiles:
    """Open data files of a bank. Views are addressed by slot: image * rows + view."""

    def __init__(self, folder: Path, header: Header):
        """Open the files, or create those that a kill has prevented. Refuse files of another size."""
        self.folder, self.length, self.dim = folder, int(header["length"]), int(header["dim"])
        self.slots = int(header["images"]) * int(header["rows"])
        self.has_sums = is_marked(header)
        self._beside = folder / (SUMS if self.has_sums else FLAGS)
        size = self.slots * self.view_bytes
        # Flags are no proof of the tokens, so the flags of 0.1.0 must come with a whole tokens.bin.
        none_stored = self.has_sums or not _size_of(self._beside)
        self._tokens = _open(folder / TOKENS, size, may_be_empty=none_stored)
        weakref.finalize(self, os.close, self._tokens)
        self._marks = _open(self._beside, self.slots * (8 if self.has_sums else 1), may_be_empty=True)
        weakref.finalize(self, os.close, self._marks)

    @property
    def view_bytes(self) -> int:
        """Bytes per view."""
        return 2 * self.length * self.dim

    def stored(self, slots: Slots) -> Flags:
        """True for the views whose tokens match their checksum, or, in a bank of 0.1.0, have a flag."""
        if not self.has_sums:
            return np.asarray(self._marked(slots) != 0)
        parts = [slots[start : start + _TOGETHER] for start in range(0, len(slots), _TOGETHER)]
        return np.concatenate([np.zeros(0, np.bool_), *(self.read(p, np.zeros(len(p), np.bool_))[1] for p in parts)])

    def read(self, slots: Slots, known: Flags) -> tuple[Tokens, Flags]:
        """Read the tokens of views, (n, length, dim), and return which are stored; the rest of the tokens is undefined.

        `known` is true for views that were found to be stored before, and need not be verified again.
        """
        tokens, stored = np.empty((len(slots), self.length, self.dim), np.float16), known.copy()
        asked = np.flatnonzero(~known)
        marks = self._marked(slots[asked])
        asked, marks = asked[marks != 0], marks[marks != 0]
        stored[asked] = True
        rows = np.flatnonzero(stored)
        stored[rows] = self._read_into(tokens, rows, slots[rows])
        if self.has_sums and len(asked):
            stored[asked] &= checksums(tokens if len(asked) == len(slots) else tokens[asked]) == marks
        if (known & ~stored).any() or not (self.has_sums or stored[asked].all()):
            raise self._shortened()
        return tokens, stored

    def write(self, slots: Slots, tokens: Tokens) -> None:
        """Store the tokens of views that are not stored yet; the checksums follow the tokens.

        Views that another process has stored in the meantime stay as they are: two processes may round differently, and
        a view must not change under a reader.
        """
        with self._only_writer():
            new = ~self.stored(slots)
            slots, tokens = slots[new], np.ascontiguousarray(tokens[new])
            marks = checksums(tokens) if self.has_sums else np.ones(len(slots), np.bool_)
            self._write(TOKENS, self._tokens, slots, tokens)
            self._write(self._beside.name, self._marks, slots, marks)

    def n_missing(self) -> int:
        """Number of views that have neither checksum nor flag."""
        width = 8 if self.has_sums else 1
        content = np.frombuffer(os.pread(self._marks, self.slots * width, 0), np.uint8)
        marks = content[: len(content) // width * width].reshape(-1, width)
        return self.slots - int(marks.any(1).sum())

    def _marked(self, slots: Slots) -> npt.NDArray[Any]:
        """Read the checksums or flags of slots; 0 for views that are not stored."""
        kind = np.dtype(np.uint64 if self.has_sums else np.uint8)
        with self._readable(self._beside):
            content = b"".join([os.pread(self._marks, kind.itemsize, n * kind.itemsize) for n in slots.tolist()])
        if len(content) != kind.itemsize * len(slots):
            raise self._shortened()
        return np.frombuffer(content, kind)

    def _read_into(self, tokens: Tokens, rows: Slots, slots: Slots) -> Flags:
        """Read views into rows of an array; False where the file ends too early."""
        size, content = self.view_bytes, _bytes_per_row(tokens)
        with self._readable(self.folder / TOKENS):
            pairs = zip(rows.tolist(), slots.tolist(), strict=True)
            got = [os.preadv(self._tokens, [content[row]], slot * size) for row, slot in pairs]
        whole: Flags = np.array(got, np.int64) == size
        return whole

    def _write(self, name: str, file: int, slots: Slots, values: npt.NDArray[Any]) -> None:
        with disk_problems(self.folder / name):
            for slot, row in zip(slots.tolist(), _bytes_per_row(values), strict=True):
                _write_all(file, memoryview(row), slot * len(row))

    @contextmanager
    def _only_writer(self) -> Iterator[None]:
        """Wait for other processes that store views. A lock belongs to an open file, and closing releases it."""
        file = os.open(self._beside, os.O_RDWR | os.O_CLOEXEC)
        try:
            until = time.monotonic() + _LONGEST_WRITE
            while try_lock(file) is False:
                if time.monotonic() > until:
                    raise Locked(
                        f"another process has been writing to the token bank {self.folder} for a minute. Stop it, or "
                        "give another `views.bank_folder`."
                    )
                time.sleep(0.001)
            yield
        finally:
            os.close(file)

    @contextmanager
    def _readable(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Failure(
                f"{path} could not be read ({os.strerror(error.errno or 0)}). Check the disk, then go on with "
                "`resume=True`."
            ) from error

    def _shortened(self) -> Failure:
        return Failure(
            f"the token bank {self.folder} was shortened while it was in use. Remove that folder, then go on with "
            "`resume=True`; its tokens are computed anew."
        )


def checksums(tokens: Tokens) -> Sums:
    """Return a 64-bit sum per view, (n,), of tokens (n, length, dim); never 0.

    The words of a token are added, and the tokens with odd factors, so that lost and displaced blocks are noticed.
    """
    _, length, dim = tokens.shape
    words = tokens.view(np.uint64 if dim % 4 == 0 else np.uint16).sum(2, dtype=np.uint64)
    total: Sums = (words * np.arange(1, 2 * length, 2, dtype=np.uint64)).sum(1, dtype=np.uint64)
    total[total == 0] = 1
    return total


def _bytes_per_row(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """View a contiguous array as bytes, (n, bytes per row)."""
    width = int(np.prod(values.shape[1:])) * values.dtype.itemsize
    return values.reshape(-1).view(np.uint8).reshape(len(values), width)


def _write_all(file: int, content: memoryview, offset: int) -> None:
    while content:  # a disk that is nearly full takes a part, and refuses the next one
        written = os.pwrite(file, content, offset)
        content, offset = content[written:], offset + written


def _size_of(path: Path) -> int:
    return path.lstat().st_size if os.path.lexists(path) else 0


def _open(path: Path, size: int, may_be_empty: bool) -> int:
    """Open a data file of exactly `size` bytes; a new or empty one gets this size, without taking disk space."""
    with disk_problems(path):
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO):
                raise _not_ours(path, "is a link, a folder or a device") from error
            raise
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise _not_ours(path, "is not a regular file")
            if status.st_size == 0 and may_be_empty:
                os.ftruncate(file, size)
            elif status.st_size != size:
                raise _not_ours(path, f"has {status.st_size} bytes instead of {size}")
        except BaseException:
            os.close(file)
            raise
    return file


def _not_ours(path: Path, what: str) -> Misuse:
    return Misuse(
        f"{path} {what}, so it is not a file of this token bank, or it was shortened. Remove the folder {path.parent} "
        "if it holds nothing else, and its tokens are computed anew, or give another `views.bank_folder`."
    )
