"""Sheets of pictures: groups of rows with a title and headings, as many side by side as fit on the page."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sptnet.report.figures.canvas import PAGE_WIDTH

Tile = npt.NDArray[np.uint8]

MARGIN, BETWEEN, LINE, LETTER = 0.06, 0.18, 0.17, 0.056
"""In inches: margin of the sheet; space between groups; height of a line; width of a letter of the note."""
GAP = 0.05
"""Space between tiles as a share of their side."""


@dataclass(frozen=True)
class TileGroup:
    """Rows of tiles with a title and a heading per column."""

    title: str
    headings: list[str] = field(default_factory=list)
    rows: list[list[Tile | None]] = field(default_factory=list)
    """Each row has a tile or None per heading."""

    def size(self, side: float) -> tuple[float, float]:
        """Return width and height in inches, for tiles of that side."""
        columns, rows = len(self.headings), len(self.rows)
        return side * (columns + GAP * (columns - 1)), LINE * (1 + bool(self.title)) + side * (1 + GAP) * rows


def tile_sheet(groups: Sequence[TileGroup], side: float, note: str, crisp: bool = False) -> Figure:
    """Draw groups of equal size on a page, with tiles of `side` inches and a note at the bottom.

    With `crisp`, pixels are drawn without interpolation, for drawings; otherwise pictures are resampled.
    """
    group_width, group_height = groups[0].size(side)
    per_row = min(len(groups), groups_per_row(group_width))
    width = 2 * MARGIN + per_row * group_width + (per_row - 1) * BETWEEN
    lines = textwrap.wrap(note, max(1, int((width - 2 * MARGIN) / LETTER)))
    n_rows = -(-len(groups) // per_row)
    height = 2 * MARGIN + n_rows * (group_height + MARGIN) + LINE * len(lines)
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    for number, group in enumerate(groups):
        row, column = divmod(number, per_row)
        corner = (MARGIN + column * (group_width + BETWEEN), MARGIN + row * (group_height + MARGIN))
        _draw_group(axes, group, *corner, side, crisp)
    axes.text(MARGIN, height - MARGIN, "\n".join(lines), va="bottom", color="0.35", fontsize=7)
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    return figure


def groups_per_row(group_width: float) -> int:
    """Return how many groups of a width fit side by side on a page, at least one."""
    return max(1, int((PAGE_WIDTH - 2 * MARGIN + BETWEEN + 1e-9) / (group_width + BETWEEN)))


def _draw_group(axes: Axes, group: TileGroup, left: float, top: float, side: float, crisp: bool) -> None:
    if group.title:
        axes.text(left, top + LINE / 2, group.title, va="center", weight="bold", parse_math=False)
        top += LINE
    step = side * (1 + GAP)
    for column, heading in enumerate(group.headings):
        axes.text(left + column * step + side / 2, top + LINE / 2, heading, ha="center", va="center")
    top += LINE
    for number, row in enumerate(group.rows):
        for column, tile in enumerate(row):
            if tile is not None:
                x, y = left + column * step, top + number * step
                extent = (x, x + side, y + side, y)
                axes.imshow(tile, extent=extent, aspect="auto", interpolation="none" if crisp else "antialiased")
