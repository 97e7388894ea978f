"""Edits: effect of each kind, the log on disk, undo, and the verb `sptnet edit`."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import Answer, Call
from helpers.kills import kill_everywhere
from helpers.result_runs import IDS, assert_same, make_run, small_result
from helpers.rounding import SINGLE
from sptnet.cli import main
from sptnet.errors import Failure, Misuse
from sptnet.results.edits.apply import check_name
from sptnet.results.edits.log import (
    EDITS,
    CarryNames,
    Confirm,
    Count,
    Drop,
    Edit,
    Merge,
    Move,
    Rename,
    SplitCategory,
    Undo,
    add_edits,
    apply_edit,
    as_dict,
    current,
    in_force,
    new_edits_of_file,
    parse_edit,
    read_edits,
    replay,
)
from sptnet.results.edits.types import describe_edit
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import RunResult, read_result
from sptnet.runtime.files import is_temporary
from sptnet.runtime.locks import Locked


def sorted_into(result: RunResult) -> dict[str, list[int]]:
    """Positions of images by category; dropped ones under an empty name."""
    dropped = np.flatnonzero(result.category < 0).tolist()
    return {name: result.members(name).tolist() for name in result.names} | ({"": dropped} if dropped else {})


def refusal(edit: Edit, result: RunResult | None = None) -> str:
    with pytest.raises(Misuse) as error:
        apply_edit(small_result() if result is None else result, edit)
    return str(error.value)


# what each edit does


def test_rename() -> None:
    result = apply_edit(small_result(), Rename("new-1", "otter"))
    assert result.names == ("cat", "dog", "otter", "new-2")
    assert result.category.tolist() == small_result().category.tolist()
    assert apply_edit(result, Rename("cat", "kitten")).names == ("kitten", "dog", "otter", "new-2")


def test_merge_into_a_new_name_takes_the_place_of_the_first() -> None:
    result = apply_edit(small_result(), Merge(("new-2", "new-1"), "heron"))
    assert sorted_into(result) == {"cat": [0, 1, 2], "dog": [3], "heron": [4, 5, 6, 7]}
    assert result.n_known == 2


@pytest.mark.parametrize("edit", [Merge(("new-1",), "dog"), Merge(("dog", "new-1"), "dog")])
def test_merge_into_a_known_category(edit: Merge) -> None:
    result = apply_edit(small_result(), edit)
    assert sorted_into(result) == {"cat": [0, 1, 2], "dog": [3, 4, 5, 6, 7], "new-2": []}
    assert (result.names, result.n_known) == (("cat", "dog", "new-2"), 2)


def test_merging_known_categories_leaves_fewer_known_ones() -> None:
    result = apply_edit(small_result(), Merge(("dog", "cat"), "pet"))
    assert sorted_into(result) == {"pet": [0, 1, 2, 3], "new-1": [4, 5, 6, 7], "new-2": []}
    assert result.n_known == 1


@pytest.mark.parametrize(("into", "name"), [("new-1", "new-1"), ("pet", "pet")])
def test_a_merge_with_a_known_category_is_known(into: str, name: str) -> None:
    result = apply_edit(small_result(), Merge(("new-1", "dog"), into))
    assert (result.names, result.n_known) == (("cat", name, "new-2"), 2)
    assert sorted_into(result)[name] == [3, 4, 5, 6, 7]


def test_dropped_images_stay_dropped_in_a_merge() -> None:
    result = apply_edit(apply_edit(small_result(), Drop((IDS[4],))), Merge(("new-1",), "cat"))
    assert sorted_into(result) == {"cat": [0, 1, 2, 5, 6, 7], "dog": [3], "new-2": [], "": [4]}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_split_finds_the_groups_and_names_the_larger_first(seed: int) -> None:
    result = apply_edit(small_result(), Drop((IDS[4],)))  # leaves one image of the first group, two of the second
    result = apply_edit(result, SplitCategory("new-1", 2, seed))
    assert sorted_into(result) == {
        "cat": [0, 1, 2],
        "dog": [3],
        "new-1-a": [6, 7],
        "new-1-b": [5],
        "new-2": [],
        "": [4],
    }
    assert result.n_known == 2


def test_equal_parts_are_named_by_their_first_image() -> None:
    result = apply_edit(small_result(), SplitCategory("new-1", 2))
    assert (result.members("new-1-a").tolist(), result.members("new-1-b").tolist()) == ([4, 5], [6, 7])


def test_parts_of_a_known_category_are_known_and_avoid_taken_names() -> None:
    result = replace(small_result(), names=("cat", "dog", "cat-a", "new-2"))
    result = apply_edit(result, SplitCategory("cat", 2))
    assert (result.names, result.n_known) == (("cat-b", "cat-c", "dog", "cat-a", "new-2"), 3)
    assert sorted_into(result) == {"cat-b": [0, 1], "cat-c": [2], "dog": [3], "cat-a": [4, 5, 6, 7], "new-2": []}


def test_a_split_is_the_same_every_time() -> None:
    random = np.random.default_rng(0)
    features = random.standard_normal((8, 5)).astype(np.float32)
    result = replace(small_result(), category=np.full(8, 2), features=features)
    assert_same(apply_edit(result, SplitCategory("new-1", 3, 7)), apply_edit(result, SplitCategory("new-1", 3, 7)))


def test_the_log_keeps_the_parts_of_a_split(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clustering on another machine, or by another version, may differ; edits that follow are about these parts."""
    state = add_edits(run, [Drop((IDS[4],)), SplitCategory("new-1", 2), Confirm(("new-1-a",))])
    line = (run / "edits.jsonl").read_text(encoding="utf-8").splitlines()[1]
    assert json.loads(line)["letters"] == "baa"
    monkeypatch.setattr("sptnet.results.edits.apply._cluster", None)
    assert_same(current(run), state)
    add_edits(run, [Rename("new-1-a", "otter"), Undo(), Undo()])
    assert sorted_into(current(run))["new-1-b"] == [5]


