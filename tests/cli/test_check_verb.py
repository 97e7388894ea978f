"""`sptnet check`: its table, findings, JSON and exit codes."""

import inspect
import json
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conftest import Answer, Call
from helpers.checked_folders import GOOD, paint, picture
from sptnet.cli.verbs.check import check
from sptnet.cli.verbs.discover import discover
from sptnet.data.check.folder_check import CategoryCount, FolderCheck
from sptnet.discovery import pace
from sptnet.runtime.compute import choose_compute


@pytest.fixture
def call(call: Call) -> Call:
    """Without the estimate of time, which takes seconds, unless `time=True`."""

    def run(*words: object, time: bool = False, verb: str = "check") -> Answer:
        return call(verb, *words, *([] if time or not words or verb != "check" else ["--no-time"]))

    return run


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    return paint(tmp_path / "pets", cat=5, dog=6, unlabelled=4)


def test_labels_from_a_file_and_another_name_for_the_unsorted(pets: Path, tmp_path: Path, call: Call) -> None:
    labels = tmp_path / "labels.csv"
    rows = [f"unlabelled/{i}.png,bird" for i in range(4)] + [f"cat/{i}.png,fish" for i in range(5)]
    labels.write_text("\n".join(["path,label", *rows]))
    facts = json.loads(call(pets, "--labels", labels, "--json").out)
    assert [(c["name"], c["labelled"]) for c in facts["categories"]] == [("bird", 4), ("fish", 5)]
    assert facts["unsorted"] == 6
    facts = json.loads(call(pets, "--unlabelled", "dog", "--json").out)
    assert [(c["name"], c["labelled"]) for c in facts["categories"]] == [("cat", 5), ("unlabelled", 4)]
    assert facts["unsorted"] == 6


def test_another_name_for_the_unsorted_must_exist(pets: Path, call: Call) -> None:
    for verb in ("check", "discover"):
        code, out, err = call(pets, "--unlabelled", "unsorted", verb=verb)
        assert (code, out) == (2, "")
        assert f"{pets} has no sub-folder unsorted. Give the name" in err
        assert "with --unlabelled NAME" in err
    assert json.loads(call(pets, "--unlabelled", "dog/", "--json").out)["unsorted"] == 6


def test_a_labels_file_with_a_label_for_every_image(pets: Path, tmp_path: Path, call: Call) -> None:
    labels = tmp_path / "labels.csv"
    ids = [path.relative_to(pets).as_posix() for path in sorted(pets.rglob("*.png"))]
    labels.write_text("\n".join(["path,label", *(f"{id_},{'ab'[i % 2]}" for i, id_ in enumerate(ids))]))
    code, out, _ = call(pets, "--labels", labels)
    assert code == 1
    assert f"- every image has a label in {labels}, so there is nothing to discover. Leave the label" in out
    assert "--no-folder-labels" not in out


def test_one_known_category_and_one_ignored_file_are_singular(tmp_path: Path, call: Call) -> None:
    folder = paint(tmp_path / "pets", cat=5, unlabelled=4)
    (folder / "notes.txt").touch()
    out = call(folder, "--backbone", "sptnet_digits_vit", time=True).out
    assert "ignored: 1 file that is no image, 0 hidden names\n" in out
    assert "5 labelled of 1 known category (cat), 4 unsorted\n" in out


EMBEDDED = ("--backbone", "sptnet_digits_vit")  # needs no weights from elsewhere


