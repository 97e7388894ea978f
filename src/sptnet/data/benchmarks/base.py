"""What a benchmark data set is to the rest: how to read it, which classes are known, what must be in it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sptnet.data.image_set import ImageSet


@dataclass(frozen=True)
class SplitCounts:
    labelled: int
    labelled_classes: int
    unlabelled: int
    unlabelled_classes: int
    test: int


@dataclass(frozen=True)
class Expectation:
    """A number that is known exactly, or as a table prints it: rounded to a `step`."""

    value: int
    step: int = 0

    def agrees(self, found: int) -> bool:
        return 2 * abs(found - self.value) <= self.step

    def __str__(self) -> str:
        return f"{self.value / 1000:.1f}K" if self.step else f"{self.value:,}"


def exactly(value: int) -> Expectation:
    return Expectation(value)


def in_thousands(value: float) -> Expectation:
    """A number printed as 2.0K."""
    return Expectation(round(value * 1000), step=100)


@dataclass(frozen=True)
class Expected:
    """What the makers ship and the published split gives; None where nobody printed it."""

    classes: int
    train: Expectation | None = None
    labelled: Expectation | None = None
    unlabelled: Expectation | None = None
    test: Expectation | None = None


@dataclass(frozen=True)
class Benchmark:
    name: str
    title: str
    read: Callable[[Path], ImageSet]
    n_known: int
    """The first so many of the pile's class names are the known classes."""
    expected: Expected
    where: str
    """Where to get it and what the folder must look like, as errors say it."""
    download: Callable[[Path], None] | None = None
    labelled_domain: str | None = None
    unlabelled_domains: tuple[str, ...] = ()
