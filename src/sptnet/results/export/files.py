"""Export of an edited run as CSV, JSON, COCO or folders. The run and the images are only read."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sptnet.data.image_file import ImageSource
from sptnet.data.load import read_image_set
from sptnet.errors import Misuse
from sptnet.results.duplicates import positions_of_originals, read_duplicates, with_skipped
from sptnet.results.edits.log import read_edited
from sptnet.results.edits.second_choices import second_choices
from sptnet.results.export.folders import export_folder
from sptnet.results.export.table import ImageDetails, search_duplicates, write_csv
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import RunResult
from sptnet.runtime.files import check_new_file, check_outside, write_text_atomically

FORMS = ("csv", "json", "links", "copies", "coco", "imagefolder")
MODEL_FORMS = ("torch", "onnx")
"""Forms of the model itself, which `sptnet.inference.export_model` writes."""


def export_run(
    run_path: str | Path, to: str | Path, form: str, overwrite: bool = False, quick: bool = False
) -> RunResult:
    """Write the edited result of a run to a file or a folder, and return it.

    Duplicates that the run left out have the category of the image that they duplicate. Other runs are searched for
    duplicates for a table of a folder of images, which reads all of them, unless it is to be `quick`.
    """
    run, target = RunFolder(run_path), Path(to)
    settings = run.config().data
    check_outside(target, "to", {"the run": run.path, "the data folder": settings.folder})
    edited = read_edited(run.path)
    known = read_duplicates(run, edited.result.ids)
    skipped = [duplicate for duplicate in known or () if duplicate.skipped]
    result = with_skipped(edited.result, skipped, settings.folder)

    def pixels() -> Mapping[str, ImageSource]:
        image_set = read_image_set(run.config().data)
        return dict(zip(image_set.ids, image_set.sources, strict=True))

    def details() -> ImageDetails:
        second = second_choices(run, edited)
        rows = np.concatenate([np.arange(len(edited.result)), positions_of_originals(edited.result, skipped)])
        duplicates = None if known is None else {duplicate.image: duplicate.original for duplicate in known}
        if duplicates is None and settings.source == "folder" and not quick:
            duplicates = search_duplicates(result)
        return ImageDetails(second[0][rows], second[1][rows], duplicates)

    export(result, target, form, overwrite, pixels, details)
    return result


def export(
    result: RunResult,
    to: Path,
    form: str,
    overwrite: bool = False,
    pixels: Callable[[], Mapping[str, ImageSource]] = dict,
    details: Callable[[], ImageDetails] = ImageDetails,
) -> None:
    """Write a result in one form.

    `pixels` returns the sources of images without a file, by id, and `details` what else a table says of the images.
    """
    if form not in FORMS:
        raise Misuse(f"there is no export as {form}. Choose from: {', '.join(FORMS)}.")
    if form in ("links", "copies", "imagefolder"):
        export_folder(result, to, form, overwrite, pixels)
        return
    check_new_file(to, "to", overwrite)
    to.parent.mkdir(parents=True, exist_ok=True)
    if form == "csv":
        write_csv(to, result, details())
    else:
        content = as_json(result) if form == "json" else as_coco(result)
        write_text_atomically(to, json.dumps(content, indent=1) + "\n")


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
