"""The images that somebody named: files, folders, and text files that list them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from sptnet.errors import Misuse
from sptnet.heic import left_out
from sptnet.listing import readable_suffixes, walk
from sptnet.packed_paths import PackedPaths
from sptnet.progress import Say, counted, say


def named_images(paths: Sequence[Path], list_file: Path | None = None, tell: Say = say) -> PackedPaths:
    """The images and all those below the folders, in an order that stays, each once; then the lines of the list."""
    for path in [*paths, *([list_file] if list_file else [])]:
        if not path.exists():
            raise Misuse(f"there is no {path}. Give image files or folders of images.")
    heic: list[Path] = []
    found = PackedPaths(counted("finding images", _all(_without_repeats(paths), list_file, heic)))
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
    for path in paths:
        if path.is_dir():
            for kind, below in walk(path):
                if kind == "image":
                    yield below
                elif kind == "heic":
                    heic.append(below)
        else:
            yield path
    if list_file is not None:
        with list_file.open("rb") as lines:
            yield from (Path(os.fsdecode(line.rstrip(b"\r\n"))) for line in lines if line.strip())


def _without_repeats(paths: Sequence[Path]) -> list[Path]:
    """Without what is named twice, and what a folder that is named holds anyhow."""
    once = list(dict.fromkeys(paths))
    folders = [path for path in once if path.is_dir()]
    return [path for path in once if not any(_is_found_in(path, folder) for folder in folders if folder != path)]


def _is_found_in(path: Path, folder: Path) -> bool:
    """Whether looking through the folder finds the path, which may be named all the same because it is hidden there."""
    if not path.is_relative_to(folder):
        return False
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return not hidden and (path.is_dir() or path.suffix.lower() in readable_suffixes())
