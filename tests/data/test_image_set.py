"""Image sets, folders and labels files; unreadable files are dropped."""

import io
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sptnet.config.recipes import read_config
from sptnet.data.folder import read_folder
from sptnet.data.image_file import UnreadableImage
from sptnet.data.image_set import ImageSet
from sptnet.data.load import load_data
from sptnet.data.readable import drop_unreadable, fingerprint, refuse_unreadable
from sptnet.errors import Failure, Misuse


def photos(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (2, 2), "red").save(path)
    return root


def classes(image_set: ImageSet) -> dict[str, str | None]:
    return {
        id_: image_set.names[label] if label >= 0 else None
        for id_, label in zip(image_set.ids, image_set.labels, strict=True)
    }


def labels_csv(root: Path, text: str, encoding: str = "utf-8") -> Path:
    path = root / "labels.csv"
    path.write_bytes(text.encode(encoding))
    return path


def small(**changes: Any) -> ImageSet:
    fields: dict[str, Any] = {
        "name": "small",
        "ids": ("a", "b"),
        "sources": (np.zeros((2, 2), np.uint8), Image.new("L", (2, 2))),
        "names": ("cat", "dog"),
        "labels": np.array([0, -1], np.int64),
        "given": np.array([True, False]),
        "test": np.array([False, False]),
    }
    return ImageSet(**(fields | changes))


def test_length_and_subsets() -> None:
    image_set = small()
    part = image_set.subset([1])
    assert (len(image_set), len(part)) == (2, 1)
    assert (part.ids, part.names, part.labels.tolist()) == (("b",), ("cat", "dog"), [-1])
    assert part.given is not None and part.given.tolist() == [False]
    assert part.sources[0] is image_set.sources[1]
    assert image_set.subset(np.array([1, 0])).ids == ("b", "a")
    assert len(image_set.subset([])) == 0
    assert small(given=None).subset([0]).given is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sources": ()}, "2 ids but 0 sources"),
        ({"labels": np.array([0], np.int64)}, "2 ids but 1 labels"),
        ({"given": np.array([True])}, "2 ids but 1 given"),
        ({"test": np.zeros(3, np.bool_)}, "2 ids but 3 test"),
        ({"ids": ("a", "a")}, "the ids of the image set repeat"),
        ({"names": ("cat", "cat")}, "the class names of the image set repeat"),
        ({"labels": np.array([0, 2], np.int64)}, r"outside -1\.\.1"),
        ({"labels": np.array([0, -2], np.int64)}, r"outside -1\.\.1"),
        ({"labels": np.array([0.0, 1.0])}, "wrong type"),
        ({"test": np.array([0, 1])}, "wrong type"),
        ({"given": np.array([True, True])}, "a given label of the image set is unknown"),
    ],
)
def test_columns_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Misuse, match=message):
        small(**changes)


def test_sub_folders_are_classes(tmp_path: Path) -> None:
    root = photos(tmp_path / "zoo", "fox/1.png", "cat/deep/er/2.jpg", "cat/1.png", "cat/unlabelled/3.png")
    image_set = read_folder(str(root))
    assert image_set.name == "zoo"
    assert image_set.names == ("cat", "fox")
    assert classes(image_set) == {
        "cat/1.png": "cat",
        "cat/deep/er/2.jpg": "cat",
        "cat/unlabelled/3.png": "cat",
        "fox/1.png": "fox",
    }
    assert image_set.sources[0] == root / "cat/1.png"
    assert image_set.given is None and not image_set.test.any()


@pytest.mark.parametrize("stray", ["loose.png", "unlabelled/x.png", "unlabelled/deep/x.png"])
def test_unsorted_images_make_the_other_labels_given(tmp_path: Path, stray: str) -> None:
    image_set = read_folder(photos(tmp_path, "cat/1.png", stray))
    assert classes(image_set) == {"cat/1.png": "cat", stray: None}
    assert image_set.given is not None and image_set.given.tolist() == [True, False]


