"""Pixels of all kinds of image files and arrays, and reasons for unreadable ones."""

import io
import os
import pickle
import re
import struct
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, TiffImagePlugin

from sptnet.data import image_file
from sptnet.data.image_file import (
    IMAGE_SUFFIXES,
    UnreadableImage,
    check_image,
    decoded,
    find_images,
    not_enough_memory,
    read_image,
    read_reduced,
)
from sptnet.data.readable import in_threads
from sptnet.errors import Failure, Misuse
from sptnet.runtime.budget import Budget
from sptnet.runtime.text import printable

WHITE = (255, 255, 255)


def noise(height: int = 64, width: int = 64) -> Image.Image:
    return Image.fromarray(np.random.RandomState(0).randint(0, 256, (height, width, 3), dtype=np.uint8))


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def saved(path: Path, image: Image.Image, **options: Any) -> Path:
    image.save(path, **options)
    return path


def pixel(image: Image.Image, x: int = 0, y: int = 0) -> tuple[int, ...]:
    assert image.mode == "RGB"
    return tuple(int(value) for value in np.asarray(image)[y, x])


def gradient() -> np.ndarray:
    return np.linspace(0, 65535, 256).round().astype(np.uint16).reshape(16, 16)


def reason_of(path: Path) -> str:
    with pytest.raises(UnreadableImage) as caught:
        read_image(path)
    assert caught.value.name == str(path)
    problem = check_image(path, "its id")
    assert problem is not None
    assert (problem.name, problem.reason) == ("its id", caught.value.reason)
    return caught.value.reason


@pytest.mark.parametrize("suffix", sorted(IMAGE_SUFFIXES))
def test_every_suffix_is_read(tmp_path: Path, suffix: str) -> None:
    path = saved(tmp_path / f"a{suffix.upper()}", Image.new("RGB", (5, 3), (200, 30, 60)))
    image = read_image(str(path))
    assert image.size == (5, 3)
    assert np.abs(np.array(pixel(image)) - (200, 30, 60)).max() <= 6
    assert find_images(tmp_path) == [path]
    assert check_image(path, "a") is None


@pytest.mark.parametrize("kind", ["jpg", "png", "tif"])
def test_exif_rotation_is_applied(tmp_path: Path, kind: str) -> None:
    stored = Image.new("RGB", (32, 16), "blue")
    stored.paste("red", (0, 0, 16, 16))
    exif = Image.Exif()
    exif[0x0112] = 6
    image = read_image(saved(tmp_path / f"a.{kind}", stored, exif=exif))
    assert image.size == (16, 32)
    assert pixel(image, 8, 4)[0] > 240 and pixel(image, 8, 28)[2] > 240


@pytest.mark.parametrize("orientation", range(1, 9))
def test_each_orientation_undoes_how_the_camera_was_held(orientation: int) -> None:
    upright = np.arange(6, dtype=np.uint8).reshape(2, 3)
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.T,
        6: np.rot90(upright),
        7: upright[::-1, ::-1].T,
        8: np.rot90(upright, -1),
    }[orientation]
    image = Image.fromarray(np.ascontiguousarray(stored))
    image.getexif()[0x0112] = orientation
    assert np.array_equal(np.asarray(read_image(image))[..., 0], upright)


