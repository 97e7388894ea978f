"""List the images below a folder, and the files that are skipped."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sptnet.data.heic import HEIC_SUFFIXES, can_read_heic
from sptnet.errors import Failure
from sptnet.runtime.progress import counted

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif"})

EntryKind = Literal["image", "heic", "other", "hidden"]


@dataclass(frozen=True)
class Listing:
    """Files below a folder."""

    images: list[Path]
    """Sorted by relative path."""
    heic: list[Path]
    """HEIC files, if pillow-heif is not installed; otherwise they are among the images."""
    others: int
    """Number of entries that are no image files: other suffixes, dangling links, pipes."""
    hidden: int
    """Number of entries whose name begins with a dot; a hidden folder counts once."""


def readable_suffixes() -> frozenset[str]:
    """Return the suffixes of files that can be read with the installed packages."""
    return IMAGE_SUFFIXES | HEIC_SUFFIXES if can_read_heic() else IMAGE_SUFFIXES


def list_folder(folder: Path) -> Listing:
    """List a folder recursively. Links are followed, but no folder is read twice."""
    entries: dict[EntryKind, list[Path]] = {"image": [], "heic": [], "other": [], "hidden": []}
    for kind, path in counted("listing files", walk(folder)):
        entries[kind].append(path)
    return Listing(entries["image"], entries["heic"], len(entries["other"]), len(entries["hidden"]))


def walk(folder: Path) -> Iterator[tuple[EntryKind, Path]]:
    """Yield every file below the folder, sorted by relative path; hidden folders are yielded like files.

    Only the entries of the folders on the current path are in memory.
    """
    readable = readable_suffixes()
    visited = {os.path.realpath(folder)}
    stack = [_sorted_entries(str(folder), visited)]
    while stack:
        entry = next(stack[-1], None)
        if entry is None:
            stack.pop()
        elif entry.name.startswith("."):
            yield "hidden", Path(entry.path)
        elif _is_folder(entry):
            stack.append(_sorted_entries(entry.path, visited))
        else:
            path = Path(entry.path)
            suffix = path.suffix.lower()
            is_image = suffix in IMAGE_SUFFIXES | HEIC_SUFFIXES and _is_file(entry)
            yield ("image" if suffix in readable else "heic") if is_image else "other", path


def _sorted_entries(folder: str, visited: set[str]) -> Iterator[os.DirEntry[str]]:
    """Return files and folders sorted by path, without folders in `visited`; the other folders are added to it."""
    try:
        with os.scandir(folder) as scanned:
            entries = sorted(scanned, key=lambda entry: entry.name)
    except OSError as error:
        raise Failure(
            f"cannot list the folder {error.filename}: {error.strerror}. Make it readable or move it away."
        ) from error
    kept = []
    for entry in entries:
        if _is_folder(entry) and not entry.name.startswith("."):
            real = os.path.realpath(entry.path)
            if real in visited:
                continue
            visited.add(real)
            kept.append((entry.name + "/", entry))
        else:
            kept.append((entry.name, entry))
    return (entry for _, entry in sorted(kept, key=lambda pair: pair[0]))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether the entry is a folder; a circular link is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False
