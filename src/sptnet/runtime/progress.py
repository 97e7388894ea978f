"""Telling people how far things are: a bar with the time left on a terminal, plain lines elsewhere."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from sptnet.runtime.torchrun import is_first

T = TypeVar("T")
# Of several processes the first one speaks.
console = Console(stderr=True, highlight=False, soft_wrap=True, quiet=not is_first())

Say = Callable[[str], None]
spell: Callable[[str], str] = str
"""Applied to every message of `say`; the command line replaces parameters between backticks by its flags here."""


def say(message: str) -> None:
    """One line for people, on stderr, so that stdout stays for results."""
    console.print(spell(message), markup=False)


class Bar(Protocol):
    def __call__(self, done: float, note: str = "") -> None: ...


@contextmanager
def bar(what: str, total: float) -> Iterator[Bar]:
    """A progress bar with the time left; silent where there is no terminal."""
    if not console.is_terminal:
        yield lambda done, note="": None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total, note="")
        yield lambda done, note="": progress.update(task, completed=done, note=note)


def tracker(what: str) -> Callable[..., Iterable[T]]:
    """`tracker("reading")(items, total=n)` passes the items through and shows a bar."""

    def track(items: Iterable[T], total: int) -> Iterator[T]:
        with bar(what, total) as update:
            for done, item in enumerate(items):
                yield item
                update(done + 1)

    return track


def counted(what: str, items: Iterable[T]) -> Iterator[T]:
    """Passes the items through; a terminal shows how many there were, where nobody knows how many there will be."""
    if not console.is_terminal:
        yield from items
        return
    with console.status(what) as status:
        for number, item in enumerate(items, start=1):
            yield item
            if number % 1000 == 0:
                status.update(f"{what}: {number:,}")


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
