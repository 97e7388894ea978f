"""What was found, as edited, in forms that other programs read. The user's own files are only read."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sptnet.data.image_file import ImageSource
from sptnet.data.load import read_pile
from sptnet.errors import Misuse
from sptnet.results.edits.log import current
from sptnet.results.export.folders import export_folder
from sptnet.results.predictions import COLUMNS, prediction_rows
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import Found
from sptnet.runtime.files import write_csv_atomically, write_text_atomically

FORMS = ("csv", "json", "links", "copies", "coco", "imagefolder")


def export_run(run_path: str | Path, to: str | Path, form: str, overwrite: bool = False) -> Found:
    """Writes the present state of a run to a file or a folder; returns it."""
    run, target = RunFolder(run_path), Path(to)
    folder = run.config().data.folder
    for place, what in ((run.path, "the run"), (folder, "the data folder")):
        if place is not None and target.resolve().is_relative_to(Path(place).resolve()):
            raise Misuse(f"{target} lies inside {what} {place}. Give a place outside it with --to.")
    found = current(run.path)

    def pixels() -> Mapping[str, ImageSource]:
        pile = read_pile(run.config().data)
        return dict(zip(pile.ids, pile.sources, strict=True))

    export(found, target, form, overwrite, pixels)
    return found


def export(
    found: Found, to: Path, form: str, overwrite: bool = False, pixels: Callable[[], Mapping[str, ImageSource]] = dict
) -> None:
    """Writes one form of it; `pixels` gives the images that have no file of their own, by id."""
    if form not in FORMS:
        raise Misuse(f"there is no export as {form}. Choose from: {', '.join(FORMS)}.")
    if form in ("links", "copies", "imagefolder"):
        export_folder(found, to, form, overwrite, pixels)
        return
    if to.is_dir():
        raise Misuse(f"{to} is a folder, but {form} is one file. Give a file with --to.")
    if to.exists() and not overwrite:
        raise Misuse(f"{to} exists already. Replace it with --overwrite, or give another --to.")
    to.parent.mkdir(parents=True, exist_ok=True)
    if form == "csv":
        write_csv(to, found)
    else:
        content = as_json(found) if form == "json" else as_coco(found)
        write_text_atomically(to, json.dumps(content, indent=1) + "\n")


def write_csv(path: Path, found: Found) -> None:
    """One row an image; dropped images have none."""

    kept = np.flatnonzero(found.category >= 0)
    ids = [found.ids[i] for i in kept]
    rows = prediction_rows(ids, found.category[kept], found.certainty[kept], found.names, found.n_known)
    write_csv_atomically(path, COLUMNS, rows)


def as_json(found: Found) -> dict[str, Any]:
    """Categories, each with its images; and the images that were dropped."""
    return {
        "categories": [
            {
                "name": name,
                "is_new": found.is_new(name),
                "images": [
                    {"image": found.ids[i], "certainty": round(float(found.certainty[i]), 4)}
                    for i in found.members(name)
                ],
            }
            for name in found.names
        ],
        "dropped": [found.ids[i] for i in np.flatnonzero(found.category < 0)],
    }


def as_coco(found: Found) -> dict[str, Any]:
    """The layout of COCO for whole images: annotations have a category and no box; all numbers begin at 1."""
    kept = np.flatnonzero(found.category >= 0)
    return {
        "info": {"description": "categories found by sptnet"},
        "categories": [
            {"id": i, "name": name, "supercategory": "new" if found.is_new(name) else "known"}
            for i, name in enumerate(found.names, start=1)
        ],
        "images": [{"id": n, "file_name": found.ids[i]} for n, i in enumerate(kept, start=1)],
        "annotations": [
            {"id": n, "image_id": n, "category_id": int(found.category[i]) + 1} for n, i in enumerate(kept, start=1)
        ],
    }
