"""Check of a folder: the facts that are collected, and the findings."""

import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from helpers.checked_folders import GOOD, paint, picture
from sptnet.data.check import folder_check as check_module
from sptnet.data.check.findings import can_train, findings_of
from sptnet.data.check.folder_check import CategoryCount, Duplicates, Unreadable, check_folder
from sptnet.data.check.skip_duplicates import Duplicate
from sptnet.runtime.compute import choose_compute


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    return paint(tmp_path / "pets", cat=5, dog=6, unlabelled=4)


def sentences(folder: Path, **options: Any) -> list[str]:
    return [finding.sentence for finding in findings_of(check_folder(folder, **options))]


def findings(**changes: Any) -> list[tuple[str, bool]]:
    return [(finding.sentence, finding.stops) for finding in findings_of(replace(GOOD, **changes))]


# --- facts ------------------------------------------------------------------------------------------------------------


def test_a_good_folder(pets: Path) -> None:
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


def test_sub_folders_that_are_no_labels(pets: Path) -> None:
    checked = check_folder(pets, folder_labels=False)
    assert (checked.categories, checked.unsorted) == ((), 15)


def test_train_and_test_are_counted_apart(tmp_path: Path) -> None:
    root = paint(tmp_path, train__cat=3, train__unlabelled=2, test__cat=1, test__owl=2, test__unlabelled=1)
    checked = check_folder(root)
    assert checked.categories == (CategoryCount("cat", 3, 1), CategoryCount("owl", 0, 2))
    assert (checked.unsorted, checked.unsorted_test, checked.labels_are_given) == (2, 1, True)


def test_each_image_is_decoded_once_and_progress_is_shown(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    decoded = check_module.decoded

    def recorded(path: Path, name: str, least: int) -> Any:
        seen.append(name)
        return decoded(path, name, least)

    monkeypatch.setattr(check_module, "decoded", recorded)
    shutil.copy(pets / "cat/0.png", pets / "cat/9.png")
    tracked_steps: list[tuple[str, int]] = []

    def track(what: str) -> Callable[..., Iterable[Any]]:
        def tracked(items: Iterable[Any], total: int) -> Iterable[Any]:
            tracked_steps.append((what, total))
            return items

        return tracked

    checked = check_folder(pets, track=track)
    assert len(seen) == len(set(seen)) == checked.images == 16
    assert [what for what, _ in tracked_steps] == ["reading images", "comparing files", "comparing images"]
    assert tracked_steps[0][1] == 16 and 2 <= tracked_steps[1][1] < 16


def test_duplicates_have_labels_and_parts(tmp_path: Path) -> None:
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
        "duplicates",
    ]
    assert checked.duplicates == (
        Duplicate("test/cat/other.png", "train/unlabelled/0.png"),
        Duplicate("test/cat/same.png", "train/cat/1.png"),
        Duplicate("test/dog/large.png", "test/dog/1.png"),
        Duplicate("train/dog/3.png", "train/cat/again.jpg", "dog", skipped=False),
        Duplicate("train/dog/same.png", "train/cat/0.png", "dog", skipped=False),
        Duplicate("train/unlabelled/same.png", "train/cat/2.png"),
    )


def test_the_option_to_skip_duplicates_is_suggested_or_told(pets: Path) -> None:
    for i in (0, 1):
        shutil.copy(pets / f"cat/{i}.png", pets / f"unlabelled/same{i}.png")
    suggested = findings_of(check_folder(pets))
    assert [finding.about for finding in suggested] == ["exact duplicates", "duplicates"]
    assert suggested[-1].sentence == (
        "2 images that duplicate another can be left out of training, counts and scores with "
        "`data.skip_duplicates=true`: duplicates make results look better than they are."
    )
    (told,) = findings_of(check_folder(pets, skip_duplicates=True))
    assert told.sentence == "2 images that duplicate another will be left out of training, counts and scores."
    assert told.examples[0] == "unlabelled/same0.png duplicates cat/0.png"


def test_sizes_at_the_limits(pets: Path) -> None:
    for name, size in {"63": (63, 90), "64": (64, 90), "4": (400, 100), "over4": (401, 100), "tall": (70, 281)}.items():
        picture(100, size).save(pets / "unlabelled" / f"size {name}.jpg")
    checked = check_folder(pets)
    assert checked.small == ("unlabelled/size 63.jpg",)
    assert checked.elongated == ("unlabelled/size over4.jpg", "unlabelled/size tall.jpg")


