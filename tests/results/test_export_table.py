"""Exported tables: their columns, what they say of single images, and the duplicates that a run left out."""

import csv
import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image, ImageFile

from conftest import Call
from helpers.checked_folders import picture
from helpers.result_runs import IDS, make_run, small_result
from sptnet.data.check.skip_duplicates import Duplicate
from sptnet.data.folder import EXPORTED, EXPORTED_DETAILS, read_folder
from sptnet.errors import Failure, Misuse
from sptnet.results.categories import describe_categories
from sptnet.results.duplicates import write_duplicates
from sptnet.results.edits.log import Drop, Merge, Move, Rename, add_edits, current
from sptnet.results.edits.types import Confirm
from sptnet.results.export.files import export_run
from sptnet.results.export.folders import CONTENTS
from sptnet.results.export.table import time_and_camera


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The run with edits: one image moved, new-1 renamed, and the image without a file dropped."""
    run = make_run(tmp_path)
    add_edits(run, [Rename("new-1", "sea otter"), Move((IDS[2],), "dog"), Drop((IDS[7],))])
    return run


def rows(file: Path) -> list[list[str]]:
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.reader(stream))


def by_image(file: Path) -> dict[str, dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as stream:
        return {row["image"]: row for row in csv.DictReader(stream)}


def test_csv(run: Path, tmp_path: Path) -> None:
    for i, id_ in enumerate(IDS[:7]):
        picture(i).save(tmp_path / "data" / id_)
    picture(4).resize((160, 128)).save(tmp_path / "data" / IDS[6])
    tags = Image.Exif()
    tags[ExifTags.Base.Model] = "=EOS 5D"
    picture(0).save(tmp_path / "data" / IDS[3], exif=tags)
    export_run(run, tmp_path / "new" / "out.csv", "csv")
    nothing = [""] * 5
    assert rows(tmp_path / "new" / "out.csv") == [
        [*EXPORTED, *EXPORTED_DETAILS],
        ["cat/a.png", "cat", "no", "1.0000", "yes", "no", "cat", "0.9000", *nothing],
        ["cat/b.png", "cat", "no", "0.8000", "no", "no", "cat", "0.8000", *nothing],
        ["unlabelled/a.png", "dog", "no", "1.0000", "yes", "no", "cat", "0.4000", *nothing],
        ["unlabelled/dog.png", "dog", "no", "0.9000", "no", "no", "dog", "0.9000", "", "", IDS[0], "", "'=EOS 5D"],
        ["unlabelled/e.png", "sea otter", "yes", "0.9000", "no", "no", "sea otter", "0.9000", *nothing],
        ["unlabelled/f.png", "sea otter", "yes", "0.7000", "no", "no", "sea otter", "0.7000", *nothing],
        [IDS[6], "sea otter", "yes", "0.6000", "no", "no", "sea otter", "0.6000", "", "", IDS[4], "", ""],
    ]


def test_a_quick_table_reads_no_pixels(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    def decode(self: Any) -> None:
        raise AssertionError("pixels are decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load", decode)
    assert call("export", run, "--to", tmp_path / "out.csv", "--as", "csv", "--quick").code == 0
    header = rows(tmp_path / "out.csv")[0]
    assert header == [*EXPORTED, *(column for column in EXPORTED_DETAILS if column != "duplicate_of")]
    with pytest.raises(AssertionError, match="pixels are decoded"):
        export_run(run, tmp_path / "other.csv", "csv")


def test_doubts_and_second_choices(tmp_path: Path) -> None:
    result = small_result()
    run = make_run(tmp_path, replace(result, guess=np.array([1, 0, 0, 1, 2, 2, 2, 2])), guesses=True, seconds=True)

    def table() -> dict[str, dict[str, str]]:
        export_run(run, tmp_path / "out.csv", "csv", overwrite=True, quick=True)
        found = by_image(tmp_path / "out.csv")
        on_page = {id_ for category in describe_categories(current(run)) for id_ in category.doubtful}
        assert {id_ for id_, row in found.items() if row["doubtful"] == "yes"} == on_page
        return found

    found = table()
    assert [id_ for id_, row in found.items() if row["doubtful"] == "yes"] == [IDS[2], IDS[7]]
    assert [id_ for id_, row in found.items() if row["labelled"] == "yes"] == [IDS[0]]
    assert (found[IDS[0]]["category"], found[IDS[0]]["certainty"]) == ("cat", "1.0000")
    assert (found[IDS[0]]["guess"], found[IDS[0]]["guess_certainty"]) == ("dog", "0.9000")
    assert (found[IDS[3]]["second"], found[IDS[3]]["second_certainty"]) == ("new-1", "0.2500")
    add_edits(run, [Rename("new-1", "sea otter"), Confirm((IDS[2],)), Move((IDS[7],), "dog"), Merge(("new-2",), "dog")])
    found = table()
    assert [id_ for id_, row in found.items() if row["doubtful"] == "yes"] == []
    assert [id_ for id_, row in found.items() if row["labelled"] == "yes"] == [IDS[0], IDS[2], IDS[7]]
    assert found[IDS[3]]["second"] == "sea otter"
    assert (found[IDS[4]]["second"], found[IDS[4]]["second_certainty"]) == ("dog", "0.2500")
    assert (found[IDS[7]]["guess"], found[IDS[7]]["guess_certainty"]) == ("sea otter", "0.3000")
    assert found[IDS[7]]["second"] == "", "it is in that category"


def test_tables_with_some_of_the_columns_are_labels_files(run: Path, tmp_path: Path) -> None:
    data, some = tmp_path / "data", tmp_path / "some.csv"
    export_run(run, tmp_path / "out.csv", "csv")
    table = rows(tmp_path / "out.csv")

    def write(lines: list[list[str]]) -> None:
        with some.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows(lines)

    for n in (len(EXPORTED), len(EXPORTED) + 1, len(table[0])):
        write([row[:n] for row in table])
        image_set = read_folder(data, some)
        assert image_set.names == ("cat", "dog", "sea otter")
        labels = {id_: image_set.names[i] for id_, i in zip(image_set.ids, image_set.labels, strict=True)}
        assert labels == {row[0]: row[1] for row in table[1:]}
    write([[*row, "mine"] for row in table])
    with pytest.raises(Misuse, match="has no column path and no column label"):
        read_folder(data, some)


# --- EXIF tags --------------------------------------------------------------------------------------------------------


def photo(path: Path, time: Any = "2024:05:01 12:30:00", make: Any = "Canon", model: Any = "EOS 5D") -> Path:
    tags = Image.Exif()
    for tag, value in ((ExifTags.Base.Make, make), (ExifTags.Base.Model, model)):
        if value is not None:
            tags[tag] = value
    if time is not None:
        tags.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = time
    picture(0).save(path, exif=tags.tobytes())  # TIFF loses the time of an object that was not read from a file
    return path


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tif"])
def test_time_and_camera_of_a_photo(tmp_path: Path, suffix: str) -> None:
    assert time_and_camera(photo(tmp_path / f"a.{suffix}")) == ("2024-05-01 12:30:00", "Canon EOS 5D")


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({"model": "Canon EOS 5D"}, ("2024-05-01 12:30:00", "Canon EOS 5D")),
        ({"make": None}, ("2024-05-01 12:30:00", "EOS 5D")),
        ({"model": None}, ("2024-05-01 12:30:00", "Canon")),
        ({"make": None, "model": None, "time": None}, ("", "")),
        ({"time": "0000:00:00 00:00:00"}, ("", "Canon EOS 5D")),
        ({"time": "    :  :     :  :  "}, ("", "Canon EOS 5D")),
        ({"time": "=1+1"}, ("", "Canon EOS 5D")),
        ({"time": "2024:02:30 12:30:00"}, ("", "Canon EOS 5D")),
        ({"make": " Can\non \t\x1b ", "model": " EOS  5D"}, ("2024-05-01 12:30:00", "Can on EOS 5D")),
    ],
)
def test_tags_that_are_missing_or_odd(tmp_path: Path, tags: dict[str, Any], expected: tuple[str, str]) -> None:
    assert time_and_camera(photo(tmp_path / "a.jpg", **tags)) == expected


def test_images_without_tags_and_files_that_are_none(tmp_path: Path) -> None:
    picture(0).save(tmp_path / "a.png")
    (tmp_path / "b.jpg").write_bytes(b"no image")
    for name in ("a.png", "b.jpg", "gone.jpg", "."):
        assert time_and_camera(tmp_path / name) == ("", "")


@settings(max_examples=150, deadline=None)
@given(random=st.randoms(use_true_random=False), suffix=st.sampled_from(["jpg", "tif", "png", "webp"]))
def test_damaged_tags_never_raise(tmp_path_factory: pytest.TempPathFactory, random: Random, suffix: str) -> None:
    file = photo(tmp_path_factory.getbasetemp() / f"damaged.{suffix}")
    content = bytearray(file.read_bytes())
    # The tags are at the end of a PNG header and of a WebP file, and at both ends of a TIFF file.
    ends = [*range(min(400, len(content))), *range(max(0, len(content) - 400), len(content))]
    for _ in range(random.randint(1, 12)):
        content[random.choice(ends)] = random.randrange(256)
    file.write_bytes(content)
    time, camera = time_and_camera(file)
    assert time == "" or datetime.fromisoformat(time)
    assert camera.isprintable()


@pytest.mark.parametrize("form", ["links", "copies", "imagefolder"])
def test_exported_folders_keep_the_tags(run: Path, tmp_path: Path, form: str) -> None:
    photo(tmp_path / "data" / IDS[3])
    before = (tmp_path / "data" / IDS[3]).read_bytes()
    export_run(run, tmp_path / "out", form)
    out = tmp_path / "out" / ("train" if form == "imagefolder" else ".") / "dog" / "dog.png"
    assert out.read_bytes() == before
    assert time_and_camera(out) == ("2024-05-01 12:30:00", "Canon EOS 5D")


# --- duplicates that the run left out ---------------------------------------------------------------------------------


def test_left_out_duplicates_have_the_category_of_their_original(run: Path, tmp_path: Path) -> None:
    for name in ("cat/z.png", "copy.png", "otter.png", "gone.png"):
        picture(9).save(tmp_path / "data" / name)
    write_duplicates(
        run / "duplicates.csv",
        [
            Duplicate("cat/z.png", IDS[0], "cat"),
            Duplicate("copy.png", IDS[2]),
            Duplicate("otter.png", IDS[5]),
            Duplicate("gone.png", IDS[7]),
            Duplicate(IDS[4], IDS[3], skipped=False),
        ],
    )
    result = export_run(run, tmp_path / "out.csv", "csv")
    assert (len(result), int((result.category < 0).sum())) == (12, 2), "the duplicate of a dropped image is dropped too"
    found = by_image(tmp_path / "out.csv")
    assert {id_: row["duplicate_of"] for id_, row in found.items() if row["duplicate_of"]} == {
        IDS[4]: IDS[3],
        "cat/z.png": IDS[0],
        "copy.png": IDS[2],
        "otter.png": IDS[5],
    }
    assert [found[id_]["category"] for id_ in ("cat/z.png", "copy.png", "otter.png")] == ["cat", "dog", "sea otter"]
    assert [found[id_]["labelled"] for id_ in ("cat/z.png", "copy.png", "otter.png")] == ["yes", "no", "no"]
    assert found["otter.png"]["certainty"] == found[IDS[5]]["certainty"] == "0.7000"
    more = ["cat/z.png", "dog/copy.png", "sea otter/otter.png"]
    for form in ("copies", "links"):
        export_run(run, tmp_path / form, form)
        files = [path.relative_to(tmp_path / form).as_posix() for path in (tmp_path / form).rglob("*.png")]
        assert len(files) == 10 and set(more) < set(files)
    assert set(more) < set(json.loads((tmp_path / "copies" / CONTENTS).read_text())["files"])
    export_run(run, tmp_path / "out.json", "json")
    content = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert content["dropped"] == [IDS[7], "gone.png"]
    assert {"image": "copy.png", "certainty": 1.0} in content["categories"][1]["images"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("image,duplicate_of\n", "its columns are not image,duplicate_of,label,skipped"),
        ("image,duplicate_of,label,skipped\na.png,cat/a.png\n", "its columns are not image"),
        ("image,duplicate_of,label,skipped\na.png,cat/a.png,,maybe\n", "skipped is maybe, not yes or no"),
        ("image,duplicate_of,label,skipped\na.png,b.png,,yes\n", r"it does not fit predictions\.csv: b\.png"),
        ("image,duplicate_of,label,skipped\ncat/b.png,cat/a.png,,yes\n", r"it does not fit predictions\.csv: cat/b"),
    ],
)
def test_a_damaged_list_of_duplicates_is_named(run: Path, tmp_path: Path, text: str, why: str) -> None:
    (run / "duplicates.csv").write_text(text)
    with pytest.raises(Failure, match=rf"duplicates\.csv is damaged \({why}.*\)\. Delete it, and write it again with"):
        export_run(run, tmp_path / "out.csv", "csv")
    assert not (tmp_path / "out.csv").exists()
