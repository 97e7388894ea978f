"""Truth against categories: a table of at most 20 rows and columns, else the most frequent confusions."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sptnet.metrics import match_clusters
from sptnet.results.run_result import RunResult

MOST_ROWS = 20
MOST_PAIRS = 20
PICTURES_PER_PAIR = 3


@dataclass(frozen=True)
class Cell:
    """Images of one true class in one category."""

    truth: str
    category: int
    """Index into the names of the run."""
    count: int
    share: float
    """Share of the images of this truth."""
    right: bool
    """True if the category is matched to the truth."""
    images: tuple[int, ...]
    """Positions of the most certain images: one in a table, up to three in a pair."""


@dataclass(frozen=True)
class Confusion:
    """A table of truth against categories, or a list of the most confused pairs."""

    columns: tuple[int, ...]
    """Categories: first those matched to the rows, in their order; empty if there are only pairs."""
    rows: tuple[tuple[str, int, tuple[Cell, ...]], ...]
    """Truth, its number of images, and one cell per column."""
    pairs: tuple[Cell, ...]
    """Wrong cells, the largest first; only if a table would be too large."""
    stands_for: dict[int, str]
    """The true class that each category is matched to."""

    def images(self) -> set[int]:
        """Return the positions of all images in cells."""
        return {image for cell in self._cells() for image in cell.images}

    def truths(self) -> dict[str, int]:
        """Number the true classes of the cells."""
        return {name: i for i, name in enumerate(dict.fromkeys(cell.truth for cell in self._cells()))}

    def _cells(self) -> list[Cell]:
        return [cell for _, _, row in self.rows for cell in row] + list(self.pairs)


def confusion(result: RunResult) -> Confusion | None:
    """Compare truth and categories of the unlabelled images with known truth; None if there are none."""
    known = [
        i
        for i in range(len(result.ids))
        if result.part[i] == "unlabelled" and result.truth[i] is not None and result.category[i] >= 0
    ]
    if not known:
        return None
    classes = sorted({str(result.truth[i]) for i in known}, key=lambda name: _order(result, name))
    number = {name: i for i, name in enumerate(classes)}
    true = np.array([number[str(result.truth[i])] for i in known])
    predicted = result.category[known]
    matched = match_clusters(true, predicted)
    present = set(predicted.tolist())
    stands_for = {c: classes[t] for c, t in enumerate(matched) if t < len(classes) and c in present}
    cells = _Cells(result, np.array(known), true, predicted, tuple(classes), stands_for)
    if max(len(classes), len(present)) > MOST_ROWS:
        return Confusion((), (), cells.pairs(), stands_for)
    category_of = {name: category for category, name in stands_for.items()}
    columns = [category_of[name] for name in classes if name in category_of]
    columns += sorted(present - set(columns))
    rows = tuple((name, int((true == t).sum()), cells.row(t, columns)) for t, name in enumerate(classes))
    return Confusion(tuple(columns), rows, (), stands_for)


def _order(result: RunResult, name: str) -> tuple[int, str]:
    """Return a sort key: classes in the order of the run's names, then the others by name."""
    return (result.names.index(name) if name in result.names else len(result.names), name)


@dataclass(frozen=True, eq=False)
class _Cells:
    result: RunResult
    known: npt.NDArray[np.int64]
    true: npt.NDArray[np.int64]
    predicted: npt.NDArray[np.int64]
    classes: tuple[str, ...]
    stands_for: dict[int, str]

    def cell(self, truth: int, category: int, n_images: int) -> Cell:
        """Return one cell with at most `n_images` images."""
        inside = self.known[(self.true == truth) & (self.predicted == category)]
        best = inside[np.argsort(-self.result.certainty[inside], kind="stable")][:n_images]
        share = len(inside) / int((self.true == truth).sum())
        name = self.classes[truth]
        return Cell(name, category, len(inside), share, self.stands_for.get(category) == name, tuple(best.tolist()))

    def row(self, truth: int, columns: list[int]) -> tuple[Cell, ...]:
        """Return the cells of one true class."""
        return tuple(self.cell(truth, category, 1) for category in columns)

    def pairs(self) -> tuple[Cell, ...]:
        """Return the largest wrong cells."""
        pairs, counts = np.unique(np.stack([self.true, self.predicted]), axis=1, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        wrong = [(int(t), int(c)) for t, c in pairs[:, order].T if self.stands_for.get(int(c)) != self.classes[int(t)]]
        return tuple(self.cell(t, c, PICTURES_PER_PAIR) for t, c in wrong[:MOST_PAIRS])
