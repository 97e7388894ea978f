"""The report page without a browser: its content and how it is assembled."""

import base64
import hashlib
import json
import os
import re
import sys
import zlib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from helpers.report_runs import (
    HOSTILE,
    SOME_FOLDER,
    assessed_result,
    assessed_run,
    hostile_result,
    hostile_run,
    review_run,
)
from helpers.result_runs import make_run, small_result
from sptnet.cli import main
from sptnet.config import Config
from sptnet.errors import Failure, Misuse
from sptnet.inference.attention import AttentionMaps, most_attended
from sptnet.losses import Loss
from sptnet.methods import METHODS, NAMES, stages_of
from sptnet.report.page import render as page_module
from sptnet.report.page.attention_data import attention_data, packed, tenths
from sptnet.report.page.chart import Chart, ChartLine, thinned, ticks
from sptnet.report.page.confusion import confusion
from sptnet.report.page.content import page_data
from sptnet.report.page.curves import LOSSES, count_chart, reliability_chart, training_charts
from sptnet.report.page.facts import page_commands, run_facts, without_folders
from sptnet.report.page.image_facts import file_times, image_facts
from sptnet.report.page.image_map import ImageMap, image_map, on_grid, sample
from sptnet.report.page.image_sources import image_sources
from sptnet.report.page.model_views import sample_images
from sptnet.report.page.overview import (
    display_order,
    expectation,
    expected_shares,
    in_words,
    least_sure,
    member_order,
    summary,
)
from sptnet.report.page.render import policy, render, safe_json, script_text
from sptnet.report.page.shown_images import ALL_UP_TO, CHOSEN, pictured_images
from sptnet.report.page.thumbnails import LEVELS, promising_level, thumbnails, total_bytes
from sptnet.report.page.write import BUDGET, read_for_report, write_report
from sptnet.report.page_age import has_model_pictures, tell_page
from sptnet.report.tsne import embed_2d
from sptnet.results.categories import Category, describe_categories
from sptnet.results.edits.choose_count import ensure_clustering
from sptnet.results.edits.log import (
    Drop,
    Edit,
    Merge,
    Move,
    Rename,
    SplitCategory,
    add_edits,
    apply_edit,
    read_edited,
)
from sptnet.results.edits.second_choices import second_choices
from sptnet.results.edits.types import Count
from sptnet.results.expected_accuracy import ExpectedAccuracy
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import RunResult, read_result


def many_images(n: int, n_categories: int = 4, dim: int = 8) -> RunResult:
    """Make images around one direction per category, with the categories in turn."""
    random = np.random.RandomState(0)
    category = np.arange(n) % n_categories
    features = 3 * random.standard_normal((n_categories, dim))[category] + random.standard_normal((n, dim))
    return RunResult(
        ids=tuple(f"{i:05d}.png" for i in range(n)),
        sources=(None,) * n,
        part=("unlabelled",) * n,
        names=tuple(f"c{i}" for i in range(n_categories)),
        n_known=1,
        category=category,
        certainty=random.uniform(0.3, 1, n).astype(np.float32),
        features=(features / np.linalg.norm(features, axis=1, keepdims=True)).astype(np.float32),
        truth=(None,) * n,
    )


def category(name: str, is_new: bool, size: int, n_doubtful: int = 0) -> Category:
    return Category(name, is_new, size, 0.5, 0.5, None, (), tuple(f"{name}-{i}" for i in range(n_doubtful)))


def quiet(message: str) -> None:
    """Ignore a message."""


def page_json(page: str, name: str) -> Any:
    return json.loads(re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.S)[1])  # type: ignore[index]


# --- what it says first -----------------------------------------------------------------------------------------------


def test_the_sentence_counts_images_categories_and_doubts() -> None:
    result = many_images(8214)
    categories = [category("a", False, 8000, 340), *(category(f"k{i}", False, 1) for i in range(11))]
    categories += [category("n", True, 195, 1), *(category(f"n{i}", True, 1) for i in range(8)), category("e", True, 0)]
    assert summary(result, categories) == "8,214 images, 12 known categories, 9 new, 341 doubtful"


def test_the_sentence_knows_singular_and_dropped() -> None:
    one = many_images(1, 1)
    assert summary(one, [category("a", False, 1)]) == "1 image, 1 known category, 0 new, 0 doubtful"
    assert summary(many_images(3), [category("a", True, 1, 1)]) == (
        "1 image, 0 known categories, 1 new, 1 doubtful, 2 dropped"
    )


def test_the_range_of_the_count_stands_beside_the_count() -> None:
    categories = [category("a", False, 5, 1), category("n", True, 2), category("e", True, 0)]
    seven = many_images(7)
    assert in_words(seven, categories, (2, 5)) == (
        "7 images in 2 categories (2 to 5 are plausible): 1 known and 1 new. 1 image is doubtful."
    )
    assert in_words(seven, categories, (2, 2)).startswith("7 images in 2 categories: 1 known and 1 new.")
    assert in_words(many_images(9), categories, None).endswith(" 2 were marked as wrong.")


def test_new_categories_come_first_and_large_ones_before_small_ones() -> None:
    sizes = [("a", False, 5), ("b", False, 9), ("c", True, 2), ("d", True, 7), ("e", True, 7)]
    assert display_order([category(*one) for one in sizes]) == [3, 4, 2, 1, 0]


def test_members_come_by_certainty_with_the_doubtful_last() -> None:
    result = small_result()
    categories = describe_categories(result)
    assert categories[0].doubtful == ("unlabelled/a.png",)
    assert categories[2].doubtful == ("test/e.png",)
    assert member_order(result, categories) == [[0, 1, 2], [3], [4, 5, 6, 7], []]
    surer = replace(result, certainty=np.array([0.6, 0.8, 0.9, 0.9, 0.6, 0.7, 0.9, 0.3], np.float32))
    assert member_order(surer, describe_categories(surer))[0] == [2, 1, 0]
    dropped = replace(result, category=np.array([0, 0, -1, 1, 2, 2, 2, 2]))
    assert member_order(dropped, describe_categories(dropped))[0] == [0, 1]


