"""Truth against categories: a table while it can be read, the most frequent confusions beyond that."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sptnet.metrics import match_clusters
from sptnet.results.run_result import RunResult

MOST_ROWS = 20
MOST_PAIRS = 20
PICTURES_A_PAIR = 3


@dataclass(frozen=True)
class Cell:
    truth: str
    category: int
    """Position among the names of the run."""
    count: int
    share: float
    """Of the images of this truth."""
    right: bool
    """Whether the category stands for the truth."""
    images: tuple[int, ...]
    """Positions of its most certain images: one in a table, up to three of a pair."""


@dataclass(frozen=True)
class Confusion:
    columns: tuple[int, ...]
    """Categories: first those that stand for the rows, in their order; empty where there are only pairs."""
    rows: tuple[tuple[str, int, tuple[Cell, ...]], ...]
    """Truth, its number of images, and a cell for each column."""
    pairs: tuple[Cell, ...]
    """Wrong cells, the largest first; only where a table would be too large."""
    stands_for: dict[int, str]
    """The truth that each matched category stands for."""

    def images(self) -> set[int]:
        cells = [cell for _, _, row in self.rows for cell in row] + list(self.pairs)
        return {image for cell in cells for image in cell.images}


def confusion(result: RunResult) -> Confusion | None:
    """Of the unlabelled images whose truth is known; None if there are none."""
    known = [
        i
        for i in range(len(result.ids))
        if result.part[i] == "unlabelled" and result.truth[i] is not None and result.category[i] >= 0
    ]
    if not known:
        return None
    classes = sorted({str(result.truth[i]) for i in known}, key=lambda name: _place(result, name))
    number = {name: i for i, name in enumerate(classes)}
    true = np.array([number[str(result.truth[i])] for i in known])
    predicted = result.category[known]
    matched = match_clusters(true, predicted)
    present = set(predicted.tolist())
    stands_for = {c: classes[t] for c, t in enumerate(matched) if t < len(classes) and c in present}
    cells = _Cells(result, np.array(known), true, predicted, tuple(classes), stands_for)
    if max(len(classes), len(present)) > MOST_ROWS:
        return Confusion((), (), cells.pairs(), stands_for)
    home = {name: category for category, name in stands_for.items()}
    columns = [home[name] for name in classes if name in home]
    columns += sorted(present - set(columns))
    rows = tuple((name, int((true == t).sum()), cells.row(t, columns)) for t, name in enumerate(classes))
    return Confusion(tuple(columns), rows, (), stands_for)


def _place(result: RunResult, name: str) -> tuple[int, str]:
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
        inside = self.known[(self.true == truth) & (self.predicted == category)]
        best = inside[np.argsort(-self.result.certainty[inside], kind="stable")][:n_images]
        share = len(inside) / int((self.true == truth).sum())
        name = self.classes[truth]
        return Cell(name, category, len(inside), share, self.stands_for.get(category) == name, tuple(best.tolist()))

    def row(self, truth: int, columns: list[int]) -> tuple[Cell, ...]:
        return tuple(self.cell(truth, category, 1) for category in columns)

    def pairs(self) -> tuple[Cell, ...]:
        pairs, counts = np.unique(np.stack([self.true, self.predicted]), axis=1, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        wrong = [(int(t), int(c)) for t, c in pairs[:, order].T if self.stands_for.get(int(c)) != self.classes[int(t)]]
        return tuple(self.cell(t, c, PICTURES_A_PAIR) for t, c in wrong[:MOST_PAIRS])
