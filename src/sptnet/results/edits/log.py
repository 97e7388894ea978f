"""The log of edits: one JSON line per edit in edits.jsonl, replayed on the unchanged predictions."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sptnet.errors import Failure, Misuse
from sptnet.results.edits.apply import apply_edit, decided
from sptnet.results.edits.choose_count import ensure_clustering
from sptnet.results.edits.types import (
    CarryNames,
    Confirm,
    Count,
    Drop,
    Edit,
    Merge,
    Move,
    Rename,
    SplitCategory,
    Undo,
    as_dict,
    parse_edit,
)
from sptnet.results.run_content import EDITS
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import RunResult, read_result
from sptnet.runtime.files import write_text_atomically
from sptnet.runtime.readers import read_json, read_json_lines, read_text

__all__ = [
    "EDITS",
    "CarryNames",
    "Confirm",
    "Count",
    "Drop",
    "Edit",
    "EditedRun",
    "Merge",
    "Move",
    "Rename",
    "SplitCategory",
    "Undo",
    "add_edits",
    "apply_edit",
    "as_dict",
    "current",
    "in_force",
    "new_edits_of_file",
    "parse_edit",
    "read_edited",
    "read_edits",
    "read_edits_file",
    "read_log",
    "replay",
]


def in_force(edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits that were not undone."""
    stack: list[Edit] = []
    for edit in edits:
        if not isinstance(edit, Undo):
            stack.append(edit)
        elif stack:
            stack.pop()
        else:
            raise Misuse("there is nothing to undo: no edit is in force. See `sptnet edit RUN log`.")
    return stack


def replay(result: RunResult, edits: Sequence[Edit]) -> RunResult:
    """Apply all edits that were not undone."""
    for edit in in_force(edits):
        result = apply_edit(result, edit)
    return result


def read_edits(run_path: str | Path) -> list[Edit]:
    """Read all edits in order, including undone ones and undos."""
    return [edit for _, edit in read_log(run_path)]


def read_log(run_path: str | Path) -> list[tuple[str, Edit]]:
    """Read all edits, each with the time at which it was made."""
    file = Path(run_path) / EDITS
    if not file.exists():
        return []
    return read_json_lines(file, "Repair or delete that line.", _parse_line, errors="surrogatepass")


def _parse_line(value: Any) -> tuple[str, Edit]:
    if not isinstance(value, dict) or not isinstance(value.get("at"), str):
        raise ValueError("it has no time `at`")
    return value["at"], parse_edit(value)


def _text(file: Path) -> str:
    if not file.exists():
        return ""
    return read_text(file, "Make it readable.", limit=None, errors="surrogatepass")


@dataclass(frozen=True, eq=False)
class EditedRun:
    """Result of a run as it was written, the edits that are in force, and the result with them."""

    before: RunResult
    edits: list[Edit]
    result: RunResult


def read_edited(run_path: str | Path) -> EditedRun:
    """Read the result of a run, and apply its edits."""
    before, log = read_result(run_path), read_edits(run_path)
    return EditedRun(before, in_force(log), _replayed(run_path, before, log))


def current(run_path: str | Path) -> RunResult:
    """Read the result of a run with its edits applied."""
    return read_edited(run_path).result


def add_edits(run_path: str | Path, edits: Sequence[Edit]) -> RunResult:
    """Add edits to the log and return the result after them. If one of them fails, none is added.

    Clusterings into numbers of categories that were chosen are made and kept if they are missing. Edits of several
    processes are added one after another.
    """
    result = read_result(run_path)
    with RunFolder(run_path).lock_edits():
        return _add_edits(run_path, result, edits)


def _add_edits(run_path: str | Path, result: RunResult, edits: Sequence[Edit]) -> RunResult:
    log = read_edits(run_path)
    state, n_before = _replayed(run_path, result, log, cluster=True), len(log)
    for number, edit in enumerate(edits, start=1):
        before = state
        log.append(edit)
        try:
            if isinstance(edit, Count):
                ensure_clustering(run_path, result, edit.n_categories)
            state = replay(result, log) if isinstance(edit, Undo) else apply_edit(before, edit)
            log[-1] = decided(edit, before, state)
        except Misuse as error:
            if len(edits) == 1:
                raise
            raise Misuse(f"edit {number} of {len(edits)}: {error}") from error
    at = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    lines = [json.dumps({"at": at, **as_dict(edit)}, ensure_ascii=False) for edit in log[n_before:]]
    file = Path(run_path) / EDITS
    old = [line for line in _text(file).split("\n") if line]
    write_text_atomically(file, "".join(f"{line}\n" for line in [*old, *lines]))
    return state


def _replayed(run_path: str | Path, result: RunResult, edits: Sequence[Edit], cluster: bool = False) -> RunResult:
    try:
        for edit in in_force(edits) if cluster else ():
            if isinstance(edit, Count):
                ensure_clustering(run_path, result, edit.n_categories)
        return replay(result, edits)
    except Misuse as error:
        raise Failure(
            f"{Path(run_path) / EDITS} does not fit the predictions of the run ({error}) Move that file away to start "
            "without edits, or restore the predictions it was made for."
        ) from error


def new_edits_of_file(run_path: str | Path, file: Path) -> tuple[list[Edit], int]:
    """Read the edits of a file that the log of the run does not hold yet, and the number of those that it holds.

    The page saves all its edits every time, with the number of edits before them under `after`. Those that follow in
    the log at that place were applied from an earlier file, unless something was undone since.
    """
    edits, after = read_edits_file(file)
    later = read_edits(run_path)[after:] if after is not None else []
    n = min(len(later), len(edits))
    n_before = n if later[:n] == edits[:n] and Undo() not in later else 0
    return edits[n_before:], n_before


def read_edits_file(file: Path) -> tuple[list[Edit], int | None]:
    """Read edits that the report page saved, {"edits": [...]} or only the list, and the number of edits before them."""
    if not file.is_file():
        raise Misuse(f"there is no file {file}. Give the JSON file of edits that the report saved.")
    way_out, says = "Save the edits again.", "is not valid JSON"
    content = read_json(file, way_out, error=Misuse, says=says, limit=None, errors="surrogatepass")
    edits = content.get("edits") if isinstance(content, dict) else content
    if not isinstance(edits, list) or not edits:
        raise Misuse(f'{file} holds no edits. Give JSON such as {{"edits": [{{"verb": "undo"}}]}}.')
    after = content.get("after") if isinstance(content, dict) else None
    return [parse_edit(edit) for edit in edits], after if isinstance(after, int) and after >= 0 else None
