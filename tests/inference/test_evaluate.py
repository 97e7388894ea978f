"""Scores of a model by one call: folders, what cannot be scored, and the flags that the command line names."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from conftest import Call, random_model
from sptnet.config import PromptSettings
from sptnet.errors import Misuse
from sptnet.inference.evaluate import evaluate
from sptnet.model.model_folder import ModelCard, save_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    card = ModelCard(("crow", "owl", "new-1"), 2, PromptSettings(kind="none"), 0.875)
    save_model(tmp_path / "model", random_model(n_categories=3), card)
    return tmp_path / "model"


def paint(root: Path, **counts: int) -> Path:
    random = np.random.default_rng(0)
    for name, n in counts.items():
        (root / name).mkdir(parents=True)
        for i in range(n):
            Image.fromarray(random.integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(root / name / f"{i}.png")
    return root


def test_a_folder_is_scored(model: Path, tmp_path: Path) -> None:
    scores = evaluate(model, paint(tmp_path / "birds", crow=3, tern=2, unlabelled=2), device="cpu")
    assert list(scores) == ["birds"]
    assert scores["birds"]["images"] == 5
    assert all(0 <= scores["birds"][key] <= 1 for key in ("all", "old", "new"))


def test_unreadable_images_are_skipped_up_to_a_share(model: Path, tmp_path: Path) -> None:
    folder = paint(tmp_path / "birds", crow=3, tern=2)
    (folder / "crow" / "0.png").write_bytes(b"")
    assert evaluate(model, folder, max_unreadable=0.2, device="cpu")["birds"]["images"] == 4


def test_what_cannot_be_scored_is_refused(model: Path, tmp_path: Path, call: Call) -> None:
    unsorted = paint(tmp_path / "unsorted", unlabelled=2)
    cases = [
        ((None, "cub"), ["--source", "cub"], "where is cub? Give its folder with {}."),
        (
            (None, None),
            [],
            f"{model} is a model directory without data. Give a folder to score with {{}}.",
        ),
        (
            (unsorted, None),
            ["--data", unsorted],
            "no image has a known category, so there is nothing to score. Give a folder of category sub-folders with "
            "{}.",
        ),
    ]
    for (data, source), options, message in cases:
        with pytest.raises(Misuse) as error:
            evaluate(model, data, source, device="cpu")
        assert str(error.value) == message.format("`data=DIR`")
        answer = call("evaluate", model, *options, "--device", "cpu")
        assert (answer.code, answer.err) == (2, f"error: {message.format('--data DIR')}\n")
