"""Shares of the rows, one process without torchrun, and the end of the backend."""

from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.torchrun import torchrun
from sptnet.runtime.distributed import World, world


@pytest.mark.parametrize("n", [0, 1, 2, 7, 12])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_shares_are_all_rows_once_in_order_and_nearly_equal(n: int, size: int) -> None:
    shares = [np.arange(n)[World(rank, size).share(n)] for rank in range(size)]
    assert np.concatenate(shares).tolist() == list(range(n))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_single_process_does_its_work_alone() -> None:
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

def report():
    Path(sys.argv[1], os.environ["RANK"]).write_text("running" if dist.is_initialized() else "ended")

atexit.register(report)  # handlers run in reverse order of registration
from sptnet.runtime.distributed import world
world().do_first(lambda: None)
assert dist.is_initialized()
"""


def test_the_backend_ends_before_python_does(tmp_path: Path) -> None:
    """A thread of the backend that outlives the interpreter aborts the process."""
    (tmp_path / "ending.py").write_text(ENDING)
    (tmp_path / "reports").mkdir()
    done = torchrun(tmp_path / "ending.py", tmp_path / "reports")
    assert done.returncode == 0, done.stderr
    assert {file.name: file.read_text() for file in (tmp_path / "reports").iterdir()} == dict.fromkeys("01", "ended")