def test_files_that_are_no_images_are_counted(pets: Path) -> None:
    for name in ("notes.txt", "cat/Thumbs.db", ".DS_Store", "cat/.hidden.png"):
        (pets / name).write_text("x")
    (pets / ".git").mkdir()
    (pets / ".git/a.png").write_text("x")
    (pets / "dog/gone.png").symlink_to(pets / "nowhere.png")
    checked = check_folder(pets)
    assert (checked.images, checked.others, checked.hidden) == (15, 3, 3)


def test_heic_files_that_are_left_out_are_reported(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (pets / "cat/phone.heic").write_bytes(b"x")
    assert sentences(pets) == ["1 HEIC file is left out. Install sptnet[heic] to read such files."]
    (pets / "cat/phone2.heic").write_bytes(b"x")
    assert sentences(pets) == ["2 HEIC files are left out. Install sptnet[heic] to read such files."]


# --- findings ---------------------------------------------------------------------------------------------------------


def test_a_good_folder_has_no_findings() -> None:
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
        "cat/1.png (truncated), cat/2.png (truncated) and 1 more. Repair or remove them, raise the limit with "
        "`data.max_unreadable=0.2`, or skip them all with `data.max_unreadable=1`."
    )
    assert findings(unreadable=bad) == [(words, True)]
    assert findings(unreadable=bad, max_unreadable=0.1) == [
        ("4 images cannot be read and will be skipped. Repair or remove what matters.", False)
    ]


def test_labels_that_teach_little() -> None:
    cat, dog = GOOD.categories
    assert findings(categories=(), unsorted=40) == [
        (
            "no training image has a label, so the images can only be clustered. To have categories recognised, sort "
            "some images into one sub-folder per category, or give a labels file.",
            False,
        )
    ]
    assert findings(categories=(cat, replace(dog, labelled=0, test=3))) == [
        (
            "only the category cat has labels, so they show neither how categories differ nor how fine they are: their "
            "number is a guess, and the images are clustered unless you choose a method. Label a second category, or "
            "give the number with `n_categories=N`.",
            False,
        )
    ]


def test_categories_that_are_too_small_or_too_uneven() -> None:
    few = tuple(CategoryCount(name, n, 0) for name, n in (("ant", 4), ("bee", 5), ("cat", 50)))
    assert findings(categories=few) == [
        (
            "ant has fewer than 5 labelled images, too few to learn from. "
            "Label more of them, or leave them unsorted to be discovered.",
            False,
        )
    ]
    uneven = (*few[1:], CategoryCount("dog", 1051, 0), CategoryCount("eel\n", 1, 0), CategoryCount("fox", 2, 0))
    assert [sentence for sentence, _ in findings(categories=uneven)] == [
        "'eel\\n', fox have fewer than 5 labelled images, too few to learn from. "
        "Label more of them, or leave them unsorted to be discovered.",
        "the labelled categories are very uneven: dog has 1,051 images, bee 5. "
        "Label more of the small ones, or unsort some of the large ones.",
    ]


def test_duplicates_that_mislead_come_first() -> None:
    rest = Duplicates(("a", "b", "c"), ("cat",), False)
    leaked = Duplicates(("d", "e"), ("cat",), True)
    conflicting = Duplicates(("f", "g\n", "h", "i", "j"), ("cat", "dog"), True)
    results = findings_of(
        replace(GOOD, same_bytes=(rest, leaked, conflicting), same_look=(rest, rest, leaked, conflicting, conflicting))
    )
    assert [(finding.sentence, finding.examples) for finding in results] == [
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
    assert can_train(results)


def test_sizes_are_reported() -> None:
    results = findings_of(replace(GOOD, small=("a\x1b.png",), elongated=("b.png",) * 1200))
    assert [finding.sentence for finding in results] == [
        "1 image with a side of less than 64 pixels. Enlarging shows no more detail; "
        "use larger versions if there are any.",
        "1,200 images with one side over 4 times the other. Only the middle is looked at; cut out what matters.",
    ]
    assert results[0].examples == ("'a\\x1b.png'",)


def test_findings_that_prevent_training_come_first() -> None:
    bad = tuple(Unreadable(f"cat/{i}.png", "truncated") for i in range(4))
    results = findings_of(replace(GOOD, unreadable=bad, heic_left_out=1, categories=()))
    assert [(finding.about, finding.stops) for finding in results] == [
        ("unreadable", True),
        ("heic", False),
        ("no labels", False),
    ]
    assert not can_train(results)
