"""Description of a prediction job, so that all parts in a folder come from the same one.

The processes do not communicate. Each of them compares the description in the folder with its own job; the first
one to arrive writes it.
"""

import hashlib
import json
import re
from pathlib import Path

from sptnet.errors import Misuse
from sptnet.inference.bulk.image_list import ImageList
from sptnet.model.description import CalibratorShape, read_description
from sptnet.model.model_path import DESCRIPTION, find_model_folder
from sptnet.results.edits.log import as_dict, in_force, read_edits
from sptnet.runtime.files import is_temporary, make_folder, sweep, write_text_atomically
from sptnet.runtime.readers import FileShape, read_json
from sptnet.runtime.text import printable

JOB = "parts.json"
EARLIER_TEMPORARY = re.compile(r"parts-\d+\.json(\.part)?")
"""Names that version 0.1.0 wrote the description under first."""
TITLES = {
    "model": "the model",
    "calibrator": "the calibration of the model",
    "edits": "the edits",
    "images": "the number of images",
    "names": "the names of the images",
    "part_size": "`part_size`",
    "features": "`features`",
}


class Job(FileShape):
    """Everything that the parts depend on; the content of parts.json."""

    model: str
    """Digest of the weights, from model.json."""
    edits: str | None
    """Digest of the edits in force; None if there are none."""
    images: int
    names: str
    """Digest of the paths in their order."""
    part_size: int
    features: bool = False
    calibrator: CalibratorShape | None = None
    """Calibration from model.json; None if there is none."""


def describe_job(run: Path, images: ImageList, part_size: int, features: bool = False) -> Job:
    """Describe a job by its model, the edits of the run, the images and the options."""
    description = read_description(find_model_folder(run) / DESCRIPTION)
    edits = [as_dict(edit) for edit in in_force(read_edits(run))]
    return Job(
        model=description["sha256"],
        edits=hashlib.sha256(json.dumps(edits).encode()).hexdigest() if edits else None,
        images=len(images.paths),
        names=images.digest,
        part_size=part_size,
        features=features,
        calibrator=description.get("calibrator"),
    )


def open_folder(folder: Path, job: Job) -> None:
    """Create the folder with the description of the job, or check that it holds parts of the same job."""
    if folder.exists() and not folder.is_dir():
        raise Misuse(f"{folder} is a file, not a folder. Give a folder with `parts`.")
    make_folder(folder)
    existing = sorted(path.name for path in folder.iterdir())
    file = folder / JOB
    if not file.exists():  # checked after listing: this file is written before any part
        strangers = [name for name in existing if not is_temporary(name) and not EARLIER_TEMPORARY.fullmatch(name)]
        if strangers:
            raise Misuse(
                f"{folder} holds {printable(strangers[0])} but no {JOB}. Give an empty folder with `parts`, or one "
                "that does not exist yet."
            )
        # Several processes may write at once, all the same content.
        write_text_atomically(file, json.dumps(job.model_dump(), indent=1) + "\n")
    way_out = "Give another folder with `parts`, or remove this one."
    before = Job(**read_json(file, way_out, Job))
    changes = [title for key, title in TITLES.items() if getattr(before, key) != getattr(job, key)]
    if changes:
        raise Misuse(
            f"{folder} holds parts of another job, which differs in: {', '.join(changes)}. Give all as before, or "
            "another folder with `parts`."
        )
    sweep(folder)
