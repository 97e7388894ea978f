"""Another round: labels from the edits of a run, and the settings of the next run."""

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.result_runs import IDS, make_run, small_result
from sptnet.config.recipes import load_recipe
from sptnet.data.load import load_data
from sptnet.discovery.rounds import Round, carry_names, labels_text, next_labels, next_round, read_round, round_files
from sptnet.errors import Failure, Misuse
from sptnet.results.edits.log import add_edits, current, read_edits
from sptnet.results.edits.types import CarryNames, Confirm, Drop, Edit, Merge, Move, Rename, SplitCategory, Undo
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import RunResult

CAT_A, CAT_B, UNSURE_CAT, DOG, E, F, SUB_E, TEST = IDS
GIVEN = {CAT_A: "cat", CAT_B: "cat"}


@pytest.mark.parametrize(
    ("edits", "labels"),
    [
        ([Drop((E,))], GIVEN),
        ([Drop((CAT_A,))], {CAT_B: "cat"}),
        # names alone add no labels, but earlier labels have the edited name
        ([Rename("dog", "wolf")], GIVEN),
        ([Rename("cat", "lynx")], {CAT_A: "lynx", CAT_B: "lynx"}),
        ([Rename("new-1", "eel")], GIVEN),
        ([Merge(("new-1", "new-2"), "eel")], GIVEN),
        ([Merge(("cat", "dog"), "pet")], {CAT_A: "pet", CAT_B: "pet"}),
        ([SplitCategory("new-1", 2)], GIVEN),
        # confirmed images, without dropped images and test images
        ([Confirm(("dog",))], GIVEN | {DOG: "dog"}),
        ([Confirm(("cat",))], GIVEN | {UNSURE_CAT: "cat"}),
        ([Confirm(("new-1",))], GIVEN | {E: "new-1", F: "new-1", SUB_E: "new-1"}),
        ([Confirm(("new-1",)), Rename("new-1", "eel")], GIVEN | {E: "eel", F: "eel", SUB_E: "eel"}),
        ([Rename("new-1", "eel"), Confirm((E,))], GIVEN | {E: "eel"}),
        ([Confirm(("new-1",)), Drop((F,))], GIVEN | {E: "new-1", SUB_E: "new-1"}),
        ([Confirm(("new-1",)), Merge(("new-1",), "dog")], GIVEN | {E: "dog", F: "dog", SUB_E: "dog"}),
        ([Confirm((E,)), SplitCategory("new-1", 2), Confirm((F,))], GIVEN | {F: "new-1-a"}),
        ([Confirm(("new-1",)), Undo()], GIVEN),
        # moved images alone
        ([Move((UNSURE_CAT,), "dog")], GIVEN | {UNSURE_CAT: "dog"}),
        ([Move((E,), "lynx", create=True)], GIVEN | {E: "lynx"}),
        ([Move((CAT_A,), "dog")], {CAT_A: "dog", CAT_B: "cat"}),
        ([Move((E,), "dog"), Drop((E,))], GIVEN),
        ([Confirm((E,)), Move((E,), "dog")], GIVEN | {E: "dog"}),
        ([Move((TEST,), "new-2")], GIVEN),
    ],
)
def test_labels_from_edits(edits: list[Edit], labels: dict[str, str]) -> None:
    assert next_labels(small_result(), edits) == labels


def with_wrong_prediction() -> RunResult:
    """The small result, but the labelled cat/b.png, at 10 degrees, is predicted as a dog."""
    return replace(small_result(), category=np.array([0, 1, 0, 1, 2, 2, 2, 2]))


def test_a_label_takes_precedence_over_a_wrong_prediction() -> None:
    assert next_labels(with_wrong_prediction(), [Drop((E,))]) == GIVEN
    assert next_labels(with_wrong_prediction(), [Rename("cat", "lynx")]) == {CAT_A: "lynx", CAT_B: "lynx"}
    assert next_labels(with_wrong_prediction(), [Merge(("cat",), "new-2")])[CAT_B] == "new-2"
    split = next_labels(with_wrong_prediction(), [SplitCategory("cat", 2)])
    assert split[CAT_B] == split[CAT_A], "it gets the nearest part"


def test_a_confirmed_prediction_takes_precedence_over_a_label() -> None:
    assert next_labels(with_wrong_prediction(), [Confirm((CAT_B,))]) == {CAT_A: "cat", CAT_B: "dog"}


def test_a_round_from_a_run(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    add_edits(run, [Rename("new-1", "eel"), Rename("dog", "wolf"), Confirm(("wolf", E, SUB_E))])
    found = next_round(run, tmp_path / "second")
    assert found.labels == GIVEN | {DOG: "wolf", E: "eel", SUB_E: "eel"}
    assert found.earlier == dict.fromkeys((E, F, SUB_E, TEST), "eel")
    assert found.had_labels
    config = found.config
    assert config.n_categories == 4, "the number of the earlier run"
    assert (config.data.labels, config.data.known_classes) == (str(tmp_path / "second" / "labels.csv"), None)
    assert config.backbone.name == "sptnet_digits_vit"
    data = read_round(config, found.labels)
    assert data.split.known_classes == ("cat", "eel", "wolf")
    assert [data.image_set.ids[i] for i in data.split.unlabelled] == [UNSURE_CAT, F]
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "labels.csv").write_bytes(labels_text(found.labels).encode())
    again = load_data(config.data)
    assert again.image_set.ids == data.image_set.ids
    assert np.array_equal(again.split.labels, data.split.labels)


