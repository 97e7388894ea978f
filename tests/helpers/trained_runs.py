"""Compare trained runs: their weights may differ by rounding alone."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file

from helpers.rounding import assert_same_training, terms_of
from sptnet.model.backbone import EMBEDDED, build_backbone
from sptnet.results.run_folder import RunFolder


def assert_same_weights(one: Path, other: Path, start: Mapping[str, torch.Tensor]) -> None:
    """Compare weights of the embedded architecture; its blocks start from `start`, the head near zero."""
    weights, expected = (load_file(run / "model" / "model.safetensors") for run in (one, other))
    blocks = {f"backbone.vit.{name}": value for name, value in start.items() if name.startswith("blocks.")}
    before = {name: blocks.get(name, torch.zeros_like(value)) for name, value in expected.items()}
    config, lines = RunFolder(other).config(), RunFolder(other).metrics()
    steps = sum(sum(line["steps"].values()) for line in lines)
    banked = terms_of(build_backbone(EMBEDDED, pretrained=False)) if config.views.bank else 0
    assert_same_training(weights, expected, before, steps, 2 * config.training.batch_size, banked)
