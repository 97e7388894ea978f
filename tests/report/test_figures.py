"""The figures of the paper: their content, reasons for missing figures, and determinism."""

import io
import json
import os
import shutil
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from conftest import Answer, Call, random_model
from sptnet.config import PromptSettings
from sptnet.config.recipes import load_recipe
from sptnet.data.benchmarks.digits import digits
from sptnet.data.image_set import ImageSet
from sptnet.errors import Failure, Misuse
from sptnet.inference.attention import last_block_attention, most_attended
from sptnet.model.model_folder import ModelCard, save_model
from sptnet.report.figures.accuracy import draw_accuracy, mean_and_deviation
from sptnet.report.figures.attention_maps import draw_attention, painted, parse_patch
from sptnet.report.figures.canvas import figure_style, short
from sptnet.report.figures.chosen_runs import ChosenRun, choose_runs, labels_of
from sptnet.report.figures.differences import differing_settings
from sptnet.report.figures.panels import Panel, n_columns, plot
from sptnet.report.figures.prompt_sheet import draw_prompts
from sptnet.report.figures.samples import choose_samples, find_samples
from sptnet.report.figures.tiles import TileGroup, groups_per_row, tile_sheet
from sptnet.report.figures.tsne import choose_images, draw_tsne
from sptnet.report.figures.write import FigureOptions, Written, write_figures
from sptnet.report.tsne import embed_2d
from sptnet.results.edits.log import Drop, add_edits
from sptnet.results.predictions import FEATURES, write_features
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.compute import Compute

NAMES = (*"01234", "new-1", "new-2", "new-3", "new-4", "new-5")
SCORES = {"all": 0.5, "old": 0.75, "new": 0.25}
ONE_OF = (
    "Give runs that differ in exactly one of sptnet.k, prompt.width, prompt.border, n_categories, data.known_classes."
)


