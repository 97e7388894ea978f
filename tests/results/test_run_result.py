"""The result of a finished run: its content, and the errors for missing or damaged files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers.result_runs import COLUMNS, make_run, small_result
from helpers.result_runs import assert_same as assert_same_result
from helpers.rounding import SINGLE, assert_same
from sptnet.errors import Failure, Misuse
from sptnet.results.predictions import FEATURES, RUN_COLUMNS, write_features
from sptnet.results.run_result import RunResult, image_ids, read_result

NEW_COLUMNS = ",".join(RUN_COLUMNS)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path)


def edit_rows(run: Path, *lines: str) -> None:
    (run / "predictions.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_a_run_is_read_back(run: Path, tmp_path: Path) -> None:
    result = read_result(run)
    assert len(result) == 8
    assert result.ids[:3] == ("cat/a.png", "cat/b.png", "unlabelled/a.png")
    assert result.names == ("cat", "dog", "new-1", "new-2")
    assert result.n_known == 2
    assert result.category.tolist() == [0, 0, 0, 1, 2, 2, 2, 2]
    assert result.category.dtype == np.int64
    assert result.certainty.dtype == np.float32
    assert result.certainty.tolist() == pytest.approx([1.0, 0.8, 0.4, 0.9, 0.9, 0.7, 0.6, 0.3], rel=SINGLE), (
        "a labelled one is certain"
    )
    assert result.part == ("labelled", "holdout", "unlabelled", "unlabelled", *("unlabelled",) * 3, "test")
    assert result.truth == ("cat", "cat", None, "dog", None, None, None, "eel")
    assert result.sources == (*(str(tmp_path / "data" / id_) for id_ in result.ids[:7]), None)  # the last has no file
    assert result.features.dtype == np.float32
    assert np.linalg.norm(result.features, axis=1) == pytest.approx(np.ones(8), abs=SINGLE)
    assert_same(result.features, small_result().features, terms=1, dtype=torch.float16)


def test_a_labelled_image_is_where_its_label_says_whatever_the_model_says(tmp_path: Path) -> None:
    """A table of version 0.2 has the model's own category; the label is in the column truth."""
    elsewhere = replace(small_result(), category=np.array([1, 0, 0, 1, 2, 2, 2, 2]))
    result = read_result(make_run(tmp_path, elsewhere))
    assert result.category.tolist() == [0, 0, 0, 1, 2, 2, 2, 2]
    assert result.certainty[0] == 1.0
    assert result.guess.tolist() == [1, 0, 0, 1, 2, 2, 2, 2]
    assert_same(result.guess_certainty, small_result().certainty, terms=1)


def test_a_table_with_guesses_gives_the_same_result(run: Path) -> None:
    rows = (run / "predictions.csv").read_text(encoding="utf-8").splitlines()
    wider = [
        f"{row},{row.split(',')[1]},{'' if i % 2 else 'dog'},{'' if i % 2 else '0.1'}" for i, row in enumerate(rows)
    ]
    wider[0] = NEW_COLUMNS
    before = read_result(run)
    edit_rows(run, *wider)
    assert_same_result(read_result(run), before)
    edit_rows(run, *(row.replace("labelled,cat,cat", "labelled,cat,dog") for row in wider))
    assert read_result(run).guess.tolist() == [1, 0, 0, 1, 2, 2, 2, 2]
    assert read_result(run).category[0] == 0


def test_without_guesses_the_categories_are_the_guesses() -> None:
    result = small_result()
    assert np.array_equal(result.guess, result.category)
    assert np.array_equal(result.guess_certainty, result.certainty)
    moved = replace(result, category=np.zeros(8, np.int64))
    assert np.array_equal(moved.guess, result.category)