def test_the_first_sentence_says_how_many_should_be_right() -> None:
    result = replace(many_images(1503), part=("unlabelled",) * 1500 + ("labelled", "holdout", "test"))
    expected = ExpectedAccuracy(0.624, 0.55, 0.7)
    assert expectation(result, expected, "") == "About 62 % (55 to 70) of the 1,500 unsorted images should be right"
    assert expectation(result, None, "there are too few labels.") == (
        "How many of the 1,500 unsorted images are right is not known: there are too few labels"
    )
    one = replace(many_images(2), part=("labelled", "unlabelled"))
    assert expectation(one, expected, "") == "About 62 % (55 to 70) of the 1 unsorted image should be right"
    assert expectation(replace(one, part=("labelled", "test")), expected, "") == ""


def test_the_least_sure_images_are_unsorted_and_undecided() -> None:
    result = small_result()  # certainties of the unlabelled images: 0.4, 0.9, 0.9, 0.7, 0.6
    assert least_sure(result) == [2, 6, 5, 3, 4]
    assert least_sure(replace(result, category=np.array([0, 0, -1, 1, 2, 2, 2, 2]))) == [6, 5, 3, 4]
    moved = apply_edit(result, Move((result.ids[2],), "dog"))
    assert least_sure(moved) == [6, 5, 3, 4]
    assert least_sure(replace(result, confirmed=frozenset({result.ids[6]}))) == [2, 5, 3, 4]
    certain = replace(result, certainty=np.ones(8, np.float32))
    assert least_sure(certain) == []
    many = many_images(100)
    assert least_sure(many) == np.argsort(many.certainty, kind="stable")[:40].tolist()


def test_every_category_has_an_expected_share() -> None:
    result = small_result()
    expected = ExpectedAccuracy(0.6, 0.5, 0.7, {"cat": 0.5, "dog": 1.0, "new-1": 0.25})
    assert expected_shares(result, result, expected) == [0.5, 1.0, 0.25, None]
    assert expected_shares(result, result, None) == [None] * 4
    assert expected_shares(result, result, ExpectedAccuracy(0.6, 0.5, 0.7, {"dog": 0.5})) == [None, 0.5, None, None]


@pytest.mark.parametrize(
    ("edit", "shares"),
    [
        (Rename("new-1", "eel"), [0.5, 1.0, 0.25, None]),
        (Merge(("cat", "dog"), "pet"), [0.75, 0.25, None]),
        (Merge(("dog", "new-1"), "both"), [0.5, (1 + 3 * 0.25) / 4, None]),
        (SplitCategory("new-1", 2), [0.5, 1.0, 0.25, 0.25, None]),
        (Move(("unlabelled/e.png",), "dog"), [0.5, 1.0, 0.25, None]),
        (Move(("unlabelled/e.png",), "new-2"), [0.5, 1.0, 0.25, 1.0]),
        (Move(("unlabelled/dog.png",), "new-1"), [0.5, None, (1 + 3 * 0.25) / 4, None]),
        (Drop(("unlabelled/a.png",)), [None, 1.0, 0.25, None]),
    ],
)
def test_expected_shares_follow_the_edits(edit: Edit, shares: list[float | None]) -> None:
    result = small_result()
    expected = ExpectedAccuracy(0.6, 0.5, 0.7, {"cat": 0.5, "dog": 1.0, "new-1": 0.25})
    assert expected_shares(apply_edit(result, edit), result, expected) == pytest.approx(shares)


# --- which images, and how large --------------------------------------------------------------------------------------


def test_all_images_of_a_small_run_are_shown_except_dropped_ones() -> None:
    result = replace(small_result(), category=np.array([0, 0, -1, 1, 2, 2, 2, 2]))
    assert pictured_images(result, describe_categories(result), {4}) == [0, 1, 3, 4, 5, 6, 7]


def test_representatives_and_doubtful_images_of_a_large_run_are_shown_up_to_a_number() -> None:
    result = many_images(ALL_UP_TO + 1, n_categories=300)
    categories = describe_categories(result)
    images = pictured_images(result, categories, {5000, 7})
    assert images == sorted(set(images))
    assert {5000, 7} <= set(images)
    each = CHOSEN // 300
    counts = np.bincount(result.category[[i for i in images if i not in (5000, 7)]], minlength=300)
    assert counts.max() <= each
    best = {result.ids.index(entry.representatives[0]) for entry in categories}
    assert best <= set(images)
    assert {result.ids.index(entry.doubtful[0]) for entry in categories if entry.doubtful} <= set(images)


def noisy(n: int, side: int = 120) -> list[Any]:
    random = np.random.RandomState(0)
    return [random.randint(0, 256, (side, side + 20, 3)).astype(np.uint8) for _ in range(n)]


def test_thumbnails_are_as_fine_as_the_budget_allows() -> None:
    sources = noisy(12)
    assert promising_level(sources, 10**9) == LEVELS[0]
    assert promising_level(sources, 0) == LEVELS[-1]
    sizes = []
    for budget in (10**9, 40_000, 12_000):
        uris = thumbnails(sources, budget)
        sizes.append(total_bytes(uris))
        assert total_bytes(uris) <= budget
        assert total_bytes(uris) == len(json.dumps(uris, separators=(",", ":"))) - 1
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3


def test_a_sample_that_promised_too_much_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sptnet.report.page.thumbnails._SAMPLE", 4)
    plain, loud = np.zeros((120, 120, 3), np.uint8), noisy(1)[0]
    misleading = [plain if i % 6 == 0 else loud for i in range(24)]
    done: list[int] = []
    assert promising_level(misleading, 40_000) == LEVELS[0]
    assert total_bytes(thumbnails(misleading, 40_000, done.append)) <= 40_000
    assert done.count(24) >= 2


def test_a_thumbnail_is_the_middle_of_the_image_and_never_enlarged(tmp_path: Path) -> None:
    wide = np.zeros((50, 150, 3), np.uint8)
    wide[:, 50:100] = (255, 0, 0)
    Image.fromarray(wide).save(tmp_path / "wide.png")
    tiny = np.arange(64, dtype=np.uint8).reshape(8, 8)
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    Image.fromarray(np.zeros((900, 700, 3), np.uint8)).save(tmp_path / "large.jpg")
    sources = [
        tmp_path / "wide.png",
        tiny,
        tmp_path / "broken.jpg",
        None,
        tmp_path / "gone.png",
        tmp_path / "large.jpg",
    ]
    uris = thumbnails(sources, 10**6)
    assert uris[2:5] == [None, None, None]
    first, second, last = (opened(uri) for uri in (uris[0], uris[1], uris[5]))
    assert (first.size, second.size, last.size) == ((50, 50), (8, 8), (256, 256))
    assert np.asarray(first).min(axis=(0, 1))[0] > 240
    assert np.array_equal(np.asarray(second)[..., 0], tiny)


