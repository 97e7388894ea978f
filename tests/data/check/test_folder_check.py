"""`sptnet check`: what it finds in a folder, what it says of it, and how it ends."""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from conftest import Answer, Call
from sptnet.data.check import folder_check as check_module
from sptnet.data.check.findings import can_train, findings_of
from sptnet.data.check.folder_check import CategoryCount, Duplicates, FolderCheck, Unreadable, check_folder
from sptnet.runtime.compute import choose_compute


@pytest.fixture
def call(call: Call) -> Call:
    """Without the estimate of time, which takes seconds, unless `time=True`."""

    def run(*words: object, time: bool = False) -> Answer:
        return call("check", *words, *([] if time or not words else ["--no-time"]))

    return run


def picture(seed: int, size: tuple[int, int] = (80, 64)) -> Image.Image:
    blots = np.random.default_rng(seed).integers(0, 256, (8, 10, 3), dtype=np.uint8)
    return Image.fromarray(blots).resize(size, Image.Resampling.BICUBIC)


def paint(root: Path, **counts: int) -> Path:
    """Folders of pictures, each different from all others; train__cat is train/cat."""
    seed = 0
    for name, n in counts.items():
        folder = root / name.replace("__", "/")
        folder.mkdir(parents=True)
        for i in range(n):
            picture(seed).save(folder / f"{i}.png")
            seed += 1
    return root


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    return paint(tmp_path / "pets", cat=5, dog=6, unlabelled=4)


def sentences(folder: Path, **options: Any) -> list[str]:
    return [finding.sentence for finding in findings_of(check_folder(folder, **options))]


GOOD = FolderCheck(
    folder="pets",
    images=40,
    categories=(CategoryCount("cat", 10, 0), CategoryCount("dog", 10, 0)),
    unsorted=20,
    unsorted_test=0,
    labels_are_given=True,
    unreadable=(),
    max_unreadable=0.01,
    others=0,
    hidden=0,
    heic_left_out=0,
    same_bytes=(),
    same_look=(),
    small=(),
    elongated=(),
    device="cpu",
    precision="float32",
)


def said(**changes: Any) -> list[tuple[str, bool]]:
    return [(finding.sentence, finding.stops) for finding in findings_of(replace(GOOD, **changes))]


# --- what is gathered -------------------------------------------------------------------------------------------------


def test_a_good_folder(pets: Path, call: Call) -> None:
    compute = choose_compute()
    assert check_folder(str(pets)) == replace(
        GOOD,
        folder=str(pets),
        images=15,
        categories=(CategoryCount("cat", 5, 0), CategoryCount("dog", 6, 0)),
        unsorted=4,
        device=str(compute.device),
        precision=str(compute.dtype).removeprefix("torch."),
    )
    code, out, err = call(pets)
    assert (code, err) == (0, "")
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
        "nothing to complain of",
        "training can go on",
    ]


def test_train_and_test_are_counted_apart(tmp_path: Path) -> None:
    root = paint(tmp_path, train__cat=3, train__unlabelled=2, test__cat=1, test__owl=2, test__unlabelled=1)
    checked = check_folder(root)
    assert checked.categories == (CategoryCount("cat", 3, 1), CategoryCount("owl", 0, 2))
    assert (checked.unsorted, checked.unsorted_test, checked.labels_are_given) == (2, 1, True)


