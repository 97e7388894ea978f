"""List the images to predict: files, folders, and text files with one path per line."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sptnet.data.heic import skipped_message
from sptnet.data.listing import readable_suffixes, walk
from sptnet.errors import Misuse
from sptnet.runtime.progress import Say, counted, say
from sptnet.runtime.readers import reading


@dataclass(frozen=True)
class ImageList:
    """Paths of images in order, and a SHA-256 digest of all of them."""

    paths: list[str]
    digest: str


def named_images(paths: Sequence[Path], list_file: Path | None = None, tell: Say = say) -> ImageList:
    """List the given images, all images in the given folders, each once, and the lines of the list file."""
    if not paths and list_file is None:
        raise Misuse("no images given. Give images, folders of images, or a list of them with `list_file=FILE`.")
    for path in [*paths, *([list_file] if list_file else [])]:
        if not path.exists():
            raise Misuse(f"there is no {path}. Give image files or folders of images.")
    heic: list[Path] = []
    listed: list[str] = []
    digest = hashlib.sha256()
    for image in counted("finding images", _iterate(paths, list_file, heic)):
        listed.append(str(image))
        digest.update(os.fsencode(image) + b"\0")
    if heic:
        tell(skipped_message(heic))
    if not listed and list_file is not None:
        raise Misuse(f"{list_file} names no image. Give a text file with one path per line.")
    if not listed:
        raise Misuse(
            f"no images found in {paths[0]}/. Give a folder that holds JPEG, PNG, WebP, BMP, TIFF or GIF files."
        )
    return ImageList(listed, digest.hexdigest())


def _iterate(paths: Sequence[Path], list_file: Path | None, heic: list[Path]) -> Iterator[Path]:
    readable = readable_suffixes()
    files: set[Path] = set()
    folders: list[Path] = []  # listed so far, like the files
    for path in paths:
        for kind, image in walk(path) if path.is_dir() else [("image", path)]:
            if image in files or any(_contains(folder, image, readable) for folder in folders):
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
        way_out = "Give a text file with one path per line."
        with reading(list_file, way_out, Misuse), list_file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if b"\0" in line:
                    raise ValueError(f"line {number} is no path")
                if line.strip():
                    yield Path(os.fsdecode(line.rstrip(b"\r\n")))


def _contains(folder: Path, image: Path, readable: frozenset[str]) -> bool:
    """Return True if walking the folder lists the image; hidden files and unknown suffixes are not listed."""
    if not image.is_relative_to(folder):
        return False
    hidden = any(part.startswith(".") for part in image.relative_to(folder).parts)
    return not hidden and image.suffix.lower() in readable