def test_the_unlabelled_folder_can_have_another_name(tmp_path: Path) -> None:
    image_set = read_folder(photos(tmp_path, "cat/1.png", "Unsorted/2.png", "unsorted/3.png"), unlabelled="Unsorted")
    assert classes(image_set) == {"Unsorted/2.png": None, "cat/1.png": "cat", "unsorted/3.png": "unsorted"}


def test_nothing_but_unlabelled_images(tmp_path: Path) -> None:
    image_set = read_folder(photos(tmp_path, "1.png", "2.png"))
    assert image_set.names == ()
    assert image_set.given is not None and not image_set.given.any()


def test_names_with_quotes_line_breaks_and_emoji(tmp_path: Path) -> None:
    image_set = read_folder(photos(tmp_path, 'o\'ne "cat"/🦊.png', "two\nlines/a, b.png"))
    assert image_set.names == ('o\'ne "cat"', "two\nlines")


@pytest.mark.parametrize("held_out", ["test", "val"])
def test_train_and_test_folders(tmp_path: Path, held_out: str) -> None:
    root = photos(tmp_path, "train/cat/1.png", "train/dog/x/1.png", f"{held_out}/cat/2.png", f"{held_out}/owl/1.png")
    image_set = read_folder(root)
    assert image_set.names == ("cat", "dog", "owl")
    assert classes(image_set) == {
        f"{held_out}/cat/2.png": "cat",
        f"{held_out}/owl/1.png": "owl",
        "train/cat/1.png": "cat",
        "train/dog/x/1.png": "dog",
    }
    assert {id_ for id_, test in zip(image_set.ids, image_set.test, strict=True) if test} == {
        f"{held_out}/cat/2.png",
        f"{held_out}/owl/1.png",
    }
    assert image_set.given is None


def test_test_and_val_are_both_kept_from_training(tmp_path: Path) -> None:
    image_set = read_folder(photos(tmp_path, "train/cat/1.png", "test/cat/1.png", "val/cat/1.png"))
    assert dict(zip(image_set.ids, image_set.test.tolist(), strict=True)) == {
        "test/cat/1.png": True,
        "train/cat/1.png": False,
        "val/cat/1.png": True,
    }


def test_unlabelled_images_beside_and_inside_train(tmp_path: Path) -> None:
    names = ("train/cat/1.png", "train/unlabelled/2.png", "train/3.png", "unlabelled/4.png", "5.png")
    image_set = read_folder(photos(tmp_path, *names, "test/cat/6.png"))
    assert {id_ for id_, name in classes(image_set).items() if name is None} == set(names[1:])
    assert image_set.ids[int(np.flatnonzero(image_set.test)[0])] == "test/cat/6.png" and image_set.test.sum() == 1
    assert image_set.given is not None


def test_an_unlabelled_test_image_alone_leaves_the_draw_to_the_split(tmp_path: Path) -> None:
    image_set = read_folder(photos(tmp_path, "train/cat/1.png", "test/cat/2.png", "test/unlabelled/3.png"))
    assert image_set.given is None
    assert image_set.labels.tolist() == [0, -1, 0]


def test_train_and_test_without_sub_folders_are_classes(tmp_path: Path) -> None:
    image_set = read_folder(photos(tmp_path, "train/1.png", "test/1.png"))
    assert image_set.names == ("test", "train") and not image_set.test.any()


def test_a_test_folder_without_classes_is_refused(tmp_path: Path) -> None:
    root = photos(tmp_path, "train/cat/1.png", "test/1.png")
    with pytest.raises(Misuse, match=r"only train has class sub-folders\. Sort the images in test into class"):
        read_folder(root)


def test_a_folder_beside_train_and_test_is_refused(tmp_path: Path) -> None:
    root = photos(tmp_path, "train/cat/1.png", "test/cat/1.png", "extra/1.png")
    with pytest.raises(Misuse, match=r"extra lies beside them\. Move it into one of them, or away\."):
        read_folder(root)


