"""Worker processes: what they say when nobody takes their batches."""

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Client
from multiprocessing.resource_sharer import DupFd

import pytest
from torch.utils.data import Dataset

from sptnet.data.loader import ignore_broken_pipes
from sptnet.training.loader import iterate_batches

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Offers(Dataset[object]):
    """Each item is where the worker's thread waits for somebody to take a file."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, number: int) -> tuple[str, int]:
        offer = DupFd(0)._id  # type: ignore[attr-defined]
        return offer[0], os.getpid()


@pytest.fixture
def hook() -> Iterator[None]:
    before = sys.excepthook
    yield
    sys.excepthook = before


def test_a_worker_says_nothing_when_the_line_goes_dead(capfd: pytest.CaptureFixture[str]) -> None:
    """As when Ctrl-C reaches the main process while it takes a batch."""
    key = multiprocessing.current_process().authkey
    for address, worker in iterate_batches(Offers(), 1, pin=False):  # type: ignore[arg-type,misc]
        assert worker != os.getpid()
        Client(address, authkey=key).close()
        Client(address).close()  # even before it has said who it is
    time.sleep(0.2)
    assert capfd.readouterr().err == ""


def test_a_worker_tells_any_other_mistake(hook: None, capsys: pytest.CaptureFixture[str]) -> None:
    ignore_broken_pipes(0)
    for error in (BrokenPipeError(), EOFError(), KeyError("lost")):
        sys.excepthook(type(error), error, None)
    assert capsys.readouterr().err == "KeyError: 'lost'\n"
