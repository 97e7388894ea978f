"""Images that are there twice: groups of files with the same bytes, groups of pictures that look the same."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sptnet.data.check.near_duplicates import Thumbnails, alike_groups
from sptnet.data.image_file import UnreadableImage, reason_for
from sptnet.data.readable import in_threads

DuplicateGroup = tuple[int, ...]
Key = TypeVar("Key", bound=Hashable)


def same_bytes(
    files: Sequence[Path], names: Sequence[str], sizes: Sequence[int], track: Callable[..., Iterable[Any]]
) -> list[DuplicateGroup]:
    """Groups of positions; only files that share their size with another are read."""
    rivals = [i for group in _groups(sizes) for i in group]
    digests = in_threads(_digest, [files[i] for i in rivals], [names[i] for i in rivals])
    equal = _groups(list(track(digests, total=len(rivals))))
    return sorted(tuple(sorted(rivals[i] for i in group)) for group in equal)


def same_look(thumbnails: Thumbnails, known: Sequence[DuplicateGroup]) -> list[DuplicateGroup]:
    """Groups of positions that look the same, without those that are wholly within one of the `known` groups."""
    content = {i: number for number, group in enumerate(known) for i in group}
    groups = _groups(alike_groups(thumbnails).tolist())
    return [group for group in groups if len({content.get(i, -1 - i) for i in group}) > 1]


def _groups(keys: Sequence[Key]) -> list[DuplicateGroup]:
    """The positions of keys that occur more than once, by first occurrence."""
    positions: dict[Key, list[int]] = defaultdict(list)
    for i, key in enumerate(keys):
        positions[key].append(i)
    return [tuple(group) for group in positions.values() if len(group) > 1]


def _digest(file: Path, name: str) -> bytes:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except OSError as error:
        raise UnreadableImage(name, reason_for(error)) from error
