"""Locks between processes, held on a file that stays behind when the lock is released.

A lock is an advisory `flock`: the kernel releases it when its process ends, however that happens. Platforms without
`fcntl`, such as Windows, have no locks: `hold` does nothing there. A folder that cannot be locked, because it is
read-only or on a network file system without locks, is used without a lock, after one line of warning.
"""

import errno
import json
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sptnet.errors import Failure, Misuse
from sptnet.runtime.disk import disk_problems
from sptnet.runtime.progress import say
from sptnet.runtime.text import printable

try:
    import fcntl
except ImportError:  # pragma: no cover
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

_BUSY = (errno.EAGAIN, errno.EACCES)
_UNSUPPORTED = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)
_PAUSE = 0.02
_LONGEST_RECORD = 1000
_BEGINNING = b'{"sptnet": "lock"'
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_held: set[int] = set()


class Locked(Failure):
    """Error for something that another process is using."""


@contextmanager
def hold(path: Path, what: str, shared: bool = False, wait: float = 0.0) -> Iterator[None]:
    """Hold a lock on the file `path`, which is created if it is missing and records who holds it.

    If another process holds the lock for longer than `wait` seconds, raise `Locked`: the message says that `what` is in
    use, by whom and since when. Several processes may hold a `shared` lock at the same time. The file of an exclusive
    lock is removed at the end; after a kill it stays and is taken over.
    """
    file = _acquire(path, what, shared, wait) if HAS_LOCKS else None
    if file is None:
        yield
        return
    with _kept_open(file):
        try:
            yield
        finally:
            # Removed while it is locked: a process that has opened it meanwhile finds that it is gone, and tries again.
            if not shared and file in _held and _is_at(file, path):
                path.unlink()


@contextmanager
def claim(folder: Path) -> Iterator[bool | None]:
    """Lock a folder itself while the body runs, without a file.

    Yields True if it is locked, False if another process has it or it is gone, None if folders cannot be locked here.
    """
    try:
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _NO_LINK) if HAS_LOCKS else None
    except (FileNotFoundError, NotADirectoryError):
        yield False
        return
    if file is None:
        yield None
        return
    with _kept_open(file):
        locked = try_lock(file)
        yield locked and _is_at(file, folder)


def check_free(path: Path, what: str) -> None:
    """Raise `Locked` if another process holds a lock on the file `path`; nothing is created or changed."""
    if not HAS_LOCKS or not is_lock_file(path):
        return
    with _kept_open(os.open(path, os.O_RDONLY | _NO_LINK)) as file:
        if try_lock(file, shared=True) is False:
            raise Locked(_in_use(what, os.pread(file, _LONGEST_RECORD, 0)))


def try_lock(file: int, shared: bool = False) -> bool | None:
    """Lock an open file or folder; False if another process holds it, None if it cannot be locked."""
    if not HAS_LOCKS:
        return None
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        if error.errno in _UNSUPPORTED:
            return None
        raise
    return True


def is_lock_file(path: Path) -> bool:
    """True for a file that `hold` has written, or an empty one that it was about to write."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return _is_record(file.read(_LONGEST_RECORD))


def _acquire(path: Path, what: str, shared: bool, wait: float) -> int | None:
    """Return the locked file; None if it cannot be locked."""
    until = time.monotonic() + wait
    while True:
        file = _open(path)
        if file is None:
            return None
        try:
            locked = try_lock(file, shared)
            if locked and _is_at(file, path):
                _record(file, path, shared)
                return file
            holder = os.pread(file, _LONGEST_RECORD, 0)
        except BaseException:
            os.close(file)
            raise
        os.close(file)
        if locked is None:
            _warn(path, "the file system has no locks")
            return None
        if locked is False:
            if time.monotonic() >= until:
                raise Locked(_in_use(what, holder))
            time.sleep(_PAUSE)


def _in_use(what: str, record: bytes) -> str:
    return f"{what} is being {_holder(record) or 'used by another process'}. Wait for it, or stop it."


@contextmanager
def _kept_open(file: int) -> Iterator[int]:
    """Close a file at the end, and at once in forked processes, so that its lock ends with this process."""
    _held.add(file)
    try:
        yield file
    finally:
        if file in _held:
            _held.discard(file)
            os.close(file)


def _open(path: Path) -> int | None:
    """Open or create the file; None in a folder that cannot be written to."""
    with disk_problems(path):
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o666)
        except OSError as error:
            if error.errno in _NOT_WRITABLE:
                _warn(path, os.strerror(error.errno))
                return None
            if error.errno in (errno.ELOOP, errno.EMLINK, errno.EISDIR, errno.ENXIO):
                raise Misuse(f"{path} is not a lock file of sptnet. Move it away.") from error
            raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise Misuse(f"{path} is not a lock file of sptnet. Move it away.")
    return file


def _is_at(file: int, path: Path) -> bool:
    """True if the open file is still the one at the path: it may have been removed before it was locked."""
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    here = os.fstat(file)
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _record(file: int, path: Path, shared: bool) -> None:
    """Write process, host and time; a file with other content is nobody's lock, and stays as it is."""
    before = os.pread(file, _LONGEST_RECORD, 0)
    if not _is_record(before):
        raise Misuse(f"{path} is not a lock file of sptnet. Move it away.")
    use, host = "shared" if shared else "exclusive", socket.gethostname()
    record = {"use": use, "process": os.getpid(), "host": host, "since": time.time()}
    text = _BEGINNING + b", " + json.dumps(record).encode()[1:] + b"\n"
    with disk_problems(path):
        os.pwrite(file, text, 0)  # over the old record first, which needs no room on a full disk
        os.ftruncate(file, len(text))


def _is_record(text: bytes) -> bool:
    """True for a record, and for one that a kill or a power cut has cut off or left empty."""
    return text.startswith(_BEGINNING) or _BEGINNING.startswith(text) or not text.strip(b"\0 \n")


def _holder(text: bytes) -> str | None:
    """Return the recorded use and process in words; None if the text is no record."""
    try:
        record = json.loads(text.partition(b"\n")[0])  # a kill may leave the end of a longer record behind it
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(record["since"]))
        host = printable(str(record["host"]))
        use = {"shared": "used", "exclusive": "written"}[record["use"]]
        return (
            f"{use} by process {int(record['process'])} on {host} since {since}" if record["sptnet"] == "lock" else None
        )
    except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
        return None


def _warn(path: Path, reason: str) -> None:
    say(f"warning: {path} cannot be locked ({reason}). Make sure that no other process writes here.")


def _close_in_child() -> None:
    """Close the locks of the parent in a forked process, so that they end with the parent."""
    for file in _held:
        os.close(file)
    _held.clear()


if HAS_LOCKS:
    os.register_at_fork(after_in_child=_close_in_child)
