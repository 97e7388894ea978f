"""Images as they were named: in folders, one by one, in a list; each once, in an order that stays, in little memory."""

import hashlib
import os
import sys
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from sptnet.data.listing import list_folder, walk
from sptnet.errors import Misuse
from sptnet.inference.bulk.image_list import named_images
from sptnet.inference.bulk.packed_paths import BLOCK, PackedPaths
from sptnet.runtime import progress

NAMES = st.text("ab./ -", min_size=1, max_size=8).map(lambda name: name.strip("/").replace("//", "/"))


def make(root: Path, *names: str) -> list[Path]:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    return [root / name for name in names]


# --- packed paths -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_packed_paths_are_a_list_of_paths(n: int) -> None:
    paths = [Path(f"pile/folder {i // 100}/ö{i}.png") for i in range(n)]
    packed = PackedPaths(iter(paths))
    assert (len(packed), list(packed), packed[:]) == (n, paths, paths)
    assert [packed[i] for i in range(n)] == paths
    for part in (slice(5, 9), slice(BLOCK - 2, BLOCK + 2), slice(-3, None), slice(None, None, 700), slice(9, 2)):
        assert packed[part] == paths[part]
    with pytest.raises(IndexError):
        packed[n]


def test_the_digest_is_of_all_names_in_their_order() -> None:
    names = [f"{i}.png" for i in range(BLOCK + 3)]
    expected = hashlib.sha256("".join(f"{name}\0" for name in names).encode()).hexdigest()
    assert PackedPaths(map(Path, names)).digest == expected
    assert PackedPaths(map(Path, names[::-1])).digest != expected


@pytest.mark.skipif(sys.platform == "win32", reason="names are no bytes there")
def test_names_that_are_no_text_stay_as_they_are() -> None:
    odd = Path(os.fsdecode(b"\xff\xfe \n.png"))
    assert list(PackedPaths([odd, Path("a.png")])) == [odd, Path("a.png")]


@pytest.mark.parametrize(("name", "most"), [("2024-{month}/IMG_{i:08d}.jpg", 4), ("{digest}.jpg", 24)])
def test_a_packed_path_takes_a_few_bytes(name: str, most: int) -> None:
    """As a plain list of paths it would be hundreds."""
    names = (
        name.format(month=i // 300 % 12, i=i, digest=hashlib.md5(b"%d" % i).hexdigest()) for i in range(10 * BLOCK)
    )
    packed = PackedPaths(Path("/data/photos/camera-7", name) for name in names)
    assert packed.bytes_taken < most * len(packed)


# --- the order of a folder --------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(NAMES, max_size=12))
def test_a_folder_is_walked_in_the_order_of_its_paths(
    names: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("walked")
    for name in names:
        path = root / f"{name}.png"
        if not any(part in (".", "..") for part in f"{name}.png".split("/")):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.is_dir() or path.write_bytes(b"")
    found = [path.relative_to(root) for path in list_folder(root).images]
    below = [path.relative_to(root) for path in root.rglob("*") if path.is_file()]
    visible = [path for path in below if not any(part.startswith(".") for part in path.parts)]
    assert [path.as_posix() for path in found] == sorted(path.as_posix() for path in visible)


def test_a_walk_tells_what_it_passes_over(tmp_path: Path) -> None:
    make(tmp_path, "b/1.png", "b.png", "b-1.JPG", ".hidden/2.png", "notes.txt", ".3.png")
    kinds = [(kind, path.relative_to(tmp_path).as_posix()) for kind, path in walk(tmp_path)]
    assert kinds == [
        ("hidden", ".3.png"),
        ("hidden", ".hidden"),
        ("image", "b-1.JPG"),
        ("image", "b.png"),
        ("image", "b/1.png"),
        ("other", "notes.txt"),
    ]


def test_a_terminal_shows_how_many_were_found(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(file=StringIO(), force_terminal=True, width=60)
    monkeypatch.setattr(progress, "console", screen)
    items = progress.counted("finding images", range(2500))
    seen = []
    for item in items:
        seen.append(item)
        if item == 2400:
            screen.print("here")  # what the screen shows is drawn again below it
    assert seen == list(range(2500))
    assert "finding images: 2,000" in screen.file.getvalue()  # type: ignore[attr-defined]


# --- what was named ---------------------------------------------------------------------------------------------------


def test_files_and_folders_come_in_the_order_they_were_named(tmp_path: Path) -> None:
    two, one, three = make(tmp_path, "z/2.png", "a/1.png", "a/3.png")
    assert list(named_images([two, tmp_path / "a"])) == [two, one, three]
    assert list(named_images([tmp_path])) == [one, three, two]


def test_what_is_named_twice_is_found_once(tmp_path: Path) -> None:
    a, b, hidden, odd = make(tmp_path, "a.png", "deep/b.png", ".c.png", "picture")
    everything = [tmp_path, a, tmp_path / "deep", a, b]
    assert list(named_images(everything)) == [a, b]
    assert list(named_images(everything[::-1])) == [b, a], "where it is named first"
    assert list(named_images([tmp_path / "deep", tmp_path])) == [b, a]
    assert list(named_images([tmp_path, hidden, odd])) == [a, b, hidden, odd], "looking through the folder misses them"
    assert list(named_images([a, a])) == [a]


def test_a_list_is_taken_as_it_stands(tmp_path: Path) -> None:
    a, b = make(tmp_path, "a.png", "b.png")
    (tmp_path / "list.txt").write_bytes(f"{b}\r\n\n{tmp_path}/none.png\n{a}".encode())
    listed = [b, tmp_path / "none.png", a]
    assert list(named_images([], tmp_path / "list.txt")) == listed
    assert list(named_images([a], tmp_path / "list.txt")) == [a, *listed]


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(Misuse, match=r"there is no .*nowhere\. Give image files or folders of images\."):
        named_images([tmp_path / "nowhere"])
    with pytest.raises(Misuse, match=r"there is no .*nowhere\.txt\."):
        named_images([tmp_path], tmp_path / "nowhere.txt")
    with pytest.raises(Misuse, match=r"empty\.txt names no image\. Give a text file with one path a line\."):
        named_images([], tmp_path / "empty.txt")
    with pytest.raises(Misuse, match=r"no images found in .*/\. Give a folder that holds JPEG, PNG"):
        named_images([tmp_path])
