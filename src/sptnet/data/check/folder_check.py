"""What to know about a folder before anything long: every image is read once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from sptnet.config import DataSettings
from sptnet.data.check.duplicates import SIDE, DuplicateGroup, same_bytes, same_look, thumbnail
from sptnet.data.folder import read_folder
from sptnet.data.image_file import UnreadableImage, glimpse
from sptnet.data.image_set import UNKNOWN, ImageSet
from sptnet.data.listing import list_folder
from sptnet.data.readable import in_threads
from sptnet.runtime.compute import choose_compute
from sptnet.runtime.progress import tracker

SHORT_SIDE = 64
ELONGATED = 4
"""At this ratio of the sides the centre crop that is scored shows less than a fifth of the picture."""

# Enough pixels of a reduced JPEG for its edge, which may be padded, not to show in the thumbnail.
_GLIMPSE = 4 * SIDE


@dataclass(frozen=True)
class CategoryCount:
    name: str
    labelled: int
    test: int


@dataclass(frozen=True)
class Unreadable:
    name: str
    reason: str


@dataclass(frozen=True)
class Duplicates:
    """Images that are one; `labels` are all those they have."""

    images: tuple[str, ...]
    labels: tuple[str, ...]
    in_labelled_and_test: bool


@dataclass(frozen=True)
class FolderCheck:
    folder: str
    images: int
    """All image files, the unreadable ones too; every other count is of readable images."""
    categories: tuple[CategoryCount, ...]
    unsorted: int
    unsorted_test: int
    labels_are_given: bool
    """Whether the learner gets all labels there are; otherwise every image is sorted and a share will be drawn."""
    unreadable: tuple[Unreadable, ...]
    max_unreadable: float
    others: int
    hidden: int
    heic_left_out: int
    same_bytes: tuple[Duplicates, ...]
    same_look: tuple[Duplicates, ...]
    small: tuple[str, ...]
    elongated: tuple[str, ...]
    device: str
    precision: str


class _Look(NamedTuple):
    width: int
    height: int
    n_bytes: int
    thumbnail: UInt8[np.ndarray, f"{SIDE} {SIDE} 3"]


def check_folder(
    folder: Path | str,
    labels_file: Path | str | None = None,
    unlabelled: str = "unlabelled",
    max_unreadable: float = DataSettings().max_unreadable,
    track: Callable[[str], Callable[..., Iterable[Any]]] = tracker,
) -> FolderCheck:
    """Read every image of the folder once and gather what could stand in the way of learning from it."""
    whole = read_folder(folder, labels_file, unlabelled, tell=lambda message: None)
    listing = list_folder(Path(folder))
    paths = [source for source in whole.sources if isinstance(source, Path)]
    looks: list[_Look | UnreadableImage] = list(
        track("reading images")(in_threads(_look, paths, whole.ids), total=len(paths))
    )
    readable = [(i, look) for i, look in enumerate(looks) if isinstance(look, _Look)]
    problems = [look for look in looks if isinstance(look, UnreadableImage)]
    image_set, seen = whole.subset([i for i, _ in readable]), [look for _, look in readable]
    files = [paths[i] for i, _ in readable]
    exact = same_bytes(files, image_set.ids, [look.n_bytes for look in seen], track("comparing files"))
    thumbnails = np.stack([look.thumbnail for look in seen]) if seen else np.empty((0, SIDE, SIDE, 3), np.uint8)
    alike = same_look(thumbnails, exact)
    describe = partial(_describe, image_set)
    compute = choose_compute()
    return FolderCheck(
        folder=str(folder),
        images=len(whole),
        categories=_count(image_set),
        unsorted=int(((image_set.labels == UNKNOWN) & ~image_set.test).sum()),
        unsorted_test=int(((image_set.labels == UNKNOWN) & image_set.test).sum()),
        labels_are_given=image_set.given is not None,
        unreadable=tuple(Unreadable(problem.name, problem.reason) for problem in problems),
        max_unreadable=max_unreadable,
        others=listing.others,
        hidden=listing.hidden,
        heic_left_out=len(listing.heic),
        same_bytes=tuple(map(describe, exact)),
        same_look=tuple(map(describe, alike)),
        small=_ids(image_set, seen, lambda look: min(look.width, look.height) < SHORT_SIDE),
        elongated=_ids(
            image_set, seen, lambda look: max(look.width, look.height) > ELONGATED * min(look.width, look.height)
        ),
        device=str(compute.device),
        precision=str(compute.dtype).removeprefix("torch."),
    )


def _look(path: Path, name: str) -> _Look | UnreadableImage:
    try:
        image, (width, height) = glimpse(path, name, least=_GLIMPSE)
    except UnreadableImage as problem:
        return problem
    return _Look(width, height, path.stat().st_size, thumbnail(image))


def _ids(image_set: ImageSet, looks: Sequence[_Look], chosen: Callable[[_Look], bool]) -> tuple[str, ...]:
    return tuple(id_ for id_, look in zip(image_set.ids, looks, strict=True) if chosen(look))


def _count(image_set: ImageSet) -> tuple[CategoryCount, ...]:
    def members(part: Any) -> list[int]:
        counts: list[int] = np.bincount(
            image_set.labels[part & (image_set.labels != UNKNOWN)], minlength=len(image_set.names)
        ).tolist()
        return counts

    return tuple(map(CategoryCount, image_set.names, members(~image_set.test), members(image_set.test)))


def _describe(image_set: ImageSet, group: DuplicateGroup) -> Duplicates:
    positions = np.array(group)
    labels = image_set.labels[positions]
    labelled = (labels != UNKNOWN) & ~image_set.test[positions]
    return Duplicates(
        images=tuple(image_set.ids[i] for i in group),
        labels=tuple(image_set.names[label] for label in np.unique(labels[labels != UNKNOWN])),
        in_labelled_and_test=bool(labelled.any() and image_set.test[positions].any()),
    )