def test_a_split_from_before_letters_were_kept_is_clustered(run: Path) -> None:
    line = {"at": "2026-01-01T00:00:00+0000", "verb": "split", "category": "new-1", "parts": 2, "seed": 0}
    (run / "edits.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    assert_same(current(run), apply_edit(read_result(run), SplitCategory("new-1", 2)))


@pytest.mark.parametrize("letters", ["aab", "aaaa", "aabc", "aabB", "aabbb"])
def test_letters_that_do_not_fit_are_refused(letters: str) -> None:
    message = "the letters of the split are not those of the images of new-1. Omit them."
    assert refusal(SplitCategory("new-1", 2, letters=letters)) == message


def test_a_moved_image_is_certain() -> None:
    result = apply_edit(small_result(), Move((IDS[2], IDS[7]), "dog"))
    assert sorted_into(result) == {"cat": [0, 1], "dog": [2, 3, 7], "new-1": [4, 5, 6], "new-2": []}
    assert result.certainty.tolist() == pytest.approx([0.9, 0.8, 1.0, 0.9, 0.9, 0.7, 0.6, 1.0], rel=SINGLE)


def test_move_to_a_category_of_its_own() -> None:
    result = apply_edit(small_result(), Move((IDS[2],), "lynx", create=True))
    assert (result.names, result.n_known) == (("cat", "dog", "new-1", "new-2", "lynx"), 2)
    assert result.members("lynx").tolist() == [2]
    assert apply_edit(result, Move((IDS[1],), "lynx", create=True)).members("lynx").tolist() == [1, 2]


def test_dropped_images_come_back_by_a_move() -> None:
    result = apply_edit(small_result(), Drop((IDS[0], IDS[3])))
    assert sorted_into(result) == {"cat": [1, 2], "dog": [], "new-1": [4, 5, 6, 7], "new-2": [], "": [0, 3]}
    assert sorted_into(apply_edit(result, Move((IDS[0], IDS[3]), "dog")))["dog"] == [0, 3]


def test_all_images_of_a_category_are_confirmed() -> None:
    result = apply_edit(apply_edit(small_result(), Drop((IDS[4],))), Confirm(("new-1", IDS[2])))
    assert result.confirmed == {IDS[2], *IDS[5:]}
    assert result.certainty.tolist() == pytest.approx([0.9, 0.8, 1.0, 0.9, 0.9, 1.0, 1.0, 1.0], rel=SINGLE)
    assert sorted_into(result) == sorted_into(apply_edit(small_result(), Drop((IDS[4],))))
    assert (result.names, result.n_known) == (small_result().names, 2)


def test_a_name_that_is_both_is_the_category() -> None:
    result = replace(small_result(), names=("cat", "dog", IDS[0], "new-2"))
    assert apply_edit(result, Confirm((IDS[0],))).confirmed == set(IDS[4:])


def test_confirmed_are_the_members_at_that_time() -> None:
    early = replay(small_result(), [Confirm(("dog",)), Merge(("new-1",), "dog")])
    late = replay(small_result(), [Merge(("new-1",), "dog"), Confirm(("dog",))])
    assert early.confirmed == {IDS[3]}
    assert late.confirmed == set(IDS[3:])


def test_what_a_person_did_last_holds() -> None:
    edits: list[Edit] = [Confirm(("new-1",)), Move((IDS[4],), "dog"), Drop((IDS[5],))]
    result = replay(small_result(), edits)
    assert result.confirmed == {IDS[4], IDS[6], IDS[7]}
    assert result.members("dog").tolist() == [3, 4]
    back = replay(small_result(), [*edits, Move((IDS[5],), "cat")])
    assert back.confirmed == {IDS[4], IDS[5], IDS[6], IDS[7]}


def test_the_parts_of_a_split_are_not_confirmed() -> None:
    result = replay(small_result(), [Confirm(("new-1", "dog")), SplitCategory("new-1", 2)])
    assert result.confirmed == {IDS[3]}
    assert replay(result, [Confirm(("new-1-a",))]).confirmed == {IDS[3], IDS[4], IDS[5]}


def test_names_are_carried_all_at_once() -> None:
    result = apply_edit(small_result(), CarryNames(("new-1", "new-2"), ("new-2", "new-1")))
    assert result.names == ("cat", "dog", "new-2", "new-1")
    assert result.members("new-2").tolist() == [4, 5, 6, 7]


def test_the_state_before_is_not_changed() -> None:
    result = small_result()
    for edit in (
        Confirm(("new-1", IDS[0])),
        CarryNames(("new-1",), ("x",)),
        Move((IDS[0],), "dog"),
        Drop((IDS[1],)),
        SplitCategory("new-1", 2),
        Merge(("cat",), "dog"),
        Rename("cat", "x"),
    ):
        apply_edit(result, edit)
    assert_same(result, small_result())


# what is refused


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Rename("new1", "x"), "there is no category new1. Did you mean new-1, new-2?"),
        (Rename("zebra", "x"), "there is no category zebra. Choose from: cat, dog, new-1, new-2."),
        (
            Rename("new-1", "cat"),
            "there is a category cat already. Choose another name, or put both together with merge new-1 `into=cat`.",
        ),
        (Merge(("cat", "cow"), "x"), "there is no category cow. Choose from: cat, dog, new-1, new-2."),
        (Merge(("cat", "cat"), "dog"), "a category is named twice to be merged. Name each once."),
        (
            Merge(("cat",), "feline"),
            "there is nothing to merge cat with. Name two or more categories, or give it another name with rename.",
        ),
        (
            Merge(("cat",), "cat"),
            "there is nothing to merge cat with. Name two or more categories, or give it another name with rename.",
        ),
        (SplitCategory("cow", 2), "there is no category cow. Choose from: cat, dog, new-1, new-2."),
        (SplitCategory("cat", 1), "a category cannot be split into 1 parts. Give 2 to 26."),
        (SplitCategory("cat", 27), "a category cannot be split into 27 parts. Give 2 to 26."),
        (SplitCategory("cat", 2, -1), "the seed -1 cannot be used. Give a whole number from 0 to 4294967295."),
        (SplitCategory("cat", 4), "cat has too few different images (3 in all) for 4 parts. Ask for fewer."),
        (SplitCategory("new-2", 2), "new-2 has too few different images (0 in all) for 2 parts. Ask for fewer."),
        (
            Move((IDS[0],), "dgo"),
            "there is no category dgo. Did you mean dog? To make a new category, add `create=True`.",
        ),
        (
            Move(("x", "y", IDS[0], "z", "w"), "dog"),
            "the run has no images x, y, z and 1 more. Give names from the column image of predictions.csv.",
        ),
        (Drop(("x\n",)), "the run has no image 'x\\n'. Give names from the column image of predictions.csv."),
        (
            Confirm(("dgo",)),
            "there is no category dgo. Did you mean dog? Or give an image from the column image of predictions.csv.",
        ),
        (Confirm(("new-2",)), "new-2 has no images to confirm. Move some to it first, or leave it out."),
        (CarryNames(("cow",), ("x",)), "there is no category cow. Choose from: cat, dog, new-1, new-2."),
        (
            CarryNames(("cat", "cat"), ("x", "y")),
            "a category has no name to carry over, or two. Give one name for each category.",
        ),
        (
            CarryNames(("cat", "dog"), ("x",)),
            "a category has no name to carry over, or two. Give one name for each category.",
        ),
        (
            CarryNames(("cat", "new-1"), ("x", "dog")),
            "two categories would be called dog. Give each category its own name.",
        ),
        (Undo(), "an undo alone changes nothing. Replay it with the edits before it."),
    ],
)
def test_impossible_edits_are_refused(edit: Edit, message: str) -> None:
    assert refusal(edit) == message


