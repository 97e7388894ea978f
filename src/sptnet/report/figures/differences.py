"""Settings in which runs differ, without those that cannot affect accuracy."""

from collections.abc import Iterator, Sequence
from typing import Any

from sptnet.report.figures.chosen_runs import ChosenRun

KNOWN_CLASSES = "data.known_classes"
IGNORED = {
    "seed",
    "device",
    "data.folder",
    "sptnet.start_from",
    "mugcd.start_from",
    "views.workers",
    "views.cache_mb",
    "views.bank_folder",
    "views.bank_budget_gb",
    "views.bank_at_end",
    "training.accumulate",
    "training.checkpointing",
    "training.track",
}


def settings_of(run: ChosenRun) -> dict[str, Any]:
    """Return the settings of a run by full name, such as prompt.width."""
    return {key: value for key, value in _flat(run.config.model_dump(), "") if key not in IGNORED}


def _flat(values: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def differing_settings(runs: Sequence[ChosenRun]) -> dict[str, list[Any]]:
    """Return the settings in which the runs differ, with the value of each run.

    Known classes are compared by number, or by name if all runs have the same number, however the settings give them.
    """
    columns = [settings_of(run) for run in runs]
    known = [sorted(run.known_classes()) for run in runs]
    numbers = {len(names) for names in known}
    for column, names in zip(columns, known, strict=True):
        column[KNOWN_CLASSES] = names if len(numbers) == 1 else len(names)
    by_setting = {key: [column[key] for column in columns] for key in columns[0]}
    return {key: values for key, values in by_setting.items() if any(value != values[0] for value in values)}
