"""The number of categories of a configuration by one call: known, true and estimated."""

import json
from pathlib import Path

import pytest

from conftest import Call
from helpers.digit_folders import fill
from sptnet.config import Config
from sptnet.inference.count_categories import estimate_categories


@pytest.fixture
def config(tiny_config: Config, tmp_path: Path) -> Config:
    data = {"source": "folder", "folder": str(fill(tmp_path / "photos")), "known_classes": None}
    return tiny_config.changed(data=data)


def test_the_truth_is_known_where_every_image_is_labelled(config: Config, digit_folder: Path) -> None:
    settings = {"folder": str(digit_folder), "known_classes": 5}
    count = estimate_categories(config.changed(data=settings), least=6, most=12)
    assert (count.n_known, count.truth) == (5, 10)
    assert 6 <= count.estimate.n_categories <= 12


def test_the_truth_is_unknown_where_images_are_unlabelled(config: Config) -> None:
    count = estimate_categories(config, seed=3, most=8)
    assert count.truth is None
    assert count.n_known <= count.estimate.n_categories <= 8
    assert estimate_categories(config, seed=3, most=8) == count


def test_the_command_prints_the_same(config: Config, tiny_settings: list[str], call: Call) -> None:
    settings = [word for setting in [*tiny_settings, "data.known_classes=none"] for word in ("--set", setting)]
    answer = call("estimate", "digits", "--data", config.data.folder, "--max", 8, "--json", *settings)
    assert answer.code == 0, answer.err
    printed = json.loads(answer.out)
    count = estimate_categories(config, most=8)
    assert (printed["n_categories"], printed["n_known"]) == (count.estimate.n_categories, count.n_known)
