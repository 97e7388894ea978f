"""Duplicate images: equal bytes and equal looks."""

import io
import time
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance

from sptnet.data.check import duplicates
from sptnet.data.check.duplicates import (
    SIDE,
    alike,
    alike_groups,
    beyond,
    close_pairs,
    look_hashes,
    originals,
    same_bytes,
    same_look,
    thumbnail,
)
from sptnet.data.image_file import UnreadableImage

Shape = tuple[int, int]


def picture(seed: int, size: Shape = (240, 180), details: Shape = (12, 9)) -> Image.Image:
    """Image of smooth random colours."""
    random = np.random.default_rng(seed)
    blots = random.integers(0, 256, (*details[::-1], 3), dtype=np.uint8)
    return Image.fromarray(blots).resize(size, Image.Resampling.BICUBIC)


def as_jpeg(image: Image.Image, quality: int) -> Image.Image:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return Image.open(stream).convert("RGB")


def thumbnails(*images: Image.Image) -> np.ndarray:
    return np.stack([thumbnail(image) for image in images])


def no_display(items: Iterable[Any], total: int) -> Iterable[Any]:
    return items


# --- by looks ---------------------------------------------------------------------------------------------------------


def test_a_thumbnail_is_the_whole_picture() -> None:
    image = Image.new("RGB", (64, 32), "blue")
    image.paste("red", (0, 0, 32, 32))
    small = thumbnail(image)
    assert (small.shape, small.dtype) == ((SIDE, SIDE, 3), np.uint8)
    assert (small[:, :8] == (255, 0, 0)).all() and (small[:, 8:] == (0, 0, 255)).all()
    assert (thumbnail(Image.new("RGB", (1, 3), "red")) == (255, 0, 0)).all()


@pytest.mark.parametrize(
    ("down", "across", "byte", "bit"),
    [(0, 1, 0, 128), (1, 0, 0, 64), (1, 1, 0, 32), (0, 2, 0, 16), (2, 0, 0, 8), (1, 2, 0, 4), (2, 2, 1, 64)],
)
def test_each_bit_is_the_sign_of_one_frequency(down: int, across: int, byte: int, bit: int) -> None:
    rows, columns = (np.cos(np.pi * f * (np.arange(SIDE) + 0.5) / SIDE) for f in (down, across))
    wave = np.outer(rows, columns)[..., None].repeat(3, axis=2)
    both = np.stack([np.rint(128 + sign * 100 * wave).astype(np.uint8) for sign in (1, -1)])
    hashes = look_hashes(both)
    assert hashes.dtype == np.uint64
    assert (hashes.view(np.uint8).reshape(2, 8)[:, byte] & bit).tolist() == [bit, 0]


def test_bits_do_not_depend_on_brightness_or_contrast() -> None:
    image = picture(0)
    darker = ImageEnhance.Contrast(ImageEnhance.Brightness(image).enhance(0.8)).enhance(0.7)
    first, second = look_hashes(thumbnails(image, darker)).tolist()
    assert (first ^ second).bit_count() <= 2
    assert look_hashes(np.full((3, SIDE, SIDE, 3), 77, np.uint8)).tolist() == [0, 0, 0]
    assert look_hashes(np.empty((0, SIDE, SIDE, 3), np.uint8)).tolist() == []


@settings(max_examples=40, deadline=None)
@given(
    centre=st.integers(0, 2**64 - 1),
    flips=st.lists(st.sets(st.integers(0, 63), max_size=9), max_size=12),
    most=st.integers(0, 7),
)
def test_close_pairs_are_all_those_within_the_distance(centre: int, flips: list[set[int]], most: int) -> None:
    hashes = [centre ^ sum(1 << bit for bit in bits) for bits in flips]
    pairs_found = [
        tuple(sorted(pair)) for pairs in close_pairs(np.array(hashes, np.uint64), most) for pair in pairs.tolist()
    ]
    expected = [(i, j) for i, j in combinations(range(len(hashes)), 2) if (hashes[i] ^ hashes[j]).bit_count() <= most]
    assert sorted(pairs_found) == expected


@pytest.mark.parametrize("seed", range(8))
def test_copies_saved_again_look_the_same(seed: int) -> None:
    image = picture(seed)
    copies = [
        as_jpeg(image, 50),
        image.resize((120, 90), Image.Resampling.LANCZOS),
        as_jpeg(image.resize((400, 300), Image.Resampling.BICUBIC), 80),
        ImageEnhance.Brightness(image).enhance(1.1),
        image.crop((2, 1, 239, 179)),
    ]
    assert alike_groups(thumbnails(image, *copies)).tolist() == [0] * 6


def test_other_pictures_do_not() -> None:
    image = picture(0)
    others = [
        image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        image.rotate(90, expand=True),
        *map(picture, range(1, 40)),
    ]
    swapped = Image.merge("RGB", image.split()[::-1])
    assert len(set(alike_groups(thumbnails(image, swapped, *others)).tolist())) == 2 + len(others)


def test_plain_surfaces_are_distinguished_by_colour() -> None:
    colours = ["white", "black", "white", (250, 250, 250), "red", (0, 130, 0), (250, 0, 0), (128, 128, 128)]
    plain = thumbnails(*(Image.new("RGB", (40, 40), colour) for colour in colours))
    groups = alike_groups(plain).tolist()
    assert groups[0] == groups[2] == groups[3] and groups[4] == groups[6]
    assert len(set(groups)) == 5
    noisy = plain[:1] - np.random.default_rng(0).integers(0, 2, (20, SIDE, SIDE, 3), dtype=np.uint8)
    assert set(alike_groups(noisy).tolist()) == {0}


