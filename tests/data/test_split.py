"""Splits: the draw of labelled images, invalid settings, and split.json."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from sptnet.data.benchmarks.digits import digits
from sptnet.data.image_set import ImageSet
from sptnet.data.split import Split, make_split
from sptnet.data.split_file import read_split, write_split
from sptnet.errors import Misuse

PIXEL = np.zeros((1, 1), np.uint8)
NAMES = ("ant", "bee", "cat", "dog")


def image_set_of(
    labels: list[int],
    given: list[bool] | None = None,
    test: list[bool] | None = None,
    names: tuple[str, ...] = NAMES,
) -> ImageSet:
    return ImageSet(
        name="zoo",
        ids=tuple(f"{i}.png" for i in range(len(labels))),
        sources=(PIXEL,) * len(labels),
        names=names,
        labels=np.array(labels, np.int64),
        given=None if given is None else np.array(given, np.bool_),
        test=np.array(test or [False] * len(labels), np.bool_),
    )


BENCHMARK = image_set_of([0, 1, 2, 3] * 10)
GIVEN = image_set_of([2, 2, 0, 0, 1, -1, 2, 3], [True, True, True, True, False, False, False, False])


def parts(split: Split) -> list[list[int]]:
    return [part.tolist() for part in (split.labelled, split.unlabelled, split.holdout, split.test)]


def test_the_draw_is_the_published_one() -> None:
    labels = [0, 3, 1, 2, 1, 0, 0, 3, 1, 2, 0, 1, 2]
    test = [False] * 12 + [True]
    test[5] = True
    split = make_split(image_set_of(labels, test=test), ["ant", "bee"], labelled_share=0.6)
    candidates = np.array([0, 2, 4, 6, 8, 10, 11])
    np.random.seed(0)
    drawn = np.random.choice(range(7), size=int(0.6 * 7), replace=False)
    expected = sorted(candidates[drawn].tolist())
    assert parts(split) == [expected, sorted(set(range(13)) - {5, 12} - set(expected)), [], [5, 12]]


def test_the_draw_on_digits() -> None:
    image_set = digits()
    split = make_split(image_set, 5)
    known = np.flatnonzero(image_set.labels < 5)
    np.random.seed(0)
    drawn = np.random.choice(len(known), size=len(known) // 2, replace=False)
    assert split.labelled.tolist() == sorted(known[drawn].tolist())
    assert (split.known_classes, split.new_classes) == (tuple("01234"), tuple("56789"))
    assert make_split(image_set, 5, seed=1).labelled.tolist() != split.labelled.tolist()


def test_known_classes_come_first_in_the_order_given() -> None:
    split = make_split(BENCHMARK, ["dog", "bee"])
    assert split.classes == ("dog", "bee", "ant", "cat")
    assert (split.n_known, split.old_ids) == (2, range(2))
    assert (split.known_classes, split.new_classes) == (("dog", "bee"), ("ant", "cat"))
    assert split.target[:4].tolist() == [2, 1, 3, 0]
    assert split.target.dtype == split.labelled.dtype == split.holdout.dtype == np.int64
    assert make_split(BENCHMARK, 3).classes == NAMES


def test_only_labelled_and_held_out_labels_are_visible() -> None:
    split = make_split(BENCHMARK, 2, holdout_share=0.3)
    visible = np.sort(np.concatenate([split.labelled, split.holdout]))
    assert np.array_equal(np.flatnonzero(split.labels >= 0), visible)
    assert np.array_equal(split.labels[visible], split.target[visible])


def test_numbers_and_a_single_name_are_taken_as_class_names() -> None:
    listed: Any = [7, 0]
    assert make_split(digits(), listed).known_classes == ("7", "0")
    assert make_split(BENCHMARK, "cat").known_classes == ("cat",)


def test_a_class_without_any_image_is_no_new_class() -> None:
    assert make_split(image_set_of([0, 0, 0, 2]), 1).classes == ("ant", "cat")


def test_an_image_without_truth_trains_without_label() -> None:
    split = make_split(image_set_of([0, 0, -1, 1]), 1)
    assert split.target.tolist() == [0, 0, -1, 1]
    assert 2 in split.unlabelled


def test_given_labels_are_followed() -> None:
    split = make_split(GIVEN, labelled_share=0.1)
    assert split.classes == ("ant", "cat", "bee", "dog")
    assert split.n_known == 2
    assert split.target.tolist() == [1, 1, 0, 0, 2, -1, 1, 3]
    assert parts(split) == [[0, 1, 2, 3], [4, 5, 6, 7], [], []]
    assert split.labels.tolist() == [1, 1, 0, 0, -1, -1, -1, -1]
    assert make_split(GIVEN, ["cat", "ant"]).classes == ("cat", "ant", "bee", "dog")


def test_given_labels_of_test_images_do_not_make_a_class_known() -> None:
    image_set = image_set_of([0, 1, -1], [True, True, False], [False, True, False])
    split = make_split(image_set)
    assert (split.known_classes, split.new_classes) == (("ant",), ("bee",))
    assert parts(split) == [[0], [2], [], [1]]


def test_holdout_takes_a_share_of_each_class_and_leaves_one() -> None:
    labels = [0] * 10 + [1] * 2 + [2] + [-1]
    image_set = image_set_of(labels, [True] * 13 + [False])
    split = make_split(image_set, holdout_share=0.3)
    assert np.bincount(split.target[split.holdout], minlength=3).tolist() == [3, 1, 0]
    assert np.bincount(split.target[split.labelled], minlength=3).tolist() == [7, 1, 1]
    greedy = make_split(image_set, holdout_share=0.99)
    assert np.bincount(greedy.target[greedy.labelled]).tolist() == [1, 1, 1]
    assert make_split(image_set, holdout_share=0.01).holdout.size == 2
    generator = np.random.RandomState(1)
    expected = [
        *generator.choice(np.arange(10), 3, replace=False),
        *generator.choice([10, 11], 1, replace=False),
    ]
    assert split.holdout.tolist() == sorted(expected)


@st.composite
def image_sets(draw: st.DrawFn) -> tuple[ImageSet, list[str] | None]:
    """Image set with any labels, and known classes for which a split is usually possible."""
    size = draw(st.integers(1, 40))
    labels = draw(st.lists(st.integers(-1, 3), min_size=size, max_size=size))
    flags = st.lists(st.booleans(), min_size=size, max_size=size)
    test = draw(flags)
    if draw(st.booleans()):
        given_labels = [flag and label >= 0 for flag, label in zip(draw(flags), labels, strict=True)]
        return image_set_of(labels, given_labels, test), None
    trained = {NAMES[label] for label, kept in zip(labels, test, strict=True) if label >= 0 and not kept}
    order = draw(st.permutations(sorted(trained) or NAMES))
    return image_set_of(labels, None, test), order[: draw(st.integers(1, len(order)))]


@settings(max_examples=200, deadline=None)
@given(case=image_sets(), share=st.floats(0.3, 1), seed=st.integers(0, 99), holdout=st.floats(0, 0.99))
def test_the_parts_are_disjoint_and_cover_the_image_set(
    case: tuple[ImageSet, list[str] | None], share: float, seed: int, holdout: float
) -> None:
    image_set, known = case
    try:
        split = make_split(image_set, known, share, seed, holdout)
    except Misuse as error:
        assert str(error).endswith(".")
        event("refused")
        return
    event("split")
    assert sorted(index for part in parts(split) for index in part) == list(range(len(image_set)))
    assert all(part == sorted(part) for part in parts(split))
    assert split.test.tolist() == np.flatnonzero(image_set.test).tolist()
    assert set(split.target[split.labelled].tolist()) == set(split.old_ids)
    assert set(split.target[split.holdout].tolist()) <= set(split.old_ids)
    assert len(split.unlabelled) > 0
    for target, label in zip(split.target, image_set.labels, strict=True):
        assert (split.classes[target] == image_set.names[label]) if label >= 0 else target == -1


@pytest.mark.parametrize(
    ("image_set", "arguments", "message"),
    [
        (
            BENCHMARK,
            {},
            "every image is labelled, so there is nothing to discover. Name the known classes with ",
        ),
        (
            BENCHMARK,
            {},
            "`data.known_classes=5`, or put unsorted images in the folder called unlabelled.",
        ),
        (
            BENCHMARK,
            {"known_classes": ["cta"]},
            "names cta, which the data set does not have (did you mean cat?).",
        ),
        (BENCHMARK, {"known_classes": ["zebra"]}, "not have. Choose from: ant, bee, cat, dog."),
        (BENCHMARK, {"known_classes": ["cat", "cat"]}, "names cat more than once. Name each class once."),
        (BENCHMARK, {"known_classes": []}, "data.known_classes is empty. Choose from: ant, bee, cat, dog."),
        (BENCHMARK, {"known_classes": 0}, "the data set has 4 classes. Give a number from 1 to 4"),
        (BENCHMARK, {"known_classes": 5}, "data.known_classes is 5, but the data set has 4 classes."),
        (BENCHMARK, {"known_classes": -1}, "Give a number from 1 to 4"),
        (BENCHMARK, {"known_classes": True}, "Give a number from 1 to 4"),
        (BENCHMARK, {"known_classes": 2, "labelled_share": 0}, "the labelled share 0 lies outside (0, 1]."),
        (
            BENCHMARK,
            {"known_classes": 2, "labelled_share": 1.1},
            "the labelled share 1.1 lies outside (0, 1].",
        ),
        (BENCHMARK, {"known_classes": 2, "labelled_share": float("nan")}, "lies outside (0, 1]."),
        (BENCHMARK, {"known_classes": 2, "holdout_share": 1}, "the holdout share 1 lies outside [0, 1)."),
        (BENCHMARK, {"known_classes": 2, "seed": -1}, "the seed -1 cannot be used."),
        (BENCHMARK, {"known_classes": 4, "labelled_share": 1}, "no unlabelled image is left"),
        (
            BENCHMARK,
            {"known_classes": 4, "labelled_share": 0.01},
            "the labels name 0 classes but 4 are to be known",
        ),
        (image_set_of([0, 0]), {"known_classes": ["bee"]}, "bee has no labelled training image. Label some"),
        (
            GIVEN,
            {"known_classes": ["ant", "cat", "bee"]},
            "the labels name 2 classes but 3 are to be known: bee",
        ),
        (
            GIVEN,
            {"known_classes": ["ant"]},
            "the labels name 2 classes but data.known_classes leaves out cat.",
        ),
        (GIVEN, {"known_classes": 1}, "leaves out cat. Add the missing ones, or drop the setting."),
        (
            image_set_of([0, -1], [False, False]),
            {},
            "no training image has a label. Sort some into one sub-folder",
        ),
        (image_set_of([0, 1], [True, True]), {}, "no unlabelled image is left"),
    ],
)
def test_splits_that_cannot_be_made(image_set: ImageSet, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(Misuse, match=re.escape(message)):
        make_split(image_set, **arguments)


def test_at_most_ten_names_are_listed() -> None:
    image_set = image_set_of([0] * 3, names=tuple(f"class{i:02d}" for i in range(25)))
    with pytest.raises(Misuse, match=r"Choose from: class00, .*, class09 and 15 more\."):
        make_split(image_set, ["zebra"])


def test_a_split_refuses_parts_that_overlap_or_leave_images_out() -> None:
    split = make_split(BENCHMARK, 2)
    for unlabelled in (split.unlabelled[1:], np.append(split.unlabelled, split.labelled[0])):
        with pytest.raises(Misuse, match=r"overlap or leave images out\. Put each image in one part\."):
            replace(split, unlabelled=unlabelled)


@pytest.mark.parametrize("image_set", [BENCHMARK, GIVEN])
def test_round_trip_by_id(tmp_path: Path, image_set: ImageSet) -> None:
    awkward = ("a\nb.png", 'it\'s "q".png', "🦊.png", "raw \udcff.png")
    image_set = replace(image_set, ids=awkward + image_set.ids[4:])
    split = make_split(image_set, None if image_set.given is not None else ["dog", "ant"], holdout_share=0.2)
    write_split(split, image_set, tmp_path / "split.json")
    again = read_split(tmp_path / "split.json", image_set)
    assert (again.classes, again.n_known) == (split.classes, split.n_known)
    assert parts(again) == parts(split)
    assert np.array_equal(again.target, split.target) and again.target.dtype == np.int64
    assert "🦊.png".encode() in (tmp_path / "split.json").read_bytes()
    order = np.arange(len(image_set))[::-1]
    shuffled = read_split(tmp_path / "split.json", image_set.subset(order))
    assert shuffled.labels.tolist() == split.labels[order].tolist()


def test_the_file_has_ids_and_class_names(tmp_path: Path) -> None:
    write_split(make_split(GIVEN), GIVEN, str(tmp_path / "split.json"))
    content = json.loads((tmp_path / "split.json").read_text(encoding="utf-8"))
    assert content == {
        "pile": "zoo",
        "known_classes": ["ant", "cat"],
        "new_classes": ["bee", "dog"],
        "labelled": ["0.png", "1.png", "2.png", "3.png"],
        "unlabelled": ["4.png", "5.png", "6.png", "7.png"],
        "holdout": [],
        "test": [],
    }


def test_a_split_of_other_images_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    write_split(make_split(GIVEN), GIVEN, path)
    with pytest.raises(Misuse, match=r"lists images that zoo does not have \(4\): 4\.png, 5\.png, 6\.png\. Use the"):
        read_split(path, GIVEN.subset([0, 1, 2, 3]))
    more = image_set_of([*GIVEN.labels.tolist(), 0, 0])
    with pytest.raises(Misuse, match=r"does not list all images of zoo \(2\): 8\.png, 9\.png\. .* make a new split\."):
        read_split(path, more)


def test_a_split_of_other_labels_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    write_split(make_split(GIVEN), GIVEN, path)
    for labels in ([3, 2, 0, 0, 1, -1, 2, 3], [-1, 2, 0, 0, 1, -1, 2, 3]):
        with pytest.raises(Misuse, match=r"does not fit the labels of zoo\. Restore the labels"):
            read_split(path, image_set_of(labels))
    renamed = image_set_of(GIVEN.labels.tolist(), names=("ant", "bee", "cat", "elk"))
    with pytest.raises(Misuse, match="does not fit the labels of zoo"):
        read_split(path, renamed)


def test_split_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    with pytest.raises(Misuse, match=r"there is no split file .*Give a file that sptnet wrote"):
        read_split(path, GIVEN)
    for text in ("{", "\x00"):
        path.write_text(text)
        with pytest.raises(Misuse, match=r"is not valid JSON .*Restore it or make a new one\."):
            read_split(path, GIVEN)
    for content in ([], {}, {"known_classes": "cat"}, {"known_classes": [1]}):
        path.write_text(json.dumps(content))
        with pytest.raises(Misuse, match="has no list of names 'known_classes'"):
            read_split(path, GIVEN)


def test_an_image_listed_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    write_split(make_split(GIVEN), GIVEN, path)
    content = json.loads(path.read_text())
    content["unlabelled"].append("0.png")
    path.write_text(json.dumps(content))
    with pytest.raises(Misuse, match="overlap or leave images out"):
        read_split(path, GIVEN)


@pytest.mark.parametrize("moved_to", ["unlabelled", "holdout"])
def test_a_known_class_without_a_labelled_image_is_refused(tmp_path: Path, moved_to: str) -> None:
    """Clusterings number the classes by their labelled images, so one without any would shift all names."""
    image_set = image_set_of([0, 0, 0, 0, 1, 1, 1, 1, 2, 2])
    split, path = make_split(image_set, 2, labelled_share=0.5), tmp_path / "split.json"
    write_split(split, image_set, path)
    assert read_split(path, image_set).classes == split.classes
    content = json.loads(path.read_text())
    of_ant = [name for name in content["labelled"] if int(name[0]) < 4]
    content["labelled"] = [name for name in content["labelled"] if name not in of_ant]
    content[moved_to] += of_ant
    path.write_text(json.dumps(content))
    with pytest.raises(Misuse, match=r"no training image of ant is labelled.*move the class to `new_classes`"):
        read_split(path, image_set)
