"""Folders from which little can be learned: the answer says so, and is never a confident one."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from conftest import Call
from helpers.digit_folders import all_digits, save_digit
from sptnet.discovery import pace
from sptnet.model.backbone import EMBEDDED

OPTIONS = ["--backbone", EMBEDDED, "--set", "backbone.image_size=32", "--device", "cpu"]
CLUSTERED, TRAINED = ["--method", "sskmeans"], ["--method", "simgcd", "--epochs", "2"]


def digit(kind: int, number: int) -> int:
    """Position of a digit in the data set."""
    return int(np.flatnonzero(all_digits().labels == kind)[number])


def three_images(root: Path) -> None:
    save_digit(digit(0, 0), root / "zero" / "a.png")
    save_digit(digit(0, 1), root / "unlabelled" / "b.png")
    save_digit(digit(1, 0), root / "unlabelled" / "c.png")


def one_category(root: Path) -> None:
    for n in range(12):
        save_digit(digit(0, n), root / ("zero" if n < 4 else "unlabelled") / f"{n}.png")


def one_label(root: Path) -> None:
    for kind in range(4):
        for n in range(8):
            save_digit(digit(kind, n), root / ("zero" if kind + n == 0 else "unlabelled") / f"{kind}-{n}.png")


def all_alike(root: Path) -> None:
    for n in range(24):
        save_digit(digit(0, 0), root / ("a" if n < 4 else "b" if n < 8 else "unlabelled") / f"{n}.png")


def pairs(root: Path) -> None:
    random = np.random.RandomState(0)
    for category in range(150):
        base = random.randint(0, 256, (8, 8, 3))
        for n in range(2):
            pixels = np.clip(base + random.randint(-20, 20, base.shape), 0, 255).astype(np.uint8)
            path = root / (f"k{category}" if category < 12 and n == 0 else "unlabelled") / f"{category}-{n}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).resize((32, 32)).save(path)


def half_broken(root: Path) -> None:
    for kind in range(3):
        for n in range(10):
            path = root / (f"{kind}" if kind < 2 and n < 6 else "unlabelled") / f"{kind}-{n}.png"
            save_digit(digit(kind, n), path)
            if n % 2:
                path.write_bytes(b"no image")


@pytest.fixture
def call(call: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setattr(pace, "SECONDS", 0.005)
    return call


def unsorted_certainty(run: Path) -> list[float]:
    with (run / "predictions.csv").open(newline="", encoding="utf-8") as file:
        return [float(row["certainty"]) for row in csv.DictReader(file) if row["part"] == "unlabelled"]


@pytest.mark.parametrize("method", [CLUSTERED, TRAINED], ids=["clustered", "trained"])
@pytest.mark.parametrize(
    ("fill", "most_mean", "most_high"),
    [(three_images, 0.6, None), (one_category, 0.75, None), (one_label, 0.75, None), (all_alike, 0.65, 0.85)],
)
def test_little_is_known_and_the_answer_says_so(
    call: Call,
    tmp_path: Path,
    fill: Callable[[Path], None],
    most_mean: float,
    most_high: float | None,
    method: list[str],
) -> None:
    """With fewer than two known categories nothing is expected; with two, the expectation is low."""
    fill(tmp_path / "photos")
    answer = call("discover", tmp_path / "photos", "--out", tmp_path / "run", *OPTIONS, *method)
    assert answer.code == 0, answer.err
    facts: dict[str, Any] = json.loads((tmp_path / "run" / "run.json").read_text())
    assert np.mean(unsorted_certainty(tmp_path / "run")) <= most_mean
    assert (tmp_path / "run" / "report.html").is_file()
    if most_high is None:
        assert facts["expected_accuracy"] is None
        assert "at least two known categories" in facts["expected_accuracy_reason"]
        assert "at least two known categories" in " ".join(answer.out.split())
    else:
        assert facts["expected_accuracy"]["high"] <= most_high


def test_many_categories_of_two_images_are_not_claimed_to_be_found(call: Call, tmp_path: Path) -> None:
    pairs(tmp_path / "photos")
    answer = call("discover", tmp_path / "photos", "--out", tmp_path / "run", *OPTIONS, *CLUSTERED, "--no-report")
    assert answer.code == 0, answer.err
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["expected_accuracy"]["value"] < 0.6


def test_half_of_the_images_broken_is_refused_with_a_way_out(call: Call, tmp_path: Path) -> None:
    half_broken(tmp_path / "photos")
    answer = call("discover", tmp_path / "photos", "--out", tmp_path / "run", *OPTIONS, *CLUSTERED)
    assert answer.code == 1
    assert "15 of 30" in answer.err and "data.max_unreadable" in answer.err
    again = call(
        "discover",
        tmp_path / "photos",
        "--out",
        tmp_path / "run",
        *OPTIONS,
        *CLUSTERED,
        "--set",
        "data.max_unreadable=0.6",
    )
    assert again.code == 0, again.err
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert len(facts["data"]["unreadable"]) == 15
    width = facts["expected_accuracy"]["high"] - facts["expected_accuracy"]["low"]
    assert width > 0.25, "few images, so the range is wide"