def test_a_relative_data_folder_gives_absolute_files(run: Path, tmp_path: Path, monkeypatch: Any) -> None:
    text = (run / "config.toml").read_text(encoding="utf-8")
    (run / "config.toml").write_text(text.replace(str(tmp_path / "data"), "data"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert read_result(run).sources[0] == str(tmp_path / "data" / "cat" / "a.png")


def test_an_id_never_leads_out_of_the_data_folder(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "secret.png"
    outside.touch()
    edit_rows(run, COLUMNS, "../secret.png,cat,no,0.5,test,", f"{outside},cat,no,0.5,test,", "a\0b,cat,no,0.5,test,")
    write_features(run / FEATURES, torch.ones(3, 2))
    assert read_result(run).sources == (None, None, None)


def test_strange_file_names_come_back(tmp_path: Path) -> None:
    names = ("a\nb.png", 'c,"d".png', "caf\udce9.png", "日本.png")
    result = small_result()
    ids = names + result.ids[4:]
    run = make_run(tmp_path, result=RunResult(**{**vars(result), "ids": ids, "sources": (None,) * 8}), files=False)
    assert read_result(run).ids == ids


def test_digits_have_no_files(tmp_path: Path) -> None:
    assert read_result(make_run(tmp_path, source="digits")).sources == (None,) * 8


def test_features_are_unit_rows_in_half_precision(tmp_path: Path) -> None:
    write_features(tmp_path / "f.safetensors", torch.tensor([[3.0, 4.0], [0.0, 0.0], [1e5, 0.0]]))
    stored = load_file(tmp_path / "f.safetensors")["features"]
    assert stored.dtype == torch.float16
    assert torch.equal(stored, torch.tensor([[0.6, 0.8], [0.0, 0.0], [1.0, 0.0]]).half())
    assert [path.name for path in tmp_path.iterdir()] == ["f.safetensors"]


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"is not a run: it has no config\.toml"):
        read_result(tmp_path)


def test_no_model(run: Path) -> None:
    (run / "model" / "model.json").unlink()
    with pytest.raises(Misuse, match=rf"no finished model yet. Finish it with: `train\(resume=True, out='{run}'\)`"):
        read_result(run)


@pytest.mark.parametrize(
    "text", ["{", "[]", "{}", '{"categories": [1], "n_known": 0}', '{"categories": [], "n_known": "x"}']
)
def test_a_damaged_description(run: Path, text: str) -> None:
    (run / "model" / "model.json").write_text(text, encoding="utf-8")
    with pytest.raises(Failure, match=r"model\.json is damaged \(.*\)\. Copy it again or train again\."):
        read_result(run)


def test_no_predictions(run: Path) -> None:
    (run / "predictions.csv").unlink()
    with pytest.raises(Misuse, match=r"has no predictions\.csv: it did not finish\. Finish it with: `train\("):
        read_result(run)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["image,category"], f"its columns are not {','.join(RUN_COLUMNS)}"),
        ([COLUMNS, "a,cat,no,0.5,test"], "row 1 does not have 6 values"),
        ([COLUMNS, "a,cat,no,0.5,test,,x"], "row 1 does not have 6 values"),
        ([COLUMNS, "a,cat,no,high,test,"], "could not convert string to float: 'high'"),
        ([COLUMNS, "a,cat,no,nan,test,"], "row 1 has no certainty from 0 to 1, or no part"),
        ([COLUMNS, "a,cat,no,1.5,test,"], "row 1 has no certainty from 0 to 1, or no part"),
        ([COLUMNS, "a,cat,no,0.5,train,"], "row 1 has no certainty from 0 to 1, or no part"),
        ([COLUMNS, "a,cat,no,0.5,test,", "a,dog,no,0.5,test,"], "row 2 names a again"),
        ([COLUMNS, "a,cow,no,0.5,test,"], "its model has no category cow"),
        ([COLUMNS, '"a,cat,no,0.5,test,'], "unexpected end of data"),
        ([NEW_COLUMNS, "a,cat,no,0.5,test,,cat,dog"], "row 1 does not have 9 values"),
        ([NEW_COLUMNS, "a,cat,no,0.5,test,,cow,dog,0.1"], "its model has no category cow"),
        ([NEW_COLUMNS, "a,cat,no,0.5,test,,,dog,0.1"], "its model has no category "),
        ([NEW_COLUMNS, "a,cat,no,0.5,test,,cat,cow,0.1"], "its model has no category cow"),
        ([NEW_COLUMNS, "a,cat,no,0.5,test,,cat,dog,1.1"], "row 1 has no second certainty from 0 to 1"),
        ([NEW_COLUMNS, "a,cat,no,0.5,test,,cat,dog,nan"], "row 1 has no second certainty from 0 to 1"),
        ([NEW_COLUMNS, "a,cat,no,0.5,test,,cat,dog,x"], "could not convert string to float: 'x'"),
    ],
)
def test_damaged_predictions(run: Path, lines: list[str], why: str) -> None:
    edit_rows(run, *lines)
    with pytest.raises(Failure) as error:
        read_result(run)
    file = run / "predictions.csv"
    assert str(error.value) == f"{file} is damaged ({why}). Write it again with: `train(resume=True, out='{run}')`"


