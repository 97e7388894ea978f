"""Points in the plane, a panel a run: colours for classes, discs for known ones, triangles for new ones."""

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

ABREAST, LARGEST_SIDE = 3, 3.0
LINE, DOT, LETTER = 0.17, 0.35, 0.06
"""Inches: height of a line of text; in the legend, room of a marker and width of a letter."""


@dataclass(frozen=True, eq=False)
class Panel:
    label: str
    names: list[str]
    """The class of every point."""
    known: frozenset[str]
    by_truth: bool
    """Whether all classes are true ones; otherwise some are categories, which mean something in their own run only."""
    points: Positions

    @property
    def legend(self) -> list[tuple[str, bool]]:
        """The classes, known ones first, and whether each is known."""
        classes = [(name, name in self.known) for name in sorted(set(self.names))]
        return sorted(classes, key=lambda entry: not entry[1])


def plot(panels: Sequence[Panel], note: str) -> Figure:
    """All panels with one legend where classes are the same in all of them, else each with its own."""
    abreast = min(ABREAST, len(panels))
    lines = -(-len(panels) // abreast)
    side = min(LARGEST_SIDE, PAGE_WIDTH / abreast)
    legends = [panel.legend for panel in panels]
    alike = all(panel.by_truth for panel in panels) and all(legend == legends[0] for legend in legends)
    columns = min(n_columns([name for name, _ in legend], abreast * side if alike else side) for legend in legends)
    legend_height = LINE * (2 + max(-(-len(legend) // columns) for legend in legends))
    height = lines * (side + LINE) + legend_height * (1 if alike else lines)
    figure = Figure(figsize=(abreast * side, height), layout="constrained")
    grid = figure.subplots(lines, abreast, squeeze=False).flatten()
    for axes, panel in zip(grid, panels, strict=False):
        dots = _scatter(axes, panel)
        if not alike:
            _legend(axes, panel, dots, note, columns, loc="upper center", bbox_to_anchor=(0.5, 0))
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    if alike:
        _legend(figure, panels[-1], dots, note, columns, loc="outside lower center")
    return figure


def n_columns(names: Sequence[str], width: float) -> int:
    """How many names stand in a line of a legend of that width in inches: one at least, and five at most."""
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


def _legend(where: Axes | Figure, panel: Panel, dots: list[Any], note: str, columns: int, **place: Any) -> None:
    """Line by line. Names stand as they are: a legend of its own drops those with _ in front, and takes $ for maths."""
    by_line = [i for column in range(columns) for i in range(column, len(dots), columns)]
    legend = where.legend(
        [dots[i] for i in by_line],
        [str(i) for i in by_line],
        ncols=columns,
        title=note,
        markerscale=2,
        handletextpad=0.2,
        **place,
    )
    for text, i in zip(legend.get_texts(), by_line, strict=True):
        text.set_parse_math(False)
        text.set_text(short(panel.legend[i][0]))
