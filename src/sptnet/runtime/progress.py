"""Messages and progress bars on stderr; bars are shown on a terminal only."""

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


class Bar(Protocol):
    """Update function of a progress bar."""

    def __call__(self, done: float, note: str = "") -> None:
        """Set the amount done and a note behind the bar."""


@contextmanager
def bar(what: str, total: float) -> Iterator[Bar]:
    """Show a progress bar with the time left; nothing without a terminal."""
    if not console.is_terminal:
        yield lambda done, note="": None
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
