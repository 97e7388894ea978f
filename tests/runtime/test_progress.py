"""Progress in logs: lines with the time left, at sensible intervals, from the speed of the moment."""

import itertools
import re

import pytest
from rich.console import Console

from sptnet.runtime import progress
from sptnet.runtime.progress import ProgressLines, bar, duration, tracker


class Clock:
    """A clock that a test moves by hand."""

    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def lines_of(seconds_each: list[float], total: float, start: float = 0.0) -> list[tuple[float, str]]:
    """Work of one unit per entry; returns time and text of the lines."""
    clock, told = Clock(), []
    update = ProgressLines("work", total, lambda line: told.append((clock.now - 50, line)), clock)
    done = start
    for seconds in seconds_each:
        clock.now += seconds
        done += 1
        update(done)
    return told


def test_short_work_has_no_lines() -> None:
    assert lines_of([0.09] * 100, 100) == []


def test_lines_come_every_ten_seconds_or_tenth() -> None:
    assert lines_of([1.0] * 50, 50) == [
        (10, "work: 20% done, about 40 s left"),
        (20, "work: 40% done, about 30 s left"),
        (30, "work: 60% done, about 20 s left"),
        (40, "work: 80% done, about 10 s left"),
    ]
    hour = lines_of([3.6] * 1000, 1000)
    gaps = [after - before for (before, _), (after, _) in itertools.pairwise(hour)]
    assert all(59 < gap < 65 for gap in gaps), "a line per minute is enough"
    assert hour[-1][0] > 3500


def test_the_time_left_follows_the_speed_of_the_moment() -> None:
    """Ten times slower from the middle on, as if another job had begun."""
    told = lines_of([1.0] * 50 + [10.0] * 50, 100)
    before = [text for time, text in told if time <= 50]
    after = [(time, text) for time, text in told if time > 200]
    assert before[-1] == "work: 41% done, about 59 s left"
    for time, text in after:
        share = int(re.findall(r"(\d+)% done", text)[0])
        assert text == f"work: {share}% done, about {duration(10 * (100 - share))} left", time


def test_work_that_is_resumed_does_not_look_fast() -> None:
    """From the start on, 113 units in 13 seconds would mean less than a second for the rest."""
    assert lines_of([1.0] * 20, 120, start=100) == [(13, "work: 94% done, about 7 s left")]


def test_a_log_gets_lines_and_a_terminal_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = Clock()
    monkeypatch.setattr(progress.time, "monotonic", clock)
    monkeypatch.setattr(progress, "ProgressLines", lambda what, total: ProgressLines(what, total, clock=clock))

    def work() -> None:
        for _ in tracker("reading")(range(4), total=4):
            clock.now += 20

    work()
    assert capsys.readouterr().err == ("reading: 50% done, about 40 s left\nreading: 75% done, about 20 s left\n")
    monkeypatch.setattr(progress, "console", Console(stderr=True, force_terminal=True, width=80))
    with bar("reading", 4) as update:
        update(2)
        assert not isinstance(update, ProgressLines)
    assert "done, about" not in capsys.readouterr().err
