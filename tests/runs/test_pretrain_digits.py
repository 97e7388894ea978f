"""The script that makes the embedded weights."""

import runpy
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from conftest import Call

SCRIPT = Path(__file__).parents[2] / "tools" / "pretrain_digits.py"


def test_sptnet_trains_with_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], call: Call
) -> None:
    file, run = tmp_path / "w.safetensors", tmp_path / "run"
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--out", str(file), "--epochs", "1", "--images", "64"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert f"wrote {file}, 10-nearest-neighbour accuracy" in capsys.readouterr().out
    written = load_file(file)
    assert {value.dtype for value in written.values()} == {torch.float16}
    settings = ["method=kmeans", f"backbone.weights={file}", "n_categories=10"]
    answer = call("train", "digits", "--out", run, *(word for setting in settings for word in ("--set", setting)))
    assert answer.code == 0, answer.err
    used = load_file(run / "model" / "model.safetensors")
    assert all(torch.equal(value.float(), used[f"backbone.vit.{name}"]) for name, value in written.items())
