"""The curve behind an estimated number of categories: what the page and the plot of `sptnet estimate` draw."""

from collections.abc import Mapping
from typing import Any

LINES = {"score": "score", "labelled_accuracy": "accuracy of labelled images", "silhouette": "silhouette"}
"""Names of the lines by the key of a trial."""


def curve_lines(estimate: Mapping[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """Points of every line by its name; what a trial does not have is left out. `estimate` is as in estimate.json."""
    return {
        name: [(trial["n_categories"], trial[key]) for trial in estimate["curve"] if trial[key] is not None]
        for key, name in LINES.items()
    }


def estimate_in_words(estimate: Mapping[str, Any]) -> str:
    """The estimate and its range."""
    low, high = estimate["interval"]
    return f"{estimate['n_categories']} categories; {low} to {high} are plausible"
