"""Another round: what a person put right in one run becomes the labels of the next."""

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
    """What a finished and edited run passes on to the next."""

    config: Config
    """Settings as before; the labels come from the new run's own file."""
    labels: Mapping[str, str]
    """Category by image."""
    had_labels: bool
    """Whether the earlier run had any."""


def next_round(earlier: str | Path, out: Path) -> Round:
    """Settings and labels for a run in `out` that goes on from the edits of an earlier one."""
    run = RunFolder(earlier)
    config = run.config()
    if config.data.source != "folder" or config.data.folder is None:
        raise Misuse(f"the run {run.path} was not made from a folder of images. Continue a run that was.")
    result, edits = read_result(run.path), read_edits(run.path)
    if not in_force(edits):
        raise Misuse(
            f"nothing in {run.path} has been edited, so another round would learn nothing new. Name, merge or correct "
            f"categories first, such as: sptnet edit {run.path} rename {result.names[-1]} NAME"
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
    """The label of every image that the next round may learn from.

    These are images labelled before, under the present name of their label; images that a person moved; and the
    members of every category that a person has renamed, merged, split or moved images into, unless they are doubtful.
    Dropped images and test images have none.
    """
    state, names = replay(result, edits), edited_names(result, edits)
    touched, moved = settled(result, edits)
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
            if given != result.category[i]:  # the model took it for something else, but its label stands
                present = names.names[names.translate(np.array([given]), result.features[i : i + 1])[0]]
            labels[id_] = present
        elif present in touched and id_ not in doubtful:
            labels[id_] = present
    return labels


def settled(result: RunResult, edits: Sequence[Edit]) -> tuple[set[str], set[str]]:
    """Present names of the categories that a person has made up their mind about, and the images they moved."""
    touched: set[str] = set()
    moved: set[str] = set()
    for edit in in_force(edits):
        before, result = result, apply_edit(result, edit)
        match edit:
            case Rename(category, to):
                touched = touched - {category} | {to}
            case Merge(categories, into):
                touched = touched - set(categories) | {into}
            case SplitCategory(category, _, _):
                touched = touched - {category} | (set(result.names) - set(before.names))
            case Move(images, to, _):
                touched |= {to}
                moved |= set(images)
    return touched, moved


def read_round(config: Config, labels: Mapping[str, str], tell: Say = say) -> SplitImages:
    """The images with these labels, as they will be read from the run once its labels file is there."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / LABELS
        write_text_atomically(file, labels_text(labels))
        return read_images(config.changed(data={"labels": str(file)}), tell)[1]


def labels_text(labels: Mapping[str, str]) -> str:
    """A labels file, as `--labels` reads it."""
    text = io.StringIO(newline="")
    table = csv.writer(text)
    table.writerow(["path", "label"])
    table.writerows(labels.items())
    return text.getvalue()
