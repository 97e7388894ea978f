"""Lists of images given as files, folders and list files: each image once, in a stable order."""

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
from sptnet.runtime import progress

NAMES = st.text("ab./ -", min_size=1, max_size=8).map(lambda name: name.strip("/").replace("//", "/"))


def make(root: Path, *names: str) -> list[Path]:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    return [root / name for name in names]


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


def test_a_walk_reports_everything_it_skips(tmp_path: Path) -> None:
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
            screen.print("text")  # makes the status line be drawn again
    assert seen == list(range(2500))
    assert "finding images: 2,000" in screen.file.getvalue()  # type: ignore[attr-defined]


# --- the list ---------------------------------------------------------------------------------------------------------


def found(paths: list[Path], list_file: Path | None = None) -> list[Path]:
    return [Path(path) for path in named_images(paths, list_file).paths]


def test_files_and_folders_keep_the_order_they_are_given_in(tmp_path: Path) -> None:
    two, one, three = make(tmp_path, "z/2.png", "a/1.png", "a/3.png")
    assert found([two, tmp_path / "a"]) == [two, one, three]
    assert found([tmp_path]) == [one, three, two]


def test_an_image_given_twice_is_listed_once(tmp_path: Path) -> None:
    a, b, hidden, odd = make(tmp_path, "a.png", "deep/b.png", ".c.png", "picture")
    everything = [tmp_path, a, tmp_path / "deep", a, b]
    assert found(everything) == [a, b]
    assert found(everything[::-1]) == [b, a], "at its first position"
    assert found([tmp_path / "deep", tmp_path]) == [b, a]
    assert found([tmp_path, hidden, odd]) == [a, b, hidden, odd], "walking the folder does not list them"
    assert found([a, a]) == [a]


def test_a_list_file_is_taken_as_it_is(tmp_path: Path) -> None:
    a, b = make(tmp_path, "a.png", "b.png")
    (tmp_path / "list.txt").write_bytes(f"{b}\r\n\n{tmp_path}/none.png\n{a}".encode())
    listed = [b, tmp_path / "none.png", a]
    assert found([], tmp_path / "list.txt") == listed
    assert found([a], tmp_path / "list.txt") == [a, *listed]


def test_the_digest_is_of_all_paths_in_their_order(tmp_path: Path) -> None:
    a, b = make(tmp_path, "a.png", "b.png")
    expected = hashlib.sha256(f"{a}\0{b}\0".encode()).hexdigest()
    assert named_images([a, b]).digest == named_images([tmp_path]).digest == expected
    assert named_images([b, a]).digest != expected


@pytest.mark.skipif(sys.platform == "win32", reason="file names are no bytes on Windows")
def test_names_that_are_not_utf_8_are_kept(tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/\xff\xfe.png"
    (tmp_path / "list.txt").write_bytes(odd + b"\n")
    listed = named_images([], tmp_path / "list.txt")
    assert [os.fsencode(path) for path in listed.paths] == [odd]
    assert listed.digest == hashlib.sha256(odd + b"\0").hexdigest()


def test_missing_images_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(Misuse) as error:
        named_images([])
    assert str(error.value) == (
        "no images given. Give images, folders of images, or a list of them with `list_file=FILE`."
    )
    with pytest.raises(Misuse, match=r"there is no .*nowhere\. Give image files or folders of images\."):
        named_images([tmp_path / "nowhere"])
    with pytest.raises(Misuse, match=r"there is no .*nowhere\.txt\."):
        named_images([tmp_path], tmp_path / "nowhere.txt")
    with pytest.raises(Misuse, match=r"empty\.txt names no image\. Give a text file with one path per line\."):
        named_images([], tmp_path / "empty.txt")
    with pytest.raises(Misuse, match=r"no images found in .*/\. Give a folder that holds JPEG, PNG"):
        named_images([tmp_path])