def test_folders_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"there is no folder .*gone\. Give a folder that holds images\."):
        read_folder(tmp_path / "gone")
    (tmp_path / "file").write_text("")
    with pytest.raises(Misuse, match=r"file is a file, not a folder\. Give the folder"):
        read_folder(tmp_path / "file")
    with pytest.raises(Misuse, match=r"no images found in .*/\. Give a folder that holds JPEG, PNG, WebP, BMP"):
        read_folder(tmp_path)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_labels_file(tmp_path: Path, encoding: str) -> None:
    root = photos(tmp_path / "in", "x/1.png", "x/2.png", "3.png", "4.png", "5 🦊, ok.png")
    rows = [
        "path,label,remark",
        "x/1.png,fuchs,sub-folder ignored",
        "./x/../3.png,  cat ",
        f"{root / '4.png'},cat",
        '"5 🦊, ok.png",',
    ]
    image_set = read_folder(root, labels_csv(tmp_path, "\r\n".join(rows), encoding))
    assert image_set.names == ("cat", "fuchs")
    expected = {"3.png": "cat", "4.png": "cat", "5 🦊, ok.png": None, "x/1.png": "fuchs", "x/2.png": None}
    assert classes(image_set) == expected
    assert image_set.given is not None and image_set.given.tolist() == [True, True, False, True, False]
    assert not image_set.test.any()


def test_labels_for_every_image_are_all_given(tmp_path: Path) -> None:
    image_set = read_folder(photos(tmp_path, "1.png"), labels_csv(tmp_path, "label,path\ncat,1.png\n"))
    assert image_set.given is not None and image_set.given.all()


def test_absolute_paths_through_a_link_to_the_folder(tmp_path: Path) -> None:
    real = photos(tmp_path / "real", "1.png", "2.png")
    link = tmp_path / "link"
    link.symlink_to(real)
    rows = f"path,label\n{real / '1.png'},cat\n{link / '2.png'},dog\n"
    assert classes(read_folder(link, labels_csv(tmp_path, rows))) == {"1.png": "cat", "2.png": "dog"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no column path and no column label. Make its first line the header path,label."),
        ("path,class\n1.png,cat\n", "has no column label."),
        ("path,label\n1.png,cat\nno.png,cat\n", "lists 1 path that no image of"),
        ("path,label\n1.png,cat\nno.png,cat\n", "has: no.png (line 3). Write paths relative to that folder"),
        ("path,label\na,b\nb,b\n1.png,x\nc,b\nd,b\n", "lists 4 paths that no image of"),
        ("path,label\na,b\nb,b\n1.png,x\nc,b\nd,b\n", "has: a (line 2), b (line 3), c (line 5) and 1 more. Write"),
        ("path,label\n,cat\n", "no path (line 2)"),
        ("path,label\n/elsewhere/1.png,cat\n", "/elsewhere/1.png (line 2)"),
        ("path,label\n../1.png,cat\n", "../1.png (line 2)"),
        ("path,label\n1.png,cat\n./1.png,cat\n", "again in 1 row: ./1.png (line 3). Keep one row per image."),
        ("path,label\n1.png,\n2.png\n", "has 2 rows but no label in any. Fill the label column"),
        ("path,label\n", "has 0 rows but no label in any."),
    ],
)
def test_labels_files_that_do_not_fit(tmp_path: Path, text: str, message: str) -> None:
    root = photos(tmp_path / "in", "1.png", "2.png")
    with pytest.raises(Misuse, match=re.escape(message)):
        read_folder(root, labels_csv(tmp_path, text))


