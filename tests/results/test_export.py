"""Exports: every form of the edited result; the user's files are never changed."""

import csv
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from conftest import Answer, Call
from helpers.kills import kill_everywhere
from helpers.result_runs import IDS, make_run, small_result
from sptnet.data.benchmarks.digits import digits
from sptnet.data.folder import read_folder
from sptnet.errors import Failure, Misuse
from sptnet.results.edits.log import Drop, Move, Rename, add_edits
from sptnet.results.export.files import FORMS, export, export_run
from sptnet.results.export.folders import CONTENTS, free_name, safe_name
from sptnet.results.run_result import RunResult, read_result

FOLDERS = ("links", "copies", "imagefolder")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The run with edits: one image moved, new-1 renamed, and the image without a file dropped."""
    run = make_run(tmp_path)
    add_edits(run, [Rename("new-1", "sea otter"), Move((IDS[2],), "dog"), Drop((IDS[7],))])
    return run


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return the contents of all files below a folder, to check that they stay the same."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def files_in(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def rows(file: Path) -> list[list[str]]:
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.reader(stream))


SORTED = [
    "cat/a.png",
    "cat/b.png",
    "dog/a.png",
    "dog/dog.png",
    "sea otter/e-2.png",
    "sea otter/e.png",
    "sea otter/f.png",
]


def test_json(run: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path / "out.json", "json")
    content = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert content["dropped"] == ["test/e.png"]
    assert [(c["name"], c["is_new"], len(c["images"])) for c in content["categories"]] == [
        ("cat", False, 2),
        ("dog", False, 2),
        ("sea otter", True, 3),
        ("new-2", True, 0),
    ]
    assert content["categories"][1]["images"] == [
        {"image": "unlabelled/a.png", "certainty": 1.0},
        {"image": "unlabelled/dog.png", "certainty": 0.9},
    ]


def test_coco(run: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path / "out.json", "coco")
    content = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert content["categories"] == [
        {"id": 1, "name": "cat", "supercategory": "known"},
        {"id": 2, "name": "dog", "supercategory": "known"},
        {"id": 3, "name": "sea otter", "supercategory": "new"},
        {"id": 4, "name": "new-2", "supercategory": "new"},
    ]
    assert content["images"] == [{"id": i + 1, "file_name": id_} for i, id_ in enumerate(IDS[:7])]
    assert [(a["id"], a["image_id"]) for a in content["annotations"]] == [(i, i) for i in range(1, 8)]
    assert [a["category_id"] for a in content["annotations"]] == [1, 1, 2, 2, 3, 3, 3]


def test_names_that_are_no_text_reach_json_and_csv(tmp_path: Path) -> None:
    result = replace(small_result(), ids=("caf\udce9.png", "日本.png", *IDS[2:]))
    for form in ("csv", "json", "coco"):
        export(result, tmp_path / form, form)
    assert json.loads((tmp_path / "coco").read_text(encoding="utf-8"))["images"][0]["file_name"] == "caf\udce9.png"
    assert "日本.png,cat,no,0.8000" in (tmp_path / "csv").read_text(encoding="utf-8", errors="surrogatepass")


def test_links(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export_run(run, out, "links")
    assert files_in(out) == [CONTENTS, *SORTED]
    assert all((out / name).is_symlink() for name in SORTED)
    assert os.readlink(out / "sea otter" / "e.png") == str(tmp_path / "data" / "unlabelled" / "e.png")
    assert os.readlink(out / "sea otter" / "e-2.png") == str(tmp_path / "data" / "unlabelled" / "sub" / "e.png")


def test_copies(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export_run(run, out, "copies")
    assert files_in(out) == [CONTENTS, *SORTED]
    assert not any((out / name).is_symlink() for name in SORTED)
    assert (out / "sea otter" / "e-2.png").read_bytes() == (tmp_path / "data" / IDS[6]).read_bytes()
    assert (out / "dog" / "a.png").read_bytes() == (tmp_path / "data" / IDS[2]).read_bytes()


def test_imagefolder(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export_run(run, out, "imagefolder")
    assert files_in(out) == [CONTENTS, *sorted([*(f"train/{name}" for name in SORTED), "train/metadata.csv"])]
    assert rows(out / "train" / "metadata.csv") == [
        ["file_name", "label"],
        ["cat/a.png", "cat"],
        ["cat/b.png", "cat"],
        ["dog/a.png", "dog"],
        ["dog/dog.png", "dog"],
        ["sea otter/e.png", "sea otter"],
        ["sea otter/f.png", "sea otter"],
        ["sea otter/e-2.png", "sea otter"],
    ]


@pytest.mark.parametrize("form", FORMS)
def test_the_run_and_the_images_stay_as_they_are(run: Path, tmp_path: Path, form: str) -> None:
    before = tree(run), tree(tmp_path / "data")
    export_run(run, tmp_path / "out", form)
    export_run(run, tmp_path / "out", form, overwrite=True)
    assert (tree(run), tree(tmp_path / "data")) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "out", "run"]


# images without a file


def digits_run(root: Path) -> Path:
    ids = tuple(f"digit-{i:04d}" for i in range(8))
    return make_run(root, result=RunResult(**{**vars(small_result()), "ids": ids}), source="digits")


def test_images_without_a_file_are_written_as_png(tmp_path: Path) -> None:
    run = digits_run(tmp_path)
    export_run(run, tmp_path / "copies", "copies")
    export_run(run, tmp_path / "folder", "imagefolder")
    names = [*(f"cat/digit-000{i}.png" for i in range(3)), "dog/digit-0003.png"]
    names += [f"new-1/digit-000{i}.png" for i in range(4, 8)]
    assert files_in(tmp_path / "copies") == [CONTENTS, *names]
    assert files_in(tmp_path / "folder") == sorted(
        [CONTENTS, *(f"train/{name}" for name in names), "train/metadata.csv"]
    )
    with Image.open(tmp_path / "copies" / "cat" / "digit-0002.png") as image:
        assert np.array_equal(np.asarray(image)[..., 0], digits().sources[2])


def test_images_without_a_file_cannot_be_linked_to(tmp_path: Path) -> None:
    with pytest.raises(Misuse) as error:
        export_run(digits_run(tmp_path), tmp_path / "out", "links")
    assert str(error.value) == (
        "8 images cannot be linked to, having no file of their own: digit-0000, digit-0001, digit-0002 and 5 more. "
        "Export as copies."
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", FOLDERS)
def test_images_that_are_gone(tmp_path: Path, form: str) -> None:
    run = make_run(tmp_path)  # its last image has no file
    with pytest.raises(Misuse) as error:
        export_run(run, tmp_path / "out", form)
    assert str(error.value) == (
        "1 image cannot be found: test/e.png. Restore the data folder that the run was trained on, or drop the images."
    )
    shutil.rmtree(tmp_path / "data")
    with pytest.raises(Misuse, match=r"there is no folder .*data\. Give a folder that holds images\."):
        export_run(run, tmp_path / "out", form)


def test_files_that_only_the_reader_of_the_data_set_finds_are_copied(tmp_path: Path) -> None:
    """A benchmark may be deeper in the folder than the ids say."""
    Image.new("RGB", (2, 2)).save(tmp_path / "a.png")
    result = replace(small_result(), category=np.array([0, *[-1] * 7]))
    export(result, tmp_path / "out", "copies", pixels=lambda: {IDS[0]: tmp_path / "a.png"})
    assert (tmp_path / "out" / "cat" / "a.png").read_bytes() == (tmp_path / "a.png").read_bytes()


# names


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("great egret", "great egret"),
        ("日本", "日本"),
        ("a/b\\c:d", "a_b_c_d"),
        ("..", "_"),
        ("", "_"),
        (".hidden", "_hidden"),
        ("x. ", "x"),
        ("a\nb\0", "a_b_"),
        ("caf\udce9", "caf_"),
        ("x" * 300, "x" * 60),
        *((name, f"_{name}") for name in ("CON", "con", "Prn", "aux.txt", "NUL.tar.gz", "com1", "LPT9.x", "COM¹")),
        ("CON .txt", "_CON .txt"),
        ("nul. ", "_nul"),
        ("conifer", "conifer"),
        ("com10", "com10"),
        ('a<b>c|d?e*f"', "a_b_c_d_e_f_"),
        ("=1+1", "_=1+1"),
        ("-rf", "_-rf"),
        ("@home", "_@home"),
    ],
)
def test_safe_names(name: str, safe: str) -> None:
    assert safe_name(name) == safe


@given(st.text())
def test_a_safe_name_is_one_visible_entry_of_a_folder(name: str) -> None:
    safe = safe_name(name)
    assert safe
    assert Path("x", safe).parent == Path("x")
    assert not safe.startswith((".", "-", "=", "+", "@"))
    assert not safe.endswith((".", " "))
    assert len(safe.encode()) <= 255
    assert not PureWindowsPath(safe).is_reserved()


def test_names_are_numbered_until_one_is_free() -> None:
    taken: set[str] = set()
    names = ["x.png", "x-2.png", "x.png", "X.png", "x.jpg", "x"]
    assert [free_name(name, taken) for name in names] == ["x.png", "x-2.png", "x-3.png", "X-4.png", "x.jpg", "x"]


@given(st.lists(st.sampled_from(["a.png", "A.png", "a-2.png", "a-2-2.png", "a"]), max_size=12))
def test_numbered_names_never_meet(names: list[str]) -> None:
    taken: set[str] = set()
    given_out = [free_name(name, taken) for name in names]
    assert len({name.casefold() for name in given_out}) == len(names)


def test_hostile_categories_stay_inside(tmp_path: Path) -> None:
    result = replace(small_result(), names=("../../x", "a/b", "a_b", "A_B"), category=np.array([0, 1, 2, 3, *[-1] * 4]))
    pixels = {id_: np.zeros((2, 2), np.uint8) for id_ in IDS}
    export(result, tmp_path / "in" / "out", "copies", pixels=lambda: pixels)
    assert files_in(tmp_path) == sorted(
        f"in/out/{name}"
        for name in (CONTENTS, "__.._x/a.png.png", "a_b/b.png.png", "a_b-2/a.png.png", "A_B-3/dog.png.png")
    )


@pytest.mark.parametrize("start", ["n", "é", "漢", "🦊", "\udcff"])
def test_long_names_are_cut_to_be_numbered(start: str) -> None:
    taken: set[str] = set()
    width = len(os.fsencode(start))
    long = start * (251 // width) + "n" * (251 % width) + ".png"
    names = [free_name(long, taken) for _ in range(12)]
    assert names[0] == long
    assert len({name.casefold() for name in names}) == 12
    assert all(len(os.fsencode(name)) <= 255 and name.endswith(".png") for name in names)
    assert names[1].startswith(start) and names[1].endswith("-2.png") and names[11].endswith("-12.png")


def test_a_long_name_without_a_suffix_is_cut_too() -> None:
    taken: set[str] = set()
    for name in ("n" * 255, "a." + "n" * 253):
        first, second = free_name(name, taken), free_name(name, taken)
        assert first == name and second != first and len(second) == 255


@pytest.mark.parametrize("form", ["links", "copies"])
def test_two_long_names_in_one_category(tmp_path: Path, form: str) -> None:
    name = "n" * 251 + ".png"
    pixels = {}
    for i in range(2):
        pixels[IDS[i]] = tmp_path / "data" / str(i) / name
        pixels[IDS[i]].parent.mkdir(parents=True)
        pixels[IDS[i]].write_bytes(b"%d" % i)
    result = replace(small_result(), category=np.array([0, 0, *[-1] * 6]))
    export(result, tmp_path / "out", form, pixels=lambda: pixels)
    assert files_in(tmp_path / "out") == sorted([CONTENTS, f"cat/{name}", "cat/" + "n" * 249 + "-2.png"])


def test_folders_of_awkward_categories_can_be_told_apart(tmp_path: Path) -> None:
    names = ("CON", "_con", "metadata.csv", "=1")
    result = replace(small_result(), names=names, category=np.array([0, 1, 2, 3, *[-1] * 4]))
    pixels = {id_: np.zeros((2, 2), np.uint8) for id_ in IDS}
    export(result, tmp_path / "out", "imagefolder", pixels=lambda: pixels)
    folders = {"_CON": "CON", "_con-2": "_con", "metadata-2.csv": "metadata.csv", "_=1": "=1"}
    assert json.loads((tmp_path / "out" / CONTENTS).read_text(encoding="utf-8"))["categories"] == folders
    train = tmp_path / "out" / "train"
    assert {path.name for path in train.iterdir()} == {*folders, "metadata.csv"}
    table = rows(train / "metadata.csv")
    assert [label for _, label in table] == ["label", "CON", "_con", "metadata.csv", "'=1"]
    assert not [cell for row in table for cell in row if cell.startswith(tuple("=+-@"))]


# cells that a spreadsheet would run


def test_an_exported_table_runs_nothing_and_is_read_back_as_labels(tmp_path: Path) -> None:
    ids = ("=cmd.png", "+a.png", "-b.png", "@c.png", "'=d.png", "e.png", "sub/=f.png", "'g.png")
    names = ("=SUM(A1)", "'-quoted", "plain", "@new")
    result = replace(small_result(), ids=ids, names=names, category=np.arange(8) % 4)
    export(result, tmp_path / "table.csv", "csv")
    table = rows(tmp_path / "table.csv")
    assert not [cell for row in table for cell in row if cell.startswith(tuple("=+-@\t\r"))]
    assert [row[0] for row in table[1:]] == [
        *("'=cmd.png", "'+a.png", "'-b.png", "'@c.png", "''=d.png", "e.png", "sub/=f.png", "'g.png")
    ]
    for id_ in ids:
        (tmp_path / "images" / id_).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (2, 2)).save(tmp_path / "images" / id_)
    image_set = read_folder(tmp_path / "images", tmp_path / "table.csv")
    labels = {id_: image_set.names[label] for id_, label in zip(image_set.ids, image_set.labels, strict=True)}
    assert labels == {id_: names[i % 4] for i, id_ in enumerate(ids)}


def test_a_labels_file_of_a_person_is_taken_literally(tmp_path: Path) -> None:
    Image.new("RGB", (2, 2)).save(tmp_path / "a.png")
    (tmp_path / "labels.csv").write_text("path,label\na.png,'=x\n", encoding="utf-8")
    assert read_folder(tmp_path, tmp_path / "labels.csv").names == ("'=x",)


def test_the_table_of_a_run_keeps_the_names(tmp_path: Path) -> None:
    """It is read back by sptnet and by scripts."""
    names = ("=cat", "'-dog", "new-1", "new-2")
    run = make_run(tmp_path, replace(small_result(), names=names))
    assert read_result(run).names == names
    assert {row[1] for row in rows(run / "predictions.csv")[1:]} <= set(names)


# what is in the way


@pytest.mark.parametrize("form", ["csv", "json", "coco"])
def test_a_file_in_the_way(run: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / "out"
    out.write_text("mine", encoding="utf-8")
    with pytest.raises(Misuse) as error:
        export_run(run, out, form)
    assert str(error.value) == f"{out} exists already. Replace it with `overwrite=True`, or give another `to`."
    assert out.read_text(encoding="utf-8") == "mine"
    export_run(run, out, form, overwrite=True)
    assert out.read_text(encoding="utf-8") != "mine"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_where_a_file_should_be(run: Path, tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(Misuse) as error:
        export_run(run, tmp_path / "out", "csv", overwrite)
    assert str(error.value) == f"{tmp_path / 'out'} is a folder, not a file. Give a file with `to`."


@pytest.mark.parametrize("make", [Path.touch, lambda out: out.symlink_to(out.parent / "data")])
def test_a_file_or_link_where_a_folder_should_be(run: Path, tmp_path: Path, make: Callable[[Path], None]) -> None:
    out = tmp_path / "out"
    make(out)
    before = tree(tmp_path)
    with pytest.raises(Misuse) as error:
        export_run(run, out, "copies", overwrite=True)
    if out.is_symlink():
        assert (
            str(error.value)
            == f"{out} lies inside the data folder {tmp_path / 'data'}. Give a place outside it with `to`."
        )
    else:
        assert str(error.value) == (f"{out} is a file or a link. Give a folder that does not exist yet with `to`.")
    assert tree(tmp_path) == before


def test_a_link_to_nowhere_in_the_way(run: Path, tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    with pytest.raises(Misuse, match=r"out is a file or a link"):
        export_run(run, tmp_path / "out", "copies")


def test_an_empty_folder_is_filled(run: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    export_run(run, tmp_path / "out", "copies")
    assert files_in(tmp_path / "out") == [CONTENTS, *SORTED]


@pytest.mark.parametrize("first", FOLDERS)
def test_an_export_is_replaced_only_when_asked(run: Path, tmp_path: Path, first: str) -> None:
    out = tmp_path / "out"
    export_run(run, out, first)
    before = tree(out)
    with pytest.raises(Misuse) as error:
        export_run(run, out, "copies")
    assert str(error.value) == f"{out} is not empty. Replace it with `overwrite=True`, or give another `to`."
    assert tree(out) == before
    add_edits(run, [Rename("dog", "wolf")])
    export_run(run, out, "copies", overwrite=True)
    assert files_in(out) == [CONTENTS, *sorted(name.replace("dog/", "wolf/") for name in SORTED)]
    assert sorted(path.name for path in out.iterdir()) == [CONTENTS, "cat", "sea otter", "wolf"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("stranger", ["notes.txt", "cat/notes.txt", "cat/.hidden"])
def test_strange_files_are_never_deleted(run: Path, tmp_path: Path, stranger: str, overwrite: bool) -> None:
    out = tmp_path / "out"
    export_run(run, out, "copies")
    (out / stranger).write_text("mine", encoding="utf-8")
    before = tree(out)
    with pytest.raises(Misuse) as error:
        export_run(run, out, "copies", overwrite)
    assert str(error.value) == (
        f"{out} holds other files than an export, such as {stranger}, which sptnet never deletes. Give another `to`."
    )
    assert tree(out) == before


def test_a_folder_of_the_users_own_is_never_replaced(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "sub").mkdir(parents=True)
    (tmp_path / "mine" / "linked").symlink_to(tmp_path / "data")
    with pytest.raises(Misuse, match=r"such as linked, which sptnet never deletes"):
        export_run(run, tmp_path / "mine", "copies", overwrite=True)
    with pytest.raises(Misuse, match=r"holds other files than an export, such as data/"):
        export_run(run, tmp_path, "copies", overwrite=True)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"files": 3}'])
def test_a_damaged_list_of_contents(run: Path, tmp_path: Path, text: str) -> None:
    out = tmp_path / "out"
    export_run(run, out, "links")
    (out / CONTENTS).write_text(text, encoding="utf-8")
    with pytest.raises(Failure, match=r"\.sptnet-export\.json is damaged \(.*\)\. Remove .*out yourself, or give"):
        export_run(run, out, "links", overwrite=True)
    assert (out / "cat" / "a.png").is_symlink()


def test_a_list_of_contents_cannot_point_outside(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    victim = tmp_path / "victim"
    victim.touch()
    (out / CONTENTS).write_text(json.dumps({"files": ["../victim", str(victim)]}), encoding="utf-8")
    export_run(run, out, "copies", overwrite=True)
    assert victim.exists()


def test_an_export_that_fails_leaves_what_was_there(run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    out = tmp_path / "out"
    export_run(run, out, "links")
    before = tree(out)

    def full(source: Path, target: Path) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="no space left"):
        export_run(run, out, "copies", overwrite=True)
    assert tree(out) == before
    assert not list(tmp_path.glob(".out*"))


def test_the_rest_of_a_stopped_export(run: Path, tmp_path: Path) -> None:
    left = tmp_path / ".out.sptnet-0123456789abcdef.part"
    (left / "cat").mkdir(parents=True)
    (left / "cat" / "a.png").symlink_to(tmp_path / "data" / "cat" / "a.png")
    (tmp_path / "out.part").mkdir()  # of version 0.1.0, or of the user
    export_run(run, tmp_path / "out", "copies")
    assert files_in(tmp_path / "out") == [CONTENTS, *SORTED]
    assert not left.exists() and (tmp_path / "out.part").exists()
    assert (tmp_path / "data" / "cat" / "a.png").exists()


@pytest.mark.parametrize("form", ["links", "imagefolder"])
def test_killed_at_any_moment_of_replacing_an_export(run: Path, tmp_path: Path, form: str) -> None:
    """The next export accepts what is there, and no image is changed."""
    data = tree(tmp_path / "data")

    def prepare(number: int) -> Callable[[], None]:
        out = tmp_path / str(number) / "out"
        export_run(run, out, "copies")
        return lambda: export_run(run, out, form, overwrite=True)

    for number in kill_everywhere(prepare, step=3):
        out = tmp_path / str(number) / "out"
        export_run(run, out, form, overwrite=True)
        prefix = "train/" if form == "imagefolder" else ""
        names = {CONTENTS, *(prefix + name for name in SORTED), *([f"{prefix}metadata.csv"] if prefix else [])}
        assert set(files_in(out)) == names
        assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert tree(tmp_path / "data") == data


def test_a_file_that_comes_while_an_export_is_written_is_kept(run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    out, copy = tmp_path / "out", shutil.copyfile
    export_run(run, out, "links")

    def copy_slowly(source: Path, target: Path) -> None:
        (out / "notes.txt").write_text("mine")
        copy(source, target)

    monkeypatch.setattr(shutil, "copyfile", copy_slowly)
    with pytest.raises(Misuse, match=rf"^{out} holds other files than an export, such as notes\.txt, which"):
        export_run(run, out, "copies", overwrite=True)
    assert (out / "notes.txt").read_text() == "mine" and (out / "cat" / "a.png").is_symlink()
    assert not list(tmp_path.glob(".out*"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("place", "what"), [("run", "the run"), ("data", "the data folder")])
def test_nothing_is_written_among_the_originals(run: Path, tmp_path: Path, place: str, what: str, form: str) -> None:
    before = tree(tmp_path)
    for out in (tmp_path / place, tmp_path / place / "out"):
        with pytest.raises(Misuse) as error:
            export_run(run, out, form, overwrite=True)
        assert str(error.value) == f"{out} lies inside {what} {tmp_path / place}. Give a place outside it with `to`."
    assert tree(tmp_path) == before


# the verb


@pytest.fixture
def call(call: Call) -> Call:
    return partial(call, "export")


def test_the_verb_writes_and_says_so(call: Call, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = f"wrote 7 images in 3 categories (1 dropped): {out}\n"
    assert call(run, "--to", out, "--as", "copies") == Answer(0, said, "")
    assert call(run, "--to", out, "--as", "copies", "--overwrite") == Answer(0, said, "")
    other = digits_run(tmp_path / "digits")
    said = f"wrote 8 images in 3 categories: {tmp_path / 'd.csv'}\n"
    assert call(other, "--to", tmp_path / "d.csv", "--as", "csv") == Answer(0, said, "")


def test_the_verb_tells_mistakes(call: Call, run: Path, tmp_path: Path) -> None:
    answer = call(run, "--to", tmp_path / "out", "--as", "xml")
    forms = "csv, json, links, copies, coco, imagefolder, torch, onnx"
    assert answer == Answer(2, "", f"error: there is no export as xml. Choose from: {forms}.\n")
    answer = call(tmp_path, "--to", tmp_path / "out", "--as", "csv")
    assert answer.code == 2
    assert "is not a run: it has no config.toml" in answer.err
    answer = call(run, "--as", "csv")
    assert answer.code == 2
    assert "Missing option '--to'" in answer.err


def test_the_folder_here_is_named_by_its_own_name(call: Any, run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert call(run, "--to", ".", "--as", "links").code == 0
    assert files_in(tmp_path / "here") == [CONTENTS, *SORTED]
