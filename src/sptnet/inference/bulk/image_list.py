"""The images that somebody named: files, folders, and text files that list them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from sptnet.data.heic import left_out
from sptnet.data.listing import readable_suffixes, walk
from sptnet.errors import Misuse
from sptnet.inference.bulk.packed_paths import PackedPaths
from sptnet.runtime.progress import Say, counted, say


def named_images(paths: Sequence[Path], list_file: Path | None = None, tell: Say = say) -> PackedPaths:
    """The images and all those below the folders, each once, where it is named first; then the lines of the list."""
    for path in [*paths, *([list_file] if list_file else [])]:
        if not path.exists():
            raise Misuse(f"there is no {path}. Give image files or folders of images.")
    heic: list[Path] = []
    found = PackedPaths(counted("finding images", _all(paths, list_file, heic)))
    if heic:
        tell(left_out(heic))
    if not found and list_file is not None:
        raise Misuse(f"{list_file} names no image. Give a text file with one path a line.")
    if not found:
        raise Misuse(
            f"no images found in {paths[0]}/. Give a folder that holds JPEG, PNG, WebP, BMP, TIFF or GIF files."
        )
    return found


def _all(paths: Sequence[Path], list_file: Path | None, heic: list[Path]) -> Iterator[Path]:
    readable = readable_suffixes()
    files: set[Path] = set()
    folders: list[Path] = []  # those named so far, like the files
    for path in paths:
        for kind, image in walk(path) if path.is_dir() else [("image", path)]:
            if image in files or any(_finds(folder, image, readable) for folder in folders):
                continue
            if kind == "image":
                yield image
            elif kind == "heic":
                heic.append(image)
        if path.is_dir():
            folders.append(path)
        else:
            files.add(path)
    if list_file is not None:
        with list_file.open("rb") as lines:
            yield from (Path(os.fsdecode(line.rstrip(b"\r\n"))) for line in lines if line.strip())


def _finds(folder: Path, image: Path, readable: frozenset[str]) -> bool:
    """Whether looking through the folder finds the image; one that is hidden there may be named all the same."""
    if not image.is_relative_to(folder):
        return False
    hidden = any(part.startswith(".") for part in image.relative_to(folder).parts)
    return not hidden and image.suffix.lower() in readable
