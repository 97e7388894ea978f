"""Looking at every image once before a run: which cannot be read, and a fingerprint of them all."""

import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from sptnet.errors import Failure
from sptnet.images import UnreadableImage, check_image, read_image, reason_for
from sptnet.pile import Pile
from sptnet.wording import first_three, printable

_EDGE = 64 * 1024
_BATCH = 1024


def _no_display(items: Iterable[Any], total: int | None = None) -> Iterable[Any]:
    return items


def drop_unreadable(
    pile: Pile,
    max_share: float = 0.01,
    track: Callable[..., Iterable[Any]] = _no_display,
    limit_flag: str = "--set data.max_unreadable=",
) -> tuple[Pile, list[UnreadableImage]]:
    """Decode every image file once; without the unreadable ones, unless they are more than `max_share`."""
    files = [(i, source) for i, source in enumerate(pile.sources) if isinstance(source, Path)]
    bad: dict[int, UnreadableImage] = {}
    for i, problem in track(_check_all(files, pile.ids), total=len(files)):
        if problem is not None:
            bad[i] = problem
    problems = list(bad.values())
    share = len(bad) / max(1, len(pile))
    examples = first_three([f"{printable(problem.name)} ({problem.reason})" for problem in problems])
    if bad and len(bad) == len(pile):
        raise Failure(f"none of the {len(pile)} images can be read: {examples}. Repair or replace them.")
    if share > max_share:
        enough = max(0.2, math.ceil(share * 100) / 100)
        raise Failure(
            f"{len(bad)} of {len(pile)} images ({share:.1%}) cannot be read, more than the {max_share:.1%} "
            f"allowed: {examples}. "
            f"Repair or remove them, or raise the limit with {limit_flag}{enough:g}."
        )
    return pile.subset([i for i in range(len(pile)) if i not in bad]), problems


def _check_all(files: list[tuple[int, Path]], ids: tuple[str, ...]) -> Iterator[tuple[int, UnreadableImage | None]]:
    # In batches, because a pool given a million files at once keeps a million pending results.
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for start in range(0, len(files), _BATCH):
            batch = files[start : start + _BATCH]
            problems = pool.map(check_image, [path for _, path in batch], [ids[i] for i, _ in batch])
            yield from zip([i for i, _ in batch], problems, strict=True)


def fingerprint(pile: Pile) -> str:
    """A SHA-256 of everything that learning depends on; of a long file only size, beginning and end."""
    digest = hashlib.sha256()

    def add(part: bytes) -> None:
        # The length keeps neighbours apart: ("ab", "c") must differ from ("a", "bc").
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)

    for texts in (pile.names, pile.ids):
        add(len(texts).to_bytes(8, "little"))
        for text in texts:
            add(text.encode("utf-8", "surrogatepass"))
    add(pile.labels.astype("<i8").tobytes())
    add(b"the split decides" if pile.given is None else pile.given.tobytes())
    add(pile.test.tobytes())
    for id_, source in zip(pile.ids, pile.sources, strict=True):
        for part in _content(id_, source):
            add(part)
    return digest.hexdigest()


def _content(id_: str, source: Path | npt.NDArray[Any] | Image.Image) -> list[bytes]:
    if isinstance(source, np.ndarray):
        return [source.dtype.str.encode(), str(source.shape).encode(), source.tobytes()]
    if isinstance(source, Image.Image):
        image = read_image(source)
        return [str(image.size).encode(), image.tobytes()]
    try:
        with source.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            head = stream.read(_EDGE)
            stream.seek(max(_EDGE, size - _EDGE))
            return [str(size).encode(), head, stream.read(_EDGE)]
    except OSError as error:
        raise UnreadableImage(id_, reason_for(error)) from error
