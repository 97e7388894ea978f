"""Another round: the edits of a run become labels of the next run."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from sptnet.config import Config
from sptnet.data.load import SplitImages
from sptnet.discovery.settings import read_images
from sptnet.errors import Misuse
from sptnet.results.categories import describe_categories
from sptnet.results.edits.apply import apply_edit
from sptnet.results.edits.log import in_force, read_edits, replay
from sptnet.results.edits.names import edited_names
from sptnet.results.edits.types import Edit, Merge, Move, Rename, SplitCategory
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import DROPPED, RunResult, read_result
from sptnet.runtime.files import write_text_atomically
from sptnet.runtime.progress import Say, say

LABELS = "labels.csv"
UNLIMITED = {"minutes": None, "max_steps": None, "anneal_steps": 0}
LABELLED_BEFORE = ("labelled", "holdout")


@dataclass(frozen=True)
class Round:
    """Settings and labels of a run that follows an edited run."""

    config: Config
    """Settings of the earlier run; labels are read from the directory of the new run."""
    labels: Mapping[str, str]
    """Labels by image id."""
    had_labels: bool
    """True if the earlier run had labels."""


def next_round(earlier: str | Path, out: Path) -> Round:
    """Return settings and labels for a run in `out` that starts from the edits of an earlier run."""
    run = RunFolder(earlier)
    config = run.config()
    if config.data.source != "folder" or config.data.folder is None:
        raise Misuse(f"the run {run.path} was not made from a folder of images. Continue a run that was.")
    result, edits = read_result(run.path), read_edits(run.path)
    if not in_force(edits):
        raise Misuse(
            f"nothing in {run.path} has been edited, so another round would learn nothing new. Name, merge or correct "
            f"categories first, such as: `edit({str(run.path)!r}, 'rename', {result.names[-1]!r}, 'NAME')`"
        )
    labels = next_labels(result, edits)
    present = {id_ for id_, source in zip(result.ids, result.sources, strict=True) if source is not None}
    labels = {id_: label for id_, label in labels.items() if id_ in present}
    state = replay(result, edits)
    filled = {state.names[category] for category in state.category[state.category >= 0].tolist()}
    changed = config.changed(
        data={"labels": str((out / LABELS).absolute()), "known_classes": None, "split": None},
        **dict.fromkeys(("gcd", "simgcd"), UNLIMITED),
        sptnet={"start_from": None, **UNLIMITED},
    )
    return Round(
        changed.model_copy(update={"n_categories": len(filled | set(labels.values()))}), labels, result.n_known > 0
    )


def next_labels(result: RunResult, edits: Sequence[Edit]) -> dict[str, str]:
    """Return the labels of the next round by image id.

    Labelled are: images labelled before, with the edited name of their label; moved images; and the members of every
    category that was renamed, merged, split or moved to, unless they are doubtful. Dropped images and test images have
    no label.
    """
    state, names = replay(result, edits), edited_names(result, edits)
    confirmed, moved = confirmed_categories(result, edits)
    doubtful = {id_ for category in describe_categories(state) for id_ in category.doubtful}
    labels = {}
    for i, id_ in enumerate(result.ids):
        if result.part[i] == "test" or state.category[i] == DROPPED:
            continue
        present, truth = state.names[state.category[i]], result.truth[i]
        if id_ in moved:
            labels[id_] = present
        elif result.part[i] in LABELLED_BEFORE and truth is not None:
            given = result.names.index(truth)
            if given != result.category[i]:  # the prediction differs, but the label takes precedence
                present = names.names[names.translate(np.array([given]), result.features[i : i + 1])[0]]
            labels[id_] = present
        elif present in confirmed and id_ not in doubtful:
            labels[id_] = present
    return labels


def confirmed_categories(result: RunResult, edits: Sequence[Edit]) -> tuple[set[str], set[str]]:
    """Return the names of all categories that edits confirm, and the ids of all moved images."""
    confirmed: set[str] = set()
    moved: set[str] = set()
    for edit in in_force(edits):
        before, result = result, apply_edit(result, edit)
        match edit:
            case Rename(category, to):
                confirmed = confirmed - {category} | {to}
            case Merge(categories, into):
                confirmed = confirmed - set(categories) | {into}
            case SplitCategory(category, _, _):
                confirmed = confirmed - {category} | (set(result.names) - set(before.names))
            case Move(images, to, _):
                confirmed |= {to}
                moved |= set(images)
    return confirmed, moved


def read_round(config: Config, labels: Mapping[str, str], tell: Say = say) -> SplitImages:
    """Read the images with these labels, as they are read later from the labels file of the run."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / LABELS
        write_text_atomically(file, labels_text(labels))
        return read_images(config.changed(data={"labels": str(file)}), tell)[1]


def labels_text(labels: Mapping[str, str]) -> str:
    """Return the content of a labels file, as the setting data.labels expects it."""
    text = io.StringIO(newline="")
    table = csv.writer(text)
    table.writerow(["path", "label"])
    table.writerows(labels.items())
    return text.getvalue()
