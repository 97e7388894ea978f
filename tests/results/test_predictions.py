"""The table of predictions: its columns, and the category of labelled images."""

import csv
from pathlib import Path

import numpy as np

from sptnet.data.image_set import ImageSet
from sptnet.data.split import Split
from sptnet.results.assessment import Assessment
from sptnet.results.predictions import RUN_COLUMNS, final_categories, read_predictions, write_predictions

COLUMNS = ["image", "category", "is_new", "certainty", "part", "truth", "guess", "second", "second_certainty"]
IDS = ("a.png", 'b,"x".png', "c\nd.png", "e.png", "f.png")


def image_set_of(ids: tuple[str, ...]) -> ImageSet:
    n = len(ids)
    sources = tuple(np.full((4, 4), i, np.uint8) for i in range(n))
    return ImageSet("p", ids, sources, (), np.full(n, -1, np.int64), None, np.zeros(n, np.bool_))


def split_of(target: list[int], *parts: list[int]) -> Split:
    """Labelled, unlabelled, held-out and test images of cats, dogs (both known) and eels."""
    return Split(("cat", "dog", "eel"), 2, np.array(target, np.int64), *(np.array(part, np.int64) for part in parts))


def assessed(guess: list[int], certainty: list[float], second: list[int], second_certainty: list[float]) -> Assessment:
    return Assessment(
        np.array(guess, np.int64),
        np.array(certainty, np.float32),
        np.array(second, np.int64),
        np.array(second_certainty, np.float32),
        None,
        "not tried.",
        None,
    )


def written(path: Path, split: Split, assessment: Assessment, names: tuple[str, ...], ids: tuple[str, ...] = IDS):
    write_predictions(path, image_set_of(ids), split, names, assessment)
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_the_table_has_one_row_per_image(tmp_path: Path) -> None:
    split = split_of([0, 1, 2, -1, 0], [0], [1, 3], [4], [2])
    assessment = assessed([0, 2, 2, 1, 1], [1.0] * 5, [1, 0, 0, 2, 2], [0.0] * 5)
    rows = written(tmp_path / "p.csv", split, assessment, ("cat", "dog", "new-1"))
    assert list(rows[0]) == list(RUN_COLUMNS) == COLUMNS
    assert [row["image"] for row in rows] == list(IDS)
    assert [row["category"] for row in rows] == ["cat", "new-1", "new-1", "dog", "dog"]
    assert [row["is_new"] for row in rows] == ["no", "yes", "yes", "no", "no"]
    assert [row["part"] for row in rows] == ["labelled", "unlabelled", "test", "unlabelled", "holdout"]
    assert [row["truth"] for row in rows] == ["cat", "dog", "eel", "", "cat"]
    assert [row["certainty"] for row in rows] == ["1.0000"] * 5
    assert [row["guess"] for row in rows] == [row["category"] for row in rows]
    assert [row["second"] for row in rows] == ["dog", "cat", "cat", "new-1", "new-1"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.csv"]  # no partial file is left
    assert read_predictions(tmp_path / "p.csv", tmp_path) == rows


def test_a_label_takes_precedence_and_the_guess_becomes_the_second_choice(tmp_path: Path) -> None:
    """Only labels that were trained with count: those of held-out images are unknown to the model."""
    split = split_of([0, 0, 0], [0, 1], [], [2], [])
    assessment = assessed([2, 0, 1], [0.7, 0.6, 0.5], [1, 2, 0], [0.2, 0.3, 0.4])
    assert final_categories(split, assessment.guess).tolist() == [0, 0, 1]
    assert assessment.guess.tolist() == [2, 0, 1]
    rows = written(tmp_path / "p.csv", split, assessment, ("cat", "dog", "new-1"), ("a", "b", "c"))
    chosen = ("category", "is_new", "certainty", "guess", "second", "second_certainty")
    assert [[row[column] for column in chosen] for row in rows] == [
        ["cat", "no", "0.7000", "new-1", "new-1", "0.7000"],
        ["cat", "no", "0.6000", "cat", "new-1", "0.3000"],
        ["dog", "no", "0.5000", "dog", "cat", "0.4000"],
    ]


def test_certainty_has_four_digits_and_one_category_has_no_second(tmp_path: Path) -> None:
    split = split_of([-1], [], [0], [], [])
    assessment = assessed([0], [0.73106], [-1], [0.0])
    (row,) = written(tmp_path / "p.csv", split, assessment, ("cat",), ("a",))
    assert (row["certainty"], row["second"], row["second_certainty"]) == ("0.7311", "", "")


def test_a_table_of_version_0_2_has_the_guess_as_its_category(tmp_path: Path) -> None:
    file = tmp_path / "p.csv"
    file.write_text("image,category,is_new,certainty,part,truth\na,dog,no,0.5,labelled,cat\n", encoding="utf-8")
    (row,) = read_predictions(file, tmp_path)
    assert set(row) == set(COLUMNS)
    assert (row["category"], row["guess"], row["second"], row["second_certainty"]) == ("dog", "dog", "", "")
