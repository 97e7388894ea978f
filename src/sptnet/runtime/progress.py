"""Messages and progress on stderr: bars on a terminal, else a line with the time left now and then."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sptnet.runtime.text import visible
from sptnet.runtime.torchrun import is_first

T = TypeVar("T")
# Only rank 0 prints.
console = Console(stderr=True, highlight=False, soft_wrap=True, quiet=not is_first())

Say = Callable[[str], None]
"""Function that shows one message, such as `say`."""

spell: Callable[[str], str] = str
"""Applied to every message of `say`; the command line replaces parameters between backticks by its flags here."""


def say(message: str) -> None:
    """Print one line on stderr, with control characters escaped; stdout is for results."""
    console.print(visible(spell(message)), markup=False, emoji=False)


LINE_SECONDS, SLOW_SECONDS, LINE_SHARE = 10.0, 60.0, 0.1
"""Least seconds between two lines of progress; seconds, or share of the work, after which the next one is due."""


class Bar(Protocol):
    """Update function of a progress bar."""

    def __call__(self, done: float, note: str = "") -> None:
        """Set the amount done and a note behind the bar."""


class ProgressLines:
    """Lines with the share done and the time left, for logs; work that takes a few seconds has none.

    The time left follows from the speed since the line before the last, so that it follows a machine that turns out
    slower or faster.
    """

    def __init__(self, what: str, total: float, tell: Say = say, clock: Callable[[], float] = time.monotonic):
        self.what, self.total, self.tell, self.clock = what, total, tell, clock
        self._begun = clock()
        self._told: deque[tuple[float, float]] = deque(maxlen=2)
        """Time and amount done at the last two lines; at first those of the first update, which may resume work."""

    def __call__(self, done: float, note: str = "") -> None:
        """Set the amount done; print a line if one is due."""
        now = self.clock()
        if not self._told:
            self._told.append((now, done))
            return
        (earlier, before), (last, latest) = self._told[0], self._told[-1]
        since = now - (last if len(self._told) > 1 else self._begun)
        due = since >= SLOW_SECONDS or done - latest >= LINE_SHARE * self.total
        if since < LINE_SECONDS or not due or not before < done < self.total:
            return
        left = (self.total - done) * (now - earlier) / (done - before)
        self.tell(f"{self.what}: {done / self.total:.0%} done, about {duration(left)} left")
        self._told.append((now, done))


@contextmanager
def bar(what: str, total: float) -> Iterator[Bar]:
    """Show a progress bar with the time left, or lines without a terminal."""
    if not console.is_terminal:
        yield ProgressLines(what, total)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
        TextColumn("{task.fields[note]}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(visible(what), total=total, note="")
        yield lambda done, note="": progress.update(task, completed=done, note=visible(note))


def tracker(what: str) -> Callable[..., Iterable[T]]:
    """Return a function that passes items through and shows a bar: `tracker("reading")(items, total=n)`."""

    def track(items: Iterable[T], total: int) -> Iterator[T]:
        with bar(what, total) as update:
            for done, item in enumerate(items):
                yield item
                update(done + 1)

    return track


def counted(what: str, items: Iterable[T]) -> Iterator[T]:
    """Pass items of unknown number through; a terminal shows how many there have been."""
    if not console.is_terminal:
        yield from items
        return
    with console.status(what) as status:
        for number, item in enumerate(items, start=1):
            yield item
            if number % 1000 == 0:
                status.update(f"{what}: {number:,}")


def duration(seconds: float) -> str:
    """Format a duration, such as 1 h 05 min, 3 min 20 s or 7 s."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