def test_a_dropped_image_cannot_be_confirmed() -> None:
    assert refusal(Confirm((IDS[0],)), apply_edit(small_result(), Drop((IDS[0],)))) == (
        "cat/a.png was dropped. Move it to a category instead, which confirms it too."
    )


def test_images_that_are_all_the_same_cannot_be_split() -> None:
    result = replace(small_result(), features=np.ones((8, 2), np.float32))
    assert (
        refusal(SplitCategory("cat", 2), result)
        == "cat has too few different images (3 in all) for 2 parts. Ask for fewer."
    )


def test_a_split_needs_free_names() -> None:
    taken = (*(f"cat-{c}" for c in "abcdefghijklmnopqrstuvwxy"), "cat")
    result = replace(small_result(), names=taken, category=np.full(8, 25))
    assert refusal(SplitCategory("cat", 2), result) == "too few names cat-a to -z are free. Rename the category first."


def test_parts_of_a_long_name_would_be_too_long() -> None:
    result = replace(small_result(), names=("cat", "dog", "x" * 99, "new-2"))
    assert "cannot name a category. Give 1 to 100 characters" in refusal(SplitCategory("x" * 99, 2), result)


@pytest.mark.parametrize("name", ["", " ", " x", "x ", "x" * 101])
def test_names_without_a_sensible_length(name: str) -> None:
    with pytest.raises(Misuse, match=r"cannot name a category\. Give 1 to 100 characters without spaces at the ends\."):
        check_name(name)


