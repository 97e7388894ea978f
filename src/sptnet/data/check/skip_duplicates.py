"""Duplicates in an image set, and the image set without them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sptnet.data.check.duplicates import DuplicateGroup, Thumbnails, originals, read_thumbnail, same_look, stacked
from sptnet.data.image_file import UnreadableImage
from sptnet.data.image_set import UNKNOWN, ImageSet
from sptnet.data.readable import in_threads
from sptnet.runtime.progress import Say
from sptnet.runtime.text import count, first_three, printable


@dataclass(frozen=True)
class Duplicate:
    """An image that is equal or nearly equal to another one."""

    image: str
    original: str
    """Id of the image that it duplicates."""
    label: str = ""
    """Label that training could use; empty if there is none."""
    skipped: bool = True
    """False if the images of its group have different labels: such an image is never left out."""


class ThumbnailReader:
    """Function that checks whether an image can be read, like `check_image`, and keeps its thumbnail by name."""

    def __init__(self) -> None:
        self._thumbnails: dict[str, npt.NDArray[np.uint8]] = {}

    def __call__(self, path: Path, name: str) -> UnreadableImage | None:
        """Return the problem if the image cannot be read, else None."""
        read = read_thumbnail(path, name)
        if isinstance(read, UnreadableImage):
            return read
        self._thumbnails[name] = read
        return None

    def of(self, names: Sequence[str]) -> Thumbnails:
        """Return the thumbnails of images that were read, in the order of the names."""
        return stacked([self._thumbnails[name] for name in names])


def find_duplicates(image_set: ImageSet, thumbnails: Thumbnails, groups: Sequence[DuplicateGroup]) -> list[Duplicate]:
    """Return the images that duplicate another one of the set, in its order; `groups` are those of `same_look`.

    Labelled images are the first choice for the original of a group, and test images the last.
    """
    labels, test = image_set.labels, image_set.test
    has_label = (labels != UNKNOWN) & ~test
    original = originals(thumbnails, groups, np.where(test, 2, np.where(has_label, 0, 1)))
    contradictory = {i for group in groups if len(set(labels[list(group)].tolist()) - {UNKNOWN}) > 1 for i in group}
    given = np.zeros_like(has_label) if image_set.given is None else image_set.given & ~test
    return [
        Duplicate(
            image_set.ids[i],
            image_set.ids[original[i]],
            image_set.names[labels[i]] if given[i] else "",
            i not in contradictory,
        )
        for i in np.flatnonzero(original != np.arange(len(image_set))).tolist()
    ]


def duplicate_files(
    files: Sequence[Path],
    names: Sequence[str],
    ranks: Sequence[int],
    track: Callable[[str], Callable[..., Iterable[Any]]],
) -> dict[str, str]:
    """Read image files; return the name of the image that each duplicate resembles, by its own name.

    Images of lower rank are the first choice for the original. Unreadable files are no duplicates.
    """
    read = list(track("looking for duplicates")(in_threads(read_thumbnail, files, names), total=len(files)))
    kept = [i for i, small in enumerate(read) if not isinstance(small, UnreadableImage)]
    thumbnails = stacked([read[i] for i in kept])
    groups = same_look(thumbnails, track("comparing images"))
    original = originals(thumbnails, groups, [ranks[i] for i in kept])
    pairs = zip(kept, [kept[other] for other in original], strict=True)
    return {names[i]: names[other] for i, other in pairs if i != other}


def without_duplicates(image_set: ImageSet, duplicates: Sequence[Duplicate]) -> ImageSet:
    """Return the images that are not left out as duplicates."""
    skipped = {duplicate.image for duplicate in duplicates if duplicate.skipped}
    return image_set.subset([i for i, id_ in enumerate(image_set.ids) if id_ not in skipped])


def tell_duplicates(duplicates: Sequence[Duplicate], tell: Say) -> None:
    """Say how many duplicates are left out, and which ones stay because of their labels."""
    skipped = [duplicate for duplicate in duplicates if duplicate.skipped]
    kept = [
        f"{printable(duplicate.image)} and {printable(duplicate.original)}"
        for duplicate in duplicates
        if not duplicate.skipped
    ]
    if skipped:
        tell(f"left out {count(skipped, 'image')} that {'is a duplicate' if len(skipped) == 1 else 'are duplicates'}")
    if kept:
        tell(
            f"{count(kept, 'pair')} of duplicates with different labels {'stays' if len(kept) == 1 else 'stay'}: "
            f"{first_three(kept)}"
        )
