"""Predictions with edited names: renamed, merged and split categories of a model."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from helpers.result_runs import make_run, small_result
from sptnet.results.edits.log import add_edits
from sptnet.results.edits.names import edited_names, names_for
from sptnet.results.edits.types import CarryNames, Confirm, Drop, Edit, Merge, Move, Rename, SplitCategory, Undo


def sorted_into(edits: Sequence[Edit], categories: Sequence[int], degrees: Sequence[float]) -> list[str]:
    """Return the edited names of images with these categories of the model and features in these directions."""
    names = edited_names(small_result(), edits)
    angles = np.deg2rad(degrees)
    features = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    return [names.names[i] for i in names.translate(np.array(categories), features)]


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ([], ["cat", "dog", "new-1", "new-2"]),
        ([Rename("new-1", "eel")], ["cat", "dog", "eel", "new-2"]),
        ([Rename("new-1", "eel"), Rename("eel", "ray")], ["cat", "dog", "ray", "new-2"]),
        ([Merge(("new-1", "new-2"), "eel")], ["cat", "dog", "eel", "eel"]),
        ([Merge(("new-1",), "cat")], ["cat", "dog", "cat", "new-2"]),
        ([Merge(("cat", "dog"), "pet"), Rename("pet", "friend")], ["friend", "friend", "new-1", "new-2"]),
        ([Rename("new-1", "eel"), Undo()], ["cat", "dog", "new-1", "new-2"]),
        ([CarryNames(("new-1", "new-2"), ("new-2", "eel"))], ["cat", "dog", "new-2", "eel"]),
        ([Confirm(("new-1",))], ["cat", "dog", "new-1", "new-2"]),
        ([Move(("cat/a.png",), "dog"), Drop(("cat/b.png",))], ["cat", "dog", "new-1", "new-2"]),
        ([Move(("cat/a.png", "cat/b.png"), "lynx", create=True)], ["cat", "dog", "new-1", "new-2"]),
    ],
)
def test_names_that_need_no_features(edits: list[Edit], expected: list[str]) -> None:
    assert sorted_into(edits, [0, 1, 2, 3], [0, 0, 0, 0]) == expected


def test_images_of_a_split_category_get_the_nearest_part() -> None:
    """new-1 lies at 180, 182, 230 and 233 degrees; the parts at about 181 and 231."""
    split = [SplitCategory("new-1", 2)]
    degrees = [170, 181, 200, 212, 240]
    assert sorted_into(split, [2] * 5, degrees) == ["new-1-a", "new-1-a", "new-1-a", "new-1-b", "new-1-b"]
    assert sorted_into(split, [0, 1, 3], [181, 231, 181]) == ["cat", "dog", "new-2"], "others are not touched"


def test_a_part_that_is_merged_keeps_the_direction_it_had() -> None:
    """new-1-b becomes dog, at 90 degrees; an eel at 235 degrees is still nearest to what was new-1-b."""
    edits = [SplitCategory("new-1", 2), Merge(("new-1-b",), "dog"), Rename("new-1-a", "eel")]
    assert sorted_into(edits, [2, 2, 1], [235, 175, 180]) == ["dog", "eel", "dog"]


def test_parts_that_are_merged_again_are_one() -> None:
    edits = [SplitCategory("new-1", 2), Merge(("new-1-a", "new-1-b"), "eel")]
    assert sorted_into(edits, [2, 2], [181, 231]) == ["eel", "eel"]
    again = [*edits, SplitCategory("eel", 2), Rename("eel-b", "ray")]
    assert sorted_into(again, [2, 2], [181, 231]) == ["eel-a", "ray"]


def test_a_split_of_two_merged_categories_serves_both() -> None:
    edits = [Merge(("cat", "dog"), "pet"), SplitCategory("pet", 2)]
    assert sorted_into(edits, [0, 1, 0, 1], [0, 0, 90, 90]) == ["pet-a", "pet-a", "pet-b", "pet-b"]


def test_new_categories_follow_the_edits() -> None:
    names = edited_names(small_result(), [Merge(("new-1",), "cat"), SplitCategory("cat", 2)])
    assert (names.names, names.n_known) == (("cat-a", "cat-b", "dog", "new-2"), 3)


def test_only_an_edited_run_has_edited_names(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert names_for(run) is None
    assert names_for(run / "model") is None
    add_edits(run, [Rename("new-1", "eel")])
    names = names_for(run)
    assert names is not None
    assert names.names == ("cat", "dog", "eel", "new-2")
    add_edits(run, [Undo()])
    assert names_for(run) is None


def test_predict_uses_edited_names(edited_run: tuple[Path, Path], tmp_path: Path) -> None:
    run, images = edited_run
    before = predictions(run, images, tmp_path / "before.csv")
    first, second = sorted({row["category"] for row in before if row["is_new"] == "yes"})[:2]
    add_edits(run, [Rename(first, "seven"), Merge((second,), "0")])
    after = predictions(run, images, tmp_path / "after.csv")
    became = {first: ("seven", "yes"), second: ("0", "no")}
    for row, other in zip(before, after, strict=True):
        name, is_new = became.get(row["category"], (row["category"], row["is_new"]))
        assert (other["category"], other["is_new"]) == (name, is_new)
        assert (other["image"], other["certainty"]) == (row["image"], row["certainty"])


def predictions(run: Path, images: Path, out: Path) -> list[dict[str, str]]:
    from sptnet.cli.verbs.predict import predict

    predict(run, [images], out, "cpu", 0.0)
    return list(csv.DictReader(out.read_text().splitlines()))


@pytest.fixture
def edited_run(digit_folder: Path, tiny_settings: list[str], tmp_path: Path) -> tuple[Path, Path]:
    """K-means on the sixty digits, of which 0 to 4 are known."""
    from sptnet.config.recipes import load_recipe
    from sptnet.training.experiment import train

    settings = [*tiny_settings, "data.source=folder", f'data.folder="{digit_folder}"', "method=kmeans"]
    train(load_recipe("digits", settings), tmp_path / "run", command=["test"])
    return tmp_path / "run", digit_folder