@pytest.mark.parametrize("name", ["a/b", "a\\b", "..", ".hidden", "a\nb", "a\0b", "a\x7fb", "a\u2028b", "\udce9"])
def test_names_that_could_not_be_folders(name: str) -> None:
    with pytest.raises(Misuse, match=r"because names become folders\. Leave out slashes, control characters and a dot"):
        check_name(name)


@pytest.mark.parametrize("name", ["great egret", "日本", "a.b", "it's", "x" * 100])
def test_good_names(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize(
    "edit",
    [
        Rename("new-1", "a/b"),
        Merge(("cat", "dog"), "a/b"),
        Move((IDS[0],), "a/b", create=True),
        CarryNames(("new-1",), ("a/b",)),
    ],
)
def test_every_edit_checks_names(edit: Edit) -> None:
    assert "a/b cannot name a category, because names become folders." in refusal(edit)


# edits as data

EVERY = (
    Rename("new-1", "otter"),
    Merge(("new-1", "new-2"), "heron"),
    SplitCategory("new-1", 2, 5),
    Move((IDS[0], "caf\udce9.png"), "dog", True),
    Drop((IDS[1],)),
    Confirm(("new-1", IDS[0])),
    CarryNames(("new-1", "new-2"), ("otter", "new-1")),
    Count(5),
    Undo(),
)


VERBS = "rename, merge, split, move, drop, confirm, carry, count, undo"


@pytest.mark.parametrize("edit", EVERY, ids=lambda edit: type(edit).__name__)
def test_edits_go_to_json_and_back(edit: Edit) -> None:
    assert parse_edit(json.loads(json.dumps({**as_dict(edit), "at": "now"}))) == edit


def test_defaults_may_be_left_out() -> None:
    assert parse_edit({"verb": "split", "category": "cat", "parts": 2}) == SplitCategory("cat", 2, 0)
    assert parse_edit({"verb": "move", "images": ["a"], "to": "cat"}) == Move(("a",), "cat", False)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, f"3 is no edit. Give an object with a verb, one of {VERBS}."),
        ({"verb": []}, f"{{'verb': []}} is no edit. Give an object with a verb, one of {VERBS}."),
        ({"verb": "undo", "x": 1}, "the edit undo has no x. It has: nothing else."),
        (
            {"verb": "rename", "category": "a", "to": "b", "into": "c"},
            "the edit rename has no into. It has: category, to.",
        ),
        ({"verb": "rename", "to": "b"}, "the edit rename lacks category. It has: category, to."),
        ({"verb": "rename", "category": 1, "to": "b"}, "category of the edit rename is 1. Give a text."),
        (
            {"verb": "split", "category": "a", "parts": True},
            "parts of the edit split is True. Give a whole number.",
        ),
        (
            {"verb": "move", "images": ["a"], "to": "b", "create": 1},
            "create of the edit move is 1. Give true or false.",
        ),
        ({"verb": "drop", "images": "a"}, "images of the edit drop is 'a'. Give a list of texts, at least one."),
        ({"verb": "drop", "images": []}, "images of the edit drop is []. Give a list of texts, at least one."),
        ({"verb": "drop", "images": [1]}, "images of the edit drop is [1]. Give a list of texts, at least one."),
    ],
)
def test_invalid_edits_are_refused(value: Any, message: str) -> None:
    with pytest.raises(Misuse) as error:
        parse_edit(value)
    assert str(error.value) == message


