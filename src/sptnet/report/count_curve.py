"""The curve of an estimated number of categories, as drawn by the page and by the plot of `sptnet estimate`."""

from collections.abc import Mapping
from typing import Any

LINES = {"score": "score", "labelled_accuracy": "accuracy of labelled images", "silhouette": "silhouette"}
"""Names of the lines by key of a trial."""


def curve_lines(estimate: Mapping[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """Return the points (count, value) of each line by name, without missing values.

    `estimate` is as in estimate.json.
    """
    return {
        name: [(trial["n_categories"], trial[key]) for trial in estimate["curve"] if trial[key] is not None]
        for key, name in LINES.items()
    }


def estimate_in_words(estimate: Mapping[str, Any]) -> str:
    """Describe the estimate and its plausible range."""
    low, high = estimate["interval"]
    return f"{estimate['n_categories']} categories; {low} to {high} are plausible"
