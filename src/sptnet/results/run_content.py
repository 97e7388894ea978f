"""Names that a run directory contains, and the marker that says that sptnet wrote it.

Only these names are ever deleted, and only in a folder with the marker. Runs of version 0.1.0 have none: there,
settings and facts must be those of a run.
"""

import json
import re
import tomllib
from pathlib import Path

from sptnet.config import Config
from sptnet.config.recipes import read_config
from sptnet.errors import SptnetError
from sptnet.runtime.files import is_temporary
from sptnet.runtime.locks import is_lock_file

CONFIG, FACTS = "config.toml", "run.json"
EDITS, COUNTS, UNREADABLE, TRACK = "edits.jsonl", "counts", "unreadable.csv", "track"
DUPLICATES = "duplicates.csv"
MARKER, LOCK, EDITS_LOCK = ".sptnet-run", ".lock", ".edits.lock"
MARKER_TEXT = "This folder is a run of sptnet, format 1. Its files are deleted when the run is overwritten.\n"
FILES = (
    *(CONFIG, FACTS, "metrics.jsonl", "split.json", "predictions.csv", "estimate.json"),
    *("labels.csv", "earlier.csv", UNREADABLE, DUPLICATES, "features.safetensors", "report.html"),
)
# Versions before 0.3.0 kept the best epoch as a model.
MODELS = ("model", *(f"{kind}-{stage}" for kind in ("model", "best") for stage in Config.stage_names()))
_MODEL_FILES = r"model\.json|model\.safetensors(\.part)?|\.tmp\w{6}"  # .tmp: of safetensors, after a kill
INSIDE = {
    "checkpoints": re.compile(r"(stage\d+-epoch\d{5,}|best-stage\d+)\.safetensors(\.part)?|\.tmp\w{6}"),
    "categories": re.compile(r"\d{3,}-.*\.png", re.DOTALL),
    COUNTS: re.compile(r"\d+\.safetensors(\.part)?|\.tmp\w{6}"),
    "tokens": None,
    TRACK: None,
    **{f"{name}{end}": re.compile(_MODEL_FILES) for name in MODELS for end in ("", ".part", ".old")},
}
"""Folders of a run with the names of their files; None for any."""


def has_marker(run: Path) -> bool:
    """True if sptnet has marked the folder as its own."""
    file = run / MARKER
    return not file.is_symlink() and file.is_file() and file.read_bytes() == MARKER_TEXT.encode()


def is_bookkeeping(entry: Path) -> bool:
    """True for the marker, locks and unfinished files: a folder with nothing else is as good as empty."""
    if entry.name == MARKER:
        return has_marker(entry.parent)
    return is_temporary(entry.name) or (entry.name in (LOCK, EDITS_LOCK) and is_lock_file(entry))


def strangers(run: Path) -> list[str]:
    """Return what sptnet did not write, as paths inside the folder: everything, if the folder is no run."""
    entries = sorted(run.iterdir()) if run.is_dir() else []
    if not has_marker(run) and not _is_earlier_run(run):
        return [entry.name for entry in entries if not is_bookkeeping(entry)]
    return [name for entry in entries for name in strangers_at(entry)]


def strangers_at(entry: Path) -> list[str]:
    """Return the name of an entry that is no run's, or those of the files inside that are not."""
    if is_bookkeeping(entry) or entry.name.removesuffix(".part") in FILES or _only_carried(entry):
        return []
    if entry.name not in INSIDE:
        return [entry.name]
    known = INSIDE[entry.name]
    if known is None or entry.is_symlink() or not entry.is_dir():
        return []
    return [
        f"{entry.name}/{file.name}"
        for file in sorted(entry.iterdir())
        if not is_temporary(file.name) and (known.fullmatch(file.name) is None or file.is_dir())
    ]


def _is_earlier_run(run: Path) -> bool:
    """True if settings and facts are those of a run; an empty config.toml is not."""
    try:
        facts = json.loads((run / FACTS).read_text(encoding="utf-8"))
        if "method" not in tomllib.loads((run / CONFIG).read_text(encoding="utf-8")):
            return False
        read_config(run / CONFIG)
        return isinstance(facts["status"], str) and "sptnet" in facts["versions"] and "fingerprint" in facts["data"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError, SptnetError):
        return False  # anything else is a person's


def _only_carried(file: Path) -> bool:
    """Return True for a log of edits that holds no edit of a person, only names from the earlier round."""
    if file.name != EDITS:
        return False
    try:
        lines = file.read_text(encoding="utf-8", errors="surrogatepass").split("\n")
        return all(json.loads(line)["verb"] == "carry" for line in lines if line)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False  # damaged, so it may be a person's work
