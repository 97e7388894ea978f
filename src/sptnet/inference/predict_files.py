"""Predict image files with a trained model: into one table, or into parts for any number of images and processes."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from sptnet.data.readable import check_share
from sptnet.errors import Misuse
from sptnet.inference.bulk.image_list import named_images
from sptnet.inference.bulk.job import describe_job, open_folder
from sptnet.inference.bulk.tables import (
    NamedPredictor,
    PredictedTable,
    Tally,
    unreadable_file,
    write_parts,
    write_table,
)
from sptnet.inference.predictor import load
from sptnet.results.edits.names import names_for
from sptnet.runtime.files import check_new_file, check_outside
from sptnet.runtime.torchrun import rank_from_environment


def predict_table(
    run: Path,
    images: Sequence[Path],
    out: Path | TextIO,
    *,
    list_file: Path | None = None,
    device: str = "auto",
    max_unreadable: float = 0.01,
) -> PredictedTable:
    """Predict images into one CSV table with a row per image; `out` is a new file or an open text stream.

    Images are files and folders, and the lines of `list_file`. The category names of an edited run are those of the
    edits. Up to a share `max_unreadable` of unreadable images is skipped; beside a file, another one lists them. Also
    returns the table.
    """
    if rank_from_environment(os.environ).size > 1:
        raise Misuse("several processes cannot write one table. Give a folder for their parts with `parts=DIR`.")
    if isinstance(out, Path):
        _check_outside_images(out, "out", images)
        check_new_file(out)
        check_new_file(unreadable_file(out))
    check_share(max_unreadable)
    listed = named_images(images, list_file)
    return write_table(NamedPredictor(load(run, device), names_for(run)), listed.paths, out, max_unreadable)


def predict_parts(
    run: Path,
    images: Sequence[Path],
    parts: Path,
    *,
    part_size: int = 10_000,
    features: bool = False,
    list_file: Path | None = None,
    device: str = "auto",
    max_unreadable: float = 0.01,
) -> Tally:
    """Predict images into a folder of CSV tables with `part_size` images each; return the numbers of parts.

    Existing parts are kept, so a stopped job resumes, and processes of torchrun share the parts. With `features`, the
    features of each part are written beside its table, as safetensors. Other arguments are those of `predict_table`.
    """
    rank = rank_from_environment(os.environ)
    _check_outside_images(parts, "parts", images)
    check_share(max_unreadable)
    listed = named_images(images, list_file)
    named = NamedPredictor(load(run, device, rank.local_rank), names_for(run), features)
    open_folder(parts, describe_job(run, listed, part_size, features))
    return write_parts(named, listed.paths, parts, part_size, max_unreadable, rank)


def _check_outside_images(path: Path, parameter: str, images: Sequence[Path]) -> None:
    """Refuse to write into a folder of images."""
    for folder in images:
        if folder.is_dir():
            check_outside(path, parameter, {"the folder of images": folder})
