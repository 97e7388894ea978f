"""Another round: which labels the edits of a run give, and the settings that go with them."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.result_runs import IDS, make_run, small_result
from sptnet.data.load import load_data
from sptnet.discovery.rounds import labels_text, next_labels, next_round, read_round, settled
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
        # touched categories: all members but the doubtful and those kept aside for tests
        ([Rename("dog", "wolf")], GIVEN | {DOG: "wolf"}),
        ([Rename("cat", "lynx")], {CAT_A: "lynx", CAT_B: "lynx"}),
        ([Rename("new-1", "eel")], GIVEN | {E: "eel", F: "eel", SUB_E: "eel"}),
        ([Rename("new-1", "eel"), Drop((F,))], GIVEN | {E: "eel", SUB_E: "eel"}),
        ([Merge(("new-1", "new-2"), "eel")], GIVEN | {E: "eel", F: "eel", SUB_E: "eel"}),
        ([SplitCategory("new-1", 2)], GIVEN | {E: "new-1-a", F: "new-1-a", SUB_E: "new-1-b"}),
        ([SplitCategory("new-1", 2), Rename("new-1-b", "ray")], GIVEN | {E: "new-1-a", F: "new-1-a", SUB_E: "ray"}),
        # moved images, wherever they lie, and those that were there already
        ([Move((UNSURE_CAT,), "dog")], GIVEN | {UNSURE_CAT: "dog", DOG: "dog"}),
        ([Move((E,), "lynx", create=True)], GIVEN | {E: "lynx"}),
        ([Move((CAT_A,), "dog")], {CAT_A: "dog", CAT_B: "cat"}),  # between the two, the dog is doubtful now
        ([Move((E,), "dog"), Drop((E,))], GIVEN | {DOG: "dog"}),
        ([Move((TEST,), "new-2")], GIVEN),
        ([Rename("new-1", "eel"), Undo(), Drop((E,))], GIVEN),
    ],
)
def test_the_labels_that_edits_give(edits: list[Edit], labels: dict[str, str]) -> None:
    assert next_labels(small_result(), edits) == labels


def test_doubtful_images_are_left_to_the_next_round() -> None:
    """The cat at 80 degrees is unsure; as a settled category cat keeps the others alone."""
    sure = replace(small_result(), part=("unlabelled",) * 8, truth=(None,) * 8)
    assert next_labels(sure, [Rename("cat", "lynx")]) == {CAT_A: "lynx", CAT_B: "lynx"}


def mistaken() -> RunResult:
    """As before, but the model takes the labelled cat/b.png, at 10 degrees, for a dog."""
    return replace(small_result(), category=np.array([0, 1, 0, 1, 2, 2, 2, 2]))


def test_a_label_stands_where_the_model_erred() -> None:
    assert next_labels(mistaken(), [Drop((E,))]) == GIVEN
    assert next_labels(mistaken(), [Rename("cat", "lynx")]) == {CAT_A: "lynx", CAT_B: "lynx"}
    assert next_labels(mistaken(), [Merge(("cat",), "new-2")])[CAT_B] == "new-2"
    split = next_labels(mistaken(), [SplitCategory("cat", 2)])
    assert split[CAT_B] == split[CAT_A], "the part it is nearest to"


def test_settled_categories_are_followed_through_their_names() -> None:
    edits: list[Edit] = [
        Rename("new-1", "eel"),
        SplitCategory("eel", 2),
        Merge(("eel-a", "dog"), "pet"),
        Move((E,), "cat"),
    ]
    assert settled(small_result(), edits) == ({"eel-b", "pet", "cat"}, {E})


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


def test_images_that_are_gone_are_not_labelled(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    add_edits(run, [Rename("dog", "wolf")])
    (tmp_path / "data" / DOG).unlink()
    assert next_round(run, tmp_path / "second").labels == GIVEN


def test_names_of_any_kind_survive_the_labels_file(tmp_path: Path) -> None:
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


def test_without_edits_there_is_no_other_round(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    with pytest.raises(Misuse) as error:
        next_round(run, tmp_path / "second")
    assert str(error.value) == (
        f"nothing in {run} has been edited, so another round would learn nothing new. Name, merge or correct "
        f"categories first, such as: sptnet edit {run} rename new-2 NAME"
    )
    add_edits(run, [Rename("new-1", "eel"), Undo()])
    with pytest.raises(Misuse, match="has been edited"):
        next_round(run, tmp_path / "second")


def test_only_a_folder_can_be_continued(tmp_path: Path) -> None:
    run = make_run(tmp_path, source="digits")
    with pytest.raises(Misuse) as error:
        next_round(run, tmp_path / "second")
    assert str(error.value) == (f"the run {run} was not made from a folder of images. Continue a run that was.")
