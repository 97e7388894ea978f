"""Export of an edited run as CSV, JSON, COCO or folders. The run and the images are only read."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sptnet.data.image_file import ImageSource
from sptnet.data.load import read_image_set
from sptnet.errors import Misuse
from sptnet.results.edits.log import current
from sptnet.results.export.folders import export_folder
from sptnet.results.predictions import COLUMNS, prediction_rows, rows_for_people
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import RunResult
from sptnet.runtime.files import check_new_file, check_outside, write_csv_atomically, write_text_atomically

FORMS = ("csv", "json", "links", "copies", "coco", "imagefolder")
MODEL_FORMS = ("torch", "onnx")
"""Forms of the model itself, which `sptnet.inference.export_model` writes."""


def export_run(run_path: str | Path, to: str | Path, form: str, overwrite: bool = False) -> RunResult:
    """Write the edited result of a run to a file or a folder, and return it."""
    run, target = RunFolder(run_path), Path(to)
    folder = run.config().data.folder
    check_outside(target, "to", {"the run": run.path, "the data folder": folder})
    result = current(run.path)

    def pixels() -> Mapping[str, ImageSource]:
        image_set = read_image_set(run.config().data)
        return dict(zip(image_set.ids, image_set.sources, strict=True))

    export(result, target, form, overwrite, pixels)
    return result


def export(
    result: RunResult,
    to: Path,
    form: str,
    overwrite: bool = False,
    pixels: Callable[[], Mapping[str, ImageSource]] = dict,
) -> None:
    """Write a result in one form; `pixels` returns the sources of images without a file, by id."""
    if form not in FORMS:
        raise Misuse(f"there is no export as {form}. Choose from: {', '.join(FORMS)}.")
    if form in ("links", "copies", "imagefolder"):
        export_folder(result, to, form, overwrite, pixels)
        return
    check_new_file(to, "to", overwrite)
    to.parent.mkdir(parents=True, exist_ok=True)
    if form == "csv":
        write_csv(to, result)
    else:
        content = as_json(result) if form == "json" else as_coco(result)
        write_text_atomically(to, json.dumps(content, indent=1) + "\n")


def write_csv(path: Path, result: RunResult) -> None:
    """Write one row per image, without dropped images; a labels file that `data.labels` reads."""
    kept = np.flatnonzero(result.category >= 0)
    ids = [result.ids[i] for i in kept]
    rows = prediction_rows(ids, result.category[kept], result.certainty[kept], result.names, result.n_known)
    write_csv_atomically(path, COLUMNS, rows_for_people(rows))


def as_json(result: RunResult) -> dict[str, Any]:
    """Return the categories, each with its images, and the dropped images."""
    return {
        "categories": [
            {
                "name": name,
                "is_new": result.is_new(name),
                "images": [
                    {"image": result.ids[i], "certainty": round(float(result.certainty[i]), 4)}
                    for i in result.members(name)
                ],
            }
            for name in result.names
        ],
        "dropped": [result.ids[i] for i in np.flatnonzero(result.category < 0)],
    }


def as_coco(result: RunResult) -> dict[str, Any]:
    """Return COCO's layout for whole images: annotations have a category and no box; ids begin at 1."""
    kept = np.flatnonzero(result.category >= 0)
    return {
        "info": {"description": "categories found by sptnet"},
        "categories": [
            {"id": i, "name": name, "supercategory": "new" if result.is_new(name) else "known"}
            for i, name in enumerate(result.names, start=1)
        ],
        "images": [{"id": n, "file_name": result.ids[i]} for n, i in enumerate(kept, start=1)],
        "annotations": [
            {"id": n, "image_id": n, "category_id": int(result.category[i]) + 1} for n, i in enumerate(kept, start=1)
        ],
    }
