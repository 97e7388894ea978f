"""Read and write `split.json`: the parts of a split as image ids and class names."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from sptnet.data.image_set import UNKNOWN, ImageSet
from sptnet.data.split import Split, targets_of
from sptnet.errors import Misuse
from sptnet.runtime.files import write_text_atomically
from sptnet.runtime.readers import read_json
from sptnet.runtime.text import listed

PARTS = ("labelled", "unlabelled", "holdout", "test")


def write_split(split: Split, image_set: ImageSet, path: Path | str) -> None:
    """Write the split as JSON with image ids and class names."""
    content: dict[str, Any] = {
        "pile": image_set.name,
        "known_classes": split.known_classes,
        "new_classes": split.new_classes,
    }
    for part in PARTS:
        content[part] = [image_set.ids[i] for i in getattr(split, part)]
    text = json.dumps(content, indent=1, ensure_ascii=False)
    write_text_atomically(Path(path), text + "\n")


def read_split(path: Path | str, image_set: ImageSet) -> Split:
    """Read a split that `write_split` wrote and match it with the image set."""
    content = _split_content(Path(path))
    in_file = [id_ for part in PARTS for id_ in content[part]]
    for complaint, ids in (
        (f"lists images that {image_set.name} does not have", set(in_file) - set(image_set.ids)),
        (f"does not list all images of {image_set.name}", set(image_set.ids) - set(in_file)),
    ):
        if ids:
            raise Misuse(
                f"the split {path} {complaint} ({len(ids)}): {listed(sorted(ids)[:3])}. "
                "Use the folder that the split was made for, or make a new split."
            )
    classes = tuple(content["known_classes"] + content["new_classes"])
    target = targets_of(image_set, classes)
    position = {id_: i for i, id_ in enumerate(image_set.ids)}
    parts = {part: np.array(sorted(position[id_] for id_ in content[part]), np.int64) for part in PARTS}
    n_known = len(content["known_classes"])
    with_label = target[np.concatenate([parts["labelled"], parts["holdout"]])]
    unnamed = (target == UNKNOWN) & (image_set.labels != UNKNOWN)
    if ((with_label < 0) | (with_label >= n_known)).any() or unnamed.any():
        raise Misuse(
            f"the split {path} does not fit the labels of {image_set.name}. "
            "Restore the labels that the split was made for, or make a new split."
        )
    lacking = np.flatnonzero(np.bincount(target[parts["labelled"]], minlength=n_known) == 0)
    if len(lacking):
        raise Misuse(
            f"in the split {path} no training image of {listed([classes[i] for i in lacking])} is labelled, but the "
            "class is to be known. List one under `labelled`, or move the class to `new_classes`."
        )
    return Split(classes=classes, n_known=n_known, target=target, **parts)


def labelled_ids(path: Path) -> set[str]:
    """Return the ids of the images whose labels a run was given, from its `split.json`."""
    content = _split_content(path)
    return {*content["labelled"], *content["holdout"]}


def _split_content(path: Path) -> dict[str, list[str]]:
    if not os.path.isfile(path):
        raise Misuse(f"there is no split file {path}. Give a file that sptnet wrote, or make a new split.")
    way_out, says = "Restore it or make a new one.", "is not valid JSON"
    content = read_json(path, way_out, error=Misuse, says=says, limit=None, errors="surrogatepass")
    for key in ("known_classes", "new_classes", *PARTS):
        values = content.get(key) if isinstance(content, dict) else None
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise Misuse(f"the split {path} has no list of names {key!r}. Restore it or make a new one.")
    return {key: value for key, value in content.items() if isinstance(value, list)}