def opened(uri: str | None) -> Image.Image:
    import io

    assert uri is not None
    head, code = uri.split(",")
    assert head == "data:image/webp;base64"
    return Image.open(io.BytesIO(base64.b64decode(code))).convert("RGB")


def test_large_pictures_have_a_budget_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = noisy(6, 300)
    assert [opened(uri).size for uri in thumbnails(sources, 10**9)] == [(256, 256)] * 6
    monkeypatch.setattr("sptnet.report.page.thumbnails.LARGE_BUDGET", 20_000)
    assert [opened(uri).size for uri in thumbnails(sources, 10**9)] == [(112, 112)] * 6


# --- single images ----------------------------------------------------------------------------------------------------


def test_second_choices_follow_the_edits(tmp_path: Path) -> None:
    run, before = RunFolder(review_run(tmp_path)), read_result(tmp_path / "run")
    second, certainty = second_choices(run, read_edited(run.path))
    assert second.tolist() == ((before.category + 1) % 6).tolist()
    assert set(certainty.tolist()) == {0.25}
    edits: list[Edit] = [Merge(("new-2",), "new-1"), Rename("new-3", "eel")]
    add_edits(run.path, edits)
    edited = read_edited(run.path)
    assert (edited.edits, edited.before.names) == (edits, before.names)
    result = edited.result
    second, _ = second_choices(run, edited)
    names = [None if i < 0 else result.names[i] for i in second]
    assert result.names == ("cat", before.names[1], "new-1", "eel", "new-4")
    assert set(np.array(names)[before.category == 1].tolist()) == {"new-1"}
    assert set(np.array(names)[before.category == 2].tolist()) == {None}, "both choices are one category now"
    assert set(np.array(names)[before.category == 3].tolist()) == {"eel"}


def test_runs_without_second_choices_and_other_counts_have_none(tmp_path: Path) -> None:
    older = make_run(tmp_path / "older")
    assert set(second_choices(RunFolder(older), read_edited(older))[0].tolist()) == {-1}
    run = make_run(tmp_path / "new", assessed_result(), guesses=True, seconds=True)
    ensure_clustering(run, read_result(run), 6)
    assert set(second_choices(RunFolder(run), read_edited(run))[0].tolist()) == {0, 1, 2, 3, 4}
    add_edits(run, [Count(6)])
    assert set(second_choices(RunFolder(run), read_edited(run))[0].tolist()) == {-1}


def test_images_have_a_part_a_truth_and_a_time(tmp_path: Path) -> None:
    result = small_result()
    second, certainty = np.array([1, -1, 1, 0, 0, 0, 0, 0]), np.full(8, 0.125, np.float32)
    times = [None, None, 5, 6, None, 7, 8, 9]
    place = {0: 2, 1: 3, 2: 0, 3: 1}
    facts = image_facts(result, [0, 1, 3, 7], place, second, certainty, {"eel": 0, "dog": 1}, times)
    assert facts == {
        "part": "lhut",
        "second": [3, -1, 2, 2],
        "second_certainty": [0.125] * 4,
        "truth": [-1, -1, 1, -1],
        "time": [None, None, 6, 9],
    }
    assert image_facts(result, [0, 1], place, second, certainty, {}, times)["time"] == []
    (tmp_path / "a.png").write_bytes(b"")
    os.utime(tmp_path / "a.png", (0, 1_600_000_000))
    sources: list[Any] = [tmp_path / "a.png", None, np.zeros((2, 2)), tmp_path / "gone.png"]
    assert file_times(sources) == [1_600_000_000, None, None, None]


# --- the map ----------------------------------------------------------------------------------------------------------


def test_the_map_is_the_same_every_time_and_keeps_categories_together() -> None:
    result = many_images(80, dim=64)
    one, other = image_map(result), image_map(result)
    assert np.array_equal(one.places, other.places)
    assert one.images.tolist() == list(range(80))
    assert one.places.min() >= 0
    assert one.places.max() == 1000
    distances = np.linalg.norm(one.places[:, None] - one.places[None], axis=2) + np.eye(80) * 10**6
    assert (result.category[distances.argmin(1)] == result.category).mean() > 0.9


def test_a_sample_keeps_the_proportions_and_every_category() -> None:
    category_of = np.array([0] * 600 + [1] * 300 + [2] * 2 + [-1] * 98)
    chosen = sample(category_of, 100)
    assert np.array_equal(chosen, sample(category_of, 100))
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    assert np.bincount(category_of[chosen]).tolist() == [66, 33, 1]
    assert sample(category_of, 902).tolist() == list(range(902))


@pytest.mark.parametrize("n", [0, 1, 2, 4, 5, 7])
def test_few_images_have_a_map_too(n: int) -> None:
    features = np.eye(8, dtype=np.float32)[:n]
    places = embed_2d(features)
    assert places.shape == (n, 2)
    assert np.isfinite(places).all()
    assert on_grid(places).shape == (n, 2)


def test_equal_images_lie_in_the_middle() -> None:
    assert on_grid(embed_2d(np.ones((6, 3), np.float32))).tolist() == [[500, 500]] * 6
    assert embed_2d(np.array([[1.0], [2.0]], np.float32)).shape == (2, 2)


# --- truth ------------------------------------------------------------------------------------------------------------


def truths(result: RunResult, *names: str | None) -> RunResult:
    return replace(result, truth=names, part=("unlabelled",) * len(result))


def test_the_confusion_table_has_matches_on_its_diagonal_and_the_surest_image_in_each_cell() -> None:
    result = truths(small_result(), "cat", "cat", "dog", "dog", "eel", "eel", "eel", "cat")
    table = confusion(result)
    assert table is not None
    assert table.columns == (0, 1, 2)
    assert table.stands_for == {0: "cat", 1: "dog", 2: "eel"}
    assert [(name, size, [cell.count for cell in row]) for name, size, row in table.rows] == [
        ("cat", 3, [2, 0, 1]),
        ("dog", 2, [1, 1, 0]),
        ("eel", 3, [0, 0, 3]),
    ]
    cells = table.rows[0][2]
    assert [cell.images for cell in cells] == [(0,), (), (7,)]
    assert [cell.right for cell in cells] == [True, False, False]
    assert cells[0].share == pytest.approx(2 / 3)
    assert table.images() == {0, 2, 3, 4, 7}