def test_broken_exif_does_not_cost_the_picture(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(encoded(Image.new("RGB", (8, 8), "red"), "JPEG", exif=b"Exif\0\0 no tags here"))
    assert pixel(read_image(path))[0] > 240


def test_cmyk_jpeg(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.jpg", Image.new("CMYK", (8, 8), (0, 255, 255, 0)))
    red, green, blue = pixel(read_image(path))
    assert red > 245 and green < 10 and blue < 10


def test_grayscale_and_bilevel(tmp_path: Path) -> None:
    assert pixel(read_image(saved(tmp_path / "l.png", Image.new("L", (2, 2), 77)))) == (77, 77, 77)
    assert pixel(read_image(saved(tmp_path / "1.png", Image.new("1", (2, 2), 1)))) == WHITE


def test_alpha_is_composited_on_white(tmp_path: Path) -> None:
    image = Image.new("RGBA", (3, 1), (255, 0, 0, 255))
    image.putpixel((1, 0), (255, 0, 0, 0))
    image.putpixel((2, 0), (0, 0, 0, 128))
    image = read_image(saved(tmp_path / "a.png", image))
    assert [pixel(image, x) for x in range(3)] == [(255, 0, 0), WHITE, (127, 127, 127)]


def test_gray_with_alpha(tmp_path: Path) -> None:
    image = Image.new("LA", (2, 1), (10, 255))
    image.putpixel((1, 0), (10, 0))
    image = read_image(saved(tmp_path / "a.png", image))
    assert [pixel(image, x) for x in range(2)] == [(10, 10, 10), WHITE]
    assert pixel(read_image(Image.new("La", (1, 1), (0, 0)))) == WHITE


def test_palette_with_transparency(tmp_path: Path) -> None:
    image = Image.new("P", (3, 1))
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    image.putdata([0, 1, 2])
    plain = read_image(saved(tmp_path / "plain.png", image))
    assert [pixel(plain, x) for x in range(3)] == [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
    holes = read_image(saved(tmp_path / "holes.png", image, transparency=1))
    assert [pixel(holes, x) for x in range(3)] == [(255, 0, 0), WHITE, (0, 0, 255)]


@pytest.mark.parametrize(("suffix", "order"), [("png", "<u2"), ("tif", "<u2"), ("tif", ">u2")])
def test_sixteen_bits_are_scaled_and_not_clipped(tmp_path: Path, suffix: str, order: str) -> None:
    path = saved(tmp_path / f"a.{suffix}", Image.fromarray(gradient().astype(order)))
    with Image.open(path) as stored:
        assert stored.mode.startswith("I;16")
    assert np.asarray(read_image(path))[..., 1].ravel().tolist() == list(range(256))


def test_sixteen_bit_transparency(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[500, 25700]], dtype=np.uint16))
    image = read_image(saved(tmp_path / "a.png", image, transparency=500))
    assert [pixel(image, x) for x in range(2)] == [WHITE, (100, 100, 100)]


def test_wide_integers_span_sixteen_bits() -> None:
    image = read_image(Image.fromarray(np.array([[-5, 0, 25700, 65535, 70000]], dtype=np.int32)))
    assert [pixel(image, x)[0] for x in range(5)] == [0, 0, 100, 255, 255]


@pytest.mark.parametrize(
    ("values", "expected"),
    [([0.0, 0.2, 1.0], [0, 51, 255]), ([0.0, 51.0, 255.0], [0, 51, 255]), ([0, 25700, 65535], [0, 100, 255])],
)
def test_float_files(tmp_path: Path, values: list[float], expected: list[int]) -> None:
    path = saved(tmp_path / "a.tif", Image.fromarray(np.array([values], dtype=np.float32)))
    assert np.asarray(read_image(path))[0, :, 0].tolist() == expected


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e6])
def test_float_files_without_a_known_range(tmp_path: Path, value: float) -> None:
    path = saved(tmp_path / "a.tif", Image.fromarray(np.full((2, 2), value, dtype=np.float32)))
    assert reason_of(path) == "float pixels that are not finite or lie outside 0..65535"


