"""Names of categories, and contact sheets."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from sptnet.data.image_set import ImageSet
from sptnet.results.categories import category_names
from sptnet.results.contact_sheets import MOST, PER_ROW, TILE, contact_sheet, safe_file_name, write_contact_sheets


def image_set_of(ids: tuple[str, ...]) -> ImageSet:
    """Image number i is all of grey level i."""
    n = len(ids)
    sources = tuple(np.full((4, 4), i, np.uint8) for i in range(n))
    return ImageSet("p", ids, sources, (), np.full(n, -1, np.int64), None, np.zeros(n, np.bool_))


def answers(categories: list[int], certainty: list[float]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(categories, np.int64), np.array(certainty, np.float32)


def test_new_categories_are_numbered_after_the_known_ones() -> None:
    assert category_names(("cat", "dog"), 4) == ("cat", "dog", "new-1", "new-2")
    assert category_names(("cat", "dog"), 2) == ("cat", "dog")


def test_new_names_avoid_known_ones() -> None:
    assert category_names(("new-1", "cat"), 4) == ("new-1", "cat", "new-2", "new-3")
    assert category_names(("new-2", "new-1"), 4) == ("new-2", "new-1", "new-3", "new-4")


@given(st.lists(st.integers(1, 9), unique=True), st.integers(0, 9))
def test_names_are_as_many_as_asked_and_never_repeat(taken: list[int], new: int) -> None:
    known = tuple(f"new-{i}" for i in taken)
    names = category_names(known, len(known) + new)
    assert names[: len(known)] == known
    assert len(set(names)) == len(names) == len(known) + new


def test_the_most_certain_images_come_first_and_empty_categories_have_no_picture(tmp_path: Path) -> None:
    image_set = image_set_of(("a", "b", "c", "d"))
    result = answers([2, 2, 0, 2], [0.3, 0.9, 0.5, 0.6])
    written = write_contact_sheets(tmp_path / "c", image_set, ("cat", "dog", "new-1"), *result)
    assert [path.name for path in written] == ["000-cat.png", "002-new-1.png"]
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["000-cat.png", "002-new-1.png"]
    with Image.open(written[1]) as sheet:
        shown = [sheet.convert("RGB").getpixel((i * (TILE + 2) + TILE // 2, TILE // 2)) for i in range(4)]
    assert shown == [(1, 1, 1), (3, 3, 3), (0, 0, 0), (255, 255, 255)]


@pytest.mark.parametrize(("n", "rows"), [(1, 1), (PER_ROW, 1), (PER_ROW + 1, 2)])
def test_a_sheet_has_as_many_rows_as_it_needs(n: int, rows: int) -> None:
    image_set = image_set_of(tuple(map(str, range(n))))
    assert contact_sheet(image_set, np.arange(n)).size == (PER_ROW * (TILE + 2), rows * (TILE + 2))


def test_a_sheet_shows_a_limited_number_of_images(tmp_path: Path) -> None:
    n = MOST + 5
    image_set = image_set_of(tuple(map(str, range(n))))
    (path,) = write_contact_sheets(tmp_path, image_set, ("cat",), *answers([0] * n, [1.0] * n))
    with Image.open(path) as sheet:
        assert sheet.height == MOST // PER_ROW * (TILE + 2)


@pytest.mark.parametrize("name", ["a/b", "..", "a\\b", "x:y", "new\nline", "x" * 300, "日本"])
def test_pictures_stay_in_their_folder_whatever_a_category_is_called(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "c"
    (path,) = write_contact_sheets(folder, image_set_of(("a",)), (name,), *answers([0], [1.0]))
    assert path.parent == folder
    assert list(folder.iterdir()) == [path]
    assert "\n" not in safe_file_name(name)