def test_a_run_of_an_older_version_has_no_features(run: Path) -> None:
    (run / FEATURES).unlink()
    with pytest.raises(Misuse) as error:
        read_result(run)
    assert str(error.value) == (
        f"the run {run} has no features.safetensors: an older sptnet made it. "
        f"Write it with: `train(resume=True, out='{run}')`"
    )


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ({"other": torch.zeros(8, 2)}, "it holds no finite features"),
        ({"features": torch.full((8, 2), torch.nan)}, "it holds no finite features"),
        ({"features": torch.zeros(8)}, "it holds no finite features"),
        ({"features": torch.zeros(7, 2)}, "it is for 7 images, not 8"),
    ],
)
def test_features_that_do_not_fit(run: Path, tensors: dict[str, torch.Tensor], why: str) -> None:
    save_file(tensors, run / FEATURES)
    with pytest.raises(Failure, match=rf"features\.safetensors is damaged \({why}\)\. Write it again"):
        read_result(run)


def test_features_that_are_no_tensors(run: Path) -> None:
    (run / FEATURES).write_bytes(b"x")
    with pytest.raises(Failure, match=r"features\.safetensors is damaged"):
        read_result(run)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sources": ()}, "there are 8 ids but 0 sources. Give one for each image."),
        ({"features": np.zeros((7, 2), np.float32)}, "there are 8 ids but 7 features. Give one for each image."),
        ({"guess": np.zeros(1, np.int64)}, "there are 8 ids but 1 guess. Give one for each image."),
        ({"guess": np.full(8, 4)}, "a category lies outside -1..3. Give an index into the names, or -1."),
        ({"guess_certainty": np.ones(9)}, "there are 8 ids but 9 guess_certainty. Give one for each image."),
        ({"ids": ("a",) * 8}, "the ids repeat. Give each its own."),
        ({"names": ("a", "a", "b", "c")}, "the category names repeat. Give each its own."),
        ({"category": np.full(8, 4)}, "a category lies outside -1..3. Give an index into the names, or -1."),
        ({"category": np.full(8, -2)}, "a category lies outside -1..3. Give an index into the names, or -1."),
        ({"n_known": 5}, "5 of 4 categories cannot be known. Give 0 to 4."),
    ],
)
def test_columns_must_fit(change: dict[str, Any], message: str) -> None:
    with pytest.raises(Misuse) as error:
        RunResult(**{**vars(small_result()), **change})
    assert str(error.value) == message


def test_members_and_novelty() -> None:
    result = small_result()
    assert result.members("new-1").tolist() == [4, 5, 6, 7]
    assert [result.is_new(name) for name in result.names] == [False, False, True, True]


def test_images_are_found_by_id_and_by_path(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = read_result(run)
    source = str(result.sources[1])
    given = ["cat/a.png", source, str(Path(source).relative_to(tmp_path)), "nothing.png"]
    assert image_ids(result, given) == ("cat/a.png", "cat/b.png", "cat/b.png", "nothing.png")