def test_colours_by_number_without_a_palette(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.png", Image.new("P", (3, 2), 1))
    content = path.read_bytes()
    start = content.index(b"PLTE") - 4  # length, name, colours, checksum
    path.write_bytes(content[:start] + content[start + 12 + int.from_bytes(content[start : start + 4], "big") :])
    assert reason_of(path) == "colours by number without a palette"


@pytest.mark.parametrize("suffix", ["gif", "tif", "webp"])
def test_several_frames_give_the_first(tmp_path: Path, suffix: str) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    path = saved(tmp_path / f"a.{suffix}", frames[0], save_all=True, append_images=frames[1:])
    with Image.open(path) as stored:
        assert getattr(stored, "n_frames", 1) == 2
    assert np.abs(np.array(pixel(read_image(path))) - (255, 0, 0)).max() <= 6


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_a_single_pixel(tmp_path: Path, mode: str) -> None:
    path = saved(tmp_path / "a.png", Image.new(mode, (1, 1)))
    image = read_image(path)
    assert image.size == (1, 1)
    assert pixel(image) == (WHITE if mode in ("LA", "RGBA") else (0, 0, 0))
    assert check_image(path, "a") is None


@pytest.mark.parametrize("name", ['it\'s "quoted".png', "two\nlines.png", "emoji 🦊.png", "ünï çødé.png"])
def test_awkward_names(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path / name, Image.new("RGB", (1, 1), "red"))
    assert find_images(tmp_path) == [path]
    assert pixel(read_image(path)) == (255, 0, 0)
    path.write_bytes(b"")
    with pytest.raises(UnreadableImage) as caught:
        read_image(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "TIFF", "GIF"])
def test_truncated_files(tmp_path: Path, kind: str) -> None:
    data = encoded(noise(), kind)
    path = tmp_path / "a.jpg"
    path.write_bytes(data[: len(data) // 2])
    assert reason_of(path) == "truncated"


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0, "quality": 95}])
@pytest.mark.parametrize("missing", [2, 20, 400, 3000])
def test_the_reduced_check_notices_every_truncated_jpeg(tmp_path: Path, options: dict[str, Any], missing: int) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(encoded(noise(128, 96), "JPEG", **options)[:-missing])
    assert reason_of(path) == "truncated"


@pytest.mark.parametrize(("least", "expected"), [(1, (25, 20)), (32, (50, 40)), (41, (100, 80)), (200, (200, 160))])
def test_a_reduced_jpeg_keeps_the_least_size(tmp_path: Path, least: int, expected: tuple[int, int]) -> None:
    path = saved(tmp_path / "a.jpg", noise(160, 200))
    image, size = read_reduced(path, "a", least)
    assert (image.size, image.mode, size) == (expected, "RGB", (200, 160))
    image, size = read_reduced(saved(tmp_path / "a.png", noise(160, 200)), "a", least)
    assert (image.size, size) == ((200, 160), (200, 160))