def test_the_number_follows_merges_and_splits(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    add_edits(run, [Merge(("new-1", "new-2"), "eel")])
    assert next_round(run, tmp_path / "second").config.n_categories == 3
    add_edits(run, [SplitCategory("eel", 3)])
    assert next_round(run, tmp_path / "second").config.n_categories == 5


def test_a_counted_number_stays_open(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "estimate.json").write_text("{}")
    add_edits(run, [Confirm(("dog",))])
    assert next_round(run, tmp_path / "second").config.n_categories == "auto"


def test_missing_images_are_not_labelled(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    add_edits(run, [Confirm(("dog",))])
    (tmp_path / "data" / DOG).unlink()
    assert next_round(run, tmp_path / "second").labels == GIVEN


def test_the_labels_file_keeps_any_name(tmp_path: Path) -> None:
    names = ("a,b.png", 'it\'s "q".png', "🦊.png", "new\nline.png", "raw \udcff.png")
    found = small_result()
    run = make_run(tmp_path, replace(found, ids=(*names, *found.ids[5:]), part=("unlabelled",) * 8))
    add_edits(run, [Rename("cat", 'käse, "x"'), Rename("new-1", "eel"), Confirm(('käse, "x"', "eel"))])
    another = next_round(run, tmp_path / "second")
    assert another.labels[names[0]] == 'käse, "x"'
    data = read_round(another.config, another.labels)
    labelled = {data.image_set.ids[i]: data.split.classes[data.split.target[i]] for i in data.split.labelled}
    assert labelled == another.labels
    rows = list(csv.reader(io.StringIO(labels_text(another.labels), newline="")))
    assert rows == [["path", "label"], *([id_, label] for id_, label in another.labels.items())]


@pytest.mark.parametrize(
    ("edits", "counted"),
    [
        ([], False),
        ([Confirm(("new-1",)), Undo()], False),
        ([Rename("new-1", "eel"), Rename("cat", "lynx")], False),
        ([CarryNames(("new-1",), ("eel",))], False),
        ([Confirm((CAT_A,))], False),
        ([Drop((E,))], False),
        ([Merge(("new-1", "new-2"), "eel")], True),
        ([SplitCategory("new-1", 2)], True),
    ],
)
def test_a_round_that_would_learn_nothing_is_refused(tmp_path: Path, edits: list[Edit], counted: bool) -> None:
    run = make_run(tmp_path)
    if counted:
        (run / "estimate.json").write_text("{}")
    state = add_edits(run, edits)
    name = state.names[state.category.max()]
    with pytest.raises(Misuse) as error:
        next_round(run, tmp_path / "second")
    assert str(error.value) == (
        f"no unlabelled image of {run} has been confirmed or moved, so another round would learn nothing new. Confirm "
        f"what is right, such as: `edit('{run}', 'confirm', '{name}')`, or move what is wrong: "
        f"`edit('{run}', 'move', 'IMAGE', to='CATEGORY')`"
    )


@pytest.mark.parametrize(
    "edit",
    [
        Confirm((E,)),
        Move((E,), "dog"),
        Move((CAT_A,), "dog"),
        Drop((CAT_A,)),
        SplitCategory("cat", 3),
        Merge(("new-1", "new-2"), "eel"),
    ],
)
def test_any_news_is_enough_for_another_round(tmp_path: Path, edit: Edit) -> None:
    run = make_run(tmp_path)
    add_edits(run, [edit])
    next_round(run, tmp_path / "second")


# names of new categories


def later_round(root: Path, earlier: Mapping[str, str]) -> Path:
    """A finished run of another round."""
    run = make_run(root)
    files = round_files(Round(load_recipe("digits"), {}, earlier, True))
    (run / "earlier.csv").write_bytes(files["earlier.csv"].encode(errors="surrogatepass"))
    return run


def test_new_categories_keep_their_names(tmp_path: Path) -> None:
    run = later_round(tmp_path, {E: "eel", F: "eel", SUB_E: "eel", DOG: "new-1"})
    model = (run / "model" / "model.json").read_bytes()
    carry_names(run)
    assert read_edits(run) == [CarryNames(("new-1",), ("eel",))]
    assert current(run).names == ("cat", "dog", "eel", "new-2")
    assert (run / "model" / "model.json").read_bytes() == model
    log = (run / "edits.jsonl").read_bytes()
    carry_names(run)
    assert (run / "edits.jsonl").read_bytes() == log, "once is enough"
    add_edits(run, [Undo()])
    carry_names(run)
    assert current(run).names == small_result().names, "an undone edit stays undone"


def test_a_known_category_keeps_its_name(tmp_path: Path) -> None:
    run = later_round(tmp_path, {E: "dog", F: "dog", SUB_E: "dog"})
    carry_names(run)
    assert read_edits(run) == []


def test_a_first_round_has_no_names_to_carry(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    carry_names(run)
    assert not (run / "edits.jsonl").exists()


def test_a_damaged_list_of_earlier_categories(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "earlier.csv").write_text("image\nx\n")
    with pytest.raises(Failure, match=r"earlier\.csv is damaged .*Delete it to finish the round without the names"):
        carry_names(run)


def test_a_round_with_carried_names_alone_may_be_replaced(tmp_path: Path) -> None:
    run = later_round(tmp_path, dict.fromkeys((E, F), "eel"))
    carry_names(run)
    RunFolder(run).check_new(overwrite=True)
    add_edits(run, [Drop((E,))])
    with pytest.raises(Misuse, match=r"such as edits\.jsonl, which sptnet never deletes"):
        RunFolder(run).check_new(overwrite=True)


def test_only_a_folder_can_be_continued(tmp_path: Path) -> None:
    run = make_run(tmp_path, source="digits")
    with pytest.raises(Misuse) as error:
        next_round(run, tmp_path / "second")
    assert str(error.value) == (f"the run {run} was not made from a folder of images. Continue a run that was.")
