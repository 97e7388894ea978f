"""Another round: labels from the edits of a run, and the settings of the next run."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.result_runs import IDS, make_run, small_result
from sptnet.data.load import load_data
from sptnet.discovery.rounds import confirmed_categories, labels_text, next_labels, next_round, read_round
from sptnet.errors import Misuse
from sptnet.results.edits.log import add_edits
from sptnet.results.edits.types import Drop, Edit, Merge, Move, Rename, SplitCategory, Undo
from sptnet.results.run_result import RunResult

CAT_A, CAT_B, UNSURE_CAT, DOG, E, F, SUB_E, TEST = IDS
GIVEN = {CAT_A: "cat", CAT_B: "cat"}


@pytest.mark.parametrize(
    ("edits", "labels"),
    [
        ([Drop((E,))], GIVEN),
        ([Drop((CAT_A,))], {CAT_B: "cat"}),
        # confirmed categories: all members but doubtful images and test images
        ([Rename("dog", "wolf")], GIVEN | {DOG: "wolf"}),
        ([Rename("cat", "lynx")], {CAT_A: "lynx", CAT_B: "lynx"}),
        ([Rename("new-1", "eel")], GIVEN | {E: "eel", F: "eel", SUB_E: "eel"}),
        ([Rename("new-1", "eel"), Drop((F,))], GIVEN | {E: "eel", SUB_E: "eel"}),
        ([Merge(("new-1", "new-2"), "eel")], GIVEN | {E: "eel", F: "eel", SUB_E: "eel"}),
        ([SplitCategory("new-1", 2)], GIVEN | {E: "new-1-a", F: "new-1-a", SUB_E: "new-1-b"}),
        ([SplitCategory("new-1", 2), Rename("new-1-b", "ray")], GIVEN | {E: "new-1-a", F: "new-1-a", SUB_E: "ray"}),
        # moved images, and the members of their new category
        ([Move((UNSURE_CAT,), "dog")], GIVEN | {UNSURE_CAT: "dog", DOG: "dog"}),
        ([Move((E,), "lynx", create=True)], GIVEN | {E: "lynx"}),
        ([Move((CAT_A,), "dog")], {CAT_A: "dog", CAT_B: "cat", DOG: "dog"}),
        ([Move((E,), "dog"), Drop((E,))], GIVEN | {DOG: "dog"}),
        ([Move((TEST,), "new-2")], GIVEN),
        ([Rename("new-1", "eel"), Undo(), Drop((E,))], GIVEN),
    ],
)
def test_labels_from_edits(edits: list[Edit], labels: dict[str, str]) -> None:
    assert next_labels(small_result(), edits) == labels


def test_doubtful_images_are_not_labelled() -> None:
    """One cat has a certainty of 0.4, so only the other two get the label."""
    sure = replace(small_result(), part=("unlabelled",) * 8, truth=(None,) * 8)
    assert next_labels(sure, [Rename("cat", "lynx")]) == {CAT_A: "lynx", CAT_B: "lynx"}


def with_wrong_prediction() -> RunResult:
    """The small result, but the labelled cat/b.png, at 10 degrees, is predicted as a dog."""
    return replace(small_result(), category=np.array([0, 1, 0, 1, 2, 2, 2, 2]))


def test_a_label_takes_precedence_over_a_wrong_prediction() -> None:
    assert next_labels(with_wrong_prediction(), [Drop((E,))]) == GIVEN
    assert next_labels(with_wrong_prediction(), [Rename("cat", "lynx")]) == {CAT_A: "lynx", CAT_B: "lynx"}
    assert next_labels(with_wrong_prediction(), [Merge(("cat",), "new-2")])[CAT_B] == "new-2"
    split = next_labels(with_wrong_prediction(), [SplitCategory("cat", 2)])
    assert split[CAT_B] == split[CAT_A], "it gets the nearest part"


def test_confirmed_categories_follow_later_edits() -> None:
    edits: list[Edit] = [
        Rename("new-1", "eel"),
        SplitCategory("eel", 2),
        Merge(("eel-a", "dog"), "pet"),
        Move((E,), "cat"),
    ]
    assert confirmed_categories(small_result(), edits) == ({"eel-b", "pet", "cat"}, {E})


def test_a_round_from_a_run(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    add_edits(run, [Rename("new-1", "eel"), Rename("dog", "wolf")])
    found = next_round(run, tmp_path / "second")
    assert found.labels == GIVEN | {DOG: "wolf", E: "eel", F: "eel", SUB_E: "eel"}
    assert found.had_labels
    config = found.config
    assert config.n_categories == 3, "new-2 has no images"
    assert (config.data.labels, config.data.known_classes) == (str(tmp_path / "second" / "labels.csv"), None)
    assert config.backbone.name == "sptnet_digits_vit"
    data = read_round(config, found.labels)
    assert data.split.known_classes == ("cat", "eel", "wolf")
    assert [data.image_set.ids[i] for i in data.split.unlabelled] == [UNSURE_CAT]
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "labels.csv").write_bytes(labels_text(found.labels).encode())
    again = load_data(config.data)
    assert again.image_set.ids == data.image_set.ids
    assert np.array_equal(again.split.labels, data.split.labels)


def test_missing_images_are_not_labelled(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    add_edits(run, [Rename("dog", "wolf")])
    (tmp_path / "data" / DOG).unlink()
    assert next_round(run, tmp_path / "second").labels == GIVEN


def test_the_labels_file_keeps_any_name(tmp_path: Path) -> None:
    names = ("a,b.png", 'it\'s "q".png', "🦊.png", "new\nline.png", "raw \udcff.png")
    found = small_result()
    run = make_run(tmp_path, replace(found, ids=(*names, *found.ids[5:]), part=("unlabelled",) * 8))
    add_edits(run, [Rename("cat", 'käse, "x"'), Rename("new-1", "eel")])
    another = next_round(run, tmp_path / "second")
    assert another.labels[names[0]] == 'käse, "x"'
    data = read_round(another.config, another.labels)
    labelled = {data.image_set.ids[i]: data.split.classes[data.split.target[i]] for i in data.split.labelled}
    assert labelled == another.labels
    rows = list(csv.reader(io.StringIO(labels_text(another.labels), newline="")))
    assert rows == [["path", "label"], *([id_, label] for id_, label in another.labels.items())]


def test_a_round_without_edits_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with pytest.raises(Misuse) as error:
        next_round(run, tmp_path / "second")
    assert str(error.value) == (
        f"nothing in {run} has been edited, so another round would learn nothing new. Name, merge or correct "
        f"categories first, such as: `edit('{run}', 'rename', 'new-2', 'NAME')`"
    )
    add_edits(run, [Rename("new-1", "eel"), Undo()])
    with pytest.raises(Misuse, match="has been edited"):
        next_round(run, tmp_path / "second")


def test_only_a_folder_can_be_continued(tmp_path: Path) -> None:
    run = make_run(tmp_path, source="digits")
    with pytest.raises(Misuse) as error:
        next_round(run, tmp_path / "second")
    assert str(error.value) == (f"the run {run} was not made from a folder of images. Continue a run that was.")
