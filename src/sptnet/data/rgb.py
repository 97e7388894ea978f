"""Convert images of all modes, and arrays, to 8-bit RGB.

Large images are converted in strips of rows, so that no more than the image itself and the result are in memory.
"""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from jaxtyping import UInt8
from PIL import Image

from sptnet.errors import Misuse

STRIP = 2**20
"""Pixels that are converted at once."""

_TURNED = (Image.Transpose.TRANSPOSE, Image.Transpose.TRANSVERSE, Image.Transpose.ROTATE_90, Image.Transpose.ROTATE_270)
# Turns after which the first strip lies at the end.
_REVERSED = (
    Image.Transpose.FLIP_TOP_BOTTOM,
    Image.Transpose.ROTATE_180,
    Image.Transpose.ROTATE_270,
    Image.Transpose.TRANSVERSE,
)


RgbArray = UInt8[np.ndarray, "height width 3"]
ToBytes = Callable[[npt.NDArray[Any]], npt.NDArray[np.uint8]]


class UnusableImage(ValueError):
    """A file cannot be used as an image; the message is the reason."""


def to_rgb(image: Image.Image, turn: Image.Transpose | None = None) -> Image.Image:
    """Return a turned copy in 8-bit RGB, transparent parts on white. Integers wider than 8 bits span 0..65535."""
    strips = _rgb_strips(image, turn)
    first = next(strips)
    if first.image.size == _turned_size(image, turn):
        return first.image
    rgb = Image.new("RGB", _turned_size(image, turn))
    rgb.info.update(first.image.info)
    for strip in chain([first], strips):
        rgb.paste(strip.image, (strip.left, strip.top))
    return rgb


def to_rgb_array(image: Image.Image, turn: Image.Transpose | None = None) -> RgbArray:
    """Return the pixels of `to_rgb` as an array, without a whole RGB image beside it."""
    width, height = _turned_size(image, turn)
    rgb = np.empty((height, width, 3), dtype=np.uint8)
    for strip in _rgb_strips(image, turn):
        across, down = strip.image.size
        rgb[strip.top : strip.top + down, strip.left : strip.left + across] = np.asarray(strip.image)
    return rgb


class _Strip(NamedTuple):
    """A part of the result, and the position of its upper left corner."""

    image: Image.Image
    left: int
    top: int


def _rgb_strips(image: Image.Image, turn: Image.Transpose | None) -> Iterator[_Strip]:
    """Yield the turned image in RGB, strip by strip; a small image is one strip."""
    to_8_bit = _to_8_bit(image)
    width, height = image.size
    if width * height <= STRIP:
        yield _Strip(_strip_to_rgb(image, to_8_bit, turn), 0, 0)
        return
    for top, bottom in _strips(width, height):
        strip = _strip_to_rgb(image.crop((0, top, width, bottom)), to_8_bit, turn)
        start = height - bottom if turn in _REVERSED else top
        yield _Strip(strip, start, 0) if turn in _TURNED else _Strip(strip, 0, start)


def _turned_size(image: Image.Image, turn: Image.Transpose | None) -> tuple[int, int]:
    return (image.height, image.width) if turn in _TURNED else image.size


def array_to_image(array: npt.NDArray[Any]) -> Image.Image:
    """Return an array of shape HxW or HxWxC with C of 1, 3 or 4 as an image of 8 bits."""
    flat = array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array
    if not (flat.ndim == 2 or (flat.ndim == 3 and flat.shape[2] in (3, 4))) or flat.size == 0:
        raise Misuse(
            f"an array of shape {array.shape} is no image. Give height x width, or height x width x 1, 3 or 4 channels."
        )
    return Image.fromarray(_bytes_of(flat))


def _strips(width: int, height: int) -> Iterator[tuple[int, int]]:
    """Yield the first row of each strip, and the row behind its last."""
    rows = max(1, STRIP // width)
    yield from ((top, min(top + rows, height)) for top in range(0, height, rows))


def _strip_to_rgb(strip: Image.Image, to_8_bit: ToBytes | None, turn: Image.Transpose | None) -> Image.Image:
    if turn is not None:
        strip = strip.transpose(turn)
    if to_8_bit is not None:
        strip = Image.fromarray(to_8_bit(np.asarray(strip)))
    if not strip.has_transparency_data:
        return strip.convert("RGB")
    straight = strip.convert("LA") if strip.mode == "La" else strip
    front = straight.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", front.size, "white"), front).convert("RGB")


def _to_8_bit(image: Image.Image) -> ToBytes | None:
    """Return the function from pixels of more than 8 bits to grey levels; None for 8 bits and fewer."""
    if image.mode == "F":
        scale = _float_scale(image)
        return lambda values: _rounded(values, scale)
    if not image.mode.startswith("I"):
        return None
    transparent = image.info.get("transparency")

    def grey(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        levels = _from_16_bits(np.clip(values, 0, 65535))
        if isinstance(transparent, int):
            levels[values == transparent] = 255
        return levels

    return grey


def _float_scale(image: Image.Image) -> float:
    # A float file does not define its range: take the smallest usual one that contains all values.
    most = 0.0
    for top, bottom in _strips(*image.size):
        values = np.asarray(image.crop((0, top, image.width, bottom)))
        if not np.isfinite(values).all() or values.min() < 0 or values.max() > 65535:
            raise UnusableImage("float pixels that are not finite or lie outside 0..65535")
        most = max(most, float(values.max()))
    if most <= 1:
        return 255.0
    return 1.0 if most <= 255 else 1 / 257


def _from_16_bits(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    # The nearest integer to v / 257; there are no ties, since 257 is odd.
    return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)


def _rounded(values: npt.NDArray[Any], scale: float) -> npt.NDArray[np.uint8]:
    # In double precision, but of one strip only: single precision would round some values otherwise.
    return np.rint(values.astype(np.float64) * scale).astype(np.uint8)


def _bytes_of(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array)
    if array.dtype == np.bool_:
        return _in_strips(array, lambda rows: rows.astype(np.uint8) * np.uint8(255))
    if array.dtype.kind == "u" and array.dtype.itemsize == 2:
        return _in_strips(array, _from_16_bits)
    if array.dtype.kind != "f":
        raise Misuse(f"pixels of type {array.dtype} have no known range. Give uint8 or floats in [0,1].")
    # Negated so that NaN, for which every comparison is false, is refused too.
    if not (array.min() >= 0 and array.max() <= 1):
        raise Misuse("float pixels lie outside [0,1] or are not numbers. Give uint8 or floats in [0,1].")
    return _in_strips(array, lambda rows: _rounded(rows, 255.0))


def _in_strips(array: npt.NDArray[Any], to_8_bit: ToBytes) -> npt.NDArray[np.uint8]:
    levels = np.empty(array.shape, dtype=np.uint8)
    for top, bottom in _strips(array.shape[1], array.shape[0]):
        levels[top:bottom] = to_8_bit(array[top:bottom])
    return levels
