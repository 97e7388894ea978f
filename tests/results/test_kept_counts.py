"""Other numbers of categories: clusterings that a run keeps, and the choice of one as an edit."""

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from conftest import Answer, Call
from helpers.digit_folders import fill
from helpers.result_runs import assert_same, make_run
from helpers.rounding import SINGLE
from sptnet.data.split import Split
from sptnet.discovery import pace
from sptnet.discovery.rounds import next_labels, next_round
from sptnet.errors import Failure, Misuse
from sptnet.model.backbone import EMBEDDED
from sptnet.results import counts as module
from sptnet.results.counts import (
    Clustering,
    certainty_of,
    cluster_at,
    count_file,
    counts_to_keep,
    keep_counts,
    read_clustering,
    write_clustering,
)
from sptnet.results.edits.log import (
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
    current,
    read_edits,
    replay,
)
from sptnet.results.edits.names import edited_names
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import RunResult, read_result

DEGREES = (0, 5, 10, 60, 65, 70, 120, 125, 130, 180, 185, 190, 240, 245, 250)
IDS = tuple(f"{group}/{n}.png" for group in ("cat", "dog", "eel", "fox", "gnu") for n in range(3))
LABELS = np.array([0, 0, -1, 1, 1, *[-1] * 10])


def directions(degrees: Sequence[float]) -> Any:
    angles = np.deg2rad(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def five_groups() -> RunResult:
    """Five groups of three images in four categories: new-2 is two groups. One cat and one dog are unlabelled."""
    category = np.repeat([0, 1, 2, 3, 3], 3)
    certainty = np.full(15, 0.5, np.float32)
    counts = {k: cluster_at(directions(DEGREES), LABELS, k, 2, 0) for k in (2, 3, 5)}
    return RunResult(
        ids=IDS,
        sources=(None,) * 15,
        part=("labelled", "labelled", "unlabelled") * 2 + ("unlabelled",) * 9,
        names=("cat", "dog", "new-1", "new-2"),
        n_known=2,
        category=category,
        certainty=certainty,
        features=directions(DEGREES),
        truth=("cat",) * 3 + ("dog",) * 3 + (None,) * 9,
        counts={4: Clustering(category, certainty, None, 2), **counts},
    )


def groups(result: RunResult) -> dict[str, list[int]]:
    """Images of each category by position."""
    return {name: result.members(name).tolist() for name in result.names}


# which numbers are kept


@pytest.mark.parametrize(
    ("low", "high", "chosen", "kept"),
    [
        (5, 7, 6, [5, 6, 7]),
        (5, 7, 12, [5, 6, 7, 12]),
        (9, 9, 9, [9]),
        (5, 16, 9, list(range(5, 17))),
        (1, 4, 4, [3, 4]),
        (1, 2, 3, [3]),
        (90, 200, 95, [90, 91, 92, 93, 94, 95, 96, 97, 98, 99, 100]),
    ],
)
def test_the_plausible_numbers_are_kept(low: int, high: int, chosen: int, kept: list[int]) -> None:
    assert counts_to_keep(low, high, chosen, 3, 100) == kept


@given(st.integers(1, 500), st.integers(0, 2000), st.integers(0, 20), st.integers(0, 1000))
def test_a_wide_range_is_thinned_out(low: int, width: int, n_known: int, n_unlabelled: int) -> None:
    least, most = max(1, n_known), n_known + max(1, n_unlabelled)
    chosen = min(max(low + width // 3, least), most)
    kept = counts_to_keep(low, low + width, chosen, n_known, most)
    assert kept == sorted(set(kept))
    assert len(kept) <= 13
    assert chosen in kept
    assert all(least <= k <= most for k in kept)
    assert {min(max(bound, least), most) for bound in (low, low + width)} <= set(kept)


# the clustering


def test_labelled_images_keep_their_category() -> None:
    found = cluster_at(directions(DEGREES), LABELS, 5, 2, 0)
    assert found.category[:6].tolist() == [0, 0, 0, 1, 1, 1]
    assert {tuple(found.category[i : i + 3]) for i in (6, 9, 12)} == {(2,) * 3, (3,) * 3, (4,) * 3}
    assert found.centroids is not None and found.centroids.shape == (5, 2)
    assert found.certainty[LABELS >= 0].tolist() == [1.0] * 4
    assert ((found.certainty > 0) & (found.certainty <= 1)).all()
    assert np.array_equal(found.nearest(directions(DEGREES)), found.category)
    again = cluster_at(directions(DEGREES), LABELS, 5, 2, 0)
    assert np.array_equal(found.category, again.category) and np.array_equal(found.certainty, again.certainty)


def test_a_label_holds_where_the_image_lies_elsewhere() -> None:
    labels = LABELS.copy()
    labels[9] = 0
    assert cluster_at(directions(DEGREES), labels, 5, 2, 0).category[9] == 0


def test_the_certainty_is_a_softmax_of_cosines() -> None:
    found = certainty_of(directions([0, 90]), np.array([[2, 0], [0, 0.5]], np.float32))
    assert found.tolist() == pytest.approx([1 / (1 + np.exp(-10))] * 2, rel=8 * SINGLE)


def test_every_known_category_needs_a_label() -> None:
    with pytest.raises(Misuse, match=r"not all of the 3 known categories have a labelled image\. Label one of each\."):
        cluster_at(directions(DEGREES), LABELS, 5, 3, 0)


def test_images_that_are_all_the_same() -> None:
    found = cluster_at(np.ones((4, 2), np.float32) / np.float32(2**0.5), np.full(4, -1), 3, 0, 0)
    assert set(found.category.tolist()) <= {0, 1, 2}


# files


def test_a_clustering_is_read_as_it_was_written(tmp_path: Path) -> None:
    clustering = cluster_at(directions(DEGREES), LABELS, 5, 2, 0)
    write_clustering(tmp_path, clustering)
    read = read_clustering(tmp_path, 5, 15)
    for column in ("category", "certainty", "centroids"):
        assert np.array_equal(getattr(read, column), getattr(clustering, column))
    assert read.n_known == 2
    assert load_file(tmp_path / "counts" / "5.safetensors")["category"].dtype == torch.int64


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path, five_groups())


def test_a_run_keeps_the_plausible_numbers(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labelled = np.flatnonzero(LABELS >= 0)
    nothing, seed = np.empty(0, np.int64), RunFolder(run).config().seed
    split = Split(("cat", "dog"), 2, LABELS, labelled, np.setdiff1d(np.arange(15), labelled), nothing, nothing)
    keep_counts(RunFolder(run), split, 4, seed)
    assert not (run / "counts").exists(), "the number was given"
    (run / "estimate.json").write_text('{"interval": [1, 6]}')
    monkeypatch.setattr(module, "MOST_IMAGES", 14)
    keep_counts(RunFolder(run), split, 4, seed)
    assert not (run / "counts").exists(), "too many images"
    monkeypatch.undo()
    keep_counts(RunFolder(run), split, 4, seed)
    assert sorted(file.name for file in (run / "counts").iterdir()) == [f"{k}.safetensors" for k in (2, 3, 5, 6)]
    kept = count_file(run, 5).read_bytes()
    count_file(run, 5).unlink()
    add_edits(run, [Count(5)])
    assert count_file(run, 5).read_bytes() == kept, "the same on demand"


@pytest.mark.parametrize("text", ["{", "{}", '{"interval": 3}', '{"interval": ["a", 2]}'])
def test_a_damaged_estimate(run: Path, text: str) -> None:
    (run / "estimate.json").write_text(text)
    with pytest.raises(Failure, match=r"estimate\.json is damaged .*Delete it to go on without it\."):
        RunFolder(run).plausible_counts()


def damage(file: Path, **changes: Any) -> None:
    tensors = load_file(file) | changes
    file.unlink()
    save_file({name: tensor for name, tensor in tensors.items() if tensor is not None}, file)


@pytest.mark.parametrize(
    "changes",
    [
        {"category": None},
        {"category": torch.zeros(14, dtype=torch.int64)},
        {"category": torch.full((15,), 5)},
        {"category": torch.full((15,), -1)},
        {"category": torch.zeros(15)},
        {"certainty": torch.full((15,), 1.5)},
        {"certainty": torch.full((15,), torch.nan)},
        {"certainty": torch.zeros(3)},
        {"centroids": torch.zeros(4, 2)},
        {"centroids": torch.full((5, 2), torch.inf)},
        {"n_known": torch.tensor(6)},
        {"n_known": None},
    ],
    ids=str,
)
def test_a_damaged_clustering(run: Path, changes: dict[str, Any]) -> None:
    add_edits(run, [Count(5)])
    damage(count_file(run, 5), **changes)
    with pytest.raises(Failure) as error:
        current(run)
    assert str(error.value).startswith(f"{run}/counts/5.safetensors is damaged (")
    assert str(error.value).endswith(f"). Delete it, then cluster again with: `edit('{run}', 'count', '5')`")


def test_the_way_out_of_a_damaged_clustering(run: Path) -> None:
    state = add_edits(run, [Count(5), Rename("new-1", "eel")])
    file = count_file(run, 5)
    whole = file.read_bytes()
    file.write_bytes(b"x")
    with pytest.raises(Failure, match="is damaged"):
        current(run)
    file.unlink()
    with pytest.raises(Failure, match=r"no clustering into 5 categories is kept\. Make it with `count 5`"):
        current(run)
    add_edits(run, [Count(5)])
    assert file.read_bytes() == whole
    add_edits(run, [Undo()])
    assert_same(current(run), state)


# the edit


def test_new_categories_take_over_names_by_their_images() -> None:
    before = replay(five_groups(), [Rename("cat", "lion"), Rename("new-1", "eel"), Rename("new-2", "fox")])
    after = apply_edit(before, Count(5))
    assert (after.names[:2], after.n_known, len(after.names)) == (("lion", "dog"), 2, 5)
    assert groups(after)["lion"] == [0, 1, 2] and groups(after)["dog"] == [3, 4, 5]
    assert groups(after)["eel"] == [6, 7, 8]
    assert groups(after)["fox"] in ([9, 10, 11], [12, 13, 14])
    assert set(after.names) == {"lion", "dog", "eel", "fox", "new-1"}
    fewer = apply_edit(after, Count(2))
    assert fewer.names == ("lion", "dog")


def test_the_state_before_is_not_changed() -> None:
    result = five_groups()
    apply_edit(result, Count(5))
    for column in ("category", "certainty"):
        assert np.array_equal(getattr(result, column), getattr(five_groups(), column))
    assert five_groups().counts[5].category.tolist() == result.counts[5].category.tolist()


def test_the_number_of_the_run_is_that_of_its_model() -> None:
    edits: list[Edit] = [Rename("new-1", "eel"), Count(5), Count(4)]
    again = replay(five_groups(), edits)
    assert groups(again) == {"cat": [0, 1, 2], "dog": [3, 4, 5], "eel": [6, 7, 8], "new-2": [9, 10, 11, 12, 13, 14]}
    assert edited_names(five_groups(), edits).clustering is None


def test_what_a_person_did_stays() -> None:
    edits: list[Edit] = [
        Rename("new-1", "eel"),
        Move((IDS[9],), "dog"),
        Move((IDS[10],), "eel"),
        Confirm((IDS[2],)),
        Drop((IDS[14], IDS[0])),
    ]
    before = replay(five_groups(), edits)
    after = apply_edit(before, Count(5))
    assert after.names[after.category[9]] == "dog" and after.names[after.category[10]] == "eel"
    assert after.category[[0, 14]].tolist() == [-1, -1]
    assert after.confirmed == before.confirmed == {IDS[2], IDS[9], IDS[10]}
    assert after.certainty[[2, 9, 10]].tolist() == [1.0] * 3
    assert after.certainty[11] == five_groups().counts[5].certainty[11]


def test_an_image_whose_category_has_gone_follows_the_clustering() -> None:
    before = replay(five_groups(), [Move((IDS[6],), "ray", create=True)])
    after = apply_edit(before, Count(2))
    assert after.names == ("cat", "dog")
    assert after.category[6] == five_groups().counts[2].category[6]
    assert after.confirmed == frozenset()


@pytest.mark.parametrize(
    "edits",
    [
        [Merge(("cat", "dog"), "pet")],
        [SplitCategory("cat", 2)],
        [SplitCategory("dog", 2)],
    ],
)
def test_known_categories_must_be_those_of_the_run(edits: list[Edit]) -> None:
    state = replay(five_groups(), edits)
    with pytest.raises(Misuse, match=r"known categories have been merged or split.*Choose the number first"):
        apply_edit(state, Count(5))


def test_a_number_that_is_not_kept_is_refused_by_a_result() -> None:
    with pytest.raises(Misuse, match=r"no clustering into 9 categories is kept\. Make it with `count 9`\."):
        apply_edit(five_groups(), Count(9))


@st.composite
def histories(draw: st.DrawFn) -> list[Edit]:
    """Sequences of valid edits with choices of the number."""
    result, edits = five_groups(), list[Edit]()
    for number in range(draw(st.integers(1, 6))):
        image, name, other = draw(st.sampled_from(IDS)), *(draw(st.sampled_from(result.names)) for _ in range(2))
        choices: list[Edit] = [
            Rename(name, f"name {number}"),
            Move((image,), name),
            Move((image,), f"name {number}", create=True),
            Drop((image,)),
            Confirm((name,)),
            Merge((name,), other),
            SplitCategory(name, 2),
            CarryNames((name,), (f"name {number}",)),
            *(Count(k) for k in (2, 3, 4, 5)),
        ]
        edit = draw(st.sampled_from(choices))
        try:
            result = apply_edit(result, edit)
        except Misuse:
            continue
        edits.append(edit)
    return edits


@settings(max_examples=60, deadline=None)
@given(histories())
def test_histories_with_numbers_are_replayed_and_undone(edits: list[Edit]) -> None:
    base = five_groups()
    states = [base]
    for edit in edits:
        states.append(apply_edit(states[-1], edit))
        if isinstance(edit, Count):
            assert len(states[-1].names) == edit.n_categories
            assert states[-1].names[:2] == states[-2].names[:2]
            dropped = [state.category < 0 for state in states[-2:]]
            assert np.array_equal(*dropped)
            names = [[state.names[c] if c >= 0 else "" for c in state.category] for state in states[-2:]]
            kept = [i for i, id_ in enumerate(IDS) if id_ in states[-2].confirmed and names[0][i] in states[-1].names]
            assert [names[0][i] for i in kept] == [names[1][i] for i in kept]
    assert_same(replay(base, edits), states[-1])
    for n, state in enumerate(reversed(states)):
        assert_same(replay(base, [*edits, *[Undo()] * n]), state)


# in a run


def test_a_number_that_is_not_kept_is_clustered_once(run: Path) -> None:
    assert list(read_result(run).counts) == [4], "an older run keeps none"
    state = add_edits(run, [Count(5)])
    file = count_file(run, 5)
    written = (file.read_bytes(), file.stat().st_mtime_ns)
    assert_same(current(run), state)
    add_edits(run, [Undo(), Count(5)])
    assert (file.read_bytes(), file.stat().st_mtime_ns) == written
    assert list(read_result(run).counts) == [4, 5]
    assert [edit for edit in read_edits(run) if isinstance(edit, Count)] == [Count(5)] * 2
    RunFolder(run).path.joinpath("edits.jsonl").unlink()
    RunFolder(run).check_new(overwrite=True)  # the clusterings are the run's own


@pytest.fixture
def edit(run: Path, call: Call) -> Call:
    """`sptnet edit RUN ...`"""
    return partial(call, "edit", run)


def test_the_verb(edit: Call, run: Path) -> None:
    assert edit("count", 5) == Answer(0, "done: count 5 categories; 2 known and 3 new categories\n", "")
    assert edit("count", 4) == Answer(0, "done: count 4 categories; 2 known and 2 new categories\n", "")
    assert edit("undo").out == "undone: count 4 categories; 2 known and 3 new categories\n"
    assert edit("log").out.splitlines()[1].endswith("  count 4 categories")
    assert len(edit("list").table) == 5
    damage(count_file(run, 5), category=None)
    answer = edit("list")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.endswith(f"Delete it, then cluster again with: sptnet edit {run} count 5\n")


@pytest.mark.parametrize("number", [1, 14, 0])
def test_a_number_that_cannot_be(edit: Call, run: Path, number: int) -> None:
    message = f"15 images with 2 known categories cannot be in {number} categories. Choose a number from 2 to 13."
    assert edit("count", number) == Answer(2, "", f"error: {message}\n")
    assert not (run / "edits.jsonl").exists() and not (run / "counts").exists()
    assert edit("count", 13).code == 0


def test_a_number_among_other_edits_of_a_file(edit: Call, tmp_path: Path) -> None:
    file = tmp_path / "edits.json"
    edits = [{"verb": "count", "n_categories": 5}, {"verb": "count", "n_categories": 99}]
    file.write_text(json.dumps(edits))
    assert edit("apply", file).err.startswith("error: edit 2 of 2: 15 images with 2 known categories cannot be in 99")
    file.write_text(json.dumps(edits[:1]))
    assert edit("apply", file).code == 0


def test_a_chosen_number_is_that_of_the_next_round(run: Path, tmp_path: Path) -> None:
    (run / "estimate.json").write_text("{}")
    add_edits(run, [Confirm(("dog",))])
    assert next_round(run, tmp_path / "second").config.n_categories == "auto"
    add_edits(run, [Undo(), Count(5)])
    assert next_round(run, tmp_path / "second").config.n_categories == 5
    add_edits(run, [Merge(("new-1", "new-2"), "fish"), Confirm(("dog",))])
    assert next_round(run, tmp_path / "second").config.n_categories == 4
    labels = {"cat": IDS[:2], "dog": IDS[3:6]}
    assert next_round(run, tmp_path / "second").labels == {id_: name for name in labels for id_ in labels[name]}


def test_labels_of_held_out_images_stay() -> None:
    result = five_groups()
    part = list(result.part)
    part[2] = "holdout"  # in a clustering where it would be a dog
    moved = replace(result.counts[5], category=np.where(np.arange(15) == 2, 1, result.counts[5].category))
    result = replace(result, part=tuple(part), counts={5: moved})
    assert next_labels(result, [Count(5)])[IDS[2]] == "cat"


def test_new_images_follow_the_nearest_centroid() -> None:
    edits: list[Edit] = [Rename("new-1", "eel"), Count(5), Rename("cat", "lion")]
    names = edited_names(five_groups(), edits)
    categories, certainty = names.assign(np.zeros(4, np.int64), np.ones(4, np.float32), directions([3, 62, 127, 183]))
    assert [names.names[i] for i in categories][:3] == ["lion", "dog", "eel"]
    assert replay(five_groups(), edits).category[10] == categories[3]
    assert (certainty < 1).all()
    split = edited_names(five_groups(), [*edits, Merge(("eel",), "dog")])
    categories, _ = split.assign(np.zeros(1, np.int64), np.ones(1, np.float32), directions([127]))
    assert split.names[categories[0]] == "dog"


# from discovery to prediction


def rows(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(file.read_text().splitlines()))


def test_from_a_discovery_to_predictions(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "SECONDS", 0.005)
    images, run = fill(tmp_path / "photos"), tmp_path / "run"
    words = ["--backbone", EMBEDDED, "--set", "backbone.image_size=32", "--device", "cpu", "--method", "sskmeans"]
    assert call("discover", images, "--out", run, *words).code == 0
    low, high = json.loads((run / "estimate.json").read_text())["interval"]
    plain = read_result(run)
    own = len(plain.names)
    assert list(plain.counts) == counts_to_keep(low, high, own, 3, len(plain))
    other = next(k for k in (own + 2, own - 1) if k >= 3)
    kept = count_file(run, other).is_file()
    assert call("edit", run, "count", other).code == 0
    state = current(run)
    assert len(state.names) == other and state.names[:3] == plain.names[:3]
    assert call("predict", run, images, "--out", tmp_path / "all.csv", "--device", "cpu").code == 0
    predicted = {Path(row["image"]).relative_to(images).as_posix(): row for row in rows(tmp_path / "all.csv")}
    free = [i for i, part in enumerate(state.part) if part == "unlabelled"]
    assert [predicted[state.ids[i]]["category"] for i in free] == [state.names[state.category[i]] for i in free]
    certainty = [float(predicted[state.ids[i]]["certainty"]) for i in free]
    assert certainty == pytest.approx(state.certainty[free].tolist(), abs=2e-3)  # features are kept in half precision
    assert call("export", run, "--as", "csv", "--to", tmp_path / "sorted.csv").code == 0
    assert {row["category"] for row in rows(tmp_path / "sorted.csv")} <= set(state.names)
    answer = call("export", run, "--as", "torch", "--to", tmp_path / "model.pt2")
    assert answer.out == f"wrote the model of {other} categories: {tmp_path / 'model.pt2'}\n"
    facts = {"sptnet.json": ""}
    program = torch.export.load(tmp_path / "model.pt2", extra_files=facts)
    assert [entry["name"] for entry in json.loads(facts["sptnet.json"])["categories"]] == list(state.names)
    assert program.module()(torch.zeros(2, 3, 32, 32))[1].shape == (2, other)
    assert call("report", run).code == 0
    page = (run / "report.html").read_text()
    assert f"{other} categories are in force" in page
    assert f"sptnet edit {run.name} count N" in page
    before = count_file(run, other).read_bytes()
    assert call("discover", "--resume", "--out", run, "--no-report").code == 0
    assert count_file(run, other).read_bytes() == before
    assert kept or other not in range(low, high + 1)


def test_a_given_number_keeps_no_others(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "SECONDS", 0.005)
    images, run = fill(tmp_path / "photos", per_class=5), tmp_path / "run"
    words = ["--backbone", EMBEDDED, "--set", "backbone.image_size=32", "--method", "sskmeans", "--no-report"]
    assert call("discover", images, "--out", run, *words, "--categories", 6).code == 0
    assert not (run / "counts").exists()
    assert call("edit", run, "count", 4).code == 0
    assert len(current(run).names) == 4
