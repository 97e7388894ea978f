"""Watch the file operations of a process below a folder, and let it die or fail at the n-th of them.

Most operations are seen by an audit hook, before they happen; files opened for writing, `os.write`, `os.fsync`, memory
maps and the writer of safetensors are wrapped, since they have no audit event. To die after an operation is to die
before the next one; the end of the command counts as one. An audit hook cannot be removed, so all of this is for a
forked process.
"""

import builtins
import errno
import io
import mmap
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError

from .children import AT_END

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
NAMES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
"""Audit events that change the disk, apart from open."""
TAKES_SPACE = ("write", "allocate")
Handler = Callable[["Watch", str, str], None]


class Watch:
    """Counts operations below `root` and calls `handler(watch, kind, path)` before each."""

    def __init__(self, root: Path, handler: Handler):
        self.root, self.handler, self.count, self._inside = os.path.realpath(root), handler, 0, False
        self.synced: dict[tuple[int, int], bytes] = {}
        """Content that would survive a power cut, by device and inode."""
        self._kept: list[Any] = []  # open, so that no new file gets the inode of one that was deleted
        self.tear: Callable[[bytes], bytes] | None = None
        """Set by a handler to have the write cut short; the process dies after it."""

    def install(self) -> None:
        """Watch this process from now on."""
        for path in self._files():
            self._note(path)
        AT_END.append(lambda: self.before("end", self.root))
        sys.addaudithook(self._audit)
        _wrap_writers(self)

    def before(self, kind: str, path: str) -> None:
        """Count an operation and let the handler act."""
        if self._inside or not (path + os.sep).startswith(self.root + os.sep):
            return
        self._inside = True
        try:
            self.count += 1
            self.handler(self, kind, path)
        finally:
            self._inside = False

    def note_sync(self, descriptor: int) -> None:
        """Remember the content of a file that has been synced to disk."""
        path = f"/proc/self/fd/{descriptor}"
        if os.path.isfile(path):
            self._note(path)

    def _note(self, path: str) -> None:
        stream = _open(path, "rb")
        self.synced[_key(os.fstat(stream.fileno()))] = stream.read()
        self._kept.append(stream)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if not isinstance(path, int | None) and isinstance(flags, int) and flags & WRITING:
                self.before("open", os.path.abspath(os.fsdecode(path)))
        elif event in NAMES:
            self.before(event.removeprefix("os."), _path_of(event, arguments))

    def _files(self) -> list[str]:
        found = [os.path.join(folder, name) for folder, _, names in os.walk(self.root) for name in names]
        return [path for path in found if os.path.isfile(path) and not os.path.islink(path)]

    def lose_unsynced(self, keep: Callable[[], bool]) -> None:
        """Undo writes that were not synced, as a power cut may: whole files, or pages of files of the same size."""
        self._inside = True
        for path in self._files():
            now = Path(path).read_bytes()
            durable = self.synced.get(_key(os.stat(path)), b"")
            if now == durable:
                continue
            if len(now) == len(durable):
                pages = range(0, len(now), mmap.PAGESIZE)
                mixed = (now if keep() else durable for _ in pages)
                durable = b"".join(old[at : at + mmap.PAGESIZE] for at, old in zip(pages, mixed, strict=True))
            elif keep():
                continue
            with _open(path, "r+b") as stream:
                stream.write(durable)
                stream.truncate()