def test_each_image_is_decoded_once_and_progress_is_told(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    read_reduced = check_module.read_reduced

    def noted(path: Path, name: str, least: int) -> Any:
        seen.append(name)
        return read_reduced(path, name, least)

    monkeypatch.setattr(check_module, "read_reduced", noted)
    shutil.copy(pets / "cat/0.png", pets / "cat/9.png")
    told: list[tuple[str, int]] = []

    def track(what: str) -> Callable[..., Iterable[Any]]:
        def tracked(items: Iterable[Any], total: int) -> Iterable[Any]:
            told.append((what, total))
            return items

        return tracked

    checked = check_folder(pets, track=track)
    assert len(seen) == len(set(seen)) == checked.images == 16
    assert [what for what, _ in told] == ["reading images", "comparing files"]
    assert told[0][1] == 16 and 2 <= told[1][1] < 16


def test_duplicates_know_where_they_are(tmp_path: Path) -> None:
    root = paint(tmp_path, train__cat=6, train__dog=6, train__unlabelled=3, test__cat=2, test__dog=2)
    shutil.copy(root / "train/cat/0.png", root / "train/dog/same.png")
    shutil.copy(root / "train/cat/1.png", root / "test/cat/same.png")
    shutil.copy(root / "train/unlabelled/0.png", root / "test/cat/other.png")
    shutil.copy(root / "train/cat/2.png", root / "train/unlabelled/same.png")
    with Image.open(root / "train/dog/3.png") as image:
        image.save(root / "train/cat/again.jpg", quality=70)
    with Image.open(root / "test/dog/1.png") as image:
        image.resize((160, 128)).save(root / "test/dog/large.png")
    checked = check_folder(root)
    assert checked.same_bytes == (
        Duplicates(("test/cat/other.png", "train/unlabelled/0.png"), ("cat",), False),
        Duplicates(("test/cat/same.png", "train/cat/1.png"), ("cat",), True),
        Duplicates(("train/cat/0.png", "train/dog/same.png"), ("cat", "dog"), False),
        Duplicates(("train/cat/2.png", "train/unlabelled/same.png"), ("cat",), False),
    )
    assert checked.same_look == (
        Duplicates(("test/dog/1.png", "test/dog/large.png"), ("dog",), False),
        Duplicates(("train/cat/again.jpg", "train/dog/3.png"), ("cat", "dog"), False),
    )
    assert [finding.about for finding in findings_of(checked)] == [
        "exact duplicates: labels",
        "near duplicates: labels",
        "exact duplicates: test",
        "exact duplicates",
        "near duplicates",
    ]


def test_sizes_at_the_limits(pets: Path) -> None:
    for name, size in {"63": (63, 90), "64": (64, 90), "4": (400, 100), "over4": (401, 100), "tall": (70, 281)}.items():
        picture(100, size).save(pets / "unlabelled" / f"size {name}.jpg")
    checked = check_folder(pets)
    assert checked.small == ("unlabelled/size 63.jpg",)
    assert checked.elongated == ("unlabelled/size over4.jpg", "unlabelled/size tall.jpg")


def test_what_is_no_image_is_only_counted(pets: Path, call: Call) -> None:
    for name in ("notes.txt", "cat/Thumbs.db", ".DS_Store", "cat/.hidden.png"):
        (pets / name).write_text("x")
    (pets / ".git").mkdir()
    (pets / ".git/a.png").write_text("x")
    (pets / "dog/gone.png").symlink_to(pets / "nowhere.png")
    checked = check_folder(pets)
    assert (checked.images, checked.others, checked.hidden) == (15, 3, 3)
    assert "passed over: 3 files that are no images, 3 hidden names\n" in call(pets).out


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


def test_heic_files_that_are_left_out_are_told(pets: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (pets / "cat/phone.heic").write_bytes(b"x")
    code, out, err = call(pets)
    assert (code, err) == (0, "")
    assert "- 1 HEIC file is left out. Install sptnet[heic] to read such files.\n" in out
    (pets / "cat/phone2.heic").write_bytes(b"x")
    assert sentences(pets) == ["2 HEIC files are left out. Install sptnet[heic] to read such files."]


# --- what is said of it -----------------------------------------------------------------------------------------------


def test_nothing_is_said_of_a_good_folder() -> None:
    assert findings_of(GOOD) == []
    assert can_train([])


def test_few_unreadable_images_are_named_and_skipped() -> None:
    bad = tuple(Unreadable(f"cat/{i}.png", "truncated") for i in range(2))
    (finding,) = findings_of(replace(GOOD, images=200, unreadable=bad))
    assert finding.sentence == "2 images cannot be read and will be skipped. Repair or remove what matters."
    assert (finding.examples, finding.stops) == (("cat/0.png: truncated", "cat/1.png: truncated"), False)


def test_too_many_unreadable_images_stop() -> None:
    bad = tuple(Unreadable(f"cat/{i}.png", "truncated") for i in range(4))
    words = (
        "4 of 40 images (10.0%) cannot be read, more than the 1.0% allowed: cat/0.png (truncated), "
        "cat/1.png (truncated), cat/2.png (truncated), .... Repair or remove them, or raise the limit with "
        "`data.max_unreadable=0.2`."
    )
    assert said(unreadable=bad) == [(words, True)]
    assert said(unreadable=bad, max_unreadable=0.1) == [
        ("4 images cannot be read and will be skipped. Repair or remove what matters.", False)
    ]


def test_labels_that_leave_nothing_to_do() -> None:
    cat, dog = GOOD.categories
    assert said(categories=(), unsorted=40) == [
        (
            "no training image has a label, so the images can only be clustered. To have categories recognised, sort "
            "some images into one sub-folder per category, or give a labels file.",
            False,
        )
    ]
    assert said(unsorted=0) == [
        (
            "every readable training image has a label, so there is nothing to discover. Add images without one.",
            True,
        )
    ]
    assert said(unsorted=0, labels_are_given=False) == [
        (
            "every image is sorted, so there is nothing to discover. Put unsorted images beside the category "
            "folders or, for an experiment, name the known classes with `data.known_classes=5`.",
            False,
        )
    ]
    assert said(categories=(cat, replace(dog, labelled=0, test=3))) == [
        (
            "only the category cat has labels, so the number of categories cannot be estimated. "
            "Label a second category, or give the number yourself with `n_categories=N`.",
            False,
        )
    ]


def test_categories_that_are_too_small_or_too_uneven() -> None:
    few = tuple(CategoryCount(name, n, 0) for name, n in (("ant", 4), ("bee", 5), ("cat", 50)))
    assert said(categories=few) == [
        (
            "ant has fewer than 5 labelled images, too few to learn from. "
            "Label more of them, or leave them unsorted to be discovered.",
            False,
        )
    ]
    uneven = (*few[1:], CategoryCount("dog", 1051, 0), CategoryCount("eel\n", 1, 0), CategoryCount("fox", 2, 0))
    assert [sentence for sentence, _ in said(categories=uneven)] == [
        "'eel\\n', fox have fewer than 5 labelled images, too few to learn from. "
        "Label more of them, or leave them unsorted to be discovered.",
        "the labelled categories are very uneven: dog has 1,051 images, bee 5. "
        "Label more of the small ones, or unsort some of the large ones.",
    ]


def test_duplicates_that_mislead_come_first() -> None:
    rest = Duplicates(("a", "b", "c"), ("cat",), False)
    leaked = Duplicates(("d", "e"), ("cat",), True)
    torn = Duplicates(("f", "g\n", "h", "i", "j"), ("cat", "dog"), True)
    found = findings_of(replace(GOOD, same_bytes=(rest, leaked, torn), same_look=(rest, rest, leaked, torn, torn)))
    assert [(finding.sentence, finding.examples) for finding in found] == [
        (
            "1 group of exact duplicates with different labels. Keep one image of each, under its right label.",
            ("f, 'g\\n', h, i and 1 more (cat, dog)",),
        ),
        (
            "2 groups of near duplicates with different labels. Look at them: one label may be wrong.",
            ("f, 'g\\n', h, i and 1 more (cat, dog)",) * 2,
        ),
        (
            "1 group of exact duplicates in both the labelled and the test images, which flatters the scores. "
            "Remove them from one of the two.",
            ("d, e",),
        ),
        (
            "1 group of near duplicates in both the labelled and the test images, which flatters the scores. "
            "Remove them from one of the two.",
            ("d, e",),
        ),
        (
            "1 group of exact duplicates elsewhere, 2 images too many. "
            "They count more than others; remove them if that is not wanted.",
            ("a, b, c",),
        ),
        (
            "2 groups of near duplicates elsewhere, 4 images too many. "
            "They count more than others; remove them if that is not wanted.",
            ("a, b, c",) * 2,
        ),
    ]
    assert can_train(found)


def test_sizes_are_told() -> None:
    found = findings_of(replace(GOOD, small=("a\x1b.png",), elongated=("b.png",) * 1200))
    assert [finding.sentence for finding in found] == [
        "1 image with a side of less than 64 pixels. Enlarging shows no more detail; "
        "use larger versions if there are any.",
        "1,200 images with one side over 4 times the other. Only the middle is looked at; cut out what matters.",
    ]
    assert found[0].examples == ("'a\\x1b.png'",)


def test_what_stops_comes_first() -> None:
    found = findings_of(replace(GOOD, unsorted=0, heic_left_out=1))
    assert [(finding.about, finding.stops) for finding in found] == [("nothing unsorted", True), ("heic", False)]
    assert not can_train(found)


# --- the verb ---------------------------------------------------------------------------------------------------------


def test_too_many_unreadable_images_end_with_1(pets: Path, call: Call) -> None:
    for i in range(12):
        (pets / f"cat/bad {i:02d}.png").write_bytes(b"")
    code, out, err = call(pets)
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[0].rstrip() == "27 images, 12 unreadable"
    start = next(i for i, line in enumerate(lines) if line.startswith("- 12 of 27 images (44.4%) cannot be read"))
    listed = [f"    cat/bad {i:02d}.png: empty file" for i in range(10)]
    assert lines[start + 1 :] == [*listed, "    and 2 more", "training cannot go on"]
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
    code, out, err = call(pets, "--json")
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
        ("small images", False),
    ]


def test_the_time_is_that_of_the_plan(pets: Path, call: Call) -> None:
    code, out, _ = call(pets, "--backbone", "sptnet_digits_vit", "--minutes", "0.01", time=True)
    assert code == 0
    *_, time, plan = out.splitlines()
    assert re.fullmatch(r"time: semi-supervised k-means with sptnet_digits_vit takes about \d+ (s|min) here", time), (
        time
    )
    assert plan == f"the whole plan: sptnet discover {pets} --dry-run"
    facts = json.loads(call(pets, "--backbone", "sptnet_digits_vit", "--minutes", "0.01", "--json", time=True).out)
    assert facts["time"]["method"] == "sskmeans" and facts["time"]["seconds"] > 0


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
