"""JSON objects that several commands print; docs/json.md lists their keys."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sptnet.discovery.plan import Plan
    from sptnet.results.categories import Category
    from sptnet.results.run_result import RunResult


def run_object(run: Path) -> dict[str, Any]:
    """Return the facts of a finished run: method, number of categories with its range, accuracy and time."""
    from sptnet.results.assessment import read_expectation
    from sptnet.results.run_folder import RunFolder

    folder = RunFolder(run)
    config, facts = folder.config(), folder.facts()
    expected, reason = read_expectation(facts)
    shares = None if expected is None else {"value": expected.value, "low": expected.low, "high": expected.high}
    return {
        "run": run,
        "method": config.method,
        "n_categories": config.n_categories,
        "interval": folder.plausible_counts(),
        "expected_accuracy": shares,
        "expected_accuracy_reason": reason or None,
        "scores": facts.get("scores", {}),
        "seconds": facts.get("seconds"),
    }


def categories_object(result: "RunResult", categories: "Sequence[Category]") -> dict[str, Any]:
    """Return the categories of a result as edited, with the numbers of images and the ids of labels to check."""
    from sptnet.results.categories import labels_to_check

    return {
        "images": sum(category.size for category in categories),
        "doubtful": sum(len(category.doubtful) for category in categories),
        "dropped": int((result.category < 0).sum()),
        "labels_to_check": [result.ids[i] for i in labels_to_check(result)],
        "categories": [asdict(category) for category in categories],
    }


def plan_object(plan: "Plan") -> dict[str, Any]:
    """Return a plan: method, seconds in all, limit in minutes, steps and reasons."""
    return {
        "method": plan.config.method,
        "seconds": round(plan.seconds),
        "minutes": plan.minutes,
        "steps": [{"what": step.what, "seconds": round(step.seconds, 1)} for step in plan.steps],
        "reasons": list(plan.reasons),
    }
