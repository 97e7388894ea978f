"""Folder layout of data sets: the root, list files, class folders and required images."""

import os
import re
from pathlib import Path

import pytest

from helpers.benchmark_trees import lines, pictures
from sptnet.data.benchmarks.layout import ListedImage, Tree, image_set_of
from sptnet.errors import Failure, Misuse


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path, "Get it there.")


def test_the_folder_itself_or_one_inside_it_is_found(tmp_path: Path) -> None:
    lines(tmp_path / "outer" / "Set" / "list.txt", "a")
    for folder in ("outer", "outer/Set"):
        assert Tree.find(tmp_path / folder, ["list.txt"], ["Set"], "").root == tmp_path / "outer/Set"


def test_a_missing_root_is_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=rf"^there is no folder {tmp_path}/none\. Get it there\.$"):
        Tree.find(tmp_path / "none", ["list.txt"], ["Set"], "Get it there.")


def test_another_folder_is_refused(tmp_path: Path) -> None:
    message = rf"^{tmp_path} has no a\.txt and no b\.txt, nor has Set or More inside it\. Get it there\.$"
    with pytest.raises(Misuse, match=message):
        Tree.find(tmp_path, ["a.txt", "b.txt"], ["Set", "More"], "Get it there.")


def test_pairs_are_split_at_the_first_space(tree: Tree) -> None:
    lines(tree.root / "list.txt", "1 Boeing 717", "", "2   x ")
    assert tree.pairs("list.txt") == [("1", "Boeing 717"), ("2", "x")]


def test_a_damaged_line_is_shown(tree: Tree) -> None:
    lines(tree.root / "list.txt", "1 a", "2")
    with pytest.raises(Failure, match=r"list\.txt has a damaged line, '2'\. Fetch it again: Get it there\.$"):
        tree.pairs("list.txt")


def test_a_missing_list_is_named(tree: Tree) -> None:
    with pytest.raises(Failure, match=rf"^{tree.root} has no list\.txt\. Fetch it again: Get it there\.$"):
        tree.lines("list.txt")


def test_a_list_that_is_no_text_is_refused(tree: Tree) -> None:
    (tree.root / "list.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Failure, match=r"list\.txt is not a text file \(.*0xff.*\)\. Fetch it again: Get it there\.$"):
        tree.lines("list.txt")


def test_folders_are_sorted_as_strings_without_hidden_ones(tree: Tree) -> None:
    for name in ("2", "10", "1", ".cache"):
        (tree.root / "train" / name).mkdir(parents=True)
    lines(tree.root / "train" / "readme.txt", "not a folder")
    assert tree.folders("train") == ["1", "10", "2"]
    with pytest.raises(Failure, match=r"has no folder val\."):
        tree.folders("val")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (["a"], r"has 1 class folder too many: b\."),
        (["a", "b", "c", "d", "e", "f"], r"lacks 4 class folders: c, d, e and 1 more\."),
    ],
)
def test_class_folders_too_many_or_too_few(tree: Tree, wanted: list[str], message: str) -> None:
    pictures(tree.root, "a/1.png", "b/1.png")
    with pytest.raises(Failure, match=message):
        tree.compare_folders("", wanted)


def test_class_folders_may_be_allowed_to_be_few(tree: Tree) -> None:
    pictures(tree.root, "a/1.png")
    tree.compare_folders("", ["a", "b"], all_of_them=False)
    with pytest.raises(Failure, match="1 class folder too many"):
        tree.compare_folders("", ["b"], all_of_them=False)


def test_a_walk_has_the_order_of_image_folder(tree: Tree) -> None:
    from torchvision.datasets import ImageFolder

    names = ["c/b.jpg", "c/B.JPEG", "c/a/z.png", "c/10.png", "c/2.png", "c/a-b/x.png", "c/a/b/1.png"]
    pictures(tree.root, *names)
    lines(tree.root / "c" / "notes.txt", "no image")
    theirs = [Path(path).relative_to(tree.root).as_posix() for path, _ in ImageFolder(tree.root).samples]
    assert tree.walk("c") == theirs
    assert sorted(theirs) == sorted(names)


def test_hidden_names_are_skipped(tree: Tree) -> None:
    pictures(tree.root, "c/1.png", "c/._1.png", "c/.cache/2.png", "c/more/3.png")
    assert tree.walk("c") == ["c/1.png", "c/more/3.png"]


def test_a_folder_that_cannot_be_listed_is_named(tree: Tree) -> None:
    with pytest.raises(Failure, match=r"^cannot list the folder .*/none: No such file or directory\. Make it readable"):
        tree.walk("none")


def test_a_folder_without_images_is_refused(tree: Tree) -> None:
    (tree.root / "c").mkdir()
    with pytest.raises(Failure, match=r"/c holds no image\."):
        tree.walk("c")


def test_missing_images_are_counted_and_three_named(tree: Tree) -> None:
    pictures(tree.root, "a.png")
    with pytest.raises(
        Failure, match=rf"^{tree.root} lacks 4 images that its lists name: 1\.png, 2\.png, 3\.png and 1 more"
    ):
        tree.require(["1.png", "a.png", "2.png", "3.png", "4.png"])
    with pytest.raises(Failure, match=re.escape("lacks 1 image that its lists name: 'b\\n.png'.")):
        tree.require(["a.png", "b\n.png"])
    os.mkdir(tree.root / "folder.png")
    with pytest.raises(Failure, match=r"name: folder\.png\."):
        tree.require(["folder.png"])


def test_an_image_set_has_training_images_first_and_the_published_class_order(tree: Tree) -> None:
    listed = [
        ListedImage("t1", 0, True),
        ListedImage("b", 2, False),
        ListedImage("a", 1, False),
        ListedImage("t0", 2, True),
    ]
    image_set = image_set_of(tree, "set", listed, ["zero", "one", "two"], [2, 0, 1])
    assert image_set.ids == ("b", "a", "t1", "t0")
    assert image_set.sources == tuple(tree.root / id_ for id_ in image_set.ids)
    assert image_set.names == ("two", "zero", "one")
    assert [image_set.names[label] for label in image_set.labels] == ["two", "one", "zero", "two"]
    assert image_set.test.tolist() == [False, False, True, True]
    assert image_set.given is None


def test_a_wrong_number_of_classes_is_refused(tree: Tree) -> None:
    with pytest.raises(Failure, match=rf"^{tree.root} has 1 classes, set has 2\."):
        image_set_of(tree, "set", [], ["one"], [0, 1])
