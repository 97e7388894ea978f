"""Duplicate images: groups of files with the same bytes and groups of images that look the same.

Near duplicates are found with thumbnails: a 64-bit hash of each gives candidate pairs, which are then compared pixel by
pixel. The bits are signs of the lowest frequencies; saving an image again at another size or quality hardly changes
them.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float, Int64, UInt8, UInt64
from PIL import Image

from sptnet.data.image_file import UnreadableImage, decoded
from sptnet.data.readable import file_digest, in_threads, no_display

SIDE = 16
REDUCED_SIDE = 4 * SIDE
"""Smallest side of a reduced JPEG; large enough that padding at its edge does not show in the thumbnail."""
# Measured on photographs, paintings and drawings: 99 % of copies saved again at half the size or at quality 50 are
# within both limits (95 % where a copy has only 16 pixels per side). Other images within both limits are some
# photographs taken in the same moment and some of the plainest drawings.
MOST_BITS = 7
LEAST_CORRELATION = 0.96
MOST_SHIFT = 32.0
"""Largest difference between the means of a colour channel."""

# Weaker frequencies are noise of the encoder, so their signs are random.
_FAINT = 16.0
# Variance added to every image and to what two images share, so that two plain surfaces correlate.
_NOISE = 10.0
_GREY = np.array([0.299, 0.587, 0.114])
_ROWS = 4096

Thumbnails = UInt8[np.ndarray, f"n {SIDE} {SIDE} 3"]
IndexPairs = Int64[np.ndarray, "pairs 2"]
DuplicateGroup = tuple[int, ...]
Key = TypeVar("Key", bound=Hashable)


def same_bytes(
    files: Sequence[Path], names: Sequence[str], sizes: Sequence[int], track: Callable[..., Iterable[Any]]
) -> list[DuplicateGroup]:
    """Groups of positions of files with the same bytes; only files of equal size are read."""
    candidates = [i for group in _groups(sizes) for i in group]
    digests = in_threads(file_digest, [files[i] for i in candidates], [names[i] for i in candidates])
    equal = _groups(list(track(digests, total=len(candidates))))
    return sorted(tuple(sorted(candidates[i] for i in group)) for group in equal)


def same_look(thumbnails: Thumbnails, track: Callable[..., Iterable[Any]] = no_display) -> list[DuplicateGroup]:
    """Groups of positions of images that look the same, also when connected through others."""
    return _groups(alike_groups(thumbnails, track).tolist())


def beyond(groups: Sequence[DuplicateGroup], known: Sequence[DuplicateGroup]) -> list[DuplicateGroup]:
    """Groups that do not lie within one of the `known` groups."""
    content = {i: number for number, group in enumerate(known) for i in group}
    return [group for group in groups if len({content.get(i, -1 - i) for i in group}) > 1]


def thumbnail(image: Image.Image) -> UInt8[np.ndarray, f"{SIDE} {SIDE} 3"]:
    """The whole image, resized to a square without regard to its aspect ratio."""
    shrinks = min(image.size) >= SIDE
    small = image.resize((SIDE, SIDE), Image.Resampling.BOX if shrinks else Image.Resampling.BILINEAR)
    return np.asarray(small)


def stacked(thumbnails: Sequence[npt.NDArray[np.uint8]]) -> Thumbnails:
    """Thumbnails as one array, also if there are none."""
    return np.stack(thumbnails) if thumbnails else np.empty((0, SIDE, SIDE, 3), np.uint8)


def read_thumbnail(path: Path, name: str) -> UInt8[np.ndarray, f"{SIDE} {SIDE} 3"] | UnreadableImage:
    """Thumbnail of an image file, or the problem if it cannot be read."""
    try:
        with decoded(path, name, least=REDUCED_SIDE) as (image, _):
            return thumbnail(image)
    except UnreadableImage as problem:
        return problem


def look_hashes(thumbnails: Thumbnails) -> UInt64[np.ndarray, " n"]:
    """64-bit hash per image: a bit is set where one of the lowest frequencies, brightness excluded, is positive."""
    bits = np.empty((len(thumbnails), 64), dtype=np.bool_)
    for part, bits_of_part in zip(_parts(thumbnails), _parts(bits), strict=True):
        bits_of_part[:] = _low_frequencies(part) > _FAINT
    packed = np.packbits(bits, axis=1)
    return packed.view(np.uint64)[:, 0]


def alike_groups(thumbnails: Thumbnails, track: Callable[..., Iterable[Any]] = no_display) -> Int64[np.ndarray, " n"]:
    """Group number per image, equal for images that look the same, also when connected through others."""
    flat = np.ascontiguousarray(thumbnails).reshape(len(thumbnails), SIDE * SIDE * 3)
    _, first, same_as = np.unique(flat.view(f"V{flat.shape[1]}")[:, 0], return_index=True, return_inverse=True)
    different = thumbnails[first]
    colours = different.mean((1, 2), dtype=np.float32)
    group = np.arange(len(different))
    for pairs in close_pairs(look_hashes(different), track=track):
        apart = pairs[group[pairs[:, 0]] != group[pairs[:, 1]]]
        shift = np.abs(colours[apart[:, 0]] - colours[apart[:, 1]]).max(1)
        for part in _parts(apart[shift <= MOST_SHIFT]):
            confirmed = part[alike(different[part[:, 0]], different[part[:, 1]])]
            if len(confirmed) > 0:
                group = _joined(group, confirmed)
    return group[same_as]


def close_pairs(
    hashes: UInt64[np.ndarray, " n"], most: int = MOST_BITS, track: Callable[..., Iterable[Any]] = no_display
) -> Iterator[IndexPairs]:
    """All pairs of hashes that differ in at most `most` < 8 bits, each pair once.

    Such a pair has at least one of eight bytes in common. For each byte the hashes are sorted by it, and each hash is
    compared with those that follow it for as long as the byte stays the same.
    """
    for position, column in track(enumerate(_bytes(hashes).T), total=8):
        order = np.argsort(column, kind="stable")
        byte, sorted_hashes = column[order], hashes[order]
        left = np.arange(len(order))
        for step in range(1, len(order)):
            left = left[left < len(order) - step]
            left = left[byte[left] == byte[left + step]]
            if len(left) == 0:
                break
            difference = sorted_hashes[left] ^ sorted_hashes[left + step]
            close = _count_bits(difference) <= most
            yielded_before = (_bytes(difference[close])[:, :position] == 0).any(1)
            new = left[close][~yielded_before]
            if len(new) > 0:
                yield np.stack([order[new], order[new + step]], axis=1)


def originals(
    thumbnails: Thumbnails, groups: Sequence[DuplicateGroup], rank: Sequence[int] | Int64[np.ndarray, " n"]
) -> Int64[np.ndarray, " n"]:
    """Position per image of the one that it duplicates; its own if there is none.

    In each of the `groups` of `same_look`, images of lower rank come first. An image is a duplicate only of an earlier
    one that it resembles itself: frames of a film are connected through others, but the last is no copy of the first.
    """
    original = np.arange(len(thumbnails))
    for group in groups:
        left = np.array(sorted(group, key=lambda i: (rank[i], i)))
        hashes, colours = look_hashes(thumbnails[left]), thumbnails[left].mean((1, 2), dtype=np.float32)
        while len(left) > 1:
            same = _count_bits(hashes[1:] ^ hashes[0]) <= MOST_BITS
            same &= np.abs(colours[1:] - colours[0]).max(1) <= MOST_SHIFT
            candidates = left[1:][same]
            same[same] = alike(
                np.broadcast_to(thumbnails[left[0]], thumbnails[candidates].shape), thumbnails[candidates]
            )
            original[left[1:][same]] = left[0]
            left, hashes, colours = left[1:][~same], hashes[1:][~same], colours[1:][~same]
    return original


def alike(a: Thumbnails, b: Thumbnails) -> Bool[np.ndarray, " n"]:
    """True per pair of thumbnails that correlate; brightness and contrast may differ a little."""
    x, y = (pixels.reshape(len(pixels), -1).astype(np.float32) for pixels in (a, b))
    x, y = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    common, own, other = ((p * q).mean(1) + _NOISE for p, q in ((x, y), (x, x), (y, y)))
    correlate: npt.NDArray[np.bool_] = common >= LEAST_CORRELATION * np.sqrt(own * other)
    return correlate


def _low_frequencies(thumbnails: Thumbnails) -> Float[np.ndarray, "n 64"]:
    grey: npt.NDArray[np.float64] = thumbnails @ _GREY
    grey -= grey.mean((1, 2), keepdims=True)
    waves = np.cos(np.pi * np.outer(np.arange(SIDE), np.arange(SIDE) + 0.5) / SIDE)
    frequencies: npt.NDArray[np.float64] = waves @ grey @ waves.T
    return frequencies[:, _DOWN, _ACROSS]


def _lowest(n: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    frequencies = [(down, across) for down in range(SIDE) for across in range(SIDE) if down + across > 0]
    chosen = np.array(sorted(frequencies, key=lambda f: (sum(f), max(f), f))[:n])
    return chosen[:, 0], chosen[:, 1]


_DOWN, _ACROSS = _lowest(64)
_BITS_OF = np.unpackbits(np.arange(2**16, dtype=np.uint16).view(np.uint8).reshape(-1, 2), axis=1).sum(1, dtype=np.uint8)


def _bytes(words: UInt64[np.ndarray, " n"]) -> UInt8[np.ndarray, "n 8"]:
    return words.view(np.uint8).reshape(-1, 8)


def _count_bits(words: UInt64[np.ndarray, " n"]) -> UInt8[np.ndarray, " n"]:
    counts: npt.NDArray[np.uint8] = _BITS_OF[words.view(np.uint16).reshape(-1, 4)].sum(1, dtype=np.uint8)
    return counts


def _joined(group: Int64[np.ndarray, " n"], pairs: IndexPairs) -> Int64[np.ndarray, " n"]:
    """Group numbers after the groups of each pair of images are joined; the lower number of two stays."""
    number = np.arange(len(group))  # SciPy has this too, but takes longer to import than most exports do

    def root(i: int) -> int:
        while number[i] != i:
            number[i] = number[number[i]]
            i = int(number[i])
        return i

    for a, b in group[pairs].tolist():
        low, high = sorted((root(a), root(b)))
        number[high] = low
    while (number[number] != number).any():
        number = number[number]
    joined: npt.NDArray[np.int64] = number[group]
    return joined


def _parts(rows: npt.NDArray[np.generic]) -> Iterator[npt.NDArray[np.generic]]:
    """Chunks of rows, so that memory stays bounded."""
    yield from (rows[start : start + _ROWS] for start in range(0, len(rows), _ROWS))


def _groups(keys: Sequence[Key]) -> list[DuplicateGroup]:
    """Positions of each key that occurs more than once, ordered by first occurrence."""
    positions: dict[Key, list[int]] = defaultdict(list)
    for i, key in enumerate(keys):
        positions[key].append(i)
    return [tuple(group) for group in positions.values() if len(group) > 1]
