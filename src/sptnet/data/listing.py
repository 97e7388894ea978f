"""What lies below a folder: images, and everything that is passed over."""

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
    images: list[Path]
    """Sorted by relative path."""
    heic: list[Path]
    """HEIC files that nothing installed here can read."""
    others: int
    """Names that are no image files: other suffixes, dangling links, pipes."""
    hidden: int
    """Names that begin with a dot; a hidden folder counts once."""


def readable_suffixes() -> frozenset[str]:
    return IMAGE_SUFFIXES | HEIC_SUFFIXES if can_read_heic() else IMAGE_SUFFIXES


def list_folder(folder: Path) -> Listing:
    """Links are followed, but a folder that is reached a second time is not read again."""
    found: dict[EntryKind, list[Path]] = {"image": [], "heic": [], "other": [], "hidden": []}
    for kind, path in counted("listing files", walk(folder)):
        found[kind].append(path)
    return Listing(found["image"], found["heic"], len(found["other"]), len(found["hidden"]))


def walk(folder: Path) -> Iterator[tuple[EntryKind, Path]]:
    """Every file below the folder, sorted by relative path, and hidden folders as if they were files.

    Of all that is to come, only the folders on the way down are in memory.
    """
    readable = readable_suffixes()
    visited = {os.path.realpath(folder)}
    way_down = [_in_order(str(folder), visited)]
    while way_down:
        entry = next(way_down[-1], None)
        if entry is None:
            way_down.pop()
        elif entry.name.startswith("."):
            yield "hidden", Path(entry.path)
        elif _is_folder(entry):
            way_down.append(_in_order(entry.path, visited))
        else:
            path = Path(entry.path)
            suffix = path.suffix.lower()
            is_image = suffix in IMAGE_SUFFIXES | HEIC_SUFFIXES and _is_file(entry)
            yield ("image" if suffix in readable else "heic") if is_image else "other", path


def _in_order(folder: str, visited: set[str]) -> Iterator[os.DirEntry[str]]:
    """Its files and folders as their paths are sorted, without folders that were visited; those are so from now on."""
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
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
    """A link that leads in a circle is none."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False
