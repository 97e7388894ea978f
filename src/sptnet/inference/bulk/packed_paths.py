"""File names by the hundred million, in memory that one process has: compressed in blocks, read back block by block."""

import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import overload

BLOCK = 1024  # names; neighbours resemble each other, so more of them would hardly take less room
LEVEL = 1  # of compression: the quickest


class PackedPaths(Sequence[Path]):
    """Paths in their order. A slice is a list of them."""

    def __init__(self, paths: Iterable[Path]):
        self._blocks: list[bytes] = []
        self._n = 0
        self._latest: tuple[int, list[Path]] = (-1, [])
        stream, seen = iter(paths), hashlib.sha256()
        while names := [os.fsencode(path) for path in islice(stream, BLOCK)]:
            block = b"\0".join(names)
            seen.update(block + b"\0")
            self._blocks.append(zlib.compress(block, LEVEL))
            self._n += len(names)
        self.digest = seen.hexdigest()
        """Of all names in their order."""

    def __len__(self) -> int:
        return self._n

    @property
    def bytes_taken(self) -> int:
        """Of memory, by the names: 3 each for a camera's, 22 for random digits in hexadecimal."""
        return sum(map(len, self._blocks))

    def __iter__(self) -> Iterator[Path]:
        for number in range(len(self._blocks)):
            yield from self._block(number)

    @overload
    def __getitem__(self, item: int) -> Path: ...
    @overload
    def __getitem__(self, item: slice) -> list[Path]: ...
    def __getitem__(self, item: int | slice) -> Path | list[Path]:
        rows = range(self._n)[item]
        return self._at(rows) if isinstance(rows, int) else [self._at(row) for row in rows]

    def _at(self, row: int) -> Path:
        number, place = divmod(row, BLOCK)
        if self._latest[0] != number:
            self._latest = number, self._block(number)
        return self._latest[1][place]

    def _block(self, number: int) -> list[Path]:
        return [Path(os.fsdecode(name)) for name in zlib.decompress(self._blocks[number]).split(b"\0")]
