"""Line charts as inline SVG, with colours from the page's style sheet."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

WIDTH, HEIGHT = 380, 230
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 40
MOST_POINTS = 300
MOST_MARKERS = 40


@dataclass(frozen=True)
class ChartLine:
    """A named line of points (x, y)."""

    name: str
    points: tuple[tuple[float, float], ...]
    labels: tuple[str, ...] = ()
    """Text at each point of a short line, if any."""


@dataclass(frozen=True)
class Chart:
    """A chart of lines over one x axis."""

    title: str
    x_label: str
    lines: tuple[ChartLine, ...]
    percent: bool = False
    mark: tuple[float, str] | None = None
    """Marked value on the x axis, and its label."""
    band: tuple[float, float] | None = None
    """Shaded range on the x axis."""
    note: str = ""

    @property
    def svg(self) -> Markup:
        """The chart as an SVG element."""
        return draw(self)

    @property
    def summary(self) -> str:
        """Description of the chart for screen readers."""
        words = [
            f"{line.name} from {self.word(line.points[0][1])} to {self.word(line.points[-1][1])}"
            for line in self.lines
            if line.points
        ]
        return f"{self.title}: {'; '.join(words)}."

    def word(self, value: float) -> str:
        """Format a value of the y axis."""
        return f"{100 * value:.1f} %" if self.percent else f"{value:.4g}"


def draw(chart: Chart) -> Markup:
    """Draw the SVG element. All texts are escaped."""
    lines = [replace(line, points=thinned(line.points)) for line in chart.lines]
    xs = [x for line in lines for x, _ in line.points]
    xs += [*(chart.band or ()), *([chart.mark[0]] if chart.mark else [])]
    ys = [y for line in lines for _, y in line.points]
    if not ys:
        return Markup("")
    x_ticks, y_ticks = ticks(min(xs), max(xs), whole=True), ticks(min(ys), max(ys))
    low_x, high_x = min(xs), max(xs)
    if low_x == high_x:
        low_x, high_x = low_x - 1, high_x + 1

    def place(x: float, y: float) -> tuple[float, float]:
        across = LEFT + (x - low_x) / (high_x - low_x) * (WIDTH - LEFT - RIGHT)
        up = (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return round(across, 1), round(HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM), 1)

    parts = [Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">')]
    parts[0] = parts[0].format(WIDTH, HEIGHT, chart.summary)
    base = HEIGHT - BOTTOM
    if chart.band is not None:
        left, right = (place(x, y_ticks[0])[0] for x in chart.band)
        rect = Markup('<rect class="band" x="{}" y="{}" width="{}" height="{}"/>')
        parts.append(rect.format(left, TOP, max(2, round(right - left, 1)), base - TOP))
    for y in y_ticks:
        level = place(low_x, y)[1]
        rule = Markup('<path class="rule" d="M{} {}H{}"/><text class="tick end" x="{}" y="{}">{}</text>')
        parts.append(rule.format(LEFT, level, WIDTH - RIGHT, LEFT - 8, level + 4, _tick_word(chart, y)))
    for x in x_ticks:
        if low_x <= x <= high_x:
            text = Markup('<text class="tick middle" x="{}" y="{}">{:,.0f}</text>')
            parts.append(text.format(place(x, y_ticks[0])[0], base + 18, x))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(Markup('<text class="tick middle" x="{}" y="{}">{}</text>').format(middle, HEIGHT - 4, chart.x_label))
    if chart.mark is not None:
        across = place(chart.mark[0], y_ticks[0])[0]
        near_end = across > WIDTH * 0.75
        rule = Markup('<path class="mark" d="M{} {}V{}"/><text class="tick strong {}" x="{}" y="{}">{}</text>')
        side, shift = ("end", -6) if near_end else ("start", 6)
        parts.append(rule.format(across, TOP, base, side, across + shift, TOP + 10, chart.mark[1]))
    for number, line in enumerate(lines):
        parts.append(_line(number, line, [place(x, y) for x, y in line.points], chart))
    return Markup("").join([*parts, Markup("</svg>")])


def _line(number: int, line: ChartLine, places: list[tuple[float, float]], chart: Chart) -> Markup:
    path = "M" + "L".join(f"{x:g} {y:g}" for x, y in places) if places else "M0 0"
    parts = [Markup('<path class="line s{}" d="{}"/>').format(number % 8, path)]
    if len(places) <= MOST_MARKERS:
        dot = Markup('<circle class="dot s{}" cx="{:g}" cy="{:g}" r="2.6"><title>{}, {:,g}: {}</title></circle>')
        for (x, y), (count, value) in zip(places, line.points, strict=True):
            parts.append(dot.format(number % 8, x, y, line.name, count, chart.word(value)))
    if line.labels:
        text = Markup('<text class="tick middle" x="{:g}" y="{:g}">{}</text>')
        for (x, y), label in zip(places, line.labels, strict=True):
            parts.append(text.format(x, y - 8 if y > TOP + 12 else y + 16, label))
    return Markup("").join(parts)


def _tick_word(chart: Chart, value: float) -> str:
    return f"{round(100 * value, 6):g} %" if chart.percent else f"{round(value, 9):g}"


def thinned(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return at most 300 of the points, including the first and the last."""
    if len(points) <= MOST_POINTS:
        return tuple(points)
    last = len(points) - 1
    return tuple(points[round(i * last / (MOST_POINTS - 1))] for i in range(MOST_POINTS))


def ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """Return three to eight round numbers that enclose all values."""
    span = high - low or abs(high) or 1.0
    step = 10.0 ** math.floor(math.log10(span / 4))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if span / (step * factor) <= 6)
    if whole:
        step = max(1.0, math.ceil(step))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    return [i * step for i in range(first, last + 1)]
