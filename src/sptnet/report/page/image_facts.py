"""Facts about single images for the page: part of the split, second choice, true class, time of the file."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sptnet.data.image_file import ImageSource
from sptnet.results.run_result import RunResult

PART_LETTERS = {"labelled": "l", "unlabelled": "u", "holdout": "h", "test": "t"}


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
