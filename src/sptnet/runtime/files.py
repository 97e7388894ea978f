"""Atomic writing of files and folders, and checks of output paths.

Everything is written in a folder of its own beside the target, `.NAME.sptnet-<random>.part`, and then renamed: readers
see the old file or the new one, and a link at the target is replaced, never written through. What a killed process left
is recognised by that name and removed by the next one that writes the same target.
"""

import csv
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from sptnet.errors import Misuse
from sptnet.runtime.disk import disk_problems, sync_folder
from sptnet.runtime.locks import Locked, claim
from sptnet.runtime.text import printable

_TEMPORARY = re.compile(r"\.(?P<name>.+)\.sptnet-[0-9a-f]{16}\.(?P<kind>part|old)", re.DOTALL)
_LONGEST_NAME = 200
"""Bytes of a target's name that its temporary name repeats: file systems allow 255 in all."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` write a temporary file, sync it to disk and rename it to `path`.

    A disk that is full, read-only or broken raises `NotWritten`; the temporary file is removed after any exception.
    """
    with disk_problems(path):
        sweep(path.parent, path)
        with _workspace(path) as folder:
            part = folder / path.name
            part.touch()
            mode = part.stat().st_mode
            write(part)
            part.chmod(mode)  # safetensors creates private files; restore the default permissions
            with part.open("rb") as stream:
                os.fsync(stream.fileno())
            os.replace(part, path)
        sync_folder(path.parent)


def write_text_atomically(path: Path, text: str) -> None:
    """Write a text file in UTF-8."""
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8", errors="surrogatepass"))


def write_csv_atomically(
    path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]], errors: str = "surrogatepass"
) -> None:
    """Write a CSV file in UTF-8; `errors` is the encoding error handler for names that are not valid UTF-8."""

    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8", errors=errors, newline="") as stream:
            table = csv.writer(stream)
            table.writerow(columns)
            table.writerows(rows)

    write_atomically(path, write)


def append_line(path: Path, line: str) -> None:
    """Append a line to a text file and sync it; if the disk refuses, the file stays as it was. Links are refused."""
    with disk_problems(path):
        is_new = not path.exists()
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            before, rest = os.fstat(file).st_size, f"{line}\n".encode()
            try:
                while rest:
                    rest = rest[os.write(file, rest) :]
                os.fsync(file)
            except OSError:
                os.ftruncate(file, before)
                raise
        finally:
            os.close(file)
        if is_new:
            sync_folder(path.parent)


def make_folder(path: Path) -> None:
    """Create a folder and its parents, unless it exists, and sync it."""
    with disk_problems(path):
        if not path.is_dir():
            path.mkdir(parents=True, exist_ok=True)
            sync_folder(path.parent)


@contextmanager
def new_folder(path: Path, check: Callable[[Path], object] = lambda old: None) -> Iterator[Path]:
    """Yield an empty folder, which replaces the folder at `path` when the body ends without an exception.

    The old folder is put aside, given to `check`, which may raise to keep it, and removed last. A kill in between
    leaves the old folder aside; `sweep` puts it back.
    """
    with disk_problems(path):
        make_folder(path.parent)
        sweep(path.parent, path)
        with _workspace(path) as fresh:
            yield fresh
            sync_folder(fresh)
            if not os.path.lexists(path):
                os.rename(fresh, path)
                sync_folder(path.parent)
                return
            with claim(path) as claimed:
                if claimed is False and path.is_dir() and not path.is_symlink():
                    raise Locked(f"{path} is being replaced by another process. Wait for it, then try again.")
                _exchange(path, fresh, check)


def _exchange(path: Path, fresh: Path, check: Callable[[Path], object]) -> None:
    old = _beside(path, "old")
    os.rename(path, old)
    try:
        check(old)
        os.rename(fresh, path)
    except BaseException:
        os.rename(old, path)
        raise
    sync_folder(path.parent)
    remove(old)


