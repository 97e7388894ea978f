"""Training with two processes gives the weights and losses of training with one."""

from ast import literal_eval
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from helpers.rounding import assert_same_training, terms_of, training_rounding
from helpers.several_processes import BATCH, CASES, PRECISIONS, train, trainer_of
from helpers.torchrun import torchrun
from sptnet.runtime.distributed import World

COMPARED = [(case, name) for case in CASES for name in PRECISIONS if (case, name) != ("bank", "float64")]


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    done = torchrun(Path(__file__).parents[1] / "helpers" / "several_processes.py", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(("case", "precision"), COMPARED)
def test_two_processes_train_what_one_trains(case: str, precision: str, two_processes: Path, tmp_path: Path) -> None:
    alone, losses = train(case, PRECISIONS[precision], World(), tmp_path / "tokens")
    first, second = (load_file(two_processes / f"{case}-{precision}-{rank}.safetensors") for rank in (0, 1))
    for name in alone:
        assert torch.equal(first[name], second[name]), f"{name} differs between the processes"
    model = trainer_of(case).model.to(PRECISIONS[precision])
    banked = terms_of(model.backbone) if case == "bank" else 0
    assert_same_training(first, alone, model.state_dict(), steps=10, rows=2 * BATCH, banked=banked)
    with safe_open(two_processes / f"{case}-{precision}-0.safetensors", framework="pt") as file:
        shared = literal_eval(file.metadata()["losses"])
    for epoch, expected in zip(shared, losses, strict=True):
        assert epoch.keys() == expected.keys()
        for phase, parts in expected.items():
            tolerance = training_rounding(2 * BATCH, PRECISIONS[precision], banked)
            assert epoch[phase] == pytest.approx(parts, abs=tolerance)