def test_a_category_without_a_class_comes_last_and_labelled_images_do_not_count() -> None:
    result = small_result()
    assert confusion(replace(result, truth=(None,) * 8)) is None
    table = confusion(replace(result, truth=("cat", "cat", None, "dog", "dog", None, None, "eel")))
    assert table is not None
    assert table.columns == (1, 2)
    assert [(name, size) for name, size, _ in table.rows] == [("dog", 2)]
    assert table.stands_for == {1: "dog"}


def test_many_classes_come_as_their_most_confused_pairs() -> None:
    result = many_images(210, n_categories=21)
    names = [f"c{c}" for c in result.category]
    for i in (0, 21, 42):  # three of c0 are in truth c1, and one of c2 is c3
        names[i] = "c1"
    names[2] = "c3"
    table = confusion(truths(result, *names))
    assert table is not None
    assert table.rows == ()
    pairs = [(cell.truth, result.names[cell.category], cell.count) for cell in table.pairs]
    assert pairs == [("c1", "c0", 3), ("c3", "c2", 1)]
    assert table.pairs[0].share == pytest.approx(3 / 13)
    assert sorted(table.pairs[0].images) == [0, 21, 42]


# --- curves -----------------------------------------------------------------------------------------------------------

ESTIMATE = {
    "n_categories": 12,
    "interval": [10, 14],
    "method": "balance",
    "curve": [
        {"n_categories": n, "labelled_accuracy": 0.5, "silhouette": None if n == 8 else 0.1, "inertia": 1.0, "score": s}
        for n, s in ((8, 0.2), (12, 0.9), (20, 0.4))
    ],
}


def test_the_curve_behind_the_number_of_categories(tmp_path: Path) -> None:
    file = tmp_path / "estimate.json"
    assert count_chart(file) is None
    file.write_text(json.dumps(ESTIMATE))
    chart = count_chart(file)
    assert chart is not None
    assert chart.title == "12 categories; 10 to 14 are plausible"
    assert chart.lines[0] == ChartLine("score", ((8, 0.2), (12, 0.9), (20, 0.4)))
    assert chart.lines[2].points == ((12, 0.1), (20, 0.1))
    svg = str(chart.svg)
    assert "estimate: 12" in svg
    assert svg.count("<circle") == 8
    assert 'class="band"' in svg
    assert "score from 0.2 to 0.4" in svg


def test_a_damaged_estimate_is_named(tmp_path: Path) -> None:
    file = tmp_path / "estimate.json"
    file.write_text("{}")
    with pytest.raises(Failure) as error:
        count_chart(file)
    assert str(error.value) == (
        f"{file} is damaged (interval: field required; n_categories: field required; curve: field required). "
        "Move it away to write the page without that curve."
    )


def test_the_reliability_of_the_certainty_has_a_point_per_tenth() -> None:
    result = replace(
        many_images(8),
        category=np.array([0, 0, 1, 1, 2, 2, 3, 0]),
        certainty=np.array([0.95, 0.97, 0.95, 0.15, 0.15, 0.12, 0.5, 0.9], np.float32),
        truth=("c0", "x", "y", "y", "y", "x", "c0", None),
    )
    chart = reliability_chart(result)
    assert chart is not None
    first, exact = chart.lines
    # c0 is known: image 0 is right, 1 and 6 are wrong. c1 and c2 are matched to y and x: 2, 3 and 5 are right.
    assert [(round(x, 3), round(y, 3)) for x, y in first.points] == [(14.0, 0.667), (50.0, 0.0), (95.667, 0.667)]
    assert first.labels == ("3", "1", "3")
    assert exact.points == ((0.0, 0.0), (100.0, 1.0))
    error = (3 * abs(0.14 - 2 / 3) + 0.5 + 3 * abs(0.95667 - 2 / 3)) / 7
    assert chart.note.startswith(f"Expected calibration error: {error:.3f}. ")
    assert "before its edits" not in chart.note
    assert "before its edits" in reliability_chart(result, is_edited=True).note  # type: ignore[union-attr]
    svg = str(chart.svg)
    assert len(re.findall(r">[13]</text>", svg)) == 3
    assert svg.count("<circle") == 5


def test_without_truth_there_is_no_reliability() -> None:
    result = many_images(4)
    assert reliability_chart(result) is None
    assert reliability_chart(replace(result, truth=("c0",) * 4, part=("labelled", "test", "holdout", "test"))) is None
    taken = replace(result, truth=("c1",) * 4, category=np.array([1, 1, 2, 3]))
    assert reliability_chart(taken).lines[0].labels != (), "a class may be called like a new category"  # type: ignore[union-attr]


def metric(stage: str, epoch: int, scores: dict[str, Any] | None = None, **phases: float) -> dict[str, Any]:
    losses = {phase: {"info_nce": value / 2, "total": value} for phase, value in phases.items()}
    return {"stage": stage, "epoch": epoch, "losses": losses} | ({"scores": {"unlabelled": scores}} if scores else {})


def test_training_has_scores_and_losses_by_stage_and_phase() -> None:
    charts = training_charts(
        [
            metric("simgcd", 1, model=4.0),
            metric("simgcd", 2, {"all": 0.5, "old": 0.75, "new": None}, model=3.0),
            metric("sptnet", 1, model=2.0, prompt=5.0),
        ]
    )
    assert [chart.title for chart in charts] == [
        "SimGCD: accuracy",
        "SimGCD: loss of the model phase",
        "SPTNet: loss of the model phase",
        "SPTNet: loss of the prompt phase",
    ]
    assert [(line.name, line.points) for line in charts[0].lines] == [("All", ((2, 0.5),)), ("Old", ((2, 0.75),))]
    assert [(line.name, line.points) for line in charts[1].lines] == [
        ("total", ((1, 4.0), (2, 3.0))),
        ("InfoNCE", ((1, 2.0), (2, 1.5))),
    ]
    assert charts[0].summary == "SimGCD: accuracy: All from 50.0 % to 50.0 %; Old from 75.0 % to 75.0 %."
    assert all(str(chart.svg).startswith("<svg") for chart in charts)
    assert training_charts([]) == []


