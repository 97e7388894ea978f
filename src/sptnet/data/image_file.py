"""Read one image from a file or an array as 8-bit RGB."""

import stat
import struct
import threading
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, UnidentifiedImageError

from sptnet.data.heic import can_read_heic, heic_formats, looks_like_heic, skipped_message
from sptnet.data.listing import IMAGE_SUFFIXES as IMAGE_SUFFIXES
from sptnet.data.listing import list_folder
from sptnet.data.rgb import RgbArray, UnusableImage, array_to_image, to_rgb, to_rgb_array
from sptnet.errors import Failure, Misuse
from sptnet.runtime.budget import Budget
from sptnet.runtime.progress import Say, say
from sptnet.runtime.text import printable

T = TypeVar("T")
Convert = Callable[[Image.Image, Image.Transpose | None], T]
"""Function that turns an image and converts it to RGB."""
ImageSource = Path | Image.Image | npt.NDArray[Any]

# Pillow chooses the decoder by content: without this list a file named .jpg could reach one that runs other programs.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")
# Exceptions that Pillow's decoders raise on damaged files.
_DAMAGE: tuple[type[Exception], ...] = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    EOFError,
    RuntimeError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)

_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_warning_filters = threading.Lock()

MOST_ELONGATED = 500
"""Largest ratio of the sides of an image; with the short side at the size of a view, others would fill the memory."""

MEMORY = Budget(2**30)
"""Bytes that decoding may take at once, in all threads of a process."""
# Bytes per pixel in Pillow: of an image as stored, of modes with fewer than four; of an RGB image; and of what a
# decoder holds beside them.
_BYTES_STORED = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16L": 2, "I;16B": 2}
_BYTES_RGB = 4
_BYTES_DECODER = {"WEBP": 12, "HEIF": 8}


class UnreadableImage(Failure):
    """An image cannot be decoded; has its name and a short reason."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot read the image {printable(self.name)}: {self.reason}. Repair or remove it."


def read_image(source: ImageSource | str, least: int | None = None) -> Image.Image:
    """Decode a file, a Pillow image or an array to upright 8-bit RGB, transparent parts on white.

    Integers wider than 8 bits are assumed to span 0..65535. Arrays are HxW or HxWxC with C of 1, 3 or 4. With `least`,
    a JPEG file is decoded at a scale down to 1/8, such that both sides keep at least that many pixels.
    """
    return _read(source, least, to_rgb)


def read_array(source: ImageSource | str, least: int | None = None) -> RgbArray:
    """Return the pixels of `read_image` as an array; takes less memory than converting the image."""
    return _read(source, least, to_rgb_array)


@contextmanager
def decoded(path: Path, name: str, least: int | None = None) -> Iterator[tuple[Image.Image, tuple[int, int]]]:
    """Decode an image file for the context, like `read_image`; yields the image and its (width, height) in the file.

    All threads of a process share `MEMORY`: the context holds the share of this image and waits for it first, so an
    image that is too large for two is decoded alone. `name` is used in errors.
    """
    with _converted(path, name, least, to_rgb) as image_and_size:
        yield image_and_size


def _read(source: ImageSource | str, least: int | None, convert: Convert[T]) -> T:
    if isinstance(source, np.ndarray):
        from_array = array_to_image(source)
        with _unreadable_as("in memory"):
            _refuse_elongated(from_array.size)
        return convert(from_array, None)
    if isinstance(source, Image.Image):
        name = str(getattr(source, "filename", "") or "in memory")
        with _unreadable_as(name), not_enough_memory(name, source.size):
            _refuse_elongated(source.size)
            return _upright(source, convert)
    if isinstance(source, str | Path):
        with _converted(Path(source), str(source), least, convert) as (image, _):
            return image
    raise Misuse(f"an image cannot be read from {type(source).__name__}. Give a path, a Pillow image or a numpy array.")


@contextmanager
def _converted(path: Path, name: str, least: int | None, convert: Convert[T]) -> Iterator[tuple[T, tuple[int, int]]]:
    with ExitStack() as held:
        with _unreadable_as(name), _opened(path) as image:
            size = image.size
            _refuse_elongated(size)
            _reduce_scale(image, least)
            held.enter_context(MEMORY.reserved(_bytes_to_decode(image, size)))
            with not_enough_memory(name, size):
                result = _upright(image, convert)
        del image  # the pixels as stored are not needed any more
        with not_enough_memory(name, size):
            yield result, size


def read_reduced(path: Path, name: str, least: int = 1) -> tuple[Image.Image, tuple[int, int]]:
    """Read an image file quickly, with `decoded`; the image returned has no share of the memory any more."""
    with decoded(path, name, least) as image_and_size:
        return image_and_size


def check_image(path: Path, name: str) -> UnreadableImage | None:
    """Return the error that `read_image` would raise, or None; faster than reading the image."""
    try:
        read_reduced(path, name)
    except UnreadableImage as problem:
        return problem
    return None


def read_exif(path: Path) -> dict[int, Any]:
    """Return the EXIF tags of an image file without decoding pixels; empty if there are none or they are damaged."""
    try:
        with _opened(path) as image, _quiet():
            if image.format == "PNG" and not image.info.keys() & {"exif", "Raw profile type exif"}:
                return {}  # Pillow would decode the pixels to look for tags behind them
            tags = image.getexif()
            return {**tags, **tags.get_ifd(ExifTags.IFD.Exif)}
    except _DAMAGE:
        return {}


def find_images(folder: Path, tell: Say = say) -> list[Path]:
    """Return every image file below the folder, sorted by relative path; hidden names are skipped.

    Links are followed, but no folder is read twice. `tell` is called with a message if HEIC files are skipped.
    """
    listing = list_folder(folder)
    if listing.heic:
        tell(skipped_message(listing.heic))
    return listing.images


@contextmanager
def not_enough_memory(name: str, size: tuple[int, int]) -> Iterator[None]:
    """Turn a MemoryError in the context into an `UnreadableImage`; `size` is the (width, height) of the image."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):  # torch raises RuntimeError
            raise
        raise UnreadableImage(name, f"not enough memory ({size[0]} x {size[1]} pixels)") from error


