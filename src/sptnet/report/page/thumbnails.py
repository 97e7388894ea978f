"""Thumbnails of many images as data URIs, in the best quality that a number of bytes allows."""

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from sptnet.data.image_file import ImageSource, UnreadableImage, decoded, read_image
from sptnet.data.readable import in_threads

TINY = 16
"""Images of at most this side are stored without loss."""
_SAMPLE = 128
_QUOTES = len('"",')


@dataclass(frozen=True)
class Level:
    """Side in pixels, and WebP quality of thumbnails."""

    side: int
    quality: int


LEVELS = tuple(
    Level(*pair)
    for pair in (
        *((256, 72), (176, 74), (112, 78), (96, 72), (96, 55), (80, 55), (64, 55), (64, 40)),
        *((48, 40), (32, 40), (24, 20)),
    )
)
LARGE, LARGE_BUDGET = 112, 6_000_000
"""Pictures of more than this side serve to be enlarged; all of them together take no more than these bytes."""


def thumbnails(
    sources: Sequence[ImageSource | None], budget: int, on_done: Callable[[int], None] = lambda done: None
) -> list[str | None]:
    """Return a data URI per source, None if it cannot be read; at most `budget` bytes in all if any level allows it.

    The finest level that fits by a sample of the images is tried first, then coarser ones until all fit.
    """
    first = LEVELS.index(promising_level(sources, budget))
    uris: list[str | None] = []
    for level in LEVELS[first:]:
        uris = []
        for uri in _made(sources, level):
            uris.append(uri)
            on_done(len(uris))
        if total_bytes(uris) <= _limit(level, budget):
            break
    return uris


def promising_level(sources: Sequence[ImageSource | None], budget: int) -> Level:
    """Return the finest level at which all images fit, as estimated from a sample; else the coarsest."""
    sample = sources[:: max(1, len(sources) // _SAMPLE)]
    squares = [square for square in (_square(source, LEVELS[0].side) for source in sample) if square is not None]
    for level in LEVELS[:-1]:
        size = total_bytes([as_uri(_encoded(square, level)) for square in squares])
        if size / max(1, len(squares)) * len(sources) <= 0.9 * _limit(level, budget):
            return level
    return LEVELS[-1]


def _limit(level: Level, budget: int) -> int:
    return min(budget, LARGE_BUDGET) if level.side > LARGE else budget


def total_bytes(uris: Sequence[str | None]) -> int:
    """Return the size of the URIs in the page's JSON."""
    return sum(len(uri or "null") + _QUOTES for uri in uris)


def as_uri(picture: bytes, kind: str = "webp") -> str:
    """Encode a picture as a data URI."""
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode()}"


def _made(sources: Sequence[ImageSource | None], level: Level) -> Iterator[str | None]:
    def make(source: ImageSource | None) -> str | None:
        square = _square(source, level.side)
        return None if square is None else as_uri(_encoded(square, level))

    yield from in_threads(make, sources)


def _square(source: ImageSource | None, side: int) -> Image.Image | None:
    """Return the centre crop, never enlarged; None if the image cannot be read."""
    if source is None:
        return None
    try:
        if not isinstance(source, str | Path):
            return _centre(read_image(source), side)
        with decoded(Path(source), str(source), 2 * side) as (image, _):
            return _centre(image, side)
    except UnreadableImage:
        return None  # the page reports their number


def _centre(image: Image.Image, side: int) -> Image.Image:
    short = min(image.size)
    left, top = (image.width - short) // 2, (image.height - short) // 2
    square = image.crop((left, top, left + short, top + short))
    return square if short <= side else square.resize((side, side), Image.Resampling.LANCZOS, reducing_gap=3.0)


def _encoded(square: Image.Image, level: Level) -> bytes:
    stream = io.BytesIO()
    if square.width > level.side:
        square = square.resize((level.side, level.side), Image.Resampling.LANCZOS)
    square.save(stream, format="WEBP", quality=level.quality, method=4, lossless=square.width <= TINY)
    return stream.getvalue()