def test_every_part_of_every_loss_has_a_name() -> None:
    kinds = [kind for kind in Loss.__subclasses__() if kind.__module__.startswith("sptnet.")]
    parts = {field.name for kind in kinds for field in fields(kind)} - {"total"}
    assert len(kinds) >= 11
    assert parts | {"distillation"} == set(LOSSES), "that of a folder of images is not part of an objective"
    assert len(set(LOSSES.values())) == len(LOSSES), "two curves of one name"


def test_the_stages_of_all_methods_are_called_by_their_names() -> None:
    stages = [plan.name for method in METHODS for plan in stages_of(Config(method=method))]
    assert len(set(stages)) >= 12
    titles = [chart.title for stage in stages for chart in training_charts([metric(stage, 1, raw=1.0)])]
    assert titles == [f"{NAMES[stage]}: loss of the raw phase" for stage in stages]


def test_ticks_are_round_and_hold_everything() -> None:
    assert ticks(0.62, 0.97) == pytest.approx([0.6, 0.7, 0.8, 0.9, 1.0])
    assert ticks(1, 14, whole=True) == [0, 3, 6, 9, 12, 15]
    for low, high in ((0, 1e-4), (-3, 8), (0, 0), (17, 17), (1e3, 9e5)):
        result = ticks(low, high)
        assert result[0] <= low
        assert result[-1] >= high
        assert 2 <= len(result) <= 8


def test_long_curves_are_thinned_and_texts_in_charts_escaped() -> None:
    points = tuple((float(i), float(i)) for i in range(5000))
    assert len(thinned(points)) == 300
    assert (thinned(points)[0], thinned(points)[-1]) == (points[0], points[-1])
    svg = str(Chart('<b>"x"', "epoch", (ChartLine("<i>", ((1.0, 2.0), (2.0, 2.0))),)).svg)
    assert "<b>" not in svg
    assert "<i>" not in svg
    assert "&lt;i&gt;" in svg
    assert str(Chart("nothing", "epoch", (ChartLine("a", ()),)).svg) == ""


# --- attention --------------------------------------------------------------------------------------------------------


def test_tenths_hold_the_most_attended_patches() -> None:
    weights = np.random.RandomState(0).rand(2, 3, 37).astype(np.float32)
    weights[0, 0, :9] = 0.5
    result = tenths(weights)
    for top in (1, 6, 10):
        assert np.array_equal(result < top, most_attended(weights, top / 10))


def unpacked(text: str, n: int) -> list[int]:
    pairs = zlib.decompress(base64.b64decode(text))
    return [half for pair in pairs for half in (pair >> 4, pair & 15)][:n]


def test_packing_can_be_undone() -> None:
    values = np.array([[1, 2, 9], [0, 5, 7], [3, 3, 8]], np.uint8)
    assert unpacked(packed(values), 9) == values.reshape(-1).tolist()


def attention(grid: int = 4, heads: int = 2, seed: int = 0) -> AttentionMaps:
    random = np.random.RandomState(seed)
    weights = random.rand(heads, 1 + grid * grid, grid * grid).astype(np.float32)
    return AttentionMaps(random.randint(0, 256, (32, 32, 3)).astype(np.uint8), grid, weights)


def test_attention_goes_to_the_page_with_and_without_prompts() -> None:
    views = [("with prompts", [attention(seed=0), attention(seed=1)]), ("without prompts", [attention(seed=2)] * 2)]
    first, second = attention_data(views, [8, 3])
    assert (first["image"], second["image"]) == (8, 3)
    assert (first["grid"], first["heads"], first["rows"]) == (4, 2, 17)
    assert [view["name"] for view in first["views"]] == ["with prompts", "without prompts"]
    expected = tenths(views[0][1][1].heads).reshape(-1).tolist()
    assert unpacked(second["views"][0]["tenths"], len(expected)) == expected
    assert opened(first["picture"]).size == (32, 32)