def test_damaged_webp(tmp_path: Path) -> None:
    path = tmp_path / "a.webp"
    path.write_bytes(encoded(noise(), "WEBP")[:500])
    assert reason_of(path).startswith("damaged (")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "empty file"), (b"Dear diary, today", "not an image"), (b"\xff\xd8\xff", "not an image")],
)
def test_files_that_hold_no_image(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    assert reason_of(path) == reason


def test_programs_in_disguise_are_not_images(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n")
    assert reason_of(path) == "not an image"


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    assert reason_of(tmp_path / "missing.png") == "file not found"
    assert reason_of(tmp_path) == "a folder, not a file"
    assert reason_of(tmp_path / ("x" * 300 + ".png")) == "file name too long"
    os.mkfifo(tmp_path / "pipe.png")
    assert reason_of(tmp_path / "pipe.png") == "not a regular file"
    assert find_images(tmp_path) == []


def test_bombs_are_refused_and_large_images_read_without_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path / "a.png", Image.new("RGB", (30, 30), "red"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
        assert pixel(read_image(path)) == (255, 0, 0)
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
        assert reason_of(path) == "too many pixels, possibly a decompression bomb"


def test_damaged_metadata_does_not_warn(tmp_path: Path) -> None:
    ifd = TiffImagePlugin.ImageFileDirectory_v2()
    ifd[270] = "a description longer than four bytes"
    data = encoded(noise(8, 8), "TIFF", tiffinfo=ifd)
    entry = data.index(struct.pack("<HH", 270, 2))
    path = tmp_path / "a.tif"
    path.write_bytes(data[: entry + 4] + struct.pack("<I", 10**6) + data[entry + 8 :])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(np.asarray(read_image(path)), np.asarray(noise(8, 8)))


def test_the_error_says_what_to_do_and_survives_a_worker_process() -> None:
    error = pickle.loads(pickle.dumps(UnreadableImage("a.jpg", "truncated")))
    assert isinstance(error, Failure)
    assert (error.name, error.reason) == ("a.jpg", "truncated")
    assert str(error) == "cannot read the image a.jpg: truncated. Repair or remove it."
    assert printable("\udcff") == "'\\udcff'"


def test_pillow_images_are_read_and_left_alone(tmp_path: Path) -> None:
    source = Image.new("RGB", (2, 2), "red")
    image = read_image(source)
    image.putpixel((0, 0), (0, 0, 0))
    assert source.getpixel((0, 0)) == (255, 0, 0)
    with pytest.raises(UnreadableImage, match="in memory: no pixels"):
        read_image(Image.new("RGB", (0, 3)))
    path = tmp_path / "a.bmp"
    path.write_bytes(encoded(noise(), "BMP")[:-100])
    with Image.open(path) as lazy, pytest.raises(UnreadableImage, match=r"a\.bmp: truncated"):
        read_image(lazy)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([[7, 200]], np.uint8), [(7, 7, 7), (200, 200, 200)]),
        (np.array([[[7], [200]]], np.uint8), [(7, 7, 7), (200, 200, 200)]),
        (np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8), [(1, 2, 3), (4, 5, 6)]),
        (np.array([[[1, 2, 3, 255], [4, 5, 6, 0]]], np.uint8), [(1, 2, 3), WHITE]),
        (np.array([[25700, 65535]], np.uint16), [(100, 100, 100), WHITE]),
        (np.array([[25700, 65535]], ">u2"), [(100, 100, 100), WHITE]),
        (np.array([[True, False]]), [WHITE, (0, 0, 0)]),
        (np.array([[0.2, 1.0]]), [(51, 51, 51), WHITE]),
        (np.array([[[0, 0.2, 1], [1, 1, 1]]], np.float16), [(0, 51, 255), WHITE]),
        (np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8)[:, ::-1, ::-1], [(6, 5, 4), (3, 2, 1)]),
    ],
)
def test_arrays(array: np.ndarray, expected: list[tuple[int, ...]]) -> None:
    image = read_image(array)
    assert image.size == (2, 1)
    assert [pixel(image, x) for x in range(2)] == expected


@pytest.mark.parametrize("value", [-0.01, 1.01, 255.0, np.nan, np.inf, -np.inf])
def test_floats_out_of_range(value: float) -> None:
    with pytest.raises(Misuse, match=r"outside \[0,1\].*Give uint8 or floats in \[0,1\]\."):
        read_image(np.array([[0.5, value]]))


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint32, np.complex64, object])
def test_array_types_without_a_known_range(kind: Any) -> None:
    with pytest.raises(Misuse, match=r"no known range\. Give uint8 or floats in \[0,1\]\."):
        read_image(np.zeros((2, 2), kind))


@pytest.mark.parametrize("shape", [(), (4,), (4, 4, 2), (3, 4, 5), (1, 4, 4, 3), (0, 4), (4, 0, 3)])
def test_array_shapes_that_are_no_image(shape: tuple[int, ...]) -> None:
    with pytest.raises(Misuse, match=r"is no image\. Give height x width"):
        read_image(np.zeros(shape, np.uint8))


def test_other_types() -> None:
    with pytest.raises(Misuse, match=r"cannot be read from list\. Give a path, a Pillow image"):
        read_image([[0, 1]])  # type: ignore[arg-type]


