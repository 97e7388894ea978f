"""A finished run read back: what it holds, and what is said when something is missing or damaged."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from helpers.result_runs import COLUMNS, make_run, small_result
from helpers.rounding import SINGLE, assert_same
from sptnet.errors import Failure, Misuse
from sptnet.results.categories import describe_categories
from sptnet.results.predictions import FEATURES, write_features
from sptnet.results.run_result import RunResult, read_result


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path)


def edit_rows(run: Path, *lines: str) -> None:
    (run / "predictions.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_a_run_is_read_back(run: Path, tmp_path: Path) -> None:
    found = read_result(run)
    assert len(found) == 8
    assert found.ids[:3] == ("cat/a.png", "cat/b.png", "unlabelled/a.png")
    assert found.names == ("cat", "dog", "new-1", "new-2")
    assert found.n_known == 2
    assert found.category.tolist() == [0, 0, 0, 1, 2, 2, 2, 2]
    assert found.category.dtype == np.int64
    assert found.certainty.dtype == np.float32
    assert found.certainty.tolist() == pytest.approx([1.0, 0.8, 0.4, 0.9, 0.9, 0.7, 0.6, 0.3], rel=SINGLE), (
        "a labelled one is certain"
    )
    assert found.part == ("labelled", "holdout", "unlabelled", "unlabelled", *("unlabelled",) * 3, "test")
    assert found.truth == ("cat", "cat", None, "dog", None, None, None, "eel")
    assert found.sources == (*(str(tmp_path / "data" / id_) for id_ in found.ids[:7]), None)  # the last has no file
    assert found.features.dtype == np.float32
    assert np.linalg.norm(found.features, axis=1) == pytest.approx(np.ones(8), abs=SINGLE)
    assert_same(found.features, small_result().features, terms=1, dtype=torch.float16)


def test_a_labelled_image_is_where_its_label_says_and_doubtful_where_the_model_disagrees(tmp_path: Path) -> None:
    predicted = small_result()
    elsewhere = replace(predicted, category=np.array([1, 0, 0, 1, 2, 2, 2, 2]))
    angles = np.deg2rad((88, 10, 5, 90, 180, 182, 230, 233))
    moved = replace(elsewhere, features=np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32))
    found = read_result(make_run(tmp_path, moved))
    assert found.category.tolist() == [0, 0, 0, 1, 2, 2, 2, 2]
    assert found.certainty[0] == 1.0
    cats = describe_categories(found)[0]
    assert "cat/a.png" in cats.doubtful and "cat/b.png" not in cats.doubtful


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
    with pytest.raises(Misuse, match=f"has no finished model yet. Finish it with: sptnet train --resume --out {run}"):
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
    with pytest.raises(Misuse, match=r"has no predictions\.csv: it did not finish\. Finish it with: sptnet train"):
        read_result(run)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["image,category"], "its columns are not image,category,is_new,certainty,part,truth"),
        ([COLUMNS, "a,cat,no,0.5,test"], "row 1 does not have 6 values"),
        ([COLUMNS, "a,cat,no,0.5,test,,x"], "row 1 does not have 6 values"),
        ([COLUMNS, "a,cat,no,high,test,"], "could not convert string to float: 'high'"),
        ([COLUMNS, "a,cat,no,nan,test,"], "row 1 has no certainty from 0 to 1, or no part"),
        ([COLUMNS, "a,cat,no,1.5,test,"], "row 1 has no certainty from 0 to 1, or no part"),
        ([COLUMNS, "a,cat,no,0.5,train,"], "row 1 has no certainty from 0 to 1, or no part"),
        ([COLUMNS, "a,cat,no,0.5,test,", "a,dog,no,0.5,test,"], "row 2 names a again"),
        ([COLUMNS, "a,cow,no,0.5,test,"], "its model has no category cow"),
        ([COLUMNS, '"a,cat,no,0.5,test,'], "unexpected end of data"),
    ],
)
def test_damaged_predictions(run: Path, lines: list[str], why: str) -> None:
    edit_rows(run, *lines)
    with pytest.raises(Failure) as error:
        read_result(run)
    file = run / "predictions.csv"
    assert str(error.value) == f"{file} is damaged ({why}). Write it again with: sptnet train --resume --out {run}"


def test_a_run_of_an_older_version_has_no_features(run: Path) -> None:
    (run / FEATURES).unlink()
    with pytest.raises(Misuse) as error:
        read_result(run)
    assert str(error.value) == (
        f"the run {run} has no features.safetensors: an older sptnet made it. "
        f"Write it with: sptnet train --resume --out {run}"
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
    found = small_result()
    assert found.members("new-1").tolist() == [4, 5, 6, 7]
    assert [found.is_new(name) for name in found.names] == [False, False, True, True]