def test_edits_in_words() -> None:
    assert [describe_edit(edit) for edit in EVERY] == [
        "rename new-1 to otter",
        "merge new-1, new-2 into heron",
        "split new-1 into 2 parts",
        "move 2 images to dog (cat/a.png, 'caf\\udce9.png')",
        "drop 1 image (cat/b.png)",
        "confirm new-1, cat/a.png",
        "carry names from the earlier round (new-1 is otter, new-2 is new-1)",
        "count 5 categories",
        "undo",
    ]


# sequences


@st.composite
def histories(draw: st.DrawFn) -> list[Edit]:
    """Sequences of valid edits, without undo."""
    result, edits = small_result(), list[Edit]()
    for number in range(draw(st.integers(1, 6))):
        images = tuple(draw(st.lists(st.sampled_from(result.ids), min_size=1, max_size=4)))
        name, other = (draw(st.sampled_from(result.names)) for _ in range(2))
        filled = [n for n in (*result.names, *result.ids) if n in result.ids or len(result.members(n))]
        filled = [n for n in filled if n in result.names or result.category[result.ids.index(n)] >= 0]
        large = [n for n in result.names if len(result.members(n)) >= 2]
        choices: list[Edit] = [
            Rename(name, f"name {number}"),
            Move(images, name),
            Move(images, f"name {number}", create=True),
            Drop(images),
            *([Merge((name,), other), Merge((name, other), f"name {number}")] if name != other else []),
            *([Confirm((draw(st.sampled_from(filled)),))] if filled else []),
            *([CarryNames((name, other), (other, name))] if name != other else []),
            *([SplitCategory(draw(st.sampled_from(large)), 2, draw(st.integers(0, 3)))] if large else []),
        ]
        edits.append(draw(st.sampled_from(choices)))
        result = apply_edit(result, edits[-1])
    return edits


@settings(max_examples=40, deadline=None)
@given(histories())
def test_every_image_is_in_one_category_and_undo_restores_the_state(edits: list[Edit]) -> None:
    states = [small_result()]
    for edit in edits:
        states.append(apply_edit(states[-1], edit))
    last = states[-1]
    assert_same(replay(small_result(), edits), last)
    assert sorted(i for members in sorted_into(last).values() for i in members) == list(range(8))
    assert last.ids == IDS
    assert all(last.category[IDS.index(id_)] >= 0 and last.certainty[IDS.index(id_)] == 1 for id_ in last.confirmed)
    assert len(set(last.names)) == len(last.names)
    for n, state in enumerate(reversed(states)):
        assert_same(replay(small_result(), [*edits, *[Undo()] * n]), state)


def test_undo_takes_back_what_is_still_in_force() -> None:
    a, b, c = Rename("cat", "a"), Rename("dog", "b"), Rename("new-1", "c")
    assert in_force([a, b, Undo(), c, Undo(), Undo()]) == []
    assert in_force([a, Undo(), b, c, Undo()]) == [b]
    with pytest.raises(Misuse, match=r"there is nothing to undo: no edit is in force\. See `sptnet edit RUN log`\."):
        in_force([a, Undo(), Undo()])


# the log on disk


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path)


