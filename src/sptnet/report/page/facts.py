"""Facts about a run for the page: settings, versions, times, and the command to repeat it."""

import shlex
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from sptnet.config import Config
from sptnet.methods import NAMES
from sptnet.runtime.progress import duration
from sptnet.runtime.text import printable


@dataclass(frozen=True)
class RunFacts:
    """Printable facts about a run."""

    rows: tuple[tuple[str, str], ...]
    """Name and value of each fact."""
    unreadable: tuple[tuple[str, str], ...]
    """Images that could not be read when the run began, each with the reason."""
    command: str
    """The command of the run, "" if unknown."""
    repeat: str
    """A command that repeats the run."""


def run_facts(run: Path, config: Config, facts: dict[str, Any]) -> RunFacts:
    """Collect the facts of a run; missing ones, as in older or unfinished runs, are left out."""
    data = facts.get("data", {})
    parts = {name: data.get(name) for name in ("labelled", "unlabelled", "holdout", "test")}
    size = config.backbone.image_size
    rows = {
        "method": NAMES.get(config.method, config.method),
        "data": data.get("name"),
        "images": ", ".join(f"{n:,} {name}" for name, n in parts.items() if n),
        "backbone": config.backbone.name + (f" at {size} pixels" if size else ""),
        "weights": without_folders(config.backbone.weights) if config.backbone.weights else None,
        "prompts": config.prompt.kind if config.method == "sptnet" else None,
        "categories": f"{config.n_categories}",
        "seed": f"{facts.get('seed', config.seed)}",
        "device": ", ".join(facts[key] for key in ("device", "precision") if key in facts),
        "versions": ", ".join(f"{name} {number}" for name, number in facts.get("versions", {}).items()),
        "began": _moment(facts.get("started")),
        "ended": _moment(facts.get("finished")),
        "took": _took(facts),
    }
    unreadable = tuple((printable(item["image"]), printable(item["reason"])) for item in data.get("unreadable", []))
    command = [without_folders(word) for word in facts.get("command", [])]
    return RunFacts(
        rows=tuple((name, printable(value)) for name, value in rows.items() if value),
        unreadable=unreadable,
        command=printable(shlex.join(command)),
        repeat=printable(shlex.join(["sptnet", "train", f"{run.absolute().name}/config.toml", "--out", "again"])),
    )


def without_folders(word: str) -> str:
    """Return a word of a command with the last part of an absolute path only, since the page is made to be shared."""
    key, sign, value = word.rpartition("=")
    text = value.strip("\"'")
    path = PureWindowsPath(text) if PureWindowsPath(text).is_absolute() else PurePosixPath(text)
    return f"{key}{sign}{path.name}" if path.is_absolute() else word


COMMANDS = {
    "apply": ("sptnet", "edit", "{run}", "apply", "edits.json"),
    "count": ("sptnet", "edit", "{run}", "count", "N"),
    "renew": ("sptnet", "report", "{run}"),
    "continue": ("sptnet", "discover", "--continue", "{run}", "--out", "{run}-2"),
}
"""Commands that the page shows, by name."""


def page_commands(run: Path) -> dict[str, str]:
    """Return the commands of the page with the name of the run's folder.

    The script of the page puts the place of the folder before it if the page is opened from there.
    """
    name = run.absolute().name
    return {
        key: printable(shlex.join(word.replace("{run}", name) for word in words)) for key, words in COMMANDS.items()
    }


def _took(facts: dict[str, Any]) -> str | None:
    """Return how long a run took, without the time between its parts if it was stopped and resumed."""
    if "seconds" not in facts:
        return None
    parts = len(facts.get("parts", []))
    return duration(facts["seconds"]) + (f" in {parts} parts" if parts > 1 else "")


def _moment(text: str | None) -> str | None:
    """Format an ISO time for reading, with its time zone."""
    return None if text is None else datetime.fromisoformat(text).strftime("%d %B %Y, %H:%M (UTC%z)").lstrip("0")