def _key(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _path_of(event: str, arguments: tuple[Any, ...]) -> str:
    """Return the path that an operation changes; the new name for renames and links."""
    two = event in ("os.rename", "os.link", "os.symlink")
    target = arguments[1] if two else arguments[0]
    if isinstance(target, int):
        return os.path.realpath(f"/proc/self/fd/{target}")
    folders = [value for value in arguments[2 if two else 1 :] if isinstance(value, int)]
    folder = folders[-1] if folders and event not in ("os.truncate", "os.chmod") else -1
    above = os.readlink(f"/proc/self/fd/{folder}") if folder >= 0 else os.getcwd()
    return os.path.normpath(os.path.join(above, os.fsdecode(target)))


_open, _write, _fsync = io.open, os.write, os.fsync


def _name_of(file: Any) -> str:
    return os.path.realpath(f"/proc/self/fd/{file}") if isinstance(file, int) else os.path.abspath(os.fsdecode(file))


def _wrap_writers(watch: Watch) -> None:
    """Replace the functions that write without an audit event."""

    def torn(data: bytes) -> bytes:
        return data if watch.tear is None else watch.tear(bytes(data))

    def die_if_torn() -> None:
        if watch.tear is not None:
            die()

    class WatchedFile(io.FileIO):
        def write(self, data: Any, /) -> int:
            watch.before("write", _name_of(self.fileno()))
            done = super().write(torn(data)) or 0
            die_if_torn()
            return done

    def watched_open(
        file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None, errors: Any = None, newline: Any = None,
        closefd: bool = True, opener: Any = None,
    ) -> Any:  # fmt: skip
        if not set(mode) & set("wax+"):
            return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = WatchedFile(file, mode.replace("t", ""), closefd, opener)
        if buffering == 0:
            return raw
        buffered = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw)
        if "b" in mode:
            return buffered
        text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
        text.mode = mode  # type: ignore[misc]
        return text

    def watched_write(descriptor: int, data: Any) -> int:
        watch.before("write", _name_of(descriptor))
        done = _write(descriptor, torn(data))
        die_if_torn()
        return done

    def watched_fsync(descriptor: Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        watch.before("fsync", _name_of(number))
        _fsync(number)
        watch.note_sync(number)

    fallocate, serialize = os.posix_fallocate, safetensors.torch.serialize_file  # type: ignore[attr-defined]

    def watched_fallocate(descriptor: int, offset: int, length: int) -> None:
        watch.before("allocate", _name_of(descriptor))
        fallocate(descriptor, offset, length)

    def watched_serialize(tensors: Any, filename: Any, metadata: Any = None) -> None:
        try:
            watch.before("write", _name_of(os.fspath(filename)))
        except OSError as error:  # safetensors has an error of its own
            reason = f"{error.strerror} (os error {error.errno})"
            raise SafetensorError(f"Error while serializing: I/O error: {reason}") from error
        serialize(tensors, filename, metadata)
        if watch.tear is not None:
            content = torn(Path(filename).read_bytes())
            os.truncate(filename, len(content))
        die_if_torn()

    class WatchedMap(mmap.mmap):
        def __init__(self, fileno: int, *_: Any, **__: Any):
            self.descriptor = os.dup(fileno) if fileno >= 0 else -1

        def flush(self, *arguments: Any) -> Any:
            watch.before("fsync", _name_of(self.descriptor))
            done = super().flush(*arguments)
            watch.note_sync(self.descriptor)
            return done

    for module, name, wrapper in (
        (builtins, "open", watched_open),
        (io, "open", watched_open),
        (os, "write", watched_write),
        (os, "fsync", watched_fsync),
        (os, "fdatasync", watched_fsync),
        (os, "posix_fallocate", watched_fallocate),
        (safetensors.torch, "serialize_file", watched_serialize),
        (mmap, "mmap", WatchedMap),
    ):
        setattr(module, name, wrapper)


def die() -> None:
    """End this process as SIGKILL does."""
    os.kill(os.getpid(), signal.SIGKILL)


def log_to(path: Path) -> Handler:
    """Handler that writes a line per operation to a file outside the watched folder."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    def handle(watch: Watch, kind: str, path: str) -> None:
        _write(log, f"{kind} {os.path.relpath(path, watch.root)!r}\n".encode())

    return handle


def kill_at(number: int) -> Handler:
    """Handler that ends the process before the operation of that number, counted from 1."""

    def handle(watch: Watch, kind: str, path: str) -> None:
        if watch.count == number:
            die()

    return handle


def tear_at(number: int, share: float) -> Handler:
    """Handler that ends the process in the middle of a write, after a share of its bytes."""

    def handle(watch: Watch, kind: str, path: str) -> None:
        if watch.count == number:
            watch.tear = lambda data: data[: int(len(data) * share)]
            if kind != "write":
                die()

    return handle


def cut_power_at(number: int, keep: Callable[[], bool]) -> Handler:
    """Handler that ends the process and loses what is not synced; `keep` decides for each piece."""

    def handle(watch: Watch, kind: str, path: str) -> None:
        if watch.count == number:
            watch.lose_unsynced(keep)
            die()

    return handle


def fill_disk_at(number: int) -> Handler:
    """Handler that lets every write from the operation of that number on fail for want of space."""

    def handle(watch: Watch, kind: str, path: str) -> None:
        if watch.count >= number and kind in TAKES_SPACE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    return handle
