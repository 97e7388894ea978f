"""What lies below a folder: images, and everything that is passed over."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sptnet.errors import Failure
from sptnet.heic import HEIC_SUFFIXES, can_read_heic

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif"})


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


def list_folder(folder: Path) -> Listing:
    """Links are followed, but a folder that is reached a second time is not read again."""
    readable = IMAGE_SUFFIXES | HEIC_SUFFIXES if can_read_heic() else IMAGE_SUFFIXES
    images: list[Path] = []
    heic: list[Path] = []
    others = hidden = 0
    for path in _walk(folder):
        suffix = path.suffix.lower()
        if path.name.startswith("."):
            hidden += 1
        elif suffix in readable and path.is_file():
            images.append(path)
        elif suffix in HEIC_SUFFIXES and path.is_file():
            heic.append(path)
        else:
            others += 1
    return Listing(sorted(images, key=lambda path: path.relative_to(folder).as_posix()), heic, others, hidden)


def _walk(folder: Path) -> Iterator[Path]:
    """Every file below the folder, and hidden folders as if they were files."""
    visited = {os.path.realpath(folder)}

    def first_visit(path: str) -> bool:
        real = os.path.realpath(path)
        new = real not in visited
        visited.add(real)
        return new

    def refuse(error: OSError) -> None:
        raise Failure(
            f"cannot list the folder {error.filename}: {error.strerror}. Make it readable or move it away."
        ) from error

    for here, folders, files in os.walk(folder, followlinks=True, onerror=refuse):
        hidden = [name for name in folders if name.startswith(".")]
        folders[:] = [name for name in sorted(folders) if name not in hidden and first_visit(os.path.join(here, name))]
        yield from (Path(here, name) for name in (*hidden, *files))
