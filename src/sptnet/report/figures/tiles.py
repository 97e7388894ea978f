"""Pictures in rows and columns: groups of rows, each under a title and headings, as many abreast as the page takes."""

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
"""Inches: round the sheet; from group to group beside it; the height of a line; the width of a letter of the note."""
GAP = 0.05
"""Between tiles, as a share of their side."""


@dataclass(frozen=True)
class TileGroup:
    title: str
    headings: list[str] = field(default_factory=list)
    rows: list[list[Tile | None]] = field(default_factory=list)
    """Every row has a tile, or nothing, under each heading."""

    def size(self, side: float) -> tuple[float, float]:
        """Width and height in inches, for tiles of that side."""
        columns, rows = len(self.headings), len(self.rows)
        return side * (columns + GAP * (columns - 1)), LINE * (1 + bool(self.title)) + side * (1 + GAP) * rows


def tile_sheet(groups: Sequence[TileGroup], side: float, note: str, crisp: bool = False) -> Figure:
    """Groups of one size on a page; tiles are `side` inches, the note stands at the bottom.

    `crisp` keeps every pixel as it is, for drawings; otherwise pictures are resampled, for photographs.
    """
    group_width, group_height = groups[0].size(side)
    abreast = min(len(groups), n_abreast(group_width))
    width = 2 * MARGIN + abreast * group_width + (abreast - 1) * BETWEEN
    lines = textwrap.wrap(note, max(1, int((width - 2 * MARGIN) / LETTER)))
    bands = -(-len(groups) // abreast)
    height = 2 * MARGIN + bands * (group_height + MARGIN) + LINE * len(lines)
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    for number, group in enumerate(groups):
        band, column = divmod(number, abreast)
        corner = (MARGIN + column * (group_width + BETWEEN), MARGIN + band * (group_height + MARGIN))
        _place(axes, group, *corner, side, crisp)
    axes.text(MARGIN, height - MARGIN, "\n".join(lines), va="bottom", color="0.35", fontsize=7)
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    return figure


def n_abreast(group_width: float) -> int:
    """How many groups of a width stand side by side on a page; at least one."""
    return max(1, int((PAGE_WIDTH - 2 * MARGIN + BETWEEN + 1e-9) / (group_width + BETWEEN)))


def _place(axes: Axes, group: TileGroup, left: float, top: float, side: float, crisp: bool) -> None:
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
