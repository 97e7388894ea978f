"""Scatter plots, one panel per run: one colour per class, discs for known classes, triangles for new ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sptnet.report.figures.canvas import PAGE_WIDTH, short

Positions = npt.NDArray[np.float32]

PANELS_PER_ROW, LARGEST_SIDE = 3, 3.0
LINE, DOT, LETTER = 0.17, 0.35, 0.06
"""In inches: height of a line of text; in the legend, width of a marker and of a letter."""


@dataclass(frozen=True, eq=False)
class Panel:
    """The points of one run."""

    label: str
    names: list[str]
    """Class of each point."""
    known: frozenset[str]
    by_truth: bool
    """True if all classes are true ones; otherwise some are categories, which differ from run to run."""
    points: Positions
    """Positions, n x 2."""

    @property
    def legend(self) -> list[tuple[str, bool]]:
        """Classes, known ones first, each with True if it is known."""
        classes = [(name, name in self.known) for name in sorted(set(self.names))]
        return sorted(classes, key=lambda entry: not entry[1])


def plot(panels: Sequence[Panel], note: str) -> Figure:
    """Draw all panels, with a shared legend if all have the same true classes, else with one legend each."""
    per_row = min(PANELS_PER_ROW, len(panels))
    n_rows = -(-len(panels) // per_row)
    side = min(LARGEST_SIDE, PAGE_WIDTH / per_row)
    legends = [panel.legend for panel in panels]
    shared = all(panel.by_truth for panel in panels) and all(legend == legends[0] for legend in legends)
    columns = min(n_columns([name for name, _ in legend], per_row * side if shared else side) for legend in legends)
    legend_height = LINE * (2 + max(-(-len(legend) // columns) for legend in legends))
    height = n_rows * (side + LINE) + legend_height * (1 if shared else n_rows)
    figure = Figure(figsize=(per_row * side, height), layout="constrained")
    grid = figure.subplots(n_rows, per_row, squeeze=False).flatten()
    for axes, panel in zip(grid, panels, strict=False):
        dots = _scatter(axes, panel)
        if not shared:
            _legend(axes, panel, dots, note, columns, loc="upper center", bbox_to_anchor=(0.5, 0))
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    if shared:
        _legend(figure, panels[-1], dots, note, columns, loc="outside lower center")
    return figure


def n_columns(names: Sequence[str], width: float) -> int:
    """Return the number of columns, 1 to 5, of a legend of that width in inches."""
    longest = max(len(short(name)) for name in names)
    return min(5, len(names), max(1, int(width / (DOT + LETTER * longest))))


def _scatter(axes: Axes, panel: Panel) -> list[Any]:
    names, points, legend = np.array(panel.names), panel.points, panel.legend
    colours = matplotlib.colormaps["tab10" if len(legend) <= 10 else "tab20"]
    low, high = points.min(0), points.max(0)
    reach = 0.53 * float((high - low).max()) or 1.0
    (x0, y0), (x1, y1) = (low + high) / 2 - reach, (low + high) / 2 + reach
    axes.set(xticks=[], yticks=[], aspect="equal", xlim=(x0, x1), ylim=(y0, y1))
    axes.spines[:].set(visible=True, color="0.8")
    axes.set_title(short(panel.label, 40), parse_math=False)
    return [
        axes.scatter(
            points[names == name, 0],
            points[names == name, 1],
            s=max(3.0, min(14.0, 6000 / len(names))),
            color=colours(number % colours.N),
            marker="o" if known else "^",
            linewidths=0,
        )
        for number, (name, known) in enumerate(legend)
    ]


def _legend(parent: Axes | Figure, panel: Panel, dots: list[Any], note: str, columns: int, **position: Any) -> None:
    """Add a legend filled row by row.

    Names are set afterwards: matplotlib's legend drops names that begin with _, and reads $ as mathematics.
    """
    by_line = [i for column in range(columns) for i in range(column, len(dots), columns)]
    legend = parent.legend(
        [dots[i] for i in by_line],
        [str(i) for i in by_line],
        ncols=columns,
        title=note,
        markerscale=2,
        handletextpad=0.2,
        **position,
    )
    for text, i in zip(legend.get_texts(), by_line, strict=True):
        text.set_parse_math(False)
        text.set_text(short(panel.legend[i][0]))