def sweep(folder: Path, target: Path | None = None) -> None:
    """Undo what killed processes left in a folder, for one target or for all.

    Unfinished files and folders are removed. A folder that was put aside is put back if its target is missing, and
    removed otherwise. What another process is writing, or another user has left, stays.
    """
    for name in sorted(os.listdir(folder)) if folder.is_dir() else []:
        match = _TEMPORARY.fullmatch(name)
        if match is None or (target is not None and match["name"] != _shortened(target.name)):
            continue
        if target is None and match["kind"] == "old" and len(os.fsencode(match["name"])) >= _LONGEST_NAME:
            continue  # the whole name is not known
        _sweep_one(folder / name, target or folder / match["name"], match["kind"] == "old")


def _sweep_one(entry: Path, target: Path, aside: bool) -> None:
    try:
        if hasattr(os, "getuid") and entry.lstat().st_uid != os.getuid():
            return
    except FileNotFoundError:  # another process sweeps as well
        return
    with claim(entry) as claimed:
        if aside and claimed is not False and not os.path.lexists(target):
            os.rename(entry, target)
        elif claimed:
            remove(entry)


def is_temporary(name: str) -> bool:
    """True for the name of a file or folder that sptnet has not finished writing or removing."""
    return _TEMPORARY.fullmatch(name) is not None


def remove(path: Path) -> None:
    """Remove a file, or a folder with all its content; of a link only the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _shortened(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:_LONGEST_NAME])


def _beside(path: Path, kind: str) -> Path:
    return path.with_name(f".{_shortened(path.name)}.sptnet-{secrets.token_hex(8)}.{kind}")


@contextmanager
def _workspace(path: Path) -> Iterator[Path]:
    """Create a locked temporary folder beside `path`; it is removed at the end, unless it was renamed."""
    while True:
        folder = _beside(path, "part")
        folder.mkdir()
        with claim(folder) as claimed:
            if claimed is False:
                continue  # swept by another process before it was locked
            try:
                yield folder
            finally:
                if folder.is_dir():
                    remove(folder)
            return


def check_outside(path: Path, parameter: str, folders: Mapping[str, str | Path | None]) -> None:
    """Raise if `path` lies inside one of the folders, given by description, that must not be written to."""
    for what, folder in folders.items():
        if folder is not None and path.resolve().is_relative_to(Path(folder).resolve()):
            raise Misuse(f"{path} lies inside {what} {folder}. Give a place outside it with `{parameter}`.")


def check_new_file(path: Path, parameter: str = "out", overwrite: bool | None = None) -> None:
    """Raise if the file exists and `overwrite` is not true; None means that the caller has no such option."""
    if path.is_dir():
        raise Misuse(f"{path} is a folder, not a file. Give a file with `{parameter}`.")
    if path.exists() and not overwrite:
        replace = "Replace it with `overwrite=True`, or give" if overwrite is False else "Give"
        raise Misuse(f"{path} exists already. {replace} another `{parameter}`.")


def check_new_folder(
    path: Path, what: str, strangers: Sequence[str], parameter: str = "out", overwrite: bool = False, resume: str = ""
) -> None:
    """Raise if a new folder cannot be written at `path`.

    `what` names the content that sptnet writes, `strangers` are the names inside the folder that sptnet did not write,
    and `resume` is the beginning of a sentence that says how to resume.
    """
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise Misuse(f"{path} is a file or a link. Give a folder that does not exist yet with `{parameter}`.")
    if strangers:
        raise Misuse(
            f"{path} holds other files than {what}, such as {printable(strangers[0])}, which sptnet never deletes. "
            f"Give another `{parameter}`."
        )
    if path.is_dir() and any(path.iterdir()) and not overwrite:
        raise Misuse(
            f"{path} is not empty. {resume}{'r' if resume else 'R'}eplace it with `overwrite=True`, or give another "
            f"`{parameter}`."
        )
