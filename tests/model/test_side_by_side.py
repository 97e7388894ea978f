"""Shares of a batch, a thread each: the same numbers, the caller's modes, and nothing left behind."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from test_frozen_blocks import vit
from torch import Tensor

from sptnet.data.pixel_format import PixelFormat
from sptnet.model.backbone import Backbone
from sptnet.model.vit import side_by_side as module
from sptnet.model.vit.side_by_side import side_by_side


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = torch.get_num_threads()
    monkeypatch.setattr(module, "SHARE", 6)
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Watched:
    """A step that adds its number, and remembers on what and where."""

    def __init__(self, number: float = 1.0):
        self.number = number
        self.shares: list[tuple[int, threading.Thread, int, bool, bool]] = []

    def __call__(self, x: Tensor) -> None:
        modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        self.shares.append((len(x), threading.current_thread(), torch.get_num_threads(), *modes))
        x.mul_(2).add_(self.number)


def test_every_thread_takes_its_own_images_through_all_steps(two_threads: None) -> None:
    x, first, second = torch.arange(12.0).view(4, 3), Watched(1.0), Watched(5.0)
    expected = (2 * x + 1) * 2 + 5
    side_by_side([first, second], x)
    assert torch.equal(x, expected)
    for step in (first, second):
        assert [share[0] for share in step.shares] == [2, 2]
        assert {threads for _, _, threads, *_ in step.shares} == {1}
        assert threading.main_thread() not in {share[1] for share in step.shares}


def test_threads_are_as_before_also_those_to_come(two_threads: None) -> None:
    before, told = threading.enumerate(), []
    side_by_side([Watched()], torch.zeros(4, 3))
    assert torch.get_num_threads() == 2 and threading.enumerate() == before
    other = threading.Thread(target=lambda: told.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert told == [2]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_threads_compute_in_the_callers_mode(two_threads: None, mode: type) -> None:
    step = Watched()
    with mode():
        expected = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        side_by_side([step], torch.zeros(4, 3))  # writing over a tensor of inference mode is refused outside of it
    assert {share[3:] for share in step.shares} == {expected}


@pytest.mark.parametrize(
    ("batch", "shares"), [(2, [1, 1]), (4, [2, 2]), (6, [2, 2, 1, 1]), (8, [2] * 4), (33, [3] + [2] * 15)]
)
def test_shares_are_of_about_the_same_size(two_threads: None, batch: int, shares: list[int]) -> None:
    step = Watched()
    side_by_side([step], torch.ones(batch, 3))
    assert sorted((share[0] for share in step.shares), reverse=True) == shares


@pytest.mark.parametrize(("batch", "threads"), [(1, 2), (5, 2), (31, 2), (4, 1)])
def test_few_numbers_uneven_shares_and_single_threads_stay_together(
    two_threads: None, batch: int, threads: int
) -> None:
    torch.set_num_threads(threads)
    x, step = torch.ones(batch, 3), Watched()
    side_by_side([step], x)
    assert [(n, thread) for n, thread, *_ in step.shares] == [(batch, threading.main_thread())]
    assert torch.equal(x, torch.full((batch, 3), 3.0))


def test_a_failure_is_the_callers_and_ends_all_shares(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As does Ctrl-C, which reaches the caller while it waits."""
    stop, later = threading.Event(), Watched()
    monkeypatch.setattr(module, "Event", lambda: stop)

    def fail(x: Tensor) -> None:
        if x[0, 0] == 0:
            raise ZeroDivisionError("of the first share")
        assert stop.wait(60), "nobody told the second"

    with pytest.raises(ZeroDivisionError, match="of the first share"):
        side_by_side([fail, later], torch.arange(12.0).view(4, 3))
    assert later.shares == []
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_a_backbone_gives_the_same_features(
    two_threads: None, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, close: float
) -> None:
    backbone = Backbone("small", vit().to(dtype), PixelFormat(32))
    images, rows, original = torch.randn(6, 3, 32, 32, dtype=dtype), [], module._in_threads

    def watched(steps: Sequence[module.Step], *others: Any) -> None:
        rows.append(len(steps))
        original(steps, *others)

    monkeypatch.setattr(module, "_in_threads", watched)
    with torch.no_grad():
        shared = backbone(images)
        assert rows == [backbone.depth - 1]
        torch.set_num_threads(1)
        alone = backbone(images)
        assert len(rows) == 1
    torch.testing.assert_close(shared, alone, rtol=0, atol=close)
    torch.testing.assert_close(shared, backbone.vit.forward_features(images)[:, 0], rtol=0, atol=close)
