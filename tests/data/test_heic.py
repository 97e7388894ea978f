"""HEIC files: read with pillow-heif, skipped with a message without it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sptnet.data.folder import read_folder
from sptnet.data.heic import can_read_heic, skipped_message
from sptnet.data.image_file import UnreadableImage, check_image, find_images, read_image, read_reduced
from sptnet.data.listing import list_folder
from sptnet.errors import Misuse

HEAD = b"\0\0\0\x1cftypheic\0\0\0\0mif1heic"


@pytest.fixture
def heif() -> Any:
    return pytest.importorskip("pillow_heif")


@pytest.fixture
def without_heif(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)


def halves() -> Image.Image:
    """Red on the left, blue on the right."""
    image = Image.new("RGB", (128, 64), "blue")
    image.paste("red", (0, 0, 64, 64))
    return image


def saved(path: Path, heif: Any, *images: Image.Image, **options: Any) -> Path:
    file = heif.from_pillow(images[0])
    for image in images[1:]:
        file.add_from_pillow(image)
    if "thumbnail" in options:
        file[0].info["thumbnails"] = [options.pop("thumbnail")]
    file.save(path, quality=95, **options)
    return path


def colour(image: Image.Image, x: int, y: int) -> str:
    assert image.mode == "RGB"
    values = np.asarray(image)[y, x].astype(int)
    return "red" if values[0] > values[2] + 150 else "blue" if values[2] > values[0] + 150 else str(values)


@pytest.mark.parametrize("name", ["a.heic", "a.HEIF", "a.jpg"])
def test_a_heic_file_is_read_whatever_its_name(tmp_path: Path, heif: Any, name: str) -> None:
    path = saved(tmp_path / name, heif, halves())
    image = read_image(path)
    assert (image.size, colour(image, 5, 30), colour(image, 120, 30)) == ((128, 64), "red", "blue")
    assert check_image(path, "a") is None
    assert find_images(tmp_path) == [path]
    assert read_folder(tmp_path).ids == (name,)


def test_a_heic_file_is_turned_once(tmp_path: Path, heif: Any) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    image = read_image(saved(tmp_path / "a.heic", heif, halves(), exif=exif.tobytes()))
    assert (image.size, colour(image, 30, 5), colour(image, 30, 120)) == ((64, 128), "red", "blue")


def test_of_several_pictures_the_primary_one_is_read(tmp_path: Path, heif: Any) -> None:
    path = saved(tmp_path / "a.heic", heif, halves(), Image.new("RGB", (64, 64), "red"), primary_index=1)
    assert read_image(path).size == (64, 64)


def test_a_reduced_image_is_not_the_preview(tmp_path: Path, heif: Any) -> None:
    path = saved(tmp_path / "a.heic", heif, halves(), thumbnail=64)
    assert heif.open_heif(path).info["thumbnails"] == [64]
    image, size = read_reduced(path, "a")
    assert (image.size, size) == ((128, 64), (128, 64))


def test_damaged_heic_files(tmp_path: Path, heif: Any) -> None:
    path = saved(tmp_path / "a.heic", heif, halves())
    data = path.read_bytes()
    path.write_bytes(data[:-10])
    with pytest.raises(UnreadableImage, match="truncated"):
        read_image(path)
    path.write_bytes(HEAD + bytes(200))
    with pytest.raises(UnreadableImage, match="a damaged HEIC file"):
        read_image(path)


def test_whatever_a_decoder_raises_makes_the_image_unreadable() -> None:
    class Broken(Image.Image):
        def load(self) -> None:
            raise RuntimeError("no decoder")

    with pytest.raises(UnreadableImage) as caught:
        read_image(Broken())
    assert caught.value.reason == "damaged (RuntimeError('no decoder'))"


def test_pillow_learns_the_format_with_the_first_such_file(tmp_path: Path, heif: Any) -> None:
    heic = saved(tmp_path / "a.heic", heif, halves())
    png = tmp_path / "b.png"
    halves().save(png)
    program = """if True:
        import sys
        from PIL import Image
        from sptnet.data.image_file import find_images, read_image
        find_images(__import__("pathlib").Path(sys.argv[1]).parent)
        for file in sys.argv[1:]:
            read_image(file)
            print("pillow_heif" in sys.modules, "HEIF" in Image.OPEN)
    """
    done = subprocess.run([sys.executable, "-c", program, png, heic], capture_output=True, text=True, timeout=120)
    assert (done.stdout.split(), done.stderr) == (["False", "False", "True", "True"], "")


# --- without pillow-heif ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_heif")
def test_files_that_cannot_be_read_are_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not can_read_heic()
    for name in ("a.heic", "cat/b.HEIC", "cat/c.heif", ".d.heic"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(HEAD)
    halves().save(tmp_path / "cat/1.png")
    message = "3 HEIC files were left out: install sptnet[heic] to read them"
    messages: list[str] = []
    assert find_images(tmp_path, messages.append) == [tmp_path / "cat/1.png"]
    assert read_folder(tmp_path, tell=messages.append).ids == ("cat/1.png",)
    assert messages == [message, message]
    assert read_folder(tmp_path).ids == ("cat/1.png",)
    assert capsys.readouterr().err == f"{message}\n"
    listing = list_folder(tmp_path)
    assert (len(listing.heic), listing.others, listing.hidden) == (3, 0, 1)


def test_one_file_left_out_is_one_file() -> None:
    assert skipped_message([Path("a.heic")]) == "1 HEIC file was left out: install sptnet[heic] to read it"


@pytest.mark.usefixtures("without_heif")
def test_a_folder_of_nothing_else_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a.heic").write_bytes(HEAD)
    with pytest.raises(Misuse, match=r"the only images in .*/ are HEIC files\. Install sptnet\[heic\] to read them\."):
        read_folder(tmp_path)


@pytest.mark.usefixtures("without_heif")
def test_a_file_given_by_name_says_what_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(HEAD + bytes(50))
    with pytest.raises(UnreadableImage) as caught:
        read_image(path)
    assert caught.value.reason == "a HEIC file, which needs sptnet[heic]"
    path.write_bytes(HEAD.replace(b"heic", b"qt  "))
    with pytest.raises(UnreadableImage, match="not an image"):
        read_image(path)
