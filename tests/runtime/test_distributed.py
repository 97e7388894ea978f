"""Two processes give what one gives: weights, predictions, scores; and a job that loses a process can go on."""

from ast import literal_eval
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from helpers.rounding import assert_same_training, terms_of, training_rounding
from helpers.several_processes import BATCH, CASES, PRECISIONS, train
from helpers.torchrun import torchrun
from helpers.trainers import make_trainer
from sptnet.runtime.distributed import World, world

COMPARED = [(case, name) for case in CASES for name in PRECISIONS if (case, name) != ("bank", "float64")]


@pytest.fixture(scope="module")
def by_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    done = torchrun(Path(__file__).parents[1] / "helpers" / "several_processes.py", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(("case", "precision"), COMPARED)
def test_two_processes_train_what_one_trains(case: str, precision: str, by_two: Path, tmp_path: Path) -> None:
    alone, losses = train(case, PRECISIONS[precision], World(), tmp_path / "tokens")
    first, second = (load_file(by_two / f"{case}-{precision}-{rank}.safetensors") for rank in (0, 1))
    for name in alone:
        assert torch.equal(first[name], second[name]), f"{name} differs between the processes"
    model = make_trainer(CASES[case], batch_size=BATCH).model.to(PRECISIONS[precision])
    banked = terms_of(model.backbone) if case == "bank" else 0
    assert_same_training(first, alone, model.state_dict(), steps=10, rows=2 * BATCH, banked=banked)
    with safe_open(by_two / f"{case}-{precision}-0.safetensors", framework="pt") as file:
        shared = literal_eval(file.metadata()["losses"])
    for epoch, expected in zip(shared, losses, strict=True):
        assert epoch.keys() == expected.keys()
        for phase, parts in expected.items():
            tolerance = training_rounding(2 * BATCH, PRECISIONS[precision], banked)
            assert epoch[phase] == pytest.approx(parts, abs=tolerance)


@pytest.mark.parametrize("n", [0, 1, 2, 7, 12])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_shares_are_all_rows_once_in_order_and_nearly_equal(n: int, size: int) -> None:
    shares = [np.arange(n)[World(rank, size).share(n)] for rank in range(size)]
    assert np.concatenate(shares).tolist() == list(range(n))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_one_process_needs_no_others() -> None:
    alone = World()
    rows = torch.arange(6.0).view(3, 2)
    assert alone.gather(rows, 3) is rows and alone.gather_views(rows, 3) is rows
    assert alone.from_first(lambda: 7) == alone.local_rank_zero_first(lambda: 7) == 7
    with pytest.raises(ValueError, match="as it was"):
        alone.do_first(lambda: (_ for _ in ()).throw(ValueError("as it was")))
    assert world() == World()


ENDING = """
import atexit, os, sys
from pathlib import Path
import torch.distributed as dist

def tell():
    Path(sys.argv[1], os.environ["RANK"]).write_text("threads left" if dist.is_initialized() else "all ended")

atexit.register(tell)  # what is registered first runs last
from sptnet.runtime.distributed import world
world().do_first(lambda: None)
assert dist.is_initialized()
"""


def test_the_backend_ends_before_python_does(tmp_path: Path) -> None:
    """Its threads may need Python for a last time, and would abort the process if there were none."""
    (tmp_path / "ending.py").write_text(ENDING)
    (tmp_path / "told").mkdir()
    done = torchrun(tmp_path / "ending.py", tmp_path / "told")
    assert done.returncode == 0, done.stderr
    assert {file.name: file.read_text() for file in (tmp_path / "told").iterdir()} == dict.fromkeys("01", "all ended")