def test_a_good_folder(pets: Path, call: Call) -> None:
    code, out, err = call(pets, *EMBEDDED)
    assert (code, err) == (0, "")
    compute = choose_compute()
    lines = out.splitlines()
    assert lines[0].rstrip() == "15 images"
    rows = [[cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")] for line in lines[2:8]]
    assert rows[0] == ["category", "labelled", "unsorted", "test"]
    assert rows[2:] == [
        ["cat", "5", "", "0"],
        ["dog", "6", "", "0"],
        ["(unsorted)", "", "4", "0"],
        ["(all)", "11", "4", "0"],
    ]
    assert lines[9:] == [
        f"device: {compute.device} ({str(compute.dtype).removeprefix('torch.')})",
        "no problems found",
        "ready for training",
    ]


def test_findings_name_the_flags(tmp_path: Path, call: Call) -> None:
    root = paint(tmp_path / "pets", cat=5, dog=5)
    sentence = "If the sub-folders are not categories but sites, cameras or dates, give --no-folder-labels. To hide"
    assert sentence in call(root).out
    assert sentence in json.loads(call(root, "--json").out)["findings"][0]["sentence"]


def test_files_that_are_no_images_are_counted(pets: Path, call: Call) -> None:
    for name in ("notes.txt", "cat/Thumbs.db", ".DS_Store"):
        (pets / name).write_text("x")
    assert "ignored: 2 files that are no images, 1 hidden name\n" in call(pets).out


def test_heic_files_that_are_left_out_are_reported(pets: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (pets / "cat/phone.heic").write_bytes(b"x")
    code, out, err = call(pets)
    assert (code, err) == (0, "")
    assert "- 1 HEIC file is left out. Install sptnet[heic] to read such files.\n" in out


def test_too_many_unreadable_images_end_with_1(pets: Path, call: Call) -> None:
    for i in range(12):
        (pets / f"cat/bad {i:02d}.png").write_bytes(b"")
    code, out, err = call(pets, *EMBEDDED)
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[0].rstrip() == "27 images, 12 unreadable"
    start = next(i for i, line in enumerate(lines) if line.startswith("- 12 of 27 images (44.4%) cannot be read"))
    listed = [f"    cat/bad {i:02d}.png: empty file" for i in range(10)]
    assert lines[start + 1 :] == [*listed, "    and 2 more", "not ready for training"]
    facts = json.loads(call(pets, "--json").out)
    assert (facts["can_train"], len(facts["unreadable"])) == (False, 12)


def test_nothing_readable_ends_with_1(tmp_path: Path, call: Call) -> None:
    (tmp_path / "a.png").write_bytes(b"")
    code, out, _ = call(tmp_path)
    assert code == 1
    assert "- none of the 1 images can be read: a.png (empty file). Repair or replace them.\n" in out


def test_misuse_ends_with_2(tmp_path: Path, call: Call) -> None:
    gone = tmp_path / "gone"
    assert call(gone) == Answer(2, "", f"error: there is no folder {gone}. Give a folder that holds images.\n")
    empty = call(tmp_path, "--json")
    assert (empty.code, empty.out) == (2, "")
    assert empty.err.startswith(f"error: no images found in {tmp_path}/. Give a folder that holds JPEG")
    picture(0).save(tmp_path / "a.png")
    answer = call(tmp_path, "--labels", tmp_path / "no.csv")
    assert (answer.code, answer.out) == (2, "")
    assert "there is no labels file" in answer.err
    assert call().code == 2


def test_json_is_alone_on_stdout(pets: Path, call: Call) -> None:
    picture(0, (63, 63)).save(pets / "cat" / "small.png")
    code, out, err = call(pets, "--json", *EMBEDDED)
    assert (code, err) == (0, "")
    facts = json.loads(out)
    assert set(facts) == {*FolderCheck.__dataclass_fields__, "findings", "can_train", "time"}
    assert facts["time"] is None
    assert (facts["images"], facts["small"], facts["can_train"]) == (16, ["cat/small.png"], True)
    assert facts["same_look"] == [
        {"images": ["cat/0.png", "cat/small.png"], "labels": ["cat"], "in_labelled_and_test": False}
    ]
    assert [(finding["about"], finding["stops"]) for finding in facts["findings"]] == [
        ("near duplicates", False),
        ("duplicates", False),
        ("small images", False),
    ]


def test_duplicates_can_be_skipped(pets: Path, call: Call) -> None:
    picture(0, (90, 72)).save(pets / "cat" / "larger.png")
    said = "1 image that duplicates another can be left out of training, counts and scores with --skip-duplicates: "
    assert said in call(pets).out
    facts = json.loads(call(pets, "--json").out)
    assert facts["duplicates"] == [
        {"image": "cat/larger.png", "original": "cat/0.png", "label": "cat", "skipped": True}
    ]
    answer = call(pets, "--skip-duplicates", *EMBEDDED_SMALL, "--minutes", "0.01", time=True)
    assert answer.code == 0, answer
    assert "- 1 image that duplicates another will be left out of training, counts and scores.\n" in answer.out
    assert "    cat/larger.png duplicates cat/0.png\n" in answer.out
    images = "images: 15 in pets; 11 labelled of 2 known categories (cat, dog), 4 unsorted; 1 duplicate left out\n"
    assert images in answer.out


def test_the_time_is_that_of_the_plan(pets: Path, call: Call) -> None:
    code, out, _ = call(pets, "--backbone", "sptnet_digits_vit", "--minutes", "0.01", time=True)
    assert code == 0
    lines = out.splitlines()
    start = lines.index("plan:")
    assert lines[start - 2 : start] == [
        "images: 15 in pets; 11 labelled of 2 known categories (cat, dog), 4 unsorted",
        f"backbone: sptnet_digits_vit; device: {choose_compute().device}",
    ]
    assert "  Semi-supervised k-means on the features of the backbone; nothing trains." in lines[start:]
    assert re.fullmatch(r"  in all +about \d+ s", lines[-2])
    assert lines[-1] == f"begin with: sptnet discover {pets} --backbone sptnet_digits_vit --minutes 0.01"
    time = json.loads(call(pets, "--backbone", "sptnet_digits_vit", "--minutes", "0.01", "--json", time=True).out)[
        "time"
    ]
    assert (time["method"], time["minutes"]) == ("sskmeans", None)
    assert time["seconds"] == pytest.approx(sum(step["seconds"] for step in time["steps"]), abs=1)
    assert "Semi-supervised k-means on the features of the backbone; nothing trains." in time["reasons"]


# --- as discover ------------------------------------------------------------------------------------------------------

EMBEDDED_SMALL = ["--backbone", "sptnet_digits_vit", "--set", "backbone.image_size=32", "--device", "cpu"]
ONLY_OF_DISCOVER = {"out", "track", "continue_", "dry_run", "resume", "overwrite", "open_it"}


def test_check_has_the_options_of_discover() -> None:
    wanted, there = (inspect.signature(verb).parameters for verb in (discover, check))
    assert set(wanted) - set(there) == ONLY_OF_DISCOVER
    for name in set(wanted) & set(there) - {"folder"}:
        assert (wanted[name].annotation, wanted[name].default) == (there[name].annotation, there[name].default)


@pytest.mark.parametrize(
    ("folders", "options", "refusal"),
    [
        ({"cat": 5, "dog": 5}, [], "every image is labelled, so there is nothing to discover."),
        ({"cat": 5, "dog": 5}, ["--no-folder-labels"], None),
        ({"cat": 1, "unlabelled": 2}, [], None),
        ({"unlabelled": 1}, [], None),
        (
            {"cat": 1, "unlabelled": 2},
            ["--categories", "4"],
            "--categories is 4, but there are only 3 training images.",
        ),
        ({"cat": 1, "unlabelled": 1}, ["--method", "kmeans", "--categories", "2"], "there is only 1 unlabelled image."),
        ({"cat": 1, "dog": 1, "unlabelled": 3}, ["--categories", "1"], "but 2 categories are known already."),
        ({"unlabelled": 3}, ["--method", "simgcd"], "no image has a label, but SimGCD learns from labels."),
        ({"cat": 2, "dog": 2, "unlabelled": 3}, ["--set", "training.batch_size=9"], "only 7 training images."),
        ({"cat": 2, "unlabelled": 3}, ["--set", "backbone.trainable_blocks=9"], "must be from 1 to 4"),
    ],
)
def test_check_and_discover_give_the_same_answer(
    folders: dict[str, int],
    options: list[str],
    refusal: str | None,
    tmp_path: Path,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "SECONDS", 0.005)
    monkeypatch.chdir(tmp_path)
    root, words = paint(tmp_path / "pets", **folders), [*EMBEDDED_SMALL, *options]
    plain, timed = call(root, *words), call(root, *words, time=True)
    begun = call(root, "--dry-run", *words, verb="discover")
    assert plain.code == timed.code == (0 if refusal is None else 1), timed
    assert begun.code == (0 if refusal is None else 2), begun
    if refusal is None:
        plan = timed.out[timed.out.index("plan:\n") :].splitlines()
        assert re.sub(r"about .*", "", plan[1]) == re.sub(r"about .*", "", begun.out.splitlines()[3])
    else:
        assert refusal in plain.out and refusal in timed.out and refusal in begun.err


def test_the_device_is_checked_before_the_images(pets: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for verb in ("check", "discover"):
        answer = call(pets / "gone", "--device", "cuda", verb=verb)
        assert answer == Answer(
            2, "", "error: device 'cuda' is not available here. Use --device auto or --device cpu.\n"
        )


def test_unreadable_images_are_skipped_when_asked(pets: Path, call: Call) -> None:
    for i in range(12):
        (pets / f"cat/bad {i:02d}.png").write_bytes(b"")
    answer = call(pets, "--skip-unreadable")
    assert (answer.code, answer.err) == (0, "")
    assert "- 12 images cannot be read and will be skipped." in answer.out
    assert "or skip them all with --skip-unreadable.\n" in call(pets).out


def test_a_folder_called_unlabelled_has_no_labels(tmp_path: Path, call: Call) -> None:
    root = paint(tmp_path / "unlabelled", monday=5, tuesday=5)
    answer = call(root)
    assert answer.code == 0
    assert answer.err == (
        "the folder is called unlabelled, so the names of its sub-folders are not labels. If they are, give another "
        "name for the unsorted images with --unlabelled NAME.\n"
    )
    assert answer.table["(unsorted)"] == ("", "10", "0")
    assert json.loads(call(root, "--unlabelled", "monday", "--json").out)["unsorted"] == 5


def test_hostile_names_are_shown_harmlessly(tmp_path: Path, call: Call) -> None:
    root = paint(tmp_path / "data", **{"[bold]x": 5, "two\nlines": 5, "\x1b[31mred": 5, "unlabelled": 3})
    name = os.fsdecode(b"\xff.png")
    shutil.copy(root / "[bold]x/0.png", root / "two\nlines" / name)
    (root / "two\nlines" / "bad\x1b.png").write_bytes(b"")
    code, out, _ = call(root)
    assert code == 1
    assert "\x1b" not in out and "\udcff" not in out
    assert all(text in out for text in ("│ [bold]x", "│ 'two\\nlines'", "│ '\\x1b[31mred'"))
    assert "    [bold]x/0.png, 'two\\nlines/\\udcff.png' ([bold]x, 'two\\nlines')\n" in out
    assert "    'two\\nlines/bad\\x1b.png': empty file\n" in out
    assert json.loads(call(root, "--json").out)["unreadable"] == [
        {"name": "two\nlines/bad\x1b.png", "reason": "empty file"}
    ]


def test_long_tables_are_cut() -> None:
    from sptnet.cli.verbs.check import table_rows

    rows = table_rows(replace(GOOD, categories=tuple(CategoryCount(f"c{i}", 100, i) for i in range(60))))
    assert len(rows) == 53
    assert rows[49:] == [
        ["c49", "100", "", "49"],
        ["(10 more categories)", "1,000", "", "545"],
        ["(unsorted)", "", "20", "0"],
        ["(all)", "6,000", "20", "1,770"],
    ]