def test_attention_data_are_limited_in_size() -> None:
    views = [("", [attention(seed=i) for i in range(3)])]
    size = len(attention_data(views, [0, 1, 2])[0]["views"][0]["tenths"])
    assert len(attention_data(views, [0, 1, 2], most=int(2.5 * size))) == 2
    cut = attention_data(views, [0, 1, 2], most=size // 2)
    assert [entry["rows"] for entry in cut] == [1, 1, 1]
    expected = tenths(views[0][1][0].heads[:, :1]).reshape(-1).tolist()
    assert unpacked(cut[0]["views"][0]["tenths"], len(expected)) == expected


def test_sample_images_are_readable_and_new_and_known_in_turn(tmp_path: Path) -> None:
    result = small_result()
    categories = describe_categories(result)
    grey: list[Any] = [np.full((4, 4), i, np.uint8) for i in range(8)]
    assert sample_images(result, categories, grey) == [4, 0, 3]
    missing = [None if i == 4 else tmp_path / "gone.png" if i == 0 else grey[i] for i in range(8)]
    assert sample_images(result, categories, missing) == [5, 1, 3]
    assert sample_images(result, categories, [None] * 8) == []


# --- the page ---------------------------------------------------------------------------------------------------------


def test_json_in_the_page_cannot_end_its_element_and_keeps_lone_surrogates() -> None:
    texts = ["</script><b>&", "\u2028\u2029", "\udcff.png", "né 漢 🦦", '"\\\n']
    written = str(safe_json(texts))
    assert not set(written) & set("<>&\u2028\u2029\udcff")
    assert json.loads(written) == texts
    assert "漢" in written
    with pytest.raises(ValueError):
        safe_json(float("nan"))


def test_the_policy_allows_this_script_and_nothing_else() -> None:
    rules = dict(rule.split(" ", 1) for rule in policy(script_text()).split("; "))
    assert rules == {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": "'unsafe-inline'",
        "script-src": f"'sha256-{base64.b64encode(hashlib.sha256(script_text().encode()).digest()).decode()}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_the_script_never_makes_markup_of_texts() -> None:
    banned = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "fetch(")
    assert [word for word in banned if word in script_text()] == []
    assert "</script" not in script_text()


SEEN = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "no green cones": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "no red cones": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "no blue cones": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
TO_XYZ = [[0.4339, 0.3762, 0.1899], [0.2126, 0.7152, 0.0722], [0.0177, 0.1095, 0.8728]]


def linear(colour: str) -> Any:
    values = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(light: Any) -> Any:
    x, y, z = np.cbrt(TO_XYZ @ np.clip(light, 0.005, 1))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_the_colours_of_the_map_differ_for_everybody(theme: int) -> None:
    css = (Path(page_module.__file__).parent / "assets" / "report.css").read_text(encoding="utf-8")
    colours = [pair[theme] for pair in re.findall(r"--c\d: light-dark\((#\w+), (#\w+)\)", css)]
    ground = re.search(r"--panel: light-dark\((#\w+), (#\w+)\)", css)
    assert len(colours) == 8
    assert ground is not None
    brightness = [linear(colour) @ TO_XYZ[1] + 0.05 for colour in [ground[theme + 1], *colours]]
    assert min(max(b, brightness[0]) / min(b, brightness[0]) for b in brightness[1:]) >= 3
    for matrix in SEEN.values():
        seen = np.array([lab(np.array(matrix) @ linear(colour)) for colour in colours])
        distances = np.linalg.norm(seen[:, None] - seen[None], axis=2)[np.triu_indices(8, 1)]
        assert distances.min() > 15


def test_the_template_asks_for_everything_it_uses() -> None:
    with pytest.raises(Exception, match="undefined"):
        render(data={"attention": []}, pictures=[])


def test_the_data_of_the_page_points_from_categories_to_images() -> None:
    result = replace(small_result(), names=("cat\n", "dog", "new-1", "new-2"))
    on_map = ImageMap(np.array([0, 3]), np.array([[0, 1], [2, 3]]))
    data = page_data(result, describe_categories(result), [0, 1, 2, 3, 5, 7], on_map)
    new, empty, cat, dog = data["categories"]
    assert [entry["name"] for entry in data["categories"]] == ["new-1", "new-2", "cat\n", "dog"]
    assert (new["new"], new["size"], new["members"], new["representatives"]) == (True, 4, [4, 5], [4, 5])
    assert (empty["size"], empty["certainty"], empty["nearest"], empty["members"]) == (0, None, None, [])
    assert (cat["shown"], cat["nearest"], cat["doubtful"]) == ("'cat\\n'", 3, 1)
    assert "shown" not in dog
    assert dog["nearest"] == 2
    assert data["images"]["id"][4:] == ["unlabelled/f.png", "test/e.png"]
    assert data["images"]["doubtful"] == [0, 0, 1, 0, 0, 1]
    assert (new["expected"], new["unsorted"], dog["unsorted"], empty["unsorted"]) == (None, 3, 1, 0)
    assert data["unsure"] == [2, 4, 3], "those that the page shows"
    assert data["to_check"] == []
    assert data["map"] == {"image": [0, 3], "x": [0, 2], "y": [1, 3]}


def test_facts_of_a_run(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    facts = {
        "seed": 3,
        "command": ["sptnet", "train", "my recipe.toml"],
        "device": "cpu",
        "precision": "float32",
        "versions": {"torch": "2.14.1", "python": "3.11.7"},
        "started": "2026-11-06T05:31:42+0000",
        "finished": "2026-11-06T06:15:01+0000",
        "seconds": 2599.0,
        "data": {"name": "pets", "labelled": 1200, "unlabelled": 20, "test": 0,
                 "unreadable": [{"image": "a\n.png", "reason": "truncated"}]},
    }  # fmt: skip
    result = run_facts(run, RunFolder(run).config(), facts)
    rows = dict(result.rows)
    assert result.rows[0] == ("method", "SPTNet")
    assert rows["images"] == "1,200 labelled, 20 unlabelled"
    assert (rows["seed"], rows["device"], rows["took"]) == ("3", "cpu, float32", "43 min 19 s")
    assert rows["versions"] == "torch 2.14.1, python 3.11.7"
    assert (rows["began"], rows["ended"]) == ("6 November 2026, 05:31 (UTC+0000)", "6 November 2026, 06:15 (UTC+0000)")
    assert result.unreadable == (("'a\\n.png'", "truncated"),)
    assert result.command == "sptnet train 'my recipe.toml'"
    assert result.repeat == "sptnet train run/config.toml --out again"
    assert "took" not in dict(run_facts(run, RunFolder(run).config(), {}).rows)
    parts = [{"started": "2026-11-06T05:31:42+0000", "seconds": 60.0}, {"started": "2026-11-06T06:10:01+0000"}]
    resumed = dict(run_facts(run, RunFolder(run).config(), facts | {"seconds": 360.0, "parts": parts}).rows)
    assert resumed["took"] == "6 min 00 s in 2 parts", "the time in between is not counted"
    assert page_commands(Path("/runs/my run")) == {
        "apply": "sptnet edit 'my run' apply edits.json",
        "count": "sptnet edit 'my run' count N",
        "renew": "sptnet report 'my run'",
        "continue": "sptnet discover --continue 'my run' --out 'my run-2'",
    }


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("discover", "discover"),
        ("photos/birds", "photos/birds"),
        ("/data/me/photos", "photos"),
        ("--weights=/data/me/vit.safetensors", "--weights=vit.safetensors"),
        ('data.folder="/data/me/my photos"', "data.folder=my photos"),
        ("C:\\Users\\me\\photos", "photos"),
        ("training.epochs=3", "training.epochs=3"),
    ],
)
def test_commands_on_the_page_name_no_folder_of_the_machine(word: str, shown: str) -> None:
    assert without_folders(word) == shown


# --- whole runs -------------------------------------------------------------------------------------------------------


def test_a_page_holds_the_run_as_edited(tmp_path: Path) -> None:
    run = make_run(tmp_path, files=True)
    (tmp_path / "data" / "test" / "e.png").parent.mkdir(parents=True, exist_ok=True)
    add_edits(run, [Rename("new-1", "otter"), Drop(("cat/a.png",))])
    told: list[str] = []
    page = write_report(run, tell=told.append, model_pictures=False).page
    text = page.read_text(encoding="utf-8")
    assert page == run / "report.html"
    assert told == ["drawing the map"]
    assert "7 images in 3 categories: 2 known and 1 new. 2 images are doubtful. 1 was marked as wrong." in text
    assert "1 category has no images and is left out." in text
    data = page_json(text, "data")
    assert [entry["name"] for entry in data["categories"]] == ["otter", "new-2", "cat", "dog"]
    assert "cat/a.png" not in data["images"]["id"]
    pictures = page_json(text, "pictures")
    assert [picture is None for picture in pictures] == [False] * 6 + [True]
    assert "1 picture is missing: the image is not where it was, or cannot be read." in text
    assert "https://" not in text.replace("https://www.w3.org", "")
    assert write_report(run, tell=quiet, model_pictures=False).page.read_text(encoding="utf-8") == text


