"""The table of categories: sizes, cohesion, nearest known category, representative and doubtful images."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.result_runs import DEGREES, small_result
from helpers.rounding import SINGLE
from sptnet.errors import Misuse
from sptnet.results.categories import (
    describe_categories,
    labels_to_check,
    mean_directions,
    name_categories,
    read_names,
)
from sptnet.results.edits.apply import apply_edit
from sptnet.results.edits.types import Drop, Edit, Merge, Move, Rename, SplitCategory
from sptnet.results.run_result import RunResult


def angle(direction: np.ndarray) -> float:
    return float(np.rad2deg(np.arctan2(direction[1], direction[0])))


def spread(degrees: list[float], category: list[int], certainty: list[float], n_known: int, n: int) -> RunResult:
    """Images in the plane at these angles, named after their position."""
    ids = tuple(f"i{i:02d}" for i in range(len(degrees)))
    angles = np.deg2rad(degrees)
    return RunResult(
        ids=ids,
        sources=(None,) * len(ids),
        part=("unlabelled",) * len(ids),
        names=tuple(f"c{i}" for i in range(n)),
        n_known=n_known,
        category=np.array(category),
        certainty=np.array(certainty, np.float32),
        features=np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32),
        truth=(None,) * len(ids),
    )


def test_one_entry_per_category() -> None:
    cat, dog, first, empty = describe_categories(small_result())
    assert [c.name for c in (cat, dog, first, empty)] == ["cat", "dog", "new-1", "new-2"]
    assert [c.is_new for c in (cat, dog, first, empty)] == [False, False, True, True]
    assert [c.size for c in (cat, dog, first, empty)] == [3, 1, 4, 0]
    assert cat.mean_certainty == pytest.approx(0.7, rel=SINGLE)
    assert first.mean_certainty == pytest.approx(0.625, rel=SINGLE)
    assert (empty.mean_certainty, empty.cohesion, empty.nearest_known) == (None, None, None)
    assert (empty.representatives, empty.doubtful) == ((), ())


def test_cohesion_is_the_mean_cosine_to_the_mean_direction() -> None:
    cat, dog, *_ = describe_categories(small_result())
    complex_sum = sum(np.exp(1j * np.deg2rad(d)) for d in DEGREES[:3])
    centre = np.rad2deg(np.angle(complex_sum))
    assert cat.cohesion == pytest.approx(np.mean([np.cos(np.deg2rad(d - centre)) for d in DEGREES[:3]]), abs=SINGLE)
    assert dog.cohesion == pytest.approx(1, abs=SINGLE)


def test_mean_directions_leave_dropped_images_out() -> None:
    result = spread([0, 20, 90, 200], [0, 0, 0, 1], [1] * 4, 1, 3)
    result = replace(result, category=np.array([0, 0, -1, 1]))
    directions = mean_directions(result)
    assert angle(directions[0]) == pytest.approx(10, abs=np.rad2deg(SINGLE))
    assert angle(directions[1]) == pytest.approx(-160, abs=np.rad2deg(SINGLE))
    assert directions[2].tolist() == [0, 0]
    assert describe_categories(result)[0].size == 2


def test_the_nearest_known_category_is_another_one_and_has_images() -> None:
    # c0 at 0, c1 at 90, c2 known but empty; c3 at 60 and c4 at 170 are new and never neighbours.
    result = spread([0, 90, 60, 170], [0, 1, 3, 4], [1] * 4, 3, 5)
    assert [c.nearest_known for c in describe_categories(result)] == ["c1", "c0", None, "c1", "c1"]


def test_without_known_categories_nothing_is_nearest() -> None:
    assert [c.nearest_known for c in describe_categories(spread([0, 90], [0, 1], [1, 1], 0, 2))] == [None, None]
    assert describe_categories(spread([0, 5], [0, 0], [1, 1], 1, 1))[0].nearest_known is None


def test_representatives_are_central_and_certain() -> None:
    # The centre is at 0: 60 degrees halve the certainty.
    result = spread([0, 60, -60, 0], [0] * 4, [0.4, 1.0, 0.7, 0.45], 0, 1)
    assert describe_categories(result)[0].representatives == ("i01", "i03", "i00", "i02")


def test_at_most_twelve_images_represent_a_category_and_ties_go_to_the_earlier() -> None:
    result = spread([0] * 14, [0] * 14, [0.5] * 14, 0, 1)
    assert describe_categories(result)[0].representatives == tuple(f"i{i:02d}" for i in range(12))


def test_doubtful_images_are_more_likely_wrong_than_right() -> None:
    """Neither the certainty of the others nor the place of an image counts: i02 is nearer to c1."""
    result = spread([0, 10, 80, 10, 90], [0, 0, 0, 0, 1], [0.9, 0.4999, 0.7, 0.34, 0.5], 1, 2)
    first, second = describe_categories(result)
    assert first.doubtful == ("i03", "i01")
    assert second.doubtful == ()
    low = replace(result, certainty=np.full(5, 0.1, np.float32))
    assert [len(category.doubtful) for category in describe_categories(low)] == [4, 1]


@pytest.mark.parametrize("part", ["unlabelled", "holdout", "test", "labelled"])
def test_labels_are_not_doubtful(part: str) -> None:
    result = replace(spread([0, 0], [0, 0], [0.4, 0.9], 1, 1), part=(part, "unlabelled"))
    assert describe_categories(result)[0].doubtful == (() if part == "labelled" else ("i00",))


def test_images_that_a_person_moved_are_not_doubtful() -> None:
    moved = apply_edit(spread([0, 0], [0, 1], [0.4, 0.9], 1, 2), Move(("i00",), "c1"))
    assert [category.doubtful for category in describe_categories(moved)] == [(), ()]


def labelled_images() -> RunResult:
    """Five cats and a dog with labels, and an image without; the model takes three cats for something else."""
    result = spread([0] * 7, [0, 0, 0, 0, 0, 1, 1], [1.0] * 7, 2, 4)
    return replace(
        result,
        names=("cat", "dog", "new-1", "new-2"),
        part=(*("labelled",) * 6, "unlabelled"),
        truth=(*("cat",) * 5, "dog", "cat"),
        guess=np.array([0, 1, 2, 1, 0, 1, 1]),
        guess_certainty=np.array([0.9, 0.3, 0.8, 0.3, 0.9, 0.9, 0.9], np.float32),
    )


def test_labels_that_the_model_contradicts_come_most_certain_first() -> None:
    assert labels_to_check(labelled_images()).tolist() == [2, 1, 3]
    assert labels_to_check(small_result()).tolist() == []
    assert labels_to_check(spread([], [], [], 1, 1)).tolist() == []


@pytest.mark.parametrize(
    ("edit", "left"),
    [
        (Drop(("i02",)), [1, 3]),
        (Move(("i02",), "new-1"), [1, 3]),
        (Move(("i03",), "cat"), [2, 1]),
        (Rename("cat", "lynx"), [2, 1, 3]),
        (Rename("dog", "wolf"), [2, 1, 3]),
        (Merge(("cat", "new-1"), "cat"), [1, 3]),
        (Merge(("cat", "dog"), "pet"), [2]),
        (Merge(("new-1", "new-2"), "new"), [2, 1, 3]),
        (SplitCategory("cat", 2), [2, 1, 3]),
        (SplitCategory("dog", 2), [2, 1, 3]),
        (Move(("i06",), "cat"), [2, 1, 3]),
    ],
)
def test_labels_to_check_follow_the_edits(edit: Edit, left: list[int]) -> None:
    """A label is checked once a person moves or drops the image, or merges the two categories."""
    angles = np.deg2rad(np.arange(7))
    different = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    state = apply_edit(replace(labelled_images(), features=different), edit)
    assert labels_to_check(state).tolist() == left
    names = [state.names[state.guess[i]] for i in left]
    assert all(name not in ("cat", "lynx", "cat-a", "cat-b", "pet") for name in names)


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "known", "wanted", "n_known"),
    [
        ((), None, ("new-1", "new-2", "new-3"), 0),
        ((), 2, ("known-1", "known-2", "new-1"), 2),
        (("owl", "crow"), None, ("owl", "crow", "new-1"), 2),
        (("owl", "crow"), 1, ("owl", "crow", "new-1"), 1),
        (("owl", "crow", "tern"), None, ("owl", "crow", "tern"), 0),
        (("owl", "crow", "tern"), 3, ("owl", "crow", "tern"), 3),
        (("new-1",), 1, ("new-1", "new-2", "new-3"), 1),
    ],
)
def test_categories_get_names(names: tuple[str, ...], known: int | None, wanted: tuple[str, ...], n_known: int) -> None:
    assert name_categories(names, known, 3) == (wanted, n_known)


@pytest.mark.parametrize(
    ("names", "known", "message"),
    [
        (("a", "b", "c", "d"), None, "4 names for 3 categories are too many. Leave out the last ones."),
        ((), 4, "the checkpoint has 3 categories. Give `known` from 0 to 3, not 4."),
        (("a",), 2, "1 name for 2 known categories are too few. Name all known ones, or none."),
    ],
)
def test_names_that_do_not_fit_are_refused(names: tuple[str, ...], known: int | None, message: str) -> None:
    with pytest.raises(Misuse) as refused:
        name_categories(names, known, 3)
    assert str(refused.value) == message


def test_names_are_read_from_lines(tmp_path: Path) -> None:
    file = tmp_path / "names.txt"
    file.write_bytes("\ufeffBlack footed Albatross\r\n  Kolibri äöü \n\n\n".encode())
    assert read_names(file) == ("Black footed Albatross", "Kolibri äöü")
    for content, message in {
        b"a\n\nb\n": f"line 2 of {file} is empty. Write one category name per line.",
        b"a\nb\na\n": f"{file} names a more than once. Give each category its own name.",
    }.items():
        file.write_bytes(content)
        with pytest.raises(Misuse) as refused:
            read_names(file)
        assert str(refused.value) == message
    file.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(Misuse, match=r"names\.txt is not text in UTF-8 \(.*\)\. Save it again as UTF-8\."):
        read_names(file)
    with pytest.raises(Misuse) as refused:
        read_names(tmp_path / "none.txt")
    assert str(refused.value) == (
        f"there is no file {tmp_path / 'none.txt'}. Give a text file with one category name per line."
    )