def make(
    path: Path,
    kind: str = "spatial+global",
    settings: Sequence[str] = (),
    scores: dict[str, float | None] | None = SCORES,  # type: ignore[assignment]
    known: Sequence[str] = "01234",
    truth: bool = True,
    n: int = 40,
) -> Path:
    """Make a finished run of the digits, with an untrained model of 32 pixels and predictions for a few images."""
    prompt = PromptSettings(kind=kind, border=4)  # type: ignore[arg-type]
    own = [f'prompt.kind="{kind}"', "prompt.border=4", "n_categories=10"]
    run = RunFolder(path)
    run.create(load_recipe("digits", [*own, *settings]))
    model = random_model()
    model.attach_prompt(prompt, torch.Generator().manual_seed(len(kind)))
    save_model(run.model, model, ModelCard(NAMES, 5, prompt, 0.875))
    run.split_file.write_text(json.dumps({"known_classes": list(known)}), encoding="utf-8")
    run.write_facts({} if scores is None else {"scores": {"unlabelled": scores}})
    image_set = digits()
    lines = ["image,category,is_new,certainty,part,truth"]
    for i in range(n):
        label = image_set.names[image_set.labels[i]] if truth else ""
        lines.append(
            f"{image_set.ids[i]},{NAMES[image_set.labels[i]]},{'no' if image_set.labels[i] < 5 else 'yes'},"
            f"0.9,unlabelled,{label}"
        )
    run.predictions_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    random = np.random.default_rng(0)
    centres = random.standard_normal((10, 8))
    features = centres[image_set.labels[:n]] + 0.1 * random.standard_normal((n, 8))
    write_features(path / FEATURES, torch.from_numpy(features))
    return path


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One run with all prompts, one without any."""
    root = tmp_path_factory.mktemp("pair")
    return [make(root / "simgcd", "none"), make(root / "sptnet")]


def chosen(*paths: Path) -> list[ChosenRun]:
    return choose_runs(paths)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def texts(figure: Any) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def tiles(figure: Any) -> list[npt.NDArray[np.uint8]]:
    return [np.asarray(image.get_array()) for image in figure.axes[0].images]


# --- the runs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("paths", "labels"),
    [
        (["/r/a"], ["a"]),
        (["/r/a", "/r/b"], ["a", "b"]),
        (["/r/cub/0/x", "/r/pacs/0/x"], ["cub", "pacs"]),
        (["/r/cub/0/x", "/r/cub/1/y"], ["0/x", "1/y"]),
        (["/r/a", "/r/a/a"], ["a", "a/a"]),
        (["/r/a/c", "/r/c"], ["a/c", "c"]),
    ],
)
def test_labels_are_the_differing_parts_of_paths(paths: list[str], labels: list[str]) -> None:
    assert labels_of([Path(path) for path in paths]) == labels


def test_only_runs_are_taken_and_each_once(pair: list[Path], tmp_path: Path) -> None:
    assert [run.label for run in choose_runs(pair)] == ["simgcd", "sptnet"]
    again = pair[0] / "categories" / ".."
    (pair[0] / "categories").mkdir(exist_ok=True)
    with pytest.raises(Misuse, match=r"simgcd is given twice\. Give every run once\."):
        choose_runs([pair[0], again])
    with pytest.raises(Misuse, match=r"is not a run: it has no config\.toml"):
        choose_runs([tmp_path])


def test_a_damaged_split_is_named(tmp_path: Path) -> None:
    run = chosen(make(tmp_path / "run"))[0]
    assert run.known_classes() == tuple("01234")
    for text in ("{", "[]", "{}"):
        run.folder.split_file.write_text(text, encoding="utf-8")
        with pytest.raises(Failure, match=r"split\.json is missing or damaged .* `train\(resume=True, out='"):
            run.known_classes()


# --- tiles ------------------------------------------------------------------------------------------------------------


def test_as_many_groups_per_row_as_fit_on_the_page() -> None:
    assert [groups_per_row(width) for width in (9.0, 6.88, 3.5, 3.35, 1.0)] == [1, 1, 1, 2, 5]
    tile = np.zeros((2, 2, 3), np.uint8)
    groups = [TileGroup(f"${i}_", ["a", "b"], [[tile, None], [tile, tile]]) for i in range(3)]
    with figure_style():
        figure = tile_sheet(groups, 1.5, "word " * 40)
    assert texts(figure)[:3] == ["$0_", "a", "b"]
    assert len(tiles(figure)) == 9
    corners = [tuple(round(value, 3) for value in image.get_extent()[:2]) for image in figure.axes[0].images]
    left, second = 0.06, round(0.06 + 1.5 * 2.05 + 0.18, 3)
    assert corners[0] == pytest.approx((left, left + 1.5))
    assert corners[3] == pytest.approx((second, second + 1.5))
    assert corners[6] == corners[0]  # the third group begins a new row
    assert len(texts(figure)[-1].splitlines()) == 2
    assert figure.get_size_inches()[0] == pytest.approx(2 * 1.5 * 2.05 + 0.18 + 0.12)


def test_long_names_are_cut_in_the_middle() -> None:
    assert short("abc") == "abc"
    assert short("abcdefghij", 7) == "abc…hij"
    assert short("a\nb") == "'a\\nb'"


# --- attention --------------------------------------------------------------------------------------------------------


def test_patches_are_painted() -> None:
    image = np.full((4, 4, 3), 100, np.uint8)
    out = painted(image, np.array([False, True, False, False]), (200, 0, 100), 0.5)
    assert (out[:2, 2:] == [150, 50, 100]).all()
    assert (out[2:] == 100).all()
    assert (out[:2, :2] == 100).all()
    assert (image == 100).all()


@pytest.mark.parametrize("text", ["", "3", "0,1", "1,2,3", "a,b", "-1,2", "1.5,2", "²,1"])
def test_a_patch_is_a_row_and_a_column(text: str) -> None:
    assert parse_patch(" 3, 14") == (3, 14)
    with pytest.raises(Misuse, match=r"is not ROW,COLUMN\. Give two whole numbers from 1, such as `patch='4,5'`\."):
        parse_patch(text)


def test_rows_are_images_and_columns_heads(pair: list[Path], cpu: Compute) -> None:
    with figure_style():
        drawn = draw_attention(chosen(*pair), ["digit-0007", "digit-0001"], (2, 1), 0.5, cpu)
    assert drawn.left_out == []
    assert list(drawn.figures) == ["attention-class-token", "attention-patch"]
    model, image_set = random_model(), digits()
    expected = last_block_attention(model, [image_set.sources[7], image_set.sources[1]], 0.875, cpu)
    for name, row, origin in (("attention-class-token", 0, "class token"), ("attention-patch", 3, "patch in green")):
        figure = drawn.figures[name]
        titles = ["simgcd", "sptnet, with prompts", "sptnet, without prompts"]
        headings = ["image", "$h_{1}$", "$h_{2}$", "$h_{3}$"]
        note = f"red: the 50 % of the patches that get most attention from the {origin}, in each head of the last block"
        found = texts(figure)
        assert [text for text in found[:-1] if text not in headings] == titles
        assert found[1:5] == headings
        assert " ".join(found[-1].split()) == note
        shown = tiles(figure)
        assert len(shown) == 3 * 2 * 4
        green = np.array([False, False, row == 3, False])
        for image, attention in enumerate(expected):
            plain = painted(attention.image, green, (0, 200, 60), 1.0)
            assert np.array_equal(shown[4 * image], plain)
            for head, top in enumerate(most_attended(attention.heads[:, row], 0.5)):
                red = painted(painted(attention.image, top, (230, 20, 20), 0.6), green, (0, 200, 60), 1.0)
                assert np.array_equal(shown[4 * image + 1 + head], red)
        same = [np.array_equal(a, b) for a, b in zip(shown[:8], shown[16:], strict=True)]
        assert all(same)  # without its prompts it is the same model
        assert not all(np.array_equal(a, b) for a, b in zip(shown[:8], shown[8:16], strict=True))


def test_the_paper_shows_a_tenth_and_six_tenths_and_the_middle(pair: list[Path], cpu: Compute) -> None:
    with figure_style():
        drawn = draw_attention(chosen(pair[0]), [], None, None, cpu)
    token, patch = drawn.figures.values()
    assert "the 10 % of" in texts(token)[-1]
    assert "the 60 % of" in texts(patch)[-1]
    assert len(tiles(patch)) == 3 * 4
    assert (tiles(patch)[0][16:, 16:] == (0, 200, 60)).all()  # of four patches, the one below and right of the middle
    assert not (tiles(patch)[0][:16] == (0, 200, 60)).all(-1).any()


def test_a_patch_outside_the_image_is_refused(pair: list[Path], cpu: Compute) -> None:
    with pytest.raises(
        Misuse, match=r"no patch 1,3: the images of simgcd have 2 x 2 patches\. Give `patch='1,1'` to 2,2\."
    ):
        draw_attention(chosen(*pair), [], (1, 3), None, cpu)


def test_an_image_that_no_run_has_is_refused(pair: list[Path], tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"no image owl\.png in the runs\. Give ids as .* such as `image='digit-0000'`\."):
        find_samples(chosen(*pair), ["digit-0003", "owl.png"])
    lost = make(tmp_path / "lost", settings=["data.source=folder", 'data.folder="nowhere"'])
    with pytest.raises(Misuse, match=r"in the runs \(the images of .*lost: there is no folder nowhere\. Give a folder"):
        find_samples(chosen(pair[0], lost), ["owl.png"])


def test_images_come_from_the_first_run_that_has_them(pair: list[Path], tmp_path: Path) -> None:
    Image.new("RGB", (5, 4), "red").save(tmp_path / "own.png")
    (tmp_path / "cat").mkdir()
    Image.new("RGB", (5, 4), "red").save(tmp_path / "cat" / "a.png")
    settings = ["data.source=folder", f'data.folder="{tmp_path}"']
    other = make(tmp_path / "run", settings=settings)
    samples = find_samples(chosen(pair[0], other), ["own.png", "digit-0002"])
    assert samples.sources[0] == tmp_path / "own.png"
    assert np.array_equal(samples.sources[1], digits().sources[2])  # type: ignore[arg-type]


def image_set_of(labels: list[int], test: list[bool], sources: Sequence[Any]) -> ImageSet:
    n = len(labels)
    ids = tuple(f"i{i}" for i in range(n))
    return ImageSet("p", ids, tuple(sources), ("a", "b", "c"), np.array(labels), None, np.array(test))


def test_samples_are_readable_and_of_different_classes(tmp_path: Path) -> None:
    good = np.zeros((4, 4), np.uint8)
    (tmp_path / "bad.png").write_bytes(b"none")
    image_set = image_set_of([0, 0, 0, 1, 1, 2], [False] * 5 + [True], [good] * 6)
    assert sorted(image_set.labels[choose_samples(image_set)].tolist()) == [0, 1, 2]
    assert image_set.labels[choose_samples(image_set)].tolist()[2] == 2  # the test image comes last
    assert choose_samples(image_set) == choose_samples(image_set)
    assert len(choose_samples(image_set, 2)) == 2
    unreadable = image_set_of([0, 0, 0, 1, 1, 2], [False] * 6, [tmp_path / "bad.png", good] * 3)
    assert sorted(choose_samples(unreadable)) == [1, 3, 5]
    unknown = image_set_of([-1] * 4, [False] * 4, [good] * 4)
    assert len(choose_samples(unknown)) == 3


def test_images_that_cannot_be_read_leave_attention_out(tmp_path: Path, cpu: Compute) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "bad.png").write_bytes(b"none")
    run = make(tmp_path / "run", settings=["data.source=folder", f'data.folder="{tmp_path / "data"}"'])
    drawn = draw_attention(chosen(run), [], None, None, cpu)
    assert drawn.figures == {}
    assert drawn.left_out == ["attention: no image of data can be read. Repair them, or give a run of others."]


# --- prompts ----------------------------------------------------------------------------------------------------------


def test_prompts_of_all_runs_have_one_scale(pair: list[Path], tmp_path: Path) -> None:
    shared = make(tmp_path / "a" / "sptnet-s", "shared")
    with figure_style():
        drawn = draw_prompts(chosen(pair[1], pair[0], shared))
    labels = [run.label for run in chosen(pair[1], pair[0], shared)]
    assert drawn.left_out == [
        f"prompts of {labels[1]}: its model has no pixel prompts. Give a run with them, such as one of sptnet."
    ]
    figure = drawn.figures["prompts"]
    assert texts(figure)[1::2][:4] == ["spatial", "global", "composed", "shared"]
    assert texts(figure)[-1].startswith("grey: 0; darkest to lightest: ±2.")
    assert [tile.shape for tile in tiles(figure)] == [(32, 32, 3)] * 4
    assert (tiles(figure)[0][1:15, 1:15] == 128).all()
    assert (tiles(figure)[1][4:28, 4:28] == 128).all()
    assert np.array_equal(tiles(figure)[3][:16, :16], tiles(figure)[3][16:, 16:])


def test_a_run_without_a_model_is_named_everywhere(pair: list[Path], tmp_path: Path, cpu: Compute) -> None:
    unfinished = make(tmp_path / "half")
    shutil.rmtree(unfinished / "model")
    runs = chosen(pair[1], unfinished)
    end = f"{runs[1].label}: the run {unfinished} has no finished model yet. Finish it with: "
    with figure_style():
        for what, drawn in {
            "prompts": draw_prompts(runs),
            "attention": draw_attention(runs, [], None, None, cpu),
            "tsne": draw_tsne(runs),
        }.items():
            assert len(drawn.left_out) == 1
            assert drawn.left_out[0].startswith(f"{what} of {end}")
            assert drawn.figures
        alone = chosen(unfinished)
        for drawn in (draw_prompts(alone), draw_attention(alone, [], None, None, cpu), draw_tsne(alone)):
            assert drawn.figures == {}
            assert len(drawn.left_out) == 1


# --- accuracy ---------------------------------------------------------------------------------------------------------


def scored(root: Path, *settings: str, **accuracies: float | None) -> Path:
    run = RunFolder(root / "-".join([*settings, str(len(list(root.iterdir())))]))
    run.create(load_recipe("digits", ["n_categories=10", *settings]))
    run.split_file.write_text(json.dumps({"known_classes": list("01234")}), encoding="utf-8")
    run.write_facts({"scores": {"unlabelled": {**SCORES, **accuracies}}})
    return run.path


def lines_of(figure: Any) -> dict[str, list[tuple[float, float]]]:
    axes = figure.axes[0]
    return {
        container.get_label(): [tuple(point) for point in container.lines[0].get_xydata()]
        for container in axes.containers
    }


def test_accuracy_over_a_setting_is_averaged_over_seeds(tmp_path: Path) -> None:
    runs = chosen(
        scored(tmp_path, "sptnet.k=20", "seed=0", all=0.6),
        scored(tmp_path, "sptnet.k=5", "seed=0", all=0.4, new=None),
        scored(tmp_path, "sptnet.k=20", "seed=1", 'sptnet.start_from="elsewhere"', all=0.7),
    )
    with figure_style():
        drawn = draw_accuracy(runs)
    assert drawn.left_out == []
    figure: Any = drawn.figures["accuracy"]
    lines = lines_of(figure)
    assert list(lines) == ["All", "Old", "New"]
    assert lines["All"] == [(5.0, 40.0), (20.0, 65.0)]
    assert lines["Old"] == [(5.0, 75.0), (20.0, 75.0)]
    assert np.isnan(lines["New"][0][1])
    assert figure.axes[0].get_xlabel() == "$k$, steps before prompts and model take turns"
    bar = figure.axes[0].containers[0].lines[2][0].get_segments()[1]
    assert bar[:, 1].tolist() == pytest.approx([65 - 50**0.5, 65 + 50**0.5])  # the deviation of 60 and 70


def test_mean_and_deviation_by_hand() -> None:
    assert mean_and_deviation([0.6, 0.7]) == pytest.approx((65.0, 50**0.5))
    assert mean_and_deviation([0.6]) == (60.0, 0.0)
    assert np.isnan(mean_and_deviation([0.6, None])).all()


@pytest.mark.parametrize(
    ("settings", "scale", "label"),
    [
        (["prompt.width=1", "prompt.width=4"], "linear", "$m$, frame inside every patch (pixels)"),
        (["prompt.border=1", "prompt.border=10"], "log", "$m^+$, border round the image (pixels)"),
        (["n_categories=10", "n_categories=20"], "linear", "number of categories"),
    ],
)
def test_each_setting_has_its_axis(settings: list[str], scale: str, label: str, tmp_path: Path) -> None:
    with figure_style():
        drawn = draw_accuracy(chosen(*(scored(tmp_path, setting) for setting in settings)))
    axes = drawn.figures["accuracy"].axes[0]
    assert (axes.get_xscale(), axes.get_xlabel()) == (scale, label)
    values = [setting.partition("=")[2] for setting in settings]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == values


def test_known_classes_are_counted(tmp_path: Path) -> None:
    few, many = scored(tmp_path, "data.known_classes=2"), scored(tmp_path, 'data.known_classes=["0", "1", "2"]')
    for path, n in ((few, 2), (many, 3)):
        RunFolder(path).split_file.write_text(json.dumps({"known_classes": list("012"[:n])}), encoding="utf-8")
    assert differing_settings(chosen(few, many)) == {"data.known_classes": [2, 3]}
    with figure_style():
        assert lines_of(draw_accuracy(chosen(few, many)).figures["accuracy"])["All"] == [(2.0, 50.0), (3.0, 50.0)]
    RunFolder(few).split_file.write_text(json.dumps({"known_classes": list("789")}), encoding="utf-8")
    assert differing_settings(chosen(few, many)) == {"data.known_classes": [["7", "8", "9"], ["0", "1", "2"]]}
    (reason,) = draw_accuracy(chosen(few, many)).left_out
    assert reason == f"accuracy: as many classes are known in every run, but not the same ones. {ONE_OF}"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ([["sptnet.k=5"]], "it takes two runs or more that were scored."),
        (
            [["seed=0", "device=cpu"], ["seed=1", "training.track=tensorboard"]],
            "the runs differ in nothing but their seed.",
        ),
        ([["sptnet.k=5"], ["sptnet.k=6", "prompt.width=2"]], "the runs differ in prompt.width, sptnet.k."),
        ([["method=simgcd"], ["method=sptnet"]], "the runs differ in method."),
    ],
)
def test_accuracy_says_why_it_is_left_out(settings: list[list[str]], reason: str, tmp_path: Path) -> None:
    drawn = draw_accuracy(chosen(*(scored(tmp_path, *each) for each in settings)))
    assert drawn.figures == {}
    assert drawn.left_out == [f"accuracy: {reason} {ONE_OF}"]


def test_a_run_without_scores_is_named(tmp_path: Path) -> None:
    runs = [scored(tmp_path, f"sptnet.k={k}") for k in (1, 2, 3)]
    RunFolder(runs[1]).write_facts({"status": "running"})
    with figure_style():
        drawn = draw_accuracy(chosen(*runs))
    assert [x for x, _ in lines_of(drawn.figures["accuracy"])["All"]] == [1.0, 3.0]
    assert drawn.left_out == [
        f"accuracy of {runs[1].name}: run.json holds no scores of its unlabelled images. Finish the run, or give one "
        "of which the truth is known."
    ]
    assert draw_accuracy(chosen(runs[1])).left_out[1].startswith("accuracy: it takes two runs or more")


def test_damaged_files_are_named(tmp_path: Path) -> None:
    runs = [scored(tmp_path, f"sptnet.k={k}") for k in (1, 2)]
    RunFolder(runs[1]).split_file.unlink()
    (reason,) = draw_accuracy(chosen(*runs)).left_out
    assert reason.startswith(f"accuracy: {runs[1] / 'split.json'} is missing or damaged (")
    RunFolder(runs[1]).facts_file.write_text("{", encoding="utf-8")
    first, second = draw_accuracy(chosen(*runs)).left_out
    assert first.startswith(f"accuracy of {runs[1].name}: {runs[1] / 'run.json'} is damaged (")
    assert second == f"accuracy: it takes two runs or more that were scored. {ONE_OF}"


# --- t-SNE ------------------------------------------------------------------------------------------------------------


def test_classes_that_are_apart_stay_apart() -> None:
    random = np.random.default_rng(0)
    features = np.concatenate([random.standard_normal((20, 8)) * 0.1 + 5 * centre for centre in np.eye(8)[:3]])
    places = embed_2d(features.astype(np.float32))
    assert np.array_equal(places, embed_2d(features.astype(np.float32)))
    distance = np.linalg.norm(places[:, None] - places, axis=2)
    np.fill_diagonal(distance, np.inf)
    assert (distance.argmin(1) // 20 == np.arange(60) // 20).all()
    assert (embed_2d(np.ones((12, 3), np.float32)) == 0).all()


@pytest.mark.parametrize(
    ("n_known", "n_new", "shown_known", "shown_new"), [(3, 4, 3, 4), (15, 15, 10, 10), (30, 4, 16, 4), (2, 40, 2, 18)]
)
def test_at_most_twenty_classes_are_shown(n_known: int, n_new: int, shown_known: int, shown_new: int) -> None:
    known = frozenset(f"k{i:02d}" for i in range(n_known))
    classes = [*sorted(known), *(f"n{i:02d}" for i in range(n_new))]
    names = {f"{name}/{i}": name for size, name in enumerate(classes, start=1) for i in range(size)}
    shown = {names[id_] for id_ in choose_images(names, known)}
    assert shown == {*sorted(known)[n_known - shown_known :], *classes[len(classes) - shown_new :]}  # the largest


def test_at_most_two_thousand_images_are_shown() -> None:
    names = {f"i{i}": "ab"[i % 2] for i in range(2500)}
    ids = choose_images(names, frozenset("a"))
    assert len(ids) == 2000
    assert ids == [id_ for id_ in names if id_ in set(ids)]  # in their order
    assert set(choose_images(dict(reversed(names.items())), frozenset("a"))) == set(ids)


def test_the_same_images_in_every_panel(pair: list[Path], tmp_path: Path) -> None:
    edited = make(tmp_path / "edited", n=30)
    add_edits(edited, [Drop(("digit-0000",))])
    with figure_style():
        drawn = draw_tsne(chosen(pair[0], edited))
    figure: Any = drawn.figures["tsne"]
    assert drawn.left_out == []
    for axes in figure.axes:
        assert sum(len(dots.get_offsets()) for dots in axes.collections) == 29
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["0", "5", "1", "6", "2", "7", "3", "8", "4", "9"]
    assert legend.get_title().get_text() == "● known classes   ▲ new classes"


def test_categories_replace_unknown_truth(tmp_path: Path) -> None:
    with figure_style():
        figure: Any = draw_tsne(chosen(make(tmp_path / "run", truth=False))).figures["tsne"]
    assert figure.legends == []
    names = {text.get_text() for text in figure.axes[0].get_legend().get_texts()}
    assert names == set(NAMES)


def test_too_few_images_in_common(pair: list[Path], tmp_path: Path) -> None:
    few = make(tmp_path / "few", n=9)
    assert draw_tsne(chosen(pair[0], few)).left_out == [
        "tsne: the runs have 9 images in common, but it takes 10. Give runs of the same data."
    ]


def panel(label: str = "a", known: str = "x", by_truth: bool = True) -> Panel:
    points = np.array([[0, 0], [1, 3], [2, 1], [0, 1]], np.float32)
    return Panel(label, ["x", "$_", "x", "_y"], frozenset(known), by_truth, points)


def test_panels_share_a_legend_only_if_it_says_the_same() -> None:
    with figure_style():
        alike: Any = plot([panel(), panel("b")], "note")
        assert len(alike.legends) == 1
        assert [text.get_text() for text in alike.legends[0].get_texts()] == ["x", "$_", "_y"]
        for panels in ([panel(), panel(known="_y")], [panel(), panel(by_truth=False)]):
            figure: Any = plot([*panels, panel(), panel()], "note")
            assert figure.legends == []
            assert [axes.get_legend() is not None for axes in figure.axes] == [True] * 4 + [False] * 2
        figure.draw_without_rendering()  # $ is no mathematics here, which would fail
    x, y = alike.axes[0].get_xlim(), alike.axes[0].get_ylim()
    assert x[1] - x[0] == pytest.approx(y[1] - y[0])
    assert alike.axes[0].collections[0].get_offsets().tolist() == [[0, 0], [2, 1]]


def test_names_in_a_line_of_the_legend() -> None:
    assert n_columns(["a"] * 12, 6.0) == 5
    assert n_columns(["a", "b"], 6.0) == 2
    assert n_columns(["a" * 27] * 9, 6.0) == 3
    assert n_columns(["a" * 27] * 9, 1.0) == 1


# --- all together -----------------------------------------------------------------------------------------------------


def test_figures_are_the_same_every_time_and_leave_runs_alone(pair: list[Path], tmp_path: Path, cpu: Compute) -> None:
    before = [tree(run) for run in pair]
    first = write_figures(pair, tmp_path / "new" / "one", FigureOptions(), cpu)
    time.sleep(1.1)  # a date would show
    second = write_figures(pair, tmp_path / "two", FigureOptions(only=["tsne"]), cpu)
    names = ["attention-class-token", "attention-patch", "prompts", "tsne"]
    assert [file.name for file in first.files] == [f"{name}.{form}" for name in names for form in ("png", "pdf")]
    assert [file.name for file in second.files] == [file.name for file in first.files[6:]]
    for one, two in zip(first.files[6:], second.files, strict=True):
        assert one.read_bytes() == two.read_bytes()
    assert [tree(run) for run in pair] == before
    assert [reason.split(":")[0] for reason in first.left_out] == ["prompts of simgcd", "accuracy"]
    for file in first.files:
        content = file.read_bytes()
        if file.suffix == ".pdf":
            assert b"/FontFile2" in content  # TrueType, not drawn shapes
            assert b"/Type3" not in content
            assert b"CreationDate" not in content
        else:
            width, height = Image.open(io.BytesIO(content)).size
            assert min(width, height) > 300


def test_nothing_drawable_is_refused_with_every_reason(pair: list[Path], tmp_path: Path, cpu: Compute) -> None:
    with pytest.raises(Misuse) as refusal:
        write_figures(pair[:1], tmp_path / "out", FigureOptions(only=["prompts", "accuracy"]), cpu)
    assert str(refusal.value) == (
        "nothing can be drawn of these runs:\n"
        "  - prompts of simgcd: its model has no pixel prompts. Give a run with them, such as one of sptnet.\n"
        f"  - accuracy: it takes two runs or more that were scored. {ONE_OF}"
    )
    assert not (tmp_path / "out").exists()


def test_lost_images_leave_attention_out(tmp_path: Path, cpu: Compute) -> None:
    lost = make(tmp_path / "lost", settings=["data.source=folder", 'data.folder="nowhere"'])
    written = write_figures([lost], tmp_path / "out", FigureOptions(only=["attention", "prompts"]), cpu)
    assert [file.name for file in written.files] == ["prompts.png", "prompts.pdf"]
    assert written.left_out == [
        "attention: the images of lost: there is no folder nowhere. Give a folder that holds images."
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            FigureOptions(only=["maps", "tsne"]),
            "`only='maps'` names no figure. Give some of attention, prompts, accuracy, tsne,",
        ),
        (FigureOptions(share=0.0), "a share of 0 of the patches cannot be shown."),
    ],
)
def test_wrong_options_are_refused(
    options: FigureOptions, message: str, pair: list[Path], tmp_path: Path, cpu: Compute
) -> None:
    with pytest.raises(Misuse) as refusal:
        write_figures(pair, tmp_path / "out", options, cpu)
    assert message in str(refusal.value)


def test_existing_files_and_runs_are_not_overwritten(pair: list[Path], tmp_path: Path, cpu: Compute) -> None:
    prompts = FigureOptions(only=["prompts"])
    (tmp_path / "file").touch()
    with pytest.raises(Misuse, match=r"file is a file\. Give a folder with `out`\."):
        write_figures(pair, tmp_path / "file", prompts, cpu)
    with pytest.raises(Misuse, match=r"lies inside the run .*sptnet\. Give a place outside it with `out`\."):
        write_figures(pair, pair[1] / "figures", prompts, cpu)
    (tmp_path / "prompts.pdf").write_text("mine")
    with pytest.raises(
        Misuse, match=r"prompts\.pdf exists already\. Replace it with `overwrite=True`, or give another `out`"
    ):
        write_figures(pair, tmp_path, prompts, cpu)
    assert (tmp_path / "prompts.pdf").read_text() == "mine"
    write_figures(pair, tmp_path, prompts, cpu, overwrite=True)
    assert (tmp_path / "prompts.pdf").read_bytes().startswith(b"%PDF")


@pytest.fixture
def call(call: Call) -> Call:
    return partial(call, "figures")


def test_the_verb_writes_and_says_what_it_left_out(
    call: Call, pair: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = [os.path.join("figures", f"prompts.{form}") for form in ("png", "pdf")]
    left_out = (
        "left out: prompts of simgcd: its model has no pixel prompts. Give a run with them, such as one of sptnet."
    )
    assert call(*pair, "--only", "prompts") == Answer(0, "\n".join([*files, left_out]) + "\n", "")
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["prompts.pdf", "prompts.png"]
    again = call(*pair, "--only", "prompts")
    assert again.code == 2
    assert again.err.startswith("error: figures/prompts.png exists already.")


def test_the_verb_names_commands_in_what_it_left_out(call: Call, pair: list[Path], tmp_path: Path) -> None:
    unfinished = make(tmp_path / "half")
    shutil.rmtree(unfinished / "model")
    answer = call(pair[1], unfinished, "--only", "prompts", "--out", tmp_path / "out")
    assert answer.out.endswith(f"no finished model yet. Finish it with: sptnet train --resume --out {unfinished}\n")


def test_the_verb_passes_options_on(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def write(*arguments: object) -> Written:
        asked.append(arguments)
        return Written([], [])

    monkeypatch.setattr("sptnet.report.figures.write.write_figures", write)
    shown = ("--image", "x/1.png", "--image", "2.png", "--patch", "4,5", "--share", "0.5")
    assert call("a", "b", "--out", "o", "--only", "tsne, accuracy", *shown, "--device", "cpu", "--overwrite").code == 0
    assert call("a").code == 0
    (runs, out, options, compute, overwrite), plain = asked
    assert (runs, out, overwrite) == ([Path("a"), Path("b")], Path("o"), True)
    assert options == FigureOptions(["tsne", "accuracy"], ["x/1.png", "2.png"], (4, 5), 0.5)
    assert compute.device.type == "cpu"
    assert (plain[0], plain[1], plain[2], plain[4]) == ([Path("a")], Path("figures"), FigureOptions(), False)


def test_misuse_of_the_verb(call: Call, pair: list[Path], tmp_path: Path) -> None:
    for words, phrase in (
        ([tmp_path], "is not a run"),
        ([pair[0], "--patch", "x"], "--patch x is not ROW,COLUMN"),
        ([pair[0], "--only", ","], "--only , names no figure"),
        ([pair[0], "--image", "owl"], "no image owl"),
    ):
        answer = call(*words, "--out", tmp_path / "out")
        assert (answer.code, answer.out) == (2, "")
        assert phrase in answer.err
    assert not (tmp_path / "out").exists()