def test_a_page_begins_with_what_can_be_expected(tmp_path: Path) -> None:
    shares = {"cat": 0.9, "<b>dog</b>": 0.5, "constructor": 0.75, "new-1": 0.25, "new-2": 0.125}
    run = assessed_run(tmp_path, ExpectedAccuracy(0.62, 0.55, 0.7, shares))
    report = write_report(run, tell=quiet, model_pictures=False)
    assert report.page is not None
    text = report.page.read_text(encoding="utf-8")
    assert report.expectation == read_for_report(run).expectation
    assert report.expectation == "About 62 % (55 to 70) of the 35 unsorted images should be right"
    first = re.search(r"<h1[^>]*>(.*?)</h1>", text, re.S)
    assert first is not None
    assert re.sub("<[^>]*>", "", first[1]) == f"{report.expectation}; these 35 are the least sure."
    sentence = "40 images in 5 categories: 3 known and 2 new. 10 images are doubtful."
    assert f'<p class="facts-line" id="sentence">{sentence}</p>' in text
    assert "before its" not in text
    data = page_json(text, "data")
    result = assessed_result()
    certainties = [data["images"]["certainty"][i] for i in data["unsure"]]
    assert certainties == sorted(certainties)
    assert len(certainties) == 35
    assert {entry["name"]: entry["expected"] for entry in data["categories"]} == shares
    checked = [(data["images"]["id"][one["image"]], one["guess"], one["certainty"]) for one in data["to_check"]]
    contradicted = np.flatnonzero(result.guess != result.category)
    places = [entry["name"] for entry in data["categories"]]
    assert checked == [
        (result.ids[contradicted[1]], places.index("new-1"), 0.875),
        (result.ids[contradicted[0]], places.index("<b>dog</b>"), 0.4),
    ]
    assert 'id="reliability"' in text
    add_edits(run, [Rename("new-1", "otter"), Drop((result.ids[contradicted[1]],))])
    text = write_report(run, tell=quiet, model_pictures=False).page.read_text(encoding="utf-8")
    assert "The expectation is that of the run before its 2 edits." in text
    assert "The chart is of the run before its edits." in text
    data = page_json(text, "data")
    assert len(data["to_check"]) == 1
    assert {entry["name"]: entry["expected"] for entry in data["categories"]}["otter"] == 0.25


def test_another_number_of_categories_has_no_expected_shares(tmp_path: Path) -> None:
    run = assessed_run(tmp_path, ExpectedAccuracy(0.62, 0.55, 0.7, {"new-1": 0.25}))
    ensure_clustering(run, read_result(run), 6)
    add_edits(run, [Count(6)])
    text = write_report(run, tell=quiet, model_pictures=False).page.read_text(encoding="utf-8")
    assert "The expectation is that of the run before its edit." in text
    categories = page_json(text, "data")["categories"]
    assert len(categories) == 6
    assert {entry["expected"] for entry in categories} == {None}


def test_a_page_without_an_expectation_says_why(tmp_path: Path) -> None:
    run = assessed_run(tmp_path / "a", None, "there are too few labels.")
    text = write_report(run, tell=quiet, model_pictures=False).page.read_text(encoding="utf-8")
    assert "How many of the 35 unsorted images are right is not known: there are too few labels; <a" in text
    assert {entry["expected"] for entry in page_json(text, "data")["categories"]} == {None}
    older = write_report(make_run(tmp_path / "b"), tell=quiet, model_pictures=False)
    assert older.expectation.endswith("is not known: the certainty of this run is the model's own and was not tested")


def test_a_page_shows_a_limited_number_of_labels_to_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sptnet.report.page.content.MOST_TO_CHECK", 1)
    text = write_report(assessed_run(tmp_path, None), tell=quiet, model_pictures=False).page.read_text(encoding="utf-8")
    assert "shown are the 1 most certain of 2." in text
    assert [one["certainty"] for one in page_json(text, "data")["to_check"]] == [0.875]


def test_a_run_without_its_images_has_a_page_without_pictures(tmp_path: Path) -> None:
    run = make_run(tmp_path, files=False)
    told: list[str] = []
    text = write_report(run, tell=told.append, model_pictures=False).page.read_text(encoding="utf-8")
    assert told[0] == (
        f"the page comes without pictures: there is no folder {tmp_path / 'data'}. Give a folder that holds images."
    )
    assert page_json(text, "pictures") == [None] * 8
    assert "8 pictures are missing: the images are not where they were, or cannot be read." in text


def test_digits_have_pictures_though_they_have_no_files(tmp_path: Path) -> None:
    result = replace(small_result(), ids=tuple(f"digit-{i:04d}" for i in range(8)))
    run = make_run(tmp_path, result, source="digits")
    sources = image_sources(result, RunFolder(run).config().data, quiet)
    assert all(isinstance(source, np.ndarray) for source in sources)
    text = write_report(run, tell=quiet, model_pictures=False).page.read_text(encoding="utf-8")
    assert None not in page_json(text, "pictures")


def test_hostile_names_stay_texts_and_edits_can_name_them(tmp_path: Path) -> None:
    text = write_report(hostile_run(tmp_path), tell=quiet).page.read_text(encoding="utf-8")
    data = page_json(text, "data")
    assert set(HOSTILE) <= set(data["images"]["id"])
    assert {entry["name"] for entry in data["categories"]} == set(hostile_result().names)
    assert text.count("<script") == 3
    assert "alert(1)</script>" not in text
    assert "<img src=x" not in text
    assert [len(data["attention"]), data["attention"][0]["grid"]] == [4, 6]
    assert re.findall(r'alt="The (\w+) prompt', text) == ["spatial", "global", "composed"]
    assert 'id="training"' in text
    assert 'id="count"' in text
    assert "71.5 %" in text