def test_edits_are_lines_beside_files_that_never_change(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    state = add_edits(run, [Rename("new-1", "日本"), Drop((IDS[0],))])
    add_edits(run, [Undo()])
    lines = [json.loads(line) for line in (run / EDITS).read_text(encoding="utf-8").splitlines()]
    assert [{k: v for k, v in line.items() if k != "at"} for line in lines] == [
        {"verb": "rename", "category": "new-1", "to": "日本"},
        {"verb": "drop", "images": [IDS[0]]},
        {"verb": "undo"},
    ]
    assert sorted_into(state)[""] == [0]
    assert_same(current(run), apply_edit(read_result(run), Rename("new-1", "日本")))
    assert {path: path.read_bytes() for path in before} == before
    assert {path for path in run.rglob("*") if path.is_file()} - set(before) == {run / EDITS}


def test_a_log_without_a_last_line_break_is_continued(run: Path) -> None:
    (run / EDITS).write_text('{"at": "x", "verb": "rename", "category": "cat", "to": "lion"}', encoding="utf-8")
    add_edits(run, [Rename("lion", "tiger")])
    assert read_edits(run) == [Rename("cat", "lion"), Rename("lion", "tiger")]


def test_if_one_edit_fails_none_is_added(run: Path) -> None:
    with pytest.raises(Misuse, match=r"^edit 2 of 3: there is no category cat\. Choose from: lion, "):
        add_edits(run, [Rename("cat", "lion"), Rename("cat", "x"), Undo()])
    assert not (run / EDITS).exists()


def test_undo_among_several_reaches_earlier_ones(run: Path) -> None:
    add_edits(run, [Rename("cat", "lion")])
    state = add_edits(run, [Undo(), Rename("dog", "wolf")])
    assert state.names == ("cat", "wolf", "new-1", "new-2")
    assert_same(current(run), state)


@pytest.mark.parametrize("line", ["{", "[]", "3", '{"verb": "undo"}', '{"at": "x", "verb": "fly"}'])
def test_a_damaged_log(run: Path, line: str) -> None:
    (run / EDITS).write_text(f'{{"at": "x", "verb": "drop", "images": ["{IDS[0]}"]}}\n{line}\n', encoding="utf-8")
    with pytest.raises(Failure, match=r"^line 2 of .*edits\.jsonl is damaged \(.*\)\. Repair or delete that line\.$"):
        current(run)


def test_a_log_of_other_predictions(run: Path) -> None:
    (run / EDITS).write_text('{"at": "x", "verb": "rename", "category": "cow", "to": "x"}\n', encoding="utf-8")
    message = (
        r"edits\.jsonl does not fit the predictions of the run \(there is no category cow\..*\) Move that file away"
    )
    for act in (lambda: current(run), lambda: add_edits(run, [Undo()])):
        with pytest.raises(Failure, match=message):
            act()


# the verb


@pytest.fixture
def call(run: Path, call: Call) -> Call:
    """`sptnet edit RUN ...`"""
    return partial(call, "edit", run)


@pytest.mark.parametrize(
    ("words", "edit", "said"),
    [
        (
            ["rename", "new-1", "sea otter"],
            Rename("new-1", "sea otter"),
            "rename new-1 to sea otter; 2 known and 2 new",
        ),
        (
            ["merge", "new-1", "new-2", "--into", "heron"],
            Merge(("new-1", "new-2"), "heron"),
            "merge new-1, new-2 into heron; 2 known and 1 new",
        ),
        (["split", "new-1"], SplitCategory("new-1", 2, 0), "split new-1 into 2 parts; 2 known and 3 new"),
        (
            ["split", "cat", "--parts", 3, "--seed", 4],
            SplitCategory("cat", 3, 4),
            "split cat into 3 parts; 4 known and 2 new",
        ),
        (
            ["move", IDS[0], IDS[1], "--to", "dog"],
            Move(IDS[:2], "dog"),
            "move 2 images to dog (cat/a.png, cat/b.png); 2 known and 2 new",
        ),
        (
            ["move", IDS[0], "--to", "lynx", "--create"],
            Move(IDS[:1], "lynx", True),
            "move 1 image to lynx (cat/a.png); 2 known and 3 new",
        ),
        (["drop", IDS[0]], Drop(IDS[:1]), "drop 1 image (cat/a.png); 2 known and 2 new"),
        (
            ["confirm", "new-1", IDS[0]],
            Confirm(("new-1", IDS[0])),
            "confirm new-1, cat/a.png; 2 known and 2 new",
        ),
    ],
)
def test_each_verb_writes_its_edit(call: Call, run: Path, words: list[object], edit: Edit, said: str) -> None:
    assert call(*words) == Answer(0, f"done: {said} categories\n", "")
    assert read_edits(run) == [edit]


def test_images_may_be_given_by_their_files(call: Call, run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path / "data" / "cat")
    assert call("drop", "b.png", tmp_path / "data" / IDS[2]).code == 0
    assert read_edits(run) == [Drop((IDS[1], IDS[2]))]
    assert call("confirm", "a.png", tmp_path / "data" / IDS[3], "dog").code == 0
    assert read_edits(run)[1] == Confirm((IDS[0], IDS[3], "dog"))
    (tmp_path / "data" / "cat" / "dog").symlink_to(tmp_path / "data" / IDS[4])
    assert call("confirm", "dog").code == 0, "the category, not the file"
    assert read_edits(run)[2] == Confirm(("dog",))


def test_undo_says_what_it_took_back(call: Call, run: Path) -> None:
    call("rename", "cat", "lion")
    assert call("undo") == Answer(0, "undone: rename cat to lion; 2 known and 2 new categories\n", "")
    assert current(run).names[0] == "cat"
    nothing = "error: there is nothing to undo: no edit is in force. See `sptnet edit RUN log`.\n"
    assert call("undo") == Answer(2, "", nothing)


def test_list_shows_the_table(call: Call) -> None:
    assert call("rename", "new-1", "otter").code == 0
    assert "dropped images" not in call("list").out
    call("drop", IDS[4])
    code, out, err = call("list")
    assert (code, err) == (0, "")
    assert [word for word in ("cat", "dog", "otter", "new-2", "nearest known", "cohesion") if word not in out] == []
    assert "new-1" not in out
    assert out.endswith("dropped images: 1\n")


def test_list_shows_names_as_they_are(call: Call) -> None:
    call("rename", "new-1", "[bold]otter")
    call("rename", "new-2", "eel[ ]")
    out = call("list").out
    assert "[bold]otter" in out
    assert "eel[ ]" in out


def test_log_shows_every_edit(call: Call) -> None:
    assert call("log") == Answer(0, "no edits yet\n", "")
    call("rename", "cat", "lion")
    call("undo")
    first, second = call("log").out.splitlines()
    assert (first[:3], first.split("  ")[2]) == ("1  ", "rename cat to lion")
    assert second.endswith("  undo")


@pytest.mark.parametrize("wrap", [lambda edits: {"edits": edits}, lambda edits: edits])
def test_apply_does_all_edits_of_a_file(call: Call, run: Path, tmp_path: Path, wrap: Callable[[Any], Any]) -> None:
    edits = [Rename("new-1", "otter"), SplitCategory("otter", 2), Undo(), Drop((IDS[0],))]
    file = tmp_path / "edits.json"
    file.write_text(json.dumps(wrap([as_dict(edit) for edit in edits])), encoding="utf-8")
    assert call("apply", file) == Answer(0, "applied 4 edits; 2 known and 2 new categories\n", "")
    assert read_edits(run) == edits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no file FILE. Give the JSON file of edits that the report saved."),
        ("{", "FILE is not valid JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1)). "
              "Save the edits again."),
        ("{}", 'FILE holds no edits. Give JSON such as {"edits": [{"verb": "undo"}]}.'),
        ('{"edits": []}', 'FILE holds no edits. Give JSON such as {"edits": [{"verb": "undo"}]}.'),
        ("3", 'FILE holds no edits. Give JSON such as {"edits": [{"verb": "undo"}]}.'),
        ('[{"verb": "rename", "to": "x"}]', "the edit rename lacks category. It has: category, to."),
        ('[{"verb": "drop", "images": ["cat/a.png"]}, {"verb": "drop", "images": ["x"]}]',
         "edit 2 of 2: the run has no image x. Give names from the column image of predictions.csv."),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_applied(call: Call, run: Path, tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "edits.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    assert call("apply", file) == Answer(2, "", f"error: {message.replace('FILE', str(file))}\n")
    assert not (run / EDITS).exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rename", "new1", "x"], "there is no category new1. Did you mean new-1, new-2?"),
        (["confirm", "x.png"], "there is no category x.png. Choose from: cat, dog, new-1, new-2. Or give an image from "
         "the column image of predictions.csv."),
        (["drop", "x"], "the run has no image x. Give names from the column image of predictions.csv."),
        (["move", IDS[0], "--to", "cow"], "there is no category cow. Choose from: cat, dog, new-1, new-2. To make a new"
         " category, add --create."),
    ],
)  # fmt: skip
def test_wrong_edits_are_reported_and_not_written(call: Call, run: Path, words: list[str], message: str) -> None:
    assert call(*words) == Answer(2, "", f"error: {message}\n")
    assert not (run / EDITS).exists()


