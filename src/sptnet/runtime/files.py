"""Writing files whole or not at all, and only where they may be written."""

import csv
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from sptnet.errors import Misuse
from sptnet.runtime.text import printable


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a neighbour, forces it to the disk, then renames: readers see the old file or the new one."""
    part = path.with_name(path.name + ".part")
    part.touch()
    mode = part.stat().st_mode
    write(part)
    part.chmod(mode)  # safetensors makes its files private; a model is as readable as any other file
    with part.open("rb") as stream:
        os.fsync(stream.fileno())
    os.replace(part, path)


def write_text_atomically(path: Path, text: str) -> None:
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8", errors="surrogatepass"))


def write_csv_atomically(
    path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]], errors: str = "surrogatepass"
) -> None:
    """Write a CSV file in UTF-8; `errors` says how names that are not UTF-8 are encoded."""

    def write(part: Path) -> None:
        with part.open("w", encoding="utf-8", errors=errors, newline="") as stream:
            table = csv.writer(stream)
            table.writerow(columns)
            table.writerows(rows)

    write_atomically(path, write)


def check_outside(path: Path, parameter: str, places: Mapping[str, str | Path | None]) -> None:
    """Refuse to write inside folders that are read or belong to something else; `places` has them by description."""
    for what, place in places.items():
        if place is not None and path.resolve().is_relative_to(Path(place).resolve()):
            raise Misuse(f"{path} lies inside {what} {place}. Give a place outside it with `{parameter}`.")


def check_new_file(path: Path, parameter: str = "out", overwrite: bool | None = None) -> None:
    """Refuse to replace a file unless `overwrite` is true; None means that it cannot be asked for."""
    if path.is_dir():
        raise Misuse(f"{path} is a folder, not a file. Give a file with `{parameter}`.")
    if path.exists() and not overwrite:
        replace = "Replace it with `overwrite=True`, or give" if overwrite is False else "Give"
        raise Misuse(f"{path} exists already. {replace} another `{parameter}`.")


def check_new_folder(
    path: Path, what: str, strangers: Sequence[str], parameter: str = "out", overwrite: bool = False, resume: str = ""
) -> None:
    """Refuse a folder that something new cannot be written to.

    `what` is what sptnet writes there, `strangers` are the names inside that it did not write, and `resume` is how to
    go on with what is there.
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
