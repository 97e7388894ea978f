"""Atomic writing of files, and checks of output paths."""

import csv
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from sptnet.errors import Misuse
from sptnet.runtime.text import printable


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write a temporary file beside `path`, sync it to disk and rename it: readers see the old file or the new one."""
    part = path.with_name(path.name + ".part")
    part.touch()
    mode = part.stat().st_mode
    write(part)
    part.chmod(mode)  # safetensors creates private files; restore the default permissions
    with part.open("rb") as stream:
        os.fsync(stream.fileno())
    os.replace(part, path)


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