def _refuse_elongated(size: tuple[int, int]) -> None:
    if 0 < MOST_ELONGATED * min(size) < max(size):
        raise UnusableImage(f"too elongated ({size[0]} x {size[1]} pixels; at most {MOST_ELONGATED} : 1)")


def _bytes_to_decode(image: Image.Image, size: tuple[int, int]) -> int:
    """Estimate the peak of memory while an opened image is decoded and converted; `size` is the one in the file."""
    stored = _BYTES_STORED.get(image.mode, 4)
    pixels = image.width * image.height * (stored + _BYTES_RGB + _BYTES_DECODER.get(image.format or "", 0))
    # All coefficients of a progressive file are in memory, at whatever scale it is decoded.
    return pixels + (size[0] * size[1] * 2 * len(image.getbands()) if image.info.get("progressive") else 0)


@contextmanager
def _unreadable_as(name: str) -> Iterator[None]:
    try:
        yield
    except UnreadableImage:
        raise
    except _DAMAGE as error:
        raise UnreadableImage(name, reason_for(error)) from error


def reason_for(error: BaseException) -> str:
    """Describe an exception of the file system or of a decoder in a few words."""
    if isinstance(error, FileNotFoundError):
        return "file not found"
    if isinstance(error, IsADirectoryError):
        return "a folder, not a file"
    if isinstance(error, PermissionError):
        return "no permission to read it"
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    if isinstance(error, Image.DecompressionBombError):
        return "too many pixels, possibly a decompression bomb"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    if "out of memory" in str(error).lower():
        return "not enough memory"
    if any(words in str(error).lower() for words in ("truncated", "unexpected end of file")):
        return "truncated"
    return str(error) if isinstance(error, UnusableImage) else f"damaged ({error!r})"


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(path)
    if not stat.S_ISREG(status.st_mode):
        raise UnusableImage("not a regular file")
    if status.st_size == 0:
        raise UnusableImage("empty file")
    with _quiet():
        image = _identified(path)
    with image:
        if image.format == "TIFF":
            # Read the tags now: decoding reads them too, with warnings.
            with _quiet():
                image.getexif()
        yield image


def _identified(path: Path) -> Image.Image:
    try:
        return Image.open(path, formats=_FORMATS)
    except UnidentifiedImageError:
        if not looks_like_heic(path):
            raise
    if not can_read_heic():
        raise UnusableImage("a HEIC file, which needs sptnet[heic]")
    try:
        return Image.open(path, formats=heic_formats())
    except UnidentifiedImageError as error:
        raise UnusableImage("a damaged HEIC file") from error


def _reduce_scale(image: Image.Image, least: int | None) -> None:
    # For other formats `draft` may select a preview stored in the file, which can be intact beside damaged pixels.
    if least is not None and image.format in ("JPEG", "MPO"):
        image.draft(None, (least, least))


@contextmanager
def _quiet() -> Iterator[None]:
    # Warning filters are global, so only one thread at a time may change them.
    with _warning_filters, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _upright(image: Image.Image, convert: Convert[T]) -> T:
    image.load()
    if 0 in image.size:
        raise UnusableImage("no pixels")
    if image.mode in ("P", "PA") and image.palette is None:
        raise UnusableImage("colours by number without a palette")
    return convert(image, _UPRIGHT.get(_orientation(image)))


def _orientation(image: Image.Image) -> int:
    as_stored = 1
    try:
        with _quiet():
            value = image.getexif().get(ExifTags.Base.Orientation, as_stored)
    except _DAMAGE:
        # Damaged metadata, intact pixels: keep the stored orientation, as image viewers do.
        return as_stored
    return value if isinstance(value, int) else as_stored