@pytest.mark.parametrize(
    "words", [[], ["fly"], ["merge", "cat"], ["move", "--to", "cat"], ["split", "cat", "--parts", "x"]]
)
def test_words_that_make_no_command(call: Call, words: list[str]) -> None:
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert "Usage: sptnet edit" in err


@pytest.mark.parametrize("verb", ["list", "log", "undo"])
def test_no_run(tmp_path: Path, capsys: Any, monkeypatch: Any, verb: str) -> None:
    monkeypatch.setattr(sys, "argv", ["sptnet", "edit", str(tmp_path), verb])
    with pytest.raises(SystemExit) as stop:
        main()
    message = f"error: {tmp_path} is not a run: it has no config.toml. Give the folder of a run.\n"
    assert (stop.value.code, capsys.readouterr().err) == (2, message)


@pytest.mark.parametrize("words", [["--help"], ["x", "rename", "--help"]])
def test_help_needs_no_run(capsys: Any, monkeypatch: Any, words: list[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["sptnet", "edit", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    assert "RUN" in capsys.readouterr().out


# several processes, kills and links


def test_edits_of_several_processes_are_all_stored(tmp_path: Path) -> None:
    run, children = make_run(tmp_path), []
    for process in range(3):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                for _ in range(3):
                    add_edits(run, [Confirm((IDS[process],))])
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert sorted(str(edit) for edit in read_edits(run)) == sorted(3 * [str(Confirm((IDS[i],))) for i in range(3)])
    assert not (run / ".edits.lock").exists()


def test_an_edit_that_waits_in_vain_says_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path)
    monkeypatch.setattr("sptnet.results.run_folder.SECONDS_FOR_AN_EDIT", 0.05)
    with RunFolder(run).lock_edits(), pytest.raises(Locked, match=r"edits\.jsonl is being written by process \d+ on "):
        add_edits(run, [Drop((IDS[0],))])
    assert read_edits(run) == []


def test_a_kill_loses_no_edit(tmp_path: Path) -> None:
    def prepare(number: int) -> Callable[[], object]:
        run = make_run(tmp_path / str(number), files=False)
        add_edits(run, [Rename("cat", "lion")])
        return lambda: add_edits(run, [Drop((IDS[0],))])

    stored = set()
    for number in kill_everywhere(prepare):
        run = tmp_path / str(number) / "run"
        stored.add(len(read_edits(run)))
        assert read_edits(run)[0] == Rename("cat", "lion")
        add_edits(run, [Drop((IDS[1],))])
        assert read_edits(run)[-1] == Drop((IDS[1],))
        assert not [path for path in run.iterdir() if is_temporary(path.name)]
    assert stored == {1, 2}


def test_links_among_the_files_of_a_run_are_not_written_through(tmp_path: Path) -> None:
    run, victim = make_run(tmp_path), tmp_path / "victim"
    victim.write_text("")
    for name in (EDITS, f"{EDITS}.part"):
        (run / name).symlink_to(victim)
    add_edits(run, [Rename("cat", "lion")])
    assert victim.read_text() == ""
    assert read_edits(run) == [Rename("cat", "lion")]


def test_edits_of_a_file_that_were_applied_before_are_skipped(tmp_path: Path) -> None:
    """The page saves all its edits every time, with the number of edits that came before them."""
    run, file = make_run(tmp_path), tmp_path / "edits.json"
    first, second = {"verb": "rename", "category": "new-1", "to": "eel"}, {"verb": "confirm", "targets": ["eel"]}
    add_edits(run, [Rename("dog", "wolf")])

    def new(edits: list[dict[str, object]], **more: object) -> tuple[list[Edit], int]:
        file.write_text(json.dumps({"edits": edits, **more}))
        return new_edits_of_file(run, file)

    assert new([first], after=1) == ([Rename("new-1", "eel")], 0)
    add_edits(run, new([first], after=1)[0])
    assert new([first, second], after=1) == ([Confirm(("eel",))], 1)
    assert new([first], after=1) == ([], 1)
    assert new([first]) == ([Rename("new-1", "eel")], 0), "a file that does not say what came before"
    assert new([second], after=1) == ([Confirm(("eel",))], 0)
    add_edits(run, [Undo()])
    assert new([first], after=1) == ([Rename("new-1", "eel")], 0), "undone, so it is new again"
