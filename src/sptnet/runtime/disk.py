"""Errors of the disk while something is written, and syncing of folders."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from sptnet.errors import Failure

_REMEDIES = {
    errno.ENOSPC: "Make room",
    errno.EDQUOT: "Make room in your quota",
    errno.EFBIG: "Raise the limit on the size of files",
    errno.EROFS: "Make the disk writable",
    errno.EIO: "Check the disk",
}
_PERMISSION = (errno.EACCES, errno.EPERM)
_NUMBER_IN_SAFETENSORS = re.compile(r"\b(?:os error|code:) (\d+)")


class NotWritten(Failure):
    """Error for a file that the disk refuses: it is full, read-only or broken."""

    def __init__(self, path: Path, number: int, then: str = "try again"):
        remedy = _REMEDIES.get(number, "Change the permissions of the folder")
        super().__init__(f"{path} could not be written ({os.strerror(number)}). {remedy}, then {then}.")
        self.path, self.number = path, number

    def __reduce__(self) -> tuple[type["NotWritten"], tuple[Path, int]]:
        return NotWritten, (self.path, self.number)


@contextmanager
def disk_problems(path: Path) -> Iterator[None]:
    """Turn the errors of a disk that refuses what is written for `path` into `NotWritten`.

    safetensors reports them as errors of its own, which are no OSError.
    """
    try:
        yield
    except OSError as error:
        code = error.errno or 0
        if code in _REMEDIES or (code in _PERMISSION and _is_for(error.filename, path)):
            raise NotWritten(path, code) from error
        raise
    except SafetensorError as error:
        number = _NUMBER_IN_SAFETENSORS.search(str(error))
        if number is None:
            raise
        raise NotWritten(path, int(number.group(1))) from error


def _is_for(name: object, path: Path) -> bool:
    """True for the name of `path`, or of its temporary files beside it."""
    if not isinstance(name, str | Path) or not Path(name).is_relative_to(path.parent):
        return False
    first = next(iter(Path(name).relative_to(path.parent).parts), path.name)
    return first == path.name or first.startswith(f".{path.name}.sptnet-")


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder to disk, so that a rename survives a crash; nothing where folders cannot be opened.

    Some file systems refuse to sync folders; they are left alone.
    """
    try:
        number = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    except PermissionError:  # Windows, and folders without permission to read
        return
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF):
            raise
    finally:
        os.close(number)
