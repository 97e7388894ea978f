"""Charts of a run: estimate of the number of categories, losses, scores, reliability of the certainty."""

from pathlib import Path
from typing import Any

import numpy as np

from sptnet.methods import NAMES
from sptnet.metrics import calibration_bins, calibration_error, rightly_sorted
from sptnet.report.count_curve import curve_lines, estimate_in_words
from sptnet.report.page.chart import Chart, ChartLine
from sptnet.results.file_shapes import EstimateShape
from sptnet.results.run_result import RunResult
from sptnet.runtime.readers import read_json

SCORES = {"all": "All", "old": "Old", "new": "New"}
LOSSES = {
    "info_nce": "InfoNCE",
    "supervised_contrastive": "supervised contrast",
    "self_distillation": "self-distillation",
    "cross_entropy": "cross-entropy",
    "mean_entropy_gap": "gap to the highest mean entropy",
    "pairwise_bce": "cross-entropy of pairs",
    "consistency": "consistency of the views",
    "swapped_prediction": "swapped prediction",
    "margin_cross_entropy": "cross-entropy with margin",
    "pairwise_loss": "agreement of pairs",
    "negative_entropy": "negative mean entropy",
    "conception_contrast": "contrast with conceptions",
    "calibrated": "calibrated contrast",
    "token_info_nce": "InfoNCE of prompt tokens",
    "token_supervised_contrastive": "supervised contrast of prompt tokens",
    "token_calibrated": "calibrated contrast of prompt tokens",
    "pseudo_label_contrast": "contrast with pseudo-labels",
    "prototype_loss": "contrast with prototypes",
    "teacher_distillation": "distillation from the teacher",
    "distillation": "distance of the features that stay",
}


def count_chart(file: Path) -> Chart | None:
    """Return the curve of the estimated number of categories; None if the number was given."""
    if not file.is_file():
        return None
    estimate = read_json(file, "Move it away to write the page without that curve.", EstimateShape)
    number, (low, high) = estimate["n_categories"], estimate["interval"]
    return Chart(
        title=estimate_in_words(estimate),
        x_label="number of categories tried",
        lines=tuple(ChartLine(name, tuple(points)) for name, points in curve_lines(estimate).items()),
        mark=(number, f"estimate: {number}"),
        band=(low, high),
        note=f"Found by the rule called {estimate['method']}. The shaded band is the plausible range.",
    )


def reliability_chart(result: RunResult, is_edited: bool = False) -> Chart | None:
    """Return certainty against the share of right images; `result` is that of the run without edits.

    None if the truth of no unsorted image is known.
    """
    parts_and_truths = enumerate(zip(result.part, result.truth, strict=True))
    images = [i for i, (part, truth) in parts_and_truths if part == "unlabelled" and truth is not None]
    if not images:
        return None
    known = result.names[: result.n_known]
    names = [*known, *sorted({str(result.truth[i]) for i in images} - set(known))]
    number = {name: i for i, name in enumerate(names)}
    truth = np.array([number[str(result.truth[i])] for i in images], dtype=np.int64)
    right = rightly_sorted(truth, result.category[images], result.n_known)
    certainty = result.certainty[images].astype(np.float64)
    bins = calibration_bins(certainty, right)
    points = tuple((100 * one.certainty, one.right) for one in bins)
    counts = tuple(f"{one.images:,}" for one in bins)
    error = calibration_error(certainty, right)
    return Chart(
        title="Reliability: certainty against the share of right images",
        x_label="certainty in per cent",
        lines=(
            ChartLine("images by certainty", points, counts),
            ChartLine("perfect calibration", ((0.0, 0.0), (100.0, 1.0))),
        ),
        percent=True,
        note=f"Expected calibration error: {error:.3f}. Numbers at the points count the images of each tenth. A known "
        "category is right if it is the true class; new categories are matched to new classes one to one."
        + (" The chart is of the run before its edits." if is_edited else ""),
    )


def training_charts(metrics: list[dict[str, Any]]) -> list[Chart]:
    """Return charts per stage: the scores over the epochs, and the losses of each phase."""
    charts: list[Chart] = []
    for stage in dict.fromkeys(line["stage"] for line in metrics):
        lines = [line for line in metrics if line["stage"] == stage]
        called = NAMES.get(stage, stage)
        charts += [chart for chart in [_score_chart(called, lines)] if chart.lines]
        for phase in dict.fromkeys(phase for line in lines for phase in line["losses"]):
            charts.append(_loss_chart(called, phase, [line for line in lines if phase in line["losses"]]))
    return charts


def _score_chart(stage: str, lines: list[dict[str, Any]]) -> Chart:
    scored = [
        (line["epoch"], line["scores"]["unlabelled"]) for line in lines if line.get("scores", {}).get("unlabelled")
    ]
    curves = [
        ChartLine(name, _points((epoch, scores[key]) for epoch, scores in scored)) for key, name in SCORES.items()
    ]
    return Chart(f"{stage}: accuracy", "epoch", tuple(curve for curve in curves if curve.points), percent=True)


def _loss_chart(stage: str, phase: str, lines: list[dict[str, Any]]) -> Chart:
    parts = dict.fromkeys(part for line in lines for part in line["losses"][phase])
    ordered = sorted(parts, key=lambda part: part != "total")
    curves = [
        ChartLine(LOSSES.get(part, part), _points((line["epoch"], line["losses"][phase].get(part)) for line in lines))
        for part in ordered
    ]
    return Chart(f"{stage}: loss of the {phase} phase", "epoch", tuple(curve for curve in curves if curve.points))


def _points(pairs: Any) -> tuple[tuple[float, float], ...]:
    """Return the points without missing values; values that are not finite are stored as null."""
    return tuple((x, y) for x, y in pairs if y is not None)
