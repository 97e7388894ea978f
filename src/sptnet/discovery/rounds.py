"""Another round: what a person confirmed or moved becomes labels, and new categories keep their names."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from sptnet.config import Config
from sptnet.data.load import SplitImages
from sptnet.discovery.settings import read_images
from sptnet.errors import Misuse
from sptnet.results.duplicates import read_duplicates, with_skipped
from sptnet.results.edits.carried_names import carried_names
from sptnet.results.edits.log import CarryNames, Count, Edit, add_edits, in_force, read_edits, replay
from sptnet.results.edits.names import edited_names
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import DROPPED, RunResult, read_result
from sptnet.runtime.files import write_text_atomically
from sptnet.runtime.progress import Say, say
from sptnet.runtime.readers import read_csv, reading

LABELS, EARLIER = "labels.csv", "earlier.csv"
EARLIER_COLUMNS = ("image", "category")
UNLIMITED = {"minutes": None, "max_steps": None, "anneal_steps": 0}
LABELLED_BEFORE = ("labelled", "holdout")


@dataclass(frozen=True)
class Round:
    """Settings and labels of a run that follows an edited run."""

    config: Config
    """Settings of the earlier run; labels are read from the directory of the new run."""
    labels: Mapping[str, str]
    """Labels by image id."""
    earlier: Mapping[str, str]
    """New category by image id, as edited, of the images in new categories of the earlier run."""
    had_labels: bool
    """True if the earlier run had labels."""
    minutes: float | None = None
    """Time limit that was given for the earlier run."""


def fresh_stage(config: Config, name: str) -> dict[str, Any]:
    """Settings of a stage that lift its limits and the run it started from."""
    starts = "start_from" in type(getattr(config, name)).model_fields
    return UNLIMITED | ({"start_from": None} if starts else {})


def next_round(earlier: str | Path, out: Path) -> Round:
    """Return settings and labels for a run in `out` that starts from the edits of an earlier run.

    The number of categories is counted again if it was counted in the earlier run. A number that a person gave or chose
    by an edit is kept, one more or less for every later split or merge.
    """
    run = RunFolder(earlier)
    config = run.config()
    if config.data.source != "folder" or config.data.folder is None:
        raise Misuse(f"the run {run.path} was not made from a folder of images. Continue a run that was.")
    result, edits = read_result(run.path), read_edits(run.path)
    state = replay(result, edits)
    counted = run.estimate_file.is_file() and not any(isinstance(edit, Count) for edit in in_force(edits))
    labels = next_labels(result, edits)
    _check_news(run.path, result, state, labels, counted)
    skipped = [d for d in read_duplicates(run, result.ids) or () if d.skipped]
    labels |= {d.image: labels[d.original] for d in skipped if d.label and d.original in labels}
    whole = with_skipped(result, skipped, config.data.folder)
    present = {id_ for id_, source in zip(whole.ids, whole.sources, strict=True) if source is not None}
    changed = config.changed(
        data={"labels": str((out / LABELS).absolute()), "known_classes": None, "split": None},
        **{name: fresh_stage(config, name) for name in Config.stage_names()},
    )
    return Round(
        changed.model_copy(update={"n_categories": "auto" if counted else len(state.names)}),
        {id_: label for id_, label in labels.items() if id_ in present},
        {id_: state.names[c] for id_, c in zip(state.ids, state.category, strict=True) if c >= state.n_known},
        result.n_known > 0,
        run.facts().get("plan", {}).get("minutes"),
    )


def _check_news(run: Path, result: RunResult, state: RunResult, labels: Mapping[str, str], counted: bool) -> None:
    """Raise if another round would repeat the earlier one: same groups of labelled images, same number of categories.

    Names alone teach nothing, nor do merged or split new categories if their number is counted again.
    """
    given = given_ids(result)
    before = {id_: str(truth) for id_, truth in zip(result.ids, result.truth, strict=True) if id_ in given}
    pairs = {(before[id_], labels[id_]) for id_ in before.keys() & labels.keys()}
    same_groups = len(pairs) == len({old for old, _ in pairs}) == len({new for _, new in pairs})
    if before.keys() != labels.keys() or not same_groups or not (counted or len(state.names) == len(result.names)):
        return
    filled = state.category[state.category >= 0]
    example = state.names[int(filled.max())] if len(filled) else state.names[-1]
    raise Misuse(
        f"no unlabelled image of {run} has been confirmed or moved, so another round would learn nothing new. Confirm "
        f"what is right, such as: `edit({str(run)!r}, 'confirm', {example!r})`, or move what is wrong: "
        f"`edit({str(run)!r}, 'move', 'IMAGE', to='CATEGORY')`"
    )


def next_labels(result: RunResult, edits: Sequence[Edit]) -> dict[str, str]:
    """Return the labels of the next round by image id.

    Labelled are the images that a person confirmed or moved, and those labelled before, with the edited name of their
    label. Dropped images and test images have no label.
    """
    state, names = replay(result, edits), edited_names(result, edits)
    given = given_ids(result)
    labels = {}
    for i, id_ in enumerate(result.ids):
        if result.part[i] == "test" or state.category[i] == DROPPED:
            continue
        present = state.names[state.category[i]]
        if id_ in state.confirmed:
            labels[id_] = present
        elif id_ in given:
            label = result.names.index(str(result.truth[i]))
            if label != result.category[i]:  # the prediction differs, but the label takes precedence
                present = names.names[names.translate(np.array([label]), result.features[i : i + 1])[0]]
            labels[id_] = present
    return labels


def given_ids(result: RunResult) -> set[str]:
    """Return the ids of the images that had a label in the run."""
    rows = zip(result.ids, result.part, result.truth, strict=True)
    return {id_ for id_, part, truth in rows if part in LABELLED_BEFORE and truth is not None}


def carry_names(run: str | Path) -> None:
    """Give new categories of a finished round the names that they had in the earlier run, as an edit.

    Categories are matched by their images. A run that is no later round, or has edits already, stays as it is.
    """
    file = Path(run) / EARLIER
    if not file.is_file() or read_edits(run):
        return
    result, earlier = read_result(run), _read_earlier(file)
    before = list(dict.fromkeys(earlier.values()))
    index = {name: i for i, name in enumerate(before)}
    before_category = np.array([index.get(earlier.get(id_, ""), DROPPED) for id_ in result.ids], dtype=np.int64)
    names = carried_names(before, before_category, result.names, result.category, result.n_known)
    changes = [(old, new) for old, new in zip(result.names, names, strict=True) if old != new]
    if changes:
        add_edits(run, [CarryNames(*(tuple(column) for column in zip(*changes, strict=True)))])


def _read_earlier(file: Path) -> dict[str, str]:
    way_out = "Delete it to finish the round without the names of the earlier run."
    with reading(file, way_out):
        columns, rows, _ = read_csv(file, way_out)
        if columns != EARLIER_COLUMNS or any(len(row) != 2 or None in row.values() for row in rows):
            raise ValueError("its columns are not image,category")
    return {row["image"]: row["category"] for row in rows}


def read_round(config: Config, labels: Mapping[str, str], tell: Say = say) -> SplitImages:
    """Read the images with these labels, as they are read later from the labels file of the run."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / LABELS
        write_text_atomically(file, labels_text(labels))
        return read_images(config.changed(data={"labels": str(file)}), tell)[1]


def round_files(round_: Round) -> dict[str, str]:
    """Return the texts that a run of another round starts with, by file name."""
    return {LABELS: labels_text(round_.labels), EARLIER: table_text(EARLIER_COLUMNS, round_.earlier)}


def labels_text(labels: Mapping[str, str]) -> str:
    """Return the content of a labels file, as the setting data.labels expects it."""
    return table_text(("path", "label"), labels)


def table_text(columns: tuple[str, str], rows: Mapping[str, str]) -> str:
    """Return a CSV text of two columns."""
    text = io.StringIO(newline="")
    table = csv.writer(text)
    table.writerow(columns)
    table.writerows(rows.items())
    return text.getvalue()
