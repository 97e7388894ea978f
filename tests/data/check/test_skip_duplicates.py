"""Duplicates that are left out of an image set: which one stays, and what is said."""

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from helpers.checked_folders import paint, picture
from sptnet.config import DataSettings
from sptnet.data.check.skip_duplicates import Duplicate, duplicate_files
from sptnet.data.load import load_data, load_image_set, load_unsorted
from sptnet.data.readable import fingerprint
from sptnet.errors import Misuse


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Five cats, five dogs and four unsorted images, some of them twice."""
    root = paint(tmp_path / "pets", cat=5, dog=5, unlabelled=4)
    shutil.copy(root / "cat/0.png", root / "cat/copy.png")
    shutil.copy(root / "cat/1.png", root / "aside.png")  # before its original in the order of names
    with Image.open(root / "unlabelled/0.png") as image:
        image.resize((160, 128)).save(root / "unlabelled/large.jpg", quality=80)
    return root


def settings(root: Path, **more: Any) -> DataSettings:
    return DataSettings(folder=str(root), skip_duplicates=True, **more)


def silent(line: str) -> None:
    pass


def test_all_but_one_of_a_group_are_left_out(pets: Path) -> None:
    said: list[str] = []
    images = load_data(settings(pets), said.append)
    assert images.duplicates == [
        Duplicate("aside.png", "cat/1.png"),
        Duplicate("cat/copy.png", "cat/0.png", "cat"),
        Duplicate("unlabelled/large.jpg", "unlabelled/0.png"),
    ]
    assert images.n_skipped == 3
    assert said == ["left out 3 images that are duplicates"]
    assert not {"aside.png", "cat/copy.png", "unlabelled/large.jpg"} & set(images.image_set.ids)
    assert (len(images.split.labelled), len(images.split.unlabelled)) == (10, 4)
    assert load_image_set(settings(pets), silent)[0].ids == images.image_set.ids
    assert load_unsorted(settings(pets), silent)[1].duplicates == images.duplicates


def test_without_duplicates_the_images_are_those_of_a_folder_without_them(pets: Path, tmp_path: Path) -> None:
    skipped = load_data(settings(pets), silent)
    plain = shutil.copytree(pets, tmp_path / "plain" / "pets")
    for duplicate in skipped.duplicates:
        (plain / duplicate.image).unlink()
    other = load_data(DataSettings(folder=str(plain)), silent)
    assert fingerprint(skipped.image_set) == fingerprint(other.image_set)
    for part in ("labelled", "unlabelled", "holdout", "test", "target"):
        assert np.array_equal(getattr(skipped.split, part), getattr(other.split, part))


def test_nothing_is_left_out_unless_asked(pets: Path) -> None:
    assert DataSettings().skip_duplicates is False
    said: list[str] = []
    images = load_data(DataSettings(folder=str(pets)), said.append)
    assert (len(images.image_set), images.duplicates, images.n_skipped, said) == (17, [], 0, [])


def test_images_with_different_labels_stay(pets: Path) -> None:
    shutil.copy(pets / "dog/2.png", pets / "cat/wrong.png")
    shutil.copy(pets / "dog/2.png", pets / "unlabelled/which.png")
    said: list[str] = []
    images = load_data(settings(pets), said.append)
    kept = [duplicate for duplicate in images.duplicates if not duplicate.skipped]
    assert kept == [
        Duplicate("dog/2.png", "cat/wrong.png", "dog", skipped=False),
        Duplicate("unlabelled/which.png", "cat/wrong.png", skipped=False),
    ]
    assert {"dog/2.png", "cat/wrong.png", "unlabelled/which.png"} <= set(images.image_set.ids)
    assert images.n_skipped == 3
    assert said[1] == (
        "2 pairs of duplicates with different labels stay: dog/2.png and cat/wrong.png, "
        "unlabelled/which.png and cat/wrong.png"
    )


def test_training_images_stay_and_test_images_go(tmp_path: Path) -> None:
    root = paint(tmp_path / "pets", train__cat=3, train__dog=3, train__unlabelled=3, test__cat=2, test__dog=2)
    shutil.copy(root / "train/cat/0.png", root / "test/cat/leak.png")
    shutil.copy(root / "train/unlabelled/0.png", root / "test/cat/other.png")
    images = load_data(settings(root), silent)
    assert images.duplicates == [
        Duplicate("test/cat/leak.png", "train/cat/0.png"),
        Duplicate("test/cat/other.png", "train/unlabelled/0.png"),
    ]
    assert len(images.split.test) == 4


def test_labels_of_a_file_count(pets: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("path,label\nunlabelled/large.jpg,bird\ncat/copy.png,cat\n", encoding="utf-8")
    images = load_data(settings(pets, labels=str(labels)), silent)
    assert images.duplicates == [
        Duplicate("cat/0.png", "cat/copy.png"),
        Duplicate("cat/1.png", "aside.png"),
        Duplicate("unlabelled/0.png", "unlabelled/large.jpg"),
    ]


def test_unreadable_images_are_no_duplicates(pets: Path) -> None:
    for name in ("bad", "worse"):
        (pets / "cat" / f"{name}.png").write_bytes(b"no image")
    images = load_data(settings(pets, max_unreadable=0.5), silent)
    assert [problem.name for problem in images.unreadable] == ["cat/bad.png", "cat/worse.png"]
    assert images.n_skipped == 3


def test_it_is_for_folders() -> None:
    with pytest.raises(Misuse, match=r"^`data.skip_duplicates` is for folders, but data.source is digits\."):
        load_data(DataSettings(source="digits", skip_duplicates=True, known_classes=5))


def test_files_are_compared_with_progress(tmp_path: Path) -> None:
    names = [f"{i}.png" for i in range(5)]
    for name, seed in zip(names, (0, 1, 0, 2, 1), strict=True):
        picture(seed).save(tmp_path / name)
    (tmp_path / "3.png").write_bytes(b"")
    steps: list[str] = []

    def track(what: str) -> Callable[..., Iterable[Any]]:
        steps.append(what)
        return lambda items, total: items

    files = [tmp_path / name for name in names]
    assert duplicate_files(files, names, [1, 1, 0, 0, 1], track) == {"0.png": "2.png", "4.png": "1.png"}
    assert steps == ["looking for duplicates", "comparing images"]
    assert duplicate_files([], [], [], track) == {}
