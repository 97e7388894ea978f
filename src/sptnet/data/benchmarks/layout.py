"""What the folders of data sets have in common: lists, class folders, images that must be there."""

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sptnet.data.image_file import IMAGE_SUFFIXES
from sptnet.data.image_set import ImageSet
from sptnet.errors import Failure, Misuse
from sptnet.runtime.text import count, first_three, printable


class Listed(NamedTuple):
    """One image of a data set; its label is the makers' class number, counted from 0."""

    id: str
    label: int
    test: bool


@dataclass(frozen=True)
class Tree:
    """The folder of a data set, and the words for where to get a whole one."""

    root: Path
    where: str

    @staticmethod
    def find(folder: Path, markers: Sequence[str], inside: Sequence[str], where: str) -> "Tree":
        """The folder itself or the first one inside it that holds one of the markers."""
        if not folder.is_dir():
            raise Misuse(f"there is no folder {folder}. {where}")
        for place in ("", *inside):
            if any((folder / place / marker).exists() for marker in markers):
                return Tree(folder / place, where)
        raise Misuse(f"{folder} has no {' and no '.join(markers)}, nor has {' or '.join(inside)} inside it. {where}")

    def incomplete(self, what: str) -> Failure:
        return Failure(f"{what}. Fetch it again: {self.where}")

    def file(self, name: str) -> Path:
        path = self.root / name
        if not path.is_file():
            raise self.incomplete(f"{self.root} has no {name}")
        return path

    def lines(self, name: str) -> list[str]:
        path = self.file(name)
        try:
            with path.open(encoding="utf-8") as stream:
                return [line.strip() for line in stream if line.strip()]
        except UnicodeDecodeError as error:
            raise self.incomplete(f"{path} is not a text file") from error

    def pairs(self, name: str) -> list[tuple[str, str]]:
        """Lines of a word and the rest."""
        pairs = []
        for line in self.lines(name):
            word, gap, rest = line.partition(" ")
            if not gap:
                raise self.damaged_line(name, line)
            pairs.append((word, rest.strip()))
        return pairs

    def damaged_line(self, name: str, line: str) -> Failure:
        return self.incomplete(f"{self.root / name} has a damaged line, {printable(line)!r}")

    def folders(self, place: str) -> list[str]:
        """Names of the sub-folders, sorted as strings; hidden ones are left out."""
        if not (self.root / place).is_dir():
            raise self.incomplete(f"{self.root} has no folder {place}")
        with os.scandir(self.root / place) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))

    def compare_folders(self, place: str, wanted: Collection[str], all_of_them: bool = True) -> None:
        """Refuses class folders too many and, unless told otherwise, too few."""
        found = self.folders(place)
        extra = [printable(name) for name in sorted(set(found) - set(wanted))]
        missing = [printable(name) for name in sorted(set(wanted) - set(found))] if all_of_them else []
        here = self.root / place
        if extra:
            raise Failure(
                f"{here} has {count(extra, 'class folder')} too many: {first_three(extra)}. "
                "Move away what does not belong there."
            )
        if missing:
            raise self.incomplete(f"{here} lacks {count(missing, 'class folder')}: {first_three(missing)}")

    def walk(self, place: str) -> list[str]:
        """Every image below a class folder, in the order in which torchvision's ImageFolder finds them.

        On plain strings: a million paths take minutes as objects.
        """
        found: list[str] = []
        for here, _, files in sorted(os.walk(self.root / place, onerror=_refuse)):
            above = Path(here).relative_to(self.root).as_posix()
            if "/." not in f"/{above}":
                found += [f"{above}/{name}" for name in sorted(files) if _is_image(name)]
        if not found:
            raise self.incomplete(f"{self.root / place} holds no image")
        return found

    def require(self, ids: Iterable[str]) -> None:
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
    tree: Tree, name: str, listed: Iterable[Listed], classes: Sequence[str], order: Sequence[int]
) -> ImageSet:
    """Training images first; class number `order[i]` gets the label i."""
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
