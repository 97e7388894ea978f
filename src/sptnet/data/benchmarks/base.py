"""Description of a benchmark data set: how to read it, which classes are known, which counts to expect."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from sptnet.data.image_set import ImageSet


@dataclass(frozen=True)
class ClassSplit:
    """Class numbers counted from 0; new classes are sorted hard, medium, easy where that is published."""

    known: tuple[int, ...]
    new: tuple[int, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """All class numbers, the known ones first."""
        return self.known + self.new


def class_split(name: str) -> ClassSplit:
    """Read a published list: one of the Semantic Shift Benchmark, or that of Herbarium 19."""
    lists = json.loads(files("sptnet.data.benchmarks").joinpath("class_splits.json").read_text(encoding="utf-8"))[name]
    new = lists["new"]
    if isinstance(new, dict):
        new = new["hard"] + new["medium"] + new["easy"]
    return ClassSplit(tuple(lists["old"]), tuple(new))


@dataclass(frozen=True)
class SplitCounts:
    """Images and classes in each part of a split."""

    labelled: int
    labelled_classes: int
    unlabelled: int
    unlabelled_classes: int
    test: int


@dataclass(frozen=True)
class Expectation:
    """A count that is known exactly, or rounded to a `step` as printed in a table."""

    value: int
    step: int = 0

    def agrees(self, found: int) -> bool:
        """True if `found` rounds to this number."""
        return 2 * abs(found - self.value) <= self.step

    def __str__(self) -> str:
        return f"{self.value / 1000:.1f}K" if self.step else f"{self.value:,}"


def exactly(value: int) -> Expectation:
    """A count that must match exactly."""
    return Expectation(value)


def in_thousands(value: float) -> Expectation:
    """A count printed in thousands, such as 2.0K."""
    return Expectation(round(value * 1000), step=100)


@dataclass(frozen=True)
class Expected:
    """Counts of the original data set and of the published split; None where not published."""

    classes: int
    train: Expectation | None = None
    labelled: Expectation | None = None
    unlabelled: Expectation | None = None
    test: Expectation | None = None


@dataclass(frozen=True)
class Benchmark:
    """A benchmark data set."""

    name: str
    title: str
    read: Callable[[Path], ImageSet]
    n_known: int
    """Number of known classes; they are the first class names of the image set."""
    expected: Expected
    where: str
    """Source and folder layout, for error messages."""
    download: Callable[[Path], None] | None = None
    labelled_domain: str | None = None
    unlabelled_domains: tuple[str, ...] = ()