def test_images_are_found_in_order_and_hidden_ones_skipped(tmp_path: Path) -> None:
    for name in (
        "b/2.png",
        "b/deep/er/1.JPG",
        "a.png",
        "b.png",
        ".hidden.png",
        ".cache/x.png",
        "b/notes.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "self.png").symlink_to(tmp_path / "self.png")
    images = [path.relative_to(tmp_path).as_posix() for path in find_images(tmp_path)]
    assert images == ["a.png", "b.png", "b/2.png", "b/deep/er/1.JPG"]


def test_link_loops_end_and_links_elsewhere_are_followed(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    (folder / "sub").mkdir(parents=True)
    elsewhere.mkdir()
    (folder / "sub/a.png").write_bytes(b"")
    (elsewhere / "b.png").write_bytes(b"")
    (folder / "sub/up").symlink_to(folder)
    (folder / "sub/here").symlink_to(folder / "sub")
    (folder / "more").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(folder)
    images = [path.relative_to(folder).as_posix() for path in find_images(folder)]
    assert images == ["more/b.png", "sub/a.png"]


def test_a_folder_that_cannot_be_listed_is_not_skipped_silently(tmp_path: Path) -> None:
    with pytest.raises(Failure, match=r"cannot list the folder .*missing.*Make it readable or move it away\."):
        find_images(tmp_path / "missing")


@settings(max_examples=60, deadline=None)
@given(kind=st.sampled_from(["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF"]), changes=st.data())
def test_damaged_bytes_give_an_image_or_the_one_error(
    tmp_path_factory: pytest.TempPathFactory, kind: str, changes: st.DataObject
) -> None:
    data = bytearray(encoded(noise(24, 24), kind))
    for _ in range(changes.draw(st.integers(1, 8))):
        data[changes.draw(st.integers(0, len(data) - 1))] = changes.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.img"
    path.write_bytes(data)
    try:
        assert read_image(path).mode == "RGB"
    except UnreadableImage as problem:
        assert problem.reason


# memory


def test_all_threads_share_one_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these images takes more than half of the budget, so only one of them is decoded at a time."""
    files = [saved(tmp_path / f"{i}.png", noise()) for i in range(8)]
    monkeypatch.setattr(image_file, "MEMORY", Budget(64 * 64 * 12))
    lock, decoding, most = threading.Lock(), 0, 0

    def to_rgb(image: Image.Image, turn: Any) -> Image.Image:
        nonlocal decoding, most
        with lock:
            decoding += 1
            most = max(most, decoding)
        time.sleep(0.005)  # gives other threads the time to do wrong
        with lock:
            decoding -= 1
        return image.convert("RGB")

    monkeypatch.setattr(image_file, "to_rgb", to_rgb)
    assert list(in_threads(check_image, files, files, n_threads=4)) == [None] * 8
    assert most == 1


def test_the_share_is_held_while_the_image_is_used(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.png", noise())
    with decoded(path, "a") as (image, size):
        assert image_file.MEMORY.used == 64 * 64 * 8
        assert (image.size, size) == ((64, 64), (64, 64))
    assert image_file.MEMORY.used == 0
    with pytest.raises(ZeroDivisionError), decoded(path, "a"):
        1 / 0  # noqa: B018
    assert image_file.MEMORY.used == 0
    read_image(path)
    assert image_file.MEMORY.used == 0


@pytest.mark.parametrize(
    ("kind", "mode", "options", "per_pixel"),
    [
        ("PNG", "L", {}, 5),
        ("PNG", "I;16", {}, 6),
        ("PNG", "RGBA", {}, 8),
        ("JPEG", "RGB", {}, 8),
        ("JPEG", "RGB", {"progressive": True}, 14),
        ("WEBP", "RGB", {}, 20),
    ],
)
def test_the_share_of_an_image(tmp_path: Path, kind: str, mode: str, options: dict[str, Any], per_pixel: int) -> None:
    path = tmp_path / "a"
    path.write_bytes(encoded(Image.new(mode, (64, 64)), kind, **options))
    with decoded(path, "a"):
        assert image_file.MEMORY.used == 64 * 64 * per_pixel


def test_the_share_of_a_reduced_jpeg_is_smaller(tmp_path: Path) -> None:
    with decoded(saved(tmp_path / "a.jpg", noise()), "a", least=8):
        assert image_file.MEMORY.used == 8 * 8 * 8


def test_too_little_memory_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError

    path = saved(tmp_path / "a.png", noise(3, 4))
    said = r"^cannot read the image a: not enough memory \(4 x 3 pixels\)\."
    with pytest.raises(UnreadableImage, match=said), decoded(path, "a"):
        raise MemoryError
    monkeypatch.setattr(image_file, "to_rgb", no_memory)
    assert reason_of(path) == "not enough memory (4 x 3 pixels)"
    with pytest.raises(UnreadableImage, match="in memory: not enough memory"):
        read_image(noise(3, 4))


LIMITED = """
import resource, sys
from pathlib import Path
from sptnet.data.image_file import check_image, read_array, read_image

path, megabytes = Path(sys.argv[1]), int(sys.argv[2])
check_image(path.with_name("small.png"), "small")  # all modules that decoding needs are loaded
in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = in_use + megabytes * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
problem = check_image(path, "big.png")
print(problem.reason if problem else (read_image(path).size, read_array(path).shape))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and other systems do not enforce the limit")
@pytest.mark.parametrize(
    ("megabytes", "said"), [(160, "((4000, 4000), (4000, 4000, 3))"), (60, "not enough memory (4000 x 4000 pixels)")]
)
def test_a_sixteen_bit_image_takes_six_bytes_per_pixel(tmp_path: Path, megabytes: int, said: str) -> None:
    """16 million pixels: 32 MB as stored and 64 MB as RGB. Double precision would take 512 MB."""
    saved(tmp_path / "small.png", Image.new("I;16", (2, 2)))
    path = saved(tmp_path / "big.png", Image.new("I;16", (4000, 4000)), compress_level=1)
    words = [sys.executable, "-c", LIMITED, str(path), str(megabytes)]
    answer = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert (answer.stdout.strip(), answer.stderr) == (said, "")


def test_no_memory_for_a_thread_is_told_as_such(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("threading.Thread.start", refuse)
    with pytest.raises(MemoryError, match="can't start new thread"):
        list(in_threads(str, [1, 2]))


@pytest.mark.parametrize("size", [(3000, 1), (1, 3000), (10020, 20)])
def test_an_image_like_a_thread_is_unreadable(tmp_path: Path, size: tuple[int, int]) -> None:
    """With its short side enlarged to that of a view, it would fill the memory."""
    path = tmp_path / "thread.png"
    Image.new("RGB", size).save(path)
    reason = f"too elongated ({size[0]} x {size[1]} pixels; at most 500 : 1)"
    problem = check_image(path, "thread.png")
    assert problem is not None and problem.reason == reason
    for source in (path, Image.new("RGB", size), np.zeros((size[1], size[0]), np.uint8)):
        with pytest.raises(UnreadableImage, match=re.escape(reason)):
            read_image(source)


@pytest.mark.parametrize("size", [(10000, 20), (1, 500), (1, 1)])
def test_a_long_image_is_read(tmp_path: Path, size: tuple[int, int]) -> None:
    Image.new("RGB", size).save(tmp_path / "long.png")
    assert check_image(tmp_path / "long.png", "long.png") is None
    assert read_image(tmp_path / "long.png").size == size


def test_memory_that_torch_does_not_get_is_a_reason() -> None:
    says = "[enforce fail at alloc_cpu.cpp] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 7 bytes"
    with pytest.raises(UnreadableImage, match=r"not enough memory \(3 x 4 pixels\)"), not_enough_memory("a", (3, 4)):
        raise RuntimeError(says)
    with pytest.raises(RuntimeError, match="something else"), not_enough_memory("a", (3, 4)):
        raise RuntimeError("something else")
