"""Plot of the curve of an estimated number of categories."""

from dataclasses import asdict
from functools import partial
from pathlib import Path

from sptnet.clustering.count import CountEstimate
from sptnet.errors import Misuse
from sptnet.report.count_curve import curve_lines, estimate_in_words
from sptnet.runtime.files import check_new_file, make_folder, write_atomically


def check_picture_name(path: Path) -> None:
    """Raise if the plot cannot be written to this path; called before the estimate, which takes long."""
    if path.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise Misuse(f"{path} is not the name of a picture. Give a file that ends in .png, .pdf or .svg.")
    check_new_file(path, "plot")


def plot_count(estimate: CountEstimate, path: Path, n_known: int, truth: int | None = None) -> None:
    """Plot accuracy, silhouette and score over the counts, with the estimate, its interval and the known classes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.add_subplot()
    counts = [trial.n_categories for trial in estimate.curve]
    for name, points in curve_lines(asdict(estimate)).items():
        if points:
            axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
    low, high = estimate.interval
    axes.axvspan(low, high, color="0.5", alpha=0.2, linewidth=0, label=f"plausible: {low} to {high}")
    axes.axvline(estimate.n_categories, color="black", label=f"estimate: {estimate.n_categories}")
    axes.axvline(n_known, color="black", linestyle=":", label=f"known: {n_known}")
    if truth is not None:
        axes.axvline(truth, color="tab:red", linestyle="--", label=f"true: {truth}")
    if counts[-1] > 4 * counts[0]:
        axes.set_xscale("log")
    axes.set_xlabel("number of categories")
    axes.set_title(f"{estimate_in_words(asdict(estimate))} (method {estimate.method})")
    axes.legend(fontsize="small")
    make_folder(path.parent)
    write_atomically(path, partial(figure.savefig, dpi=150))