def test_a_page_stays_within_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of noise, which no format compresses, and long names."""
    monkeypatch.setattr("sptnet.report.page.write.BUDGET", 700_000)
    monkeypatch.setattr("sptnet.report.page.write.LEAST_FOR_PICTURES", 10_000)
    pictures = noisy(200, 96)
    result = replace(many_images(200), ids=tuple(f"{i:04d}" + 120 * "漢" for i in range(200)))
    run = make_run(tmp_path, result, source="digits")
    monkeypatch.setattr("sptnet.report.page.write.image_sources", lambda *_: pictures)
    page = write_report(run, tell=quiet, model_pictures=False).page
    assert 0.6 * 700_000 < page.stat().st_size <= 700_000
    assert BUDGET == 15_000_000


def test_a_large_run_says_what_it_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sptnet.report.page.shown_images.ALL_UP_TO", 20)
    monkeypatch.setattr("sptnet.report.page.shown_images.CHOSEN", 8)
    monkeypatch.setattr("sptnet.report.page.overview.MOST_LEAST_SURE", 3)
    result = many_images(60)
    run = make_run(tmp_path, result, source="digits")
    monkeypatch.setattr("sptnet.report.page.write.image_sources", lambda *_: [np.zeros((8, 8), np.uint8)] * 60)
    monkeypatch.setattr("sptnet.report.page.write.image_map", lambda result: image_map(result, 12))
    text = write_report(run, tell=quiet, model_pictures=False).page.read_text(encoding="utf-8")
    data = page_json(text, "data")
    n = len(data["images"]["id"])
    assert 12 <= n <= 23
    least = np.argsort(result.certainty.round(4), kind="stable")[:3]
    assert [data["images"]["id"][i] for i in data["unsure"]] == [result.ids[i] for i in least]
    assert f"60 images are too many to show in one page: it holds {n} of them" in text
    assert "A sample of 12 images" in text
    assert len(data["map"]["image"]) == 12
    assert [entry["size"] for entry in data["categories"]] == [15] * 4


def test_a_damaged_model_is_named_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(Failure) as error:
        write_report(make_run(tmp_path), tell=quiet)
    assert str(error.value).endswith("To write the page without pictures of the model, add `model_pictures=False`.")


def test_a_page_replaces_only_a_page(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    other = tmp_path / "pages" / "pets.html"
    for _ in range(2):
        assert write_report(run, other, tell=quiet, model_pictures=False).page == other
    (tmp_path / "mine.html").write_text("<p>mine</p>")
    text, mine = tmp_path / "a.png", tmp_path / "mine.html"
    for out, words in {
        tmp_path: f"{tmp_path} is a folder. Give the file to write with `out`, such as {tmp_path / 'report.html'}.",
        text: f"{text} is not the name of a page. Give a file that ends in .html with `out`.",
        mine: f"{mine} exists and is no report of sptnet. Give another file with `out`.",
    }.items():
        with pytest.raises(Misuse) as error:
            write_report(run, out, tell=quiet, model_pictures=False)
        assert str(error.value) == words
    assert mine.read_text() == "<p>mine</p>"


def test_overwriting_a_run_removes_its_page(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    write_report(run, tell=quiet, model_pictures=False)
    RunFolder(run).create(RunFolder(run).config(), overwrite=True)
    assert not (run / "report.html").exists()


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path)
    shown: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: shown.append(address) or len(shown) == 1)
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", ["sptnet", "report", str(run), "--no-model-pictures", "--open"])
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 0
    said, notes = capsys.readouterr()
    page = run / "report.html"
    line = f"wrote {page} ({page.stat().st_size / 1e6:.1f} MB)\n"
    assert said == f"{line}{line}"
    assert notes.splitlines()[-1] == "no browser was found. Open the page by hand."
    assert shown == [page.as_uri()] * 2


def test_write_report_returns_the_result_and_the_categories(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    read, written = read_for_report(run), write_report(run, tell=quiet, model_pictures=False)
    assert read.page is None and written.page == run / "report.html"
    assert read.categories == written.categories == describe_categories(written.result)
    assert [category.name for category in written.categories] == list(written.result.names)


# --- shared, and older than the edits ---------------------------------------------------------------------------------


def test_a_page_made_to_be_shared_holds_no_absolute_path(tmp_path: Path) -> None:
    run = review_run(tmp_path)
    text = write_report(run, tell=quiet, model_pictures=False).page.read_text(encoding="utf-8")
    folders = (str(tmp_path), str(run), SOME_FOLDER, str(Path.home()), str(Path.cwd()))
    assert [folder for folder in folders if folder in text or json.dumps(folder)[1:-1] in text] == []
    assert "sptnet discover data --out run --weights=vit.pt" in text
    assert "<dd>vit.safetensors</dd>" in text


def test_the_run_has_an_id_that_does_not_depend_on_its_place(tmp_path: Path) -> None:
    def run_data(run: Path, out: Path | None = None) -> dict[str, Any]:
        page = write_report(run, out, tell=quiet, model_pictures=False).page
        return dict(page_json(page.read_text(encoding="utf-8"), "data")["run"])

    first = run_data(review_run(tmp_path / "a"))
    moved = run_data((tmp_path / "a" / "run").rename(tmp_path / "moved"), tmp_path / "elsewhere.html")
    assert (moved["id"], moved["state"]) == (first["id"], first["state"])
    assert (first["here"], moved["here"], moved["name"]) == (True, False, "moved")
    add_edits(tmp_path / "moved", [Rename("new-1", "otter")])
    edited = run_data(tmp_path / "moved")
    assert (edited["id"], edited["edits"], first["edits"]) == (first["id"], 1, 0)
    assert edited["state"] != first["state"]
    RunFolder(tmp_path / "moved").write_facts({"started": "2026-01-02T03:04:05+0000"})
    assert run_data(tmp_path / "moved")["id"] != first["id"]


def test_a_page_is_told_how_many_edits_there_are(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    assert tell_page(run) is None, "there is no page"
    page = write_report(run, tell=quiet, model_pictures=False).page
    assert not has_model_pictures(run)
    assert tell_page(run) is None
    before = page.read_bytes()
    add_edits(run, [Rename("new-1", "otter"), Rename("otter", "seal")])
    assert tell_page(run) == page
    assert page.read_bytes() == before.replace(b'content="0 of 0;', b'content="0 of 2;')
    write_report(run, tell=quiet, model_pictures=False)
    assert tell_page(run) is None
    assert b'content="2 of 2; model pictures no"' in page.read_bytes()[:4_000]


def test_a_page_of_an_earlier_version_counts_as_older(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "report.html").write_text("<p>earlier</p>")
    assert tell_page(run) is None
    assert has_model_pictures(run)
    add_edits(run, [Rename("new-1", "otter")])
    assert tell_page(run) == run / "report.html"
    assert (run / "report.html").read_text() == "<p>earlier</p>"
