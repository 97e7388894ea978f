"""Check a folder before training; every image is read once."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from sptnet.config import DataSettings
from sptnet.data.check.duplicates import (
    REDUCED_SIDE,
    SIDE,
    DuplicateGroup,
    beyond,
    same_bytes,
    same_look,
    stacked,
    thumbnail,
)
from sptnet.data.check.skip_duplicates import Duplicate, find_duplicates
from sptnet.data.folder import read_folder
from sptnet.data.image_file import UnreadableImage, decoded
from sptnet.data.image_set import UNKNOWN, ImageSet
from sptnet.data.listing import list_folder
from sptnet.data.readable import in_threads
from sptnet.runtime.compute import choose_compute
from sptnet.runtime.progress import tracker

SHORT_SIDE = 64
ELONGATED = 4
"""Ratio of the sides; above it the centre crop shows less than a fifth of the image."""


@dataclass(frozen=True)
class CategoryCount:
    """Number of images of a category."""

    name: str
    labelled: int
    test: int


@dataclass(frozen=True)
class Unreadable:
    """Name of an unreadable image, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True)
class Duplicates:
    """Group of duplicate images with all their labels."""

    images: tuple[str, ...]
    labels: tuple[str, ...]
    in_labelled_and_test: bool


@dataclass(frozen=True)
class FolderCheck:
    """Result of `check_folder`."""

    folder: str
    images: int
    """Number of image files including unreadable ones; all other counts are of readable images."""
    categories: tuple[CategoryCount, ...]
    unsorted: int
    unsorted_test: int
    labels_are_given: bool
    """True if training uses all labels; False if every image is labelled and a share of the labels will be drawn."""
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
    duplicates: tuple[Duplicate, ...] = ()
    """Images of both kinds of groups that resemble another one, with the name of that one."""
    skips_duplicates: bool = False
    """True if training leaves them out."""


class _ImageFacts(NamedTuple):
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
    folder_labels: bool = True,
    device: str = "auto",
    precision: str = "auto",
    skip_duplicates: bool = False,
) -> FolderCheck:
    """Read every image of the folder once and collect everything that may impair training."""
    whole = read_folder(folder, labels_file, unlabelled, lambda message: None, folder_labels)
    listing = list_folder(Path(folder))
    paths = [source for source in whole.sources if isinstance(source, Path)]
    read: list[_ImageFacts | UnreadableImage] = list(
        track("reading images")(in_threads(_read_facts, paths, whole.ids), total=len(paths))
    )
    readable = [(i, facts) for i, facts in enumerate(read) if isinstance(facts, _ImageFacts)]
    problems = [problem for problem in read if isinstance(problem, UnreadableImage)]
    image_set, images = whole.subset([i for i, _ in readable]), [facts for _, facts in readable]
    files = [paths[i] for i, _ in readable]
    exact = same_bytes(files, image_set.ids, [image.n_bytes for image in images], track("comparing files"))
    thumbnails = stacked([image.thumbnail for image in images])
    groups = same_look(thumbnails, track("comparing images"))
    describe = partial(_describe, image_set)
    compute = choose_compute(device, precision)
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
        same_look=tuple(map(describe, beyond(groups, exact))),
        small=_ids(image_set, images, lambda image: min(image.width, image.height) < SHORT_SIDE),
        elongated=_ids(
            image_set, images, lambda image: max(image.width, image.height) > ELONGATED * min(image.width, image.height)
        ),
        device=str(compute.device),
        precision=str(compute.dtype).removeprefix("torch."),
        duplicates=tuple(find_duplicates(image_set, thumbnails, groups)),
        skips_duplicates=skip_duplicates,
    )


def _read_facts(path: Path, name: str) -> _ImageFacts | UnreadableImage:
    try:
        with decoded(path, name, least=REDUCED_SIDE) as (image, (width, height)):
            small = thumbnail(image)
    except UnreadableImage as problem:
        return problem
    return _ImageFacts(width, height, path.stat().st_size, small)


def _ids(
    image_set: ImageSet, images: Sequence[_ImageFacts], condition: Callable[[_ImageFacts], bool]
) -> tuple[str, ...]:
    return tuple(id_ for id_, image in zip(image_set.ids, images, strict=True) if condition(image))


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
