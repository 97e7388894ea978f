"""Loading of centre views, the number of workers, and tracebacks that workers suppress."""

import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from helpers.pictures import picture
from sptnet.data.loader import ignore_broken_pipes, iterate_centre_views, n_workers
from sptnet.data.pixel_format import PixelFormat
from sptnet.data.store import ImageStore
from sptnet.data.views import CentreViews, ViewMaker

PIXELS = PixelFormat(32)


def test_centre_views_come_in_the_order_asked_for() -> None:
    store, maker = ImageStore([picture(40, 60, seed) for seed in range(6)], PIXELS), ViewMaker(PIXELS)
    order = np.array([4, 0, 3, 0, 5])
    made = list(iterate_centre_views(store, maker, order, batch_size=2))
    assert [len(views) for views in made] == [2, 2, 1]
    views = torch.cat(made)
    assert torch.equal(views[1], views[3])
    for position, index in enumerate(order):
        expected = maker.normalise(maker.centre_view(store[int(index)])[None])[0]
        assert torch.equal(views[position], expected)
    assert len(CentreViews(store, maker, order)) == 5


def test_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sptnet.data.loader.cores_per_process", lambda: 16)
    assert n_workers(3, 10) == 3
    assert n_workers(0, 10**6) == 0
    assert n_workers("auto", 1999) == 0
    assert n_workers("auto", 2000) == 8
    monkeypatch.setattr("sptnet.data.loader.cores_per_process", lambda: 2)
    assert n_workers("auto", 10**6) == 0


@pytest.fixture
def hook() -> Iterator[None]:
    before = sys.excepthook
    yield
    sys.excepthook = before


def test_other_exceptions_are_printed(hook: None, capsys: pytest.CaptureFixture[str]) -> None:
    ignore_broken_pipes(0)
    for error in (BrokenPipeError(), EOFError(), KeyError("lost")):
        sys.excepthook(type(error), error, None)
    assert capsys.readouterr().err == "KeyError: 'lost'\n"
