"""Folder layout of data sets: list files, class folders, required images."""

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sptnet.data.image_file import IMAGE_SUFFIXES
from sptnet.data.image_set import ImageSet
from sptnet.errors import Failure, Misuse
from sptnet.runtime.readers import read_text
from sptnet.runtime.text import count, first_three, printable


class ListedImage(NamedTuple):
    """One image of a data set; the label is the original class number, counted from 0."""

    id: str
    label: int
    test: bool


@dataclass(frozen=True)
class Tree:
    """Folder of a data set; `where` says in error messages how to get a complete one."""

    root: Path
    where: str

    @staticmethod
    def find(folder: Path, markers: Sequence[str], inside: Sequence[str], where: str) -> "Tree":
        """Return the folder itself or the first of the folders `inside` it that holds one of the markers."""
        if not folder.is_dir():
            raise Misuse(f"there is no folder {folder}. {where}")
        for name in ("", *inside):
            if any((folder / name / marker).exists() for marker in markers):
                return Tree(folder / name, where)
        raise Misuse(f"{folder} has no {' and no '.join(markers)}, nor has {' or '.join(inside)} inside it. {where}")

    def incomplete(self, what: str) -> Failure:
        """Return an error for an incomplete or damaged data set."""
        return Failure(f"{what}. Fetch it again: {self.where}")

    def file(self, name: str) -> Path:
        """Return the path of a file; raise if it is missing."""
        path = self.root / name
        if not path.is_file():
            raise self.incomplete(f"{self.root} has no {name}")
        return path

    def lines(self, name: str) -> list[str]:
        """Return the stripped lines of a text file without empty ones."""
        path = self.file(name)
        again, says = f"Fetch it again: {self.where}", "is not a text file"
        lines = read_text(path, again, says=says, limit=None).split("\n")
        return [line.strip() for line in lines if line.strip()]

    def pairs(self, name: str) -> list[tuple[str, str]]:
        """Return the first word and the rest of every line of a text file."""
        pairs = []
        for line in self.lines(name):
            word, gap, rest = line.partition(" ")
            if not gap:
                raise self.damaged_line(name, line)
            pairs.append((word, rest.strip()))
        return pairs

    def damaged_line(self, name: str, line: str) -> Failure:
        """Return an error for a line that cannot be parsed."""
        return self.incomplete(f"{self.root / name} has a damaged line, {printable(line)!r}")

    def folders(self, folder: str) -> list[str]:
        """Return the names of the sub-folders, sorted as strings, without hidden ones."""
        if not (self.root / folder).is_dir():
            raise self.incomplete(f"{self.root} has no folder {folder}")
        with os.scandir(self.root / folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))

    def compare_folders(self, folder: str, wanted: Collection[str], all_of_them: bool = True) -> None:
        """Raise if there are other class folders than `wanted` or, if `all_of_them`, if one is missing."""
        existing = self.folders(folder)
        extra = [printable(name) for name in sorted(set(existing) - set(wanted))]
        missing = [printable(name) for name in sorted(set(wanted) - set(existing))] if all_of_them else []
        path = self.root / folder
        if extra:
            raise Failure(
                f"{path} has {count(extra, 'class folder')} too many: {first_three(extra)}. "
                "Move away what does not belong there."
            )
        if missing:
            raise self.incomplete(f"{path} lacks {count(missing, 'class folder')}: {first_three(missing)}")

    def walk(self, folder: str) -> list[str]:
        """Return the ids of all images below a class folder, in the order of torchvision's ImageFolder.

        Works on strings: a million Path objects take minutes.
        """
        ids: list[str] = []
        for path, _, files in sorted(os.walk(self.root / folder, onerror=_refuse)):
            parent = Path(path).relative_to(self.root).as_posix()
            if "/." not in f"/{parent}":
                ids += [f"{parent}/{name}" for name in sorted(files) if _is_image(name)]
        if not ids:
            raise self.incomplete(f"{self.root / folder} holds no image")
        return ids

    def require(self, ids: Iterable[str]) -> None:
        """Raise if the file of an image is missing."""
        missing = [printable(id_) for id_ in ids if not (self.root / id_).is_file()]
        if missing:
            raise self.incomplete(
                f"{self.root} lacks {count(missing, 'image')} that its lists name: {first_three(missing)}"
            )


def _is_image(name: str) -> bool:
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def _refuse(error: OSError) -> None:
    raise Failure(f"cannot list the folder {error.filename}: {error.strerror}. Make it readable.") from error


def image_set_of(
    tree: Tree, name: str, listed: Iterable[ListedImage], classes: Sequence[str], order: Sequence[int]
) -> ImageSet:
    """Make an image set with the training images first; class number `order[i]` gets the label i."""
    if len(classes) != len(order):
        raise tree.incomplete(f"{tree.root} has {len(classes)} classes, {name} has {len(order)}")
    images = sorted(listed, key=lambda image: image.test)
    position = np.empty(len(order), dtype=np.int64)
    position[list(order)] = np.arange(len(order))
    return ImageSet(
        name=name,
        ids=tuple(image.id for image in images),
        sources=tuple(tree.root / image.id for image in images),
        names=tuple(classes[i] for i in order),
        labels=position[np.array([image.label for image in images], dtype=np.int64)],
        given=None,
        test=np.array([image.test for image in images], dtype=np.bool_),
    )
