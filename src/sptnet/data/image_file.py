"""Read one image from a file or an array as 8-bit RGB."""

import stat
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, UnidentifiedImageError

from sptnet.data.heic import can_read_heic, heic_formats, looks_like_heic, skipped_message
from sptnet.data.listing import IMAGE_SUFFIXES as IMAGE_SUFFIXES
from sptnet.data.listing import list_folder
from sptnet.errors import Failure, Misuse
from sptnet.runtime.progress import Say, say
from sptnet.runtime.text import printable

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
    if isinstance(source, np.ndarray):
        return _on_white(_from_array(source))
    if isinstance(source, Image.Image):
        with _unreadable_as(str(getattr(source, "filename", "") or "in memory")):
            return _upright_rgb(source)
    if isinstance(source, str | Path):
        with _unreadable_as(str(source)), _opened(Path(source)) as image:
            _reduce_scale(image, least)
            return _upright_rgb(image)
    raise Misuse(f"an image cannot be read from {type(source).__name__}. Give a path, a Pillow image or a numpy array.")


def read_reduced(path: Path, name: str, least: int = 1) -> tuple[Image.Image, tuple[int, int]]:
    """Read an image file quickly; returns the image and its (width, height) in the file.

    All of a JPEG file is decoded, but at a scale down to 1/8 such that both sides keep at least `least` pixels. `name`
    is used in errors.
    """
    with _unreadable_as(name), _opened(path) as image:
        size = image.size
        _reduce_scale(image, least)
        return _upright_rgb(image), size


def check_image(path: Path, name: str) -> UnreadableImage | None:
    """Return the error that `read_image` would raise, or None; faster than reading the image."""
    try:
        read_reduced(path, name)
    except UnreadableImage as problem:
        return problem
    return None


def find_images(folder: Path, tell: Say = say) -> list[Path]:
    """Return every image file below the folder, sorted by relative path; hidden names are skipped.

    Links are followed, but no folder is read twice. `tell` is called with a message if HEIC files are skipped.
    """
    listing = list_folder(folder)
    if listing.heic:
        tell(skipped_message(listing.heic))
    return listing.images


@contextmanager
def _unreadable_as(name: str) -> Iterator[None]:
    try:
        yield
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
    if any(words in str(error).lower() for words in ("truncated", "unexpected end of file")):
        return "truncated"
    return str(error) if isinstance(error, _Unusable) else f"damaged ({error!r})"


class _Unusable(ValueError):
    """The file cannot be used as an image; the message is the reason."""


@contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(path)
    if not stat.S_ISREG(status.st_mode):
        raise _Unusable("not a regular file")
    if status.st_size == 0:
        raise _Unusable("empty file")
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
        raise _Unusable("a HEIC file, which needs sptnet[heic]")
    try:
        return Image.open(path, formats=heic_formats())
    except UnidentifiedImageError as error:
        raise _Unusable("a damaged HEIC file") from error


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


def _upright_rgb(image: Image.Image) -> Image.Image:
    image.load()
    if 0 in image.size:
        raise _Unusable("no pixels")
    turn = _UPRIGHT.get(_orientation(image))
    return _on_white(image if turn is None else image.transpose(turn))


def _orientation(image: Image.Image) -> int:
    as_stored = 1
    try:
        with _quiet():
            value = image.getexif().get(ExifTags.Base.Orientation, as_stored)
    except _DAMAGE:
        # Damaged metadata, intact pixels: keep the stored orientation, as image viewers do.
        return as_stored
    return value if isinstance(value, int) else as_stored


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I") or image.mode == "F":
        image = _to_8_bit(image)
    if not image.has_transparency_data:
        return image.convert("RGB")
    straight = image.convert("LA") if image.mode == "La" else image
    front = straight.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", front.size, "white"), front).convert("RGB")


def _to_8_bit(image: Image.Image) -> Image.Image:
    values = np.asarray(image, dtype=np.float64)
    gray = values * _float_scale(values) if image.mode == "F" else np.clip(values, 0, 65535) / 257
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        gray = np.where(values == transparent, 255, gray)
    return Image.fromarray(np.rint(gray).astype(np.uint8))


def _float_scale(values: npt.NDArray[np.float64]) -> float:
    # A float file does not define its range: take the smallest usual one that contains all values.
    if not np.isfinite(values).all() or values.min() < 0 or values.max() > 65535:
        raise _Unusable("float pixels that are not finite or lie outside 0..65535")
    if values.max() <= 1:
        return 255.0
    return 1.0 if values.max() <= 255 else 1 / 257


def _from_array(array: npt.NDArray[Any]) -> Image.Image:
    flat = array[..., 0] if array.ndim == 3 and array.shape[2] == 1 else array
    if not (flat.ndim == 2 or (flat.ndim == 3 and flat.shape[2] in (3, 4))) or flat.size == 0:
        raise Misuse(
            f"an array of shape {array.shape} is no image. Give height x width, or height x width x 1, 3 or 4 channels."
        )
    return Image.fromarray(np.ascontiguousarray(_bytes_of(flat)))


def _bytes_of(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype.kind == "u" and array.dtype.itemsize == 2:
        return np.rint(array / 257).astype(np.uint8)
    if array.dtype.kind != "f":
        raise Misuse(f"pixels of type {array.dtype} have no known range. Give uint8 or floats in [0,1].")
    # Negated so that NaN, for which every comparison is false, is refused too.
    if not (array.min() >= 0 and array.max() <= 1):
        raise Misuse("float pixels lie outside [0,1] or are not numbers. Give uint8 or floats in [0,1].")
    return np.rint(array.astype(np.float64) * 255).astype(np.uint8)
