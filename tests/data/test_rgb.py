"""Conversion in strips gives the same pixels as conversion at once, in all modes and directions."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sptnet.data import rgb
from sptnet.data.rgb import array_to_image, to_rgb, to_rgb_array

TURNS = (None, *Image.Transpose)
MODES = ("1", "L", "LA", "La", "P", "RGB", "RGBA", "RGBa", "CMYK", "YCbCr", "I", "I;16", "I;16B", "F")


def picture(mode: str, width: int = 13, height: int = 11) -> Image.Image:
    random = np.random.RandomState(0)
    if mode == "F":
        return Image.fromarray((random.rand(height, width) * 65535).astype(np.float32))
    if mode == "I":
        return Image.fromarray(random.randint(-100, 70_000, (height, width)).astype(np.int32))
    image = Image.new(mode, (width, height))
    image = Image.frombytes(mode, image.size, random.bytes(len(image.tobytes())))
    if mode == "P":
        image.putpalette(random.bytes(768))
    return image


def as_before(image: Image.Image, turn: Image.Transpose | None) -> Image.Image:
    """The whole image at once in double precision."""
    image = image if turn is None else image.transpose(turn)
    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image, dtype=np.float64)
        grey = np.rint(np.clip(values, 0, 65535) / 257)
        if "transparency" in image.info:
            grey = np.where(values == image.info["transparency"], 255, grey)
        image = Image.fromarray(grey.astype(np.uint8))
    if not image.has_transparency_data:
        return image.convert("RGB")
    front = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", front.size, "white"), front).convert("RGB")


@pytest.mark.parametrize("strip", [7, 40, 10_000])
@pytest.mark.parametrize("mode", MODES)
def test_strips_give_the_same_pixels(mode: str, strip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rgb, "STRIP", strip)
    plain = picture(mode)
    images = [plain]
    if mode in ("L", "P", "I;16"):
        holes = plain.copy()
        holes.info["transparency"] = int(np.asarray(plain)[0, 0])
        images.append(holes)
    for image in images:
        for turn in TURNS:
            expected = as_before(image, turn)
            converted = to_rgb(image, turn)
            assert (converted.mode, converted.size) == ("RGB", expected.size)
            assert converted.tobytes() == expected.tobytes(), turn
            assert np.array_equal(to_rgb_array(image, turn), np.asarray(expected)), turn


def test_metadata_of_large_images_is_kept_as_of_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    image = picture("RGB")
    image.info["icc_profile"] = b"colours"
    small = to_rgb(image)
    monkeypatch.setattr(rgb, "STRIP", 7)
    assert to_rgb(image).info == small.info == {"icc_profile": b"colours"}


def test_sixteen_bits_are_rounded_exactly() -> None:
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    assert np.array_equal(np.asarray(array_to_image(values)), np.rint(values / 257))


@pytest.mark.parametrize("kind", [np.uint16, ">u2", np.bool_, np.float16, np.float32, np.float64])
def test_arrays_in_strips(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.RandomState(0).rand(9, 7, 3)
    array = (values * 65535).astype(kind) if np.dtype(kind).kind == "u" else values.round(4).astype(kind)
    at_once = np.asarray(array_to_image(array))
    monkeypatch.setattr(rgb, "STRIP", 10)
    assert np.array_equal(np.asarray(array_to_image(array)), at_once)


def test_a_float_file_has_one_scale_for_all_strips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rgb, "STRIP", 2)
    values = np.array([[0.0, 1.0], [2.0, 255.0], [51.0, 3.0]], dtype=np.float32)
    assert np.array_equal(np.asarray(to_rgb(Image.fromarray(values)))[..., 0], values)
