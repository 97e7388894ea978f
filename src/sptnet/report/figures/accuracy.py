"""Accuracy against the one setting in which runs differ, averaged over runs that differ only in their seed."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from sptnet.errors import Misuse, SptnetError
from sptnet.report.figures.canvas import Drawn
from sptnet.report.figures.chosen_runs import ChosenRun
from sptnet.report.figures.differences import KNOWN_CLASSES, differing_settings
from sptnet.runtime.text import listed

AXES = {
    "sptnet.k": "$k$, steps before prompts and model take turns",
    "prompt.width": "$m$, frame inside every patch (pixels)",
    "prompt.border": "$m^+$, border round the image (pixels)",
    "n_categories": "number of categories",
    KNOWN_CLASSES: "number of known classes",
}
LINES = {"all": ("All", "black", "o"), "old": ("Old", "#0072b2", "s"), "new": ("New", "#d55e00", "^")}
SCORED = "unlabelled"
LOG_SCALE_RATIO = 8
"""The axis is logarithmic if the largest value is at least this many times the smallest."""


def draw_accuracy(runs: Sequence[ChosenRun]) -> Drawn:
    """Draw the accuracy of the runs against the setting in which they differ."""
    scores: dict[ChosenRun, dict[str, Any]] = {}
    left_out = []
    for run in runs:
        try:
            scores[run] = _scores(run)
        except SptnetError as error:
            left_out.append(f"accuracy of {run.label}: {error}")
    scored = list(scores)
    try:
        differing = differing_settings(scored) if scored else {}
    except SptnetError as error:
        return Drawn(left_out=[*left_out, f"accuracy: {error}"])
    reason = _why_not(scored, differing)
    if reason:
        return Drawn(
            left_out=[*left_out, f"accuracy: {reason} Give runs that differ in exactly one of {listed(list(AXES))}."]
        )
    ((setting, values),) = differing.items()
    points: dict[float, list[dict[str, Any]]] = {}
    for value, run in sorted(zip(values, scored, strict=True), key=lambda pair: float(pair[0])):
        points.setdefault(value, []).append(scores[run])
    return Drawn({"accuracy": plot(setting, points)}, left_out)


def _scores(run: ChosenRun) -> dict[str, Any]:
    scores: dict[str, Any] | None = run.folder.facts().get("scores", {}).get(SCORED)
    if not scores:
        raise Misuse(
            "run.json holds no scores of its unlabelled images. Finish the run, or give one of which the truth "
            "is known."
        )
    return scores


def _why_not(scored: Sequence[ChosenRun], differing: dict[str, list[Any]]) -> str:
    """Return the reason why there is no single setting to draw accuracy against; "" if there is one."""
    if len(scored) < 2:
        return "it takes two runs or more that were scored."
    if not differing:
        return "the runs differ in nothing but their seed."
    if len(differing) > 1 or not differing.keys() <= AXES.keys():
        return f"the runs differ in {listed(list(differing))}."
    if KNOWN_CLASSES in differing and not isinstance(differing[KNOWN_CLASSES][0], int):
        return "as many classes are known in every run, but not the same ones."
    return ""


def mean_and_deviation(values: Sequence[float | None]) -> tuple[float, float]:
    """Return mean and sample standard deviation in per cent: nan if a value is missing; deviation 0 of one value."""
    numbers = [100 * value for value in values if value is not None]
    if len(numbers) < len(values):
        return math.nan, math.nan
    return statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else 0.0


def plot(setting: str, points: dict[float, list[dict[str, Any]]]) -> Figure:
    """Plot All, Old and New over the values of the setting, with error bars of one standard deviation."""
    figure = Figure(figsize=(3.4, 2.5), layout="constrained")
    axes = figure.add_subplot()
    x = list(points)
    for key, (name, colour, marker) in LINES.items():
        statistics_of_points = [mean_and_deviation([score[key] for score in scores]) for scores in points.values()]
        means, deviations = zip(*statistics_of_points, strict=True)
        bars = deviations if any(len(scores) > 1 for scores in points.values()) else None
        axes.errorbar(x, means, bars, label=name, color=colour, marker=marker, markersize=4, linewidth=1.2, capsize=2)
    if min(x) > 0 and max(x) >= LOG_SCALE_RATIO * min(x):
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xticks(x, [f"{value:g}" for value in x])
    axes.set_xlabel(AXES[setting])
    axes.set_ylabel("accuracy of unlabelled images (%)")
    axes.grid(axis="y", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    figure.legend(loc="outside upper center", ncols=len(LINES))
    return figure
