"""Facts about single images for the page: part of the split, second choice, true class, time of the file."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sptnet.data.image_file import ImageSource
from sptnet.results.edits.names import edited_names
from sptnet.results.edits.types import Edit
from sptnet.results.predictions import read_predictions
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import RunResult

PART_LETTERS = {"labelled": "l", "unlabelled": "u", "holdout": "h", "test": "t"}


def second_choices(
    folder: RunFolder, before: RunResult, result: RunResult, edits: Sequence[Edit]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return the second choice of the model per image as an index into the edited names, and its certainty, both (n,).

    -1 where there is none: in runs of version 0.2 and before, if another number of categories was chosen, and where the
    edits put both choices into one category. `before` is the result without `edits`, `result` the one with them.
    """
    rows = read_predictions(folder.predictions_file, folder.path)
    index = {name: i for i, name in enumerate(before.names)}
    second = np.array([index.get(row["second"], -1) for row in rows], dtype=np.int64)
    certainty = np.array([float(row["second_certainty"] or 0) for row in rows], dtype=np.float32)
    if edits:
        names = edited_names(before, edits)
        given = np.flatnonzero(second >= 0)
        if names.clustering is None:
            second[given] = names.translate(second[given], before.features[given])
        else:
            second[:] = -1
    second[second == result.category] = -1
    return second, certainty


def file_times(sources: Sequence[ImageSource | None]) -> list[int | None]:
    """Return the time of last change of each file in seconds since 1970, None without a file."""
    return [_changed(source) if isinstance(source, str | Path) else None for source in sources]


def _changed(file: str | Path) -> int | None:
    try:
        return int(os.stat(file).st_mtime)
    except OSError:
        return None  # gone since the listing; the page reports missing pictures


def image_facts(
    result: RunResult,
    images: Sequence[int],
    place: Mapping[int, int],
    second: npt.NDArray[np.int64],
    second_certainty: npt.NDArray[np.float32],
    truths: Mapping[str, int],
    times: Sequence[int | None],
) -> dict[str, Any]:
    """Return one entry per image of the page and fact.

    `place` is the position of each category on the page, `truths` that of each true class in the table of truth, and
    `times` are those of all images of the run.
    """
    counted = [i for i in images if result.part[i] == "unlabelled" and result.truth[i] in truths]
    in_table = {i: truths[str(result.truth[i])] for i in counted}
    own = [times[i] for i in images]
    return {
        "part": "".join(PART_LETTERS[result.part[i]] for i in images),
        "second": [place[int(second[i])] if second[i] >= 0 else -1 for i in images],
        "second_certainty": [round(float(second_certainty[i]), 3) for i in images],
        "truth": [in_table.get(i, -1) for i in images],
        "time": own if any(time is not None for time in own) else [],
    }
