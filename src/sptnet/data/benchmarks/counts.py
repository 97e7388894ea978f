"""Count the images of a data set and compare with the original data set and the published split."""

from collections import Counter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sptnet.data.benchmarks.base import Benchmark, Expectation, SplitCounts, exactly
from sptnet.data.image_set import ImageSet
from sptnet.data.split import Split
from sptnet.errors import Failure

TOTALS = ("training images", "test images")


class CountRow(NamedTuple):
    """A count and the expected count."""

    what: str
    found: int
    expected: Expectation | None = None

    @property
    def differs(self) -> bool:
        """True if the count is not as expected."""
        return self.expected is not None and not self.expected.agrees(self.found)


def count_parts(split: Split) -> SplitCounts:
    """Count images and classes per part; held-out images count as labelled, images of unknown class have no class."""
    labelled = np.concatenate([split.labelled, split.holdout])
    return SplitCounts(
        labelled=len(labelled),
        labelled_classes=_classes(split.target[labelled]),
        unlabelled=len(split.unlabelled),
        unlabelled_classes=_classes(split.target[split.unlabelled]),
        test=len(split.test),
    )


def count_rows(image_set: ImageSet, split: Split, expected: dict[str, Expectation]) -> list[CountRow]:
    """Return the rows of the table of counts; data sets with domains are also counted per domain."""
    counts = count_parts(split)
    numbers = [
        ("training images", counts.labelled + counts.unlabelled),
        ("labelled images", counts.labelled),
        ("labelled classes", counts.labelled_classes),
        ("unlabelled images", counts.unlabelled),
        ("unlabelled classes", counts.unlabelled_classes),
        *_per_domain(image_set, "unlabelled", split.unlabelled),
        ("test images", counts.test),
        *_per_domain(image_set, "test", split.test),
    ]
    return [CountRow(what, number, expected.get(what)) for what, number in numbers]


def expectations(benchmark: Benchmark, published: bool = True) -> dict[str, Expectation]:
    """Return the expected counts by row; only totals, which no split changes, unless the split is the published one."""
    expected = benchmark.expected
    wanted = {
        "training images": expected.train,
        "labelled images": expected.labelled,
        "labelled classes": exactly(benchmark.n_known),
        "unlabelled images": expected.unlabelled,
        "unlabelled classes": exactly(expected.classes),
        "test images": expected.test,
    }
    return {what: number for what, number in wanted.items() if number is not None and (published or what in TOTALS)}


def refuse_differences(table: list[CountRow], benchmark: Benchmark) -> None:
    """Raise with every count that is not as expected."""
    wrong = [_difference(row, benchmark.name) for row in table if row.differs]
    if wrong:
        raise Failure(f"{'; '.join(wrong)}. Fetch it again: {benchmark.where}")


def check_counts(benchmark: Benchmark, image_set: ImageSet) -> None:
    """Raise if a data set has more or fewer images than the original one."""
    expected = expectations(benchmark, published=False)
    totals = zip(TOTALS, (int((~image_set.test).sum()), int(image_set.test.sum())), strict=True)
    refuse_differences([CountRow(what, number, expected.get(what)) for what, number in totals], benchmark)


def _difference(row: CountRow, name: str) -> str:
    who = "the makers ship" if row.what in TOTALS else "the published split has"
    text = f"{name} has {row.found:,} {row.what}, {who} {row.expected}"
    if row.expected is None or row.expected.step:
        return text
    gap = row.expected.value - row.found
    return f"{text}: {gap:,} are missing" if gap > 0 else f"{text}: {-gap:,} too many"


def _per_domain(image_set: ImageSet, part: str, indices: npt.NDArray[np.int64]) -> list[tuple[str, int]]:
    if image_set.domains is None:
        return []
    numbers = Counter(image_set.domains[i] for i in indices)
    return [(f"  {part} {domain}", number) for domain, number in numbers.items()]


def _classes(targets: npt.NDArray[np.int64]) -> int:
    return len(np.unique(targets[targets >= 0]))