def test_the_same_shapes_in_other_colours_are_not_alike() -> None:
    image = np.asarray(picture(3))
    grey = Image.fromarray(image).convert("L").convert("RGB")
    a, b = thumbnails(Image.fromarray(image)), thumbnails(grey)
    assert alike(a, a).tolist() == [True]
    assert alike(a, b).tolist() == [False]
    assert alike(a, 255 - a).tolist() == [False]


def test_alike_by_way_of_another() -> None:
    """The first and the last image differ too much, but those between them connect the two."""
    start, end = (np.asarray(picture(seed), np.float64) for seed in (0, 1))
    film = [Image.fromarray(np.rint(start + (end - start) * t).astype(np.uint8)) for t in np.linspace(0, 1, 60)]
    whole = thumbnails(*film)
    assert not alike(whole[:1], whole[-1:])[0]
    assert len(set(alike_groups(whole).tolist())) == 1
    assert len(set(alike_groups(whole[[0, -1]]).tolist())) == 2


def test_ten_thousand_images_take_seconds() -> None:
    random = np.random.default_rng(0)
    many = random.integers(0, 256, (10_000, SIDE, SIDE, 3), dtype=np.uint8)
    many[9_000:9_500] = many[:500] // 2 + 60
    many[9_500:] = 255
    start = time.process_time()
    groups = alike_groups(many)
    assert time.process_time() - start < 10
    assert np.array_equal(groups[9_000:9_500], groups[:500])
    assert len(set(groups.tolist())) == 9_001


def test_groups_that_only_repeat_the_same_files_are_not_named_again() -> None:
    a, b, c = picture(0), picture(1), picture(2)
    again = as_jpeg(b, 60)
    looks = thumbnails(a, a, b, b, again, c)
    assert same_look(looks) == [(0, 1), (2, 3, 4)]
    assert beyond(same_look(looks), [(0, 1), (2, 3)]) == [(2, 3, 4)]
    assert same_look(looks[:0]) == []


def test_an_original_resembles_its_duplicates_itself() -> None:
    start, end = (np.asarray(picture(seed), np.float64) for seed in (0, 1))
    film = [Image.fromarray(np.rint(start + (end - start) * t).astype(np.uint8)) for t in np.linspace(0, 1, 60)]
    whole = thumbnails(*film)
    (group,) = same_look(whole)
    found = originals(whole, [group], [0] * 60)
    assert found[0] == 0 and 2 < len(set(found.tolist())) < 30
    assert alike(whole, whole[found]).all()
    assert (found[found] == found).all(), "an original is no duplicate"
    last_first = originals(whole, [group], list(range(60))[::-1])
    assert last_first[59] == 59 and last_first[58] == 59


def test_images_of_lower_rank_are_the_originals() -> None:
    a, b = picture(0), picture(1)
    looks = thumbnails(a, a, b, as_jpeg(a, 70), b)
    groups = same_look(looks)
    assert originals(looks, groups, [0] * 5).tolist() == [0, 0, 2, 0, 2]
    assert originals(looks, groups, [2, 1, 1, 0, 0]).tolist() == [3, 3, 4, 3, 4]
    assert originals(looks, [], [0] * 5).tolist() == [0, 1, 2, 3, 4]


def test_the_search_shows_progress() -> None:
    totals: list[int] = []

    def track(items: Iterable[Any], total: int) -> Iterable[Any]:
        totals.append(total)
        return items

    looks = thumbnails(picture(0), picture(0), picture(1))
    assert same_look(looks, track) == [(0, 1)]
    assert totals == [8], "one step per byte of the hashes"


# --- by bytes ---------------------------------------------------------------------------------------------------------


def written(folder: Path, *contents: bytes) -> tuple[list[Path], list[str], list[int]]:
    files = [folder / f"{i}.png" for i in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    return files, [file.name for file in files], [len(content) for content in contents]


def test_files_with_the_same_bytes_are_grouped(tmp_path: Path) -> None:
    files = written(tmp_path, b"aa", b"bb", b"c", b"bb", b"aa", b"dddd", b"bb")
    assert same_bytes(*files, no_display) == [(0, 4), (1, 3, 6)]
    assert same_bytes([], [], [], no_display) == []


def test_only_files_of_equal_size_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    digest = duplicates.file_digest

    def noted(file: Path, name: str) -> bytes:
        read.append(name)
        return digest(file, name)

    monkeypatch.setattr(duplicates, "file_digest", noted)
    totals: list[int] = []

    def track(items: Iterable[Any], total: int) -> Iterable[Any]:
        totals.append(total)
        return items

    assert same_bytes(*written(tmp_path, b"aa", b"b", b"cc", b"ddd"), track) == []
    assert (sorted(read), totals) == (["0.png", "2.png"], [2])


def test_a_file_that_vanishes_is_named(tmp_path: Path) -> None:
    files, names, sizes = written(tmp_path, b"aa", b"aa")
    files[1].unlink()
    with pytest.raises(UnreadableImage, match=r"cannot read the image 1\.png: file not found"):
        same_bytes(files, names, sizes, no_display)
