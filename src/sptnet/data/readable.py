"""Find unreadable images before a run, and compute a fingerprint of an image set."""

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import Image

from sptnet.data.image_file import UnreadableImage, check_image, read_image, reason_for
from sptnet.data.image_set import ImageSet
from sptnet.errors import Failure, Misuse
from sptnet.runtime.text import count, first_three, printable

T = TypeVar("T")

BY_ENDS, WHOLE_FILES = 1, 2
"""Versions of the fingerprint: 0.1.0 and 0.2.0 read size, beginning and end of large files."""
MOST_THREADS = min(8, os.cpu_count() or 1)
_EDGE = 64 * 1024
_BATCH = 512


def no_display(items: Iterable[Any], total: int | None = None) -> Iterable[Any]:
    """Pass items through without showing progress."""
    return items


def drop_unreadable(
    image_set: ImageSet,
    max_share: float = 0.01,
    track: Callable[..., Iterable[Any]] = no_display,
    also: str = "",
    check: Callable[[Path, str], UnreadableImage | None] | None = None,
) -> tuple[ImageSet, list[UnreadableImage]]:
    """Decode every image file once and return the readable images and the problems.

    Raises if the share of unreadable images exceeds `max_share`; `also` names another setting to change. `check`
    replaces `check_image`; several threads call it.
    """
    files = [(i, source) for i, source in enumerate(image_set.sources) if isinstance(source, Path)]
    bad: dict[int, UnreadableImage] = {}
    checks = in_threads(check or check_image, [source for _, source in files], [image_set.ids[i] for i, _ in files])
    for (i, _), problem in zip(files, track(checks, total=len(files)), strict=True):
        if problem is not None:
            bad[i] = problem
    problems = list(bad.values())
    refusal = too_many_unreadable(problems, len(image_set), max_share, also)
    if refusal is not None:
        raise Failure(refusal)
    return image_set.subset([i for i in range(len(image_set)) if i not in bad]), problems


def check_share(max_unreadable: float) -> None:
    """Raise unless the largest share of unreadable images is a number from 0 to 1."""
    if not 0 <= max_unreadable <= 1:
        raise Misuse(f"`max_unreadable` is {max_unreadable:g}. Give a share from 0 to 1.")


def too_many_unreadable(
    problems: Sequence[UnreadableImage],
    total: int,
    max_share: float,
    also: str = "",
) -> str | None:
    """Return an error message if more than `max_share` of `total` images are unreadable, else None."""
    share = len(problems) / max(1, total)
    examples = first_three([f"{printable(problem.name)} ({problem.reason})" for problem in problems])
    if problems and len(problems) == total:
        return f"none of the {total} images can be read: {examples}. Repair or replace them."
    if share <= max_share:
        return None
    enough = max(0.2, math.ceil(share * 100) / 100)
    return (
        f"{len(problems)} of {total} images ({share:.1%}) cannot be read, more than the {max_share:.1%} "
        f"allowed: {examples}. "
        f"Repair or remove them, raise the limit with {also}`data.max_unreadable={enough:g}`, or skip them all with "
        f"{also}`data.max_unreadable=1`."
    )


def in_threads(work: Callable[..., T], *columns: Sequence[Any], n_threads: int = MOST_THREADS) -> Iterator[T]:
    """Like `map(work, *columns)`, on several threads; results are in order. Decoding shares one memory budget."""
    # In batches: a pool that gets a million files at once keeps a million pending results, and finishes all of them
    # before it ends after an interrupt.
    with ThreadPoolExecutor(n_threads) as pool:
        for start in range(0, len(columns[0]), _BATCH):
            try:
                results = pool.map(work, *(column[start : start + _BATCH] for column in columns))
            except RuntimeError as error:  # no memory for another thread
                raise MemoryError(str(error)) from error
            yield from results


def fingerprint(image_set: ImageSet, version: int = WHOLE_FILES) -> str:
    """Return a SHA-256 of everything that training depends on; `version` 1 reads only the ends of large files."""
    if version not in (BY_ENDS, WHOLE_FILES):
        raise Misuse(
            f"the fingerprint of the images has version {version}, which this sptnet does not know. Update it."
        )
    digest = hashlib.sha256()

    def add(part: bytes) -> None:
        # The length separates the parts: ("ab", "c") must differ from ("a", "bc").
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)

    for texts in (image_set.names, image_set.ids):
        add(len(texts).to_bytes(8, "little"))
        for text in texts:
            add(text.encode("utf-8", "surrogatepass"))
    add(image_set.labels.astype("<i8").tobytes())
    add(b"the split decides" if image_set.given is None else image_set.given.tobytes())
    add(image_set.test.tobytes())
    files = [(id_, s) for id_, s in zip(image_set.ids, image_set.sources, strict=True) if isinstance(s, Path)]
    ids, paths = [id_ for id_, _ in files], [path for _, path in files]
    contents = map(_ends, ids, paths) if version == BY_ENDS else ([d] for d in in_threads(file_digest, paths, ids))
    for source in image_set.sources:
        for part in next(contents) if isinstance(source, Path) else _pixels(source):
            add(part)
    return digest.hexdigest()


def file_digest(path: Path, name: str) -> bytes:
    """Digest of a whole file; `name` is used in errors."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except OSError as error:
        raise UnreadableImage(name, reason_for(error)) from error


def _pixels(source: npt.NDArray[Any] | Image.Image) -> list[bytes]:
    if isinstance(source, np.ndarray):
        return [source.dtype.str.encode(), str(source.shape).encode(), source.tobytes()]
    image = read_image(source)
    return [str(image.size).encode(), image.tobytes()]


def _ends(id_: str, path: Path) -> list[bytes]:
    """Size, beginning and end of a file."""
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            head = stream.read(_EDGE)
            stream.seek(max(_EDGE, size - _EDGE))
            return [str(size).encode(), head, stream.read(_EDGE)]
    except OSError as error:
        raise UnreadableImage(id_, reason_for(error)) from error


def refuse_unreadable(image_set: ImageSet, track: Callable[..., Iterable[Any]] = no_display) -> None:
    """Decode every image file once; raise if one of them cannot be read."""
    _, problems = drop_unreadable(image_set, 1.0, track)
    if problems:
        named = first_three([f"{printable(problem.name)} ({problem.reason})" for problem in problems])
        raise Failure(
            f"{count(problems, 'image')} of {len(image_set):,} cannot be read: {named}. "
            "Fetch the data set again, or repair these images."
        )