def test_labels_files_that_cannot_be_read(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", "1.png")
    for path in (tmp_path / "gone.csv", tmp_path):
        with pytest.raises(Misuse, match=r"there is no labels file .*Give a CSV file with the header path,label\."):
            read_folder(root, path)
    with pytest.raises(Misuse, match=r"is not a CSV file in UTF-8 .*Save it again as CSV, UTF-8\."):
        read_folder(root, labels_csv(tmp_path, "path,label\n1.png,Füchse\n", "latin-1"))


def damaged_zoo(root: Path) -> ImageSet:
    photos(root, *(f"cat/{i}.png" for i in range(7)))
    stream = io.BytesIO()
    Image.fromarray(np.random.RandomState(0).randint(0, 256, (64, 64, 3), dtype=np.uint8)).save(stream, "JPEG")
    (root / "dog").mkdir()
    (root / "dog/whole.jpg").write_bytes(stream.getvalue())
    (root / "dog/cut.jpg").write_bytes(stream.getvalue()[:-40])
    (root / "dog/empty.png").write_bytes(b"")
    return read_folder(root)


def test_unreadable_images_are_dropped(tmp_path: Path) -> None:
    image_set = damaged_zoo(tmp_path)
    good, problems = drop_unreadable(image_set, max_share=0.2)
    assert [(p.name, p.reason) for p in problems] == [
        ("dog/cut.jpg", "truncated"),
        ("dog/empty.png", "empty file"),
    ]
    assert good.ids == (*(f"cat/{i}.png" for i in range(7)), "dog/whole.jpg")
    assert good.names == image_set.names and good.labels.tolist() == [0] * 7 + [1]


def test_too_many_unreadable_images(tmp_path: Path) -> None:
    image_set = damaged_zoo(tmp_path)
    message = (
        "2 of 10 images (20.0%) cannot be read, more than the 1.0% allowed: "
        "dog/cut.jpg (truncated), dog/empty.png (empty file). "
        "Repair or remove them, raise the limit with `data.max_unreadable=0.2`, or skip them all with "
        "`data.max_unreadable=1`."
    )
    with pytest.raises(Failure, match=re.escape(message)):
        drop_unreadable(image_set)


def test_sub_folders_may_be_no_labels(tmp_path: Path) -> None:
    root = photos(tmp_path / "zoo", "train/a/1.png", "test/a/2.png", "unlabelled/3.png", "4.png")
    image_set = read_folder(root, folder_labels=False)
    assert (image_set.names, image_set.labels.tolist(), image_set.test.tolist()) == ((), [-1] * 4, [False] * 4)
    labels = labels_csv(tmp_path, "path,label\n4.png,owl\n")
    assert classes(read_folder(root, labels, folder_labels=False))["4.png"] == "owl"


def test_the_limit_it_suggests_is_enough(tmp_path: Path) -> None:
    photos(tmp_path, "a.png")
    for name in ("b\n.png", "c.png", "d.png", "e.png"):
        (tmp_path / name).write_bytes(b"")
    image_set = read_folder(tmp_path)
    with pytest.raises(Failure, match=r"allowed: 'b\\n\.png' \(empty file\), c.*, d.* and 1 more\.") as caught:
        drop_unreadable(image_set)
    limit = re.search(r"max_unreadable=([\d.]+)`, or skip", str(caught.value))
    assert limit is not None
    assert drop_unreadable(image_set, float(limit[1]))[0].ids == ("a.png",)


def test_nothing_readable_is_never_accepted(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(Failure, match=r"none of the 1 images can be read: a\.png \(empty file\)"):
        drop_unreadable(read_folder(tmp_path), max_share=1)


def test_progress_counts_the_files_and_arrays_are_left_alone(tmp_path: Path) -> None:
    seen: list[object] = []

    def track(items: Iterable[Any], total: int) -> Iterable[Any]:
        seen.append(total)
        for item in items:
            seen.append("tick")
            yield item

    image_set = damaged_zoo(tmp_path)
    mixed = replace(image_set, sources=(np.zeros((2, 2), np.uint8), *image_set.sources[1:]))
    drop_unreadable(mixed, 0.5, track=track)
    assert seen == [9, *["tick"] * 9]
    good, problems = drop_unreadable(small())
    assert len(good) == 2 and problems == []


def test_fingerprint_changes_with_everything_that_matters() -> None:
    image_set = small(labels=np.array([0, 1], np.int64))
    variants = [
        image_set,
        replace(image_set, ids=("a", "c")),
        replace(image_set, ids=("b", "a")),
        replace(image_set, names=("cat", "owl")),
        replace(image_set, names=("ca", "tdog")),
        replace(image_set, labels=np.array([0, 0], np.int64)),
        replace(image_set, given=None),
        replace(image_set, given=np.array([True, True])),
        replace(image_set, test=np.array([False, True])),
        replace(image_set, sources=(np.ones((2, 2), np.uint8), image_set.sources[1])),
        replace(image_set, sources=(np.zeros((4, 1), np.uint8), image_set.sources[1])),
        replace(image_set, sources=(np.zeros((2, 2), np.bool_), image_set.sources[1])),
        replace(image_set, sources=(image_set.sources[0], Image.new("L", (2, 2), 1))),
    ]
    prints = [fingerprint(variant) for variant in variants]
    assert len(set(prints)) == len(variants)
    assert all(re.fullmatch("[0-9a-f]{64}", text) for text in prints)
    assert fingerprint(replace(image_set, name="renamed")) == fingerprint(image_set)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("size", [10, 64 * 1024 + 10, 300_000])
def test_fingerprint_reads_files(tmp_path: Path, size: int, version: int) -> None:
    """Version 1, that of 0.1.0, reads only the beginning and the end of large files."""
    path = tmp_path / "a.png"
    path.write_bytes(bytes(size))
    image_set = read_folder(tmp_path)
    prints = {fingerprint(image_set, version)}
    for position in (0, size // 2, size - 1):
        content = bytearray(size)
        content[position] = 1
        path.write_bytes(content)
        prints.add(fingerprint(image_set, version))
    path.write_bytes(bytes(size + 1))
    prints.add(fingerprint(image_set, version))
    assert len(prints) == (4 if (version, size) == (1, 300_000) else 5)
    path.unlink()
    with pytest.raises(UnreadableImage, match=r"cannot read the image a\.png: file not found"):
        fingerprint(image_set, version)


def test_fingerprints_of_0_1_0_are_kept() -> None:
    """`run.json` of the fixture was written by 0.1.0; its images lie beside it."""
    written = Path(__file__).parents[1] / "fixtures" / "v0.1.0"
    config = read_config(written / "stopped" / "config.toml")
    images = load_data(config.data.model_copy(update={"folder": str(written / "photos")}), lambda _: None)
    facts = json.loads((written / "stopped" / "run.json").read_text(encoding="utf-8"))
    assert fingerprint(images.image_set, 1) == facts["data"]["fingerprint"]
    assert fingerprint(images.image_set) != facts["data"]["fingerprint"]
    with pytest.raises(Misuse, match="fingerprint of the images has version 3"):
        fingerprint(images.image_set, 3)


def test_fingerprint_ignores_when_and_where_a_file_was_written(tmp_path: Path) -> None:
    first, second = (read_folder(photos(tmp_path / name, "cat/1.png")) for name in ("here", "there"))
    assert fingerprint(first) == fingerprint(second)


def test_unreadable_images_can_be_refused_altogether(tmp_path: Path) -> None:
    root = photos(tmp_path, "cat/1.png", "cat/2.png", "dog/1.png")
    refuse_unreadable(read_folder(root))
    (root / "cat" / "2.png").write_bytes(b"")
    with pytest.raises(Failure) as error:
        refuse_unreadable(read_folder(root))
    assert str(error.value) == (
        "1 image of 3 cannot be read: cat/2.png (empty file). Fetch the data set again, or repair these images."
    )
