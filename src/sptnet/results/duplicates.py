"""Reading and writing of `duplicates.csv`, and the result of a run with the duplicates that it left out.

The table has one row per image that duplicates another one: the image, the one that it duplicates, its own label if it
has one, and whether it was left out.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sptnet.data.check.skip_duplicates import Duplicate
from sptnet.results.run_folder import RunFolder
from sptnet.results.run_result import RunResult, paths_of
from sptnet.runtime.files import write_csv_atomically
from sptnet.runtime.readers import read_csv, reading
from sptnet.runtime.text import first_three, printable

COLUMNS = ("image", "duplicate_of", "label", "skipped")


def write_duplicates(path: Path, duplicates: Sequence[Duplicate]) -> None:
    """Write the table."""
    rows = ([d.image, d.original, d.label, "yes" if d.skipped else "no"] for d in duplicates)
    write_csv_atomically(path, COLUMNS, rows)


def read_duplicates(run: RunFolder, ids: Collection[str]) -> list[Duplicate] | None:
    """Read the duplicates of a run whose other images are `ids`; None if the run did not look for them."""
    file = run.duplicates_file
    if not file.is_file():
        return None
    way_out = f"Delete it, and write it again with: `train(resume=True, out={str(run.path)!r})`"
    with reading(file, way_out):
        columns, rows, _ = read_csv(file, way_out)
        if columns != COLUMNS or any(len(row) != len(COLUMNS) or None in row.values() for row in rows):
            raise ValueError(f"its columns are not {','.join(COLUMNS)}")
        wrong = [row["skipped"] for row in rows if row["skipped"] not in ("yes", "no")]
        if wrong:
            raise ValueError(f"skipped is {wrong[0]}, not yes or no")
        found = [Duplicate(row["image"], row["duplicate_of"], row["label"], row["skipped"] == "yes") for row in rows]
        known, left_out = set(ids), [d.image for d in found if d.skipped]
        strangers = [d.original for d in found if d.original not in known] + [
            image for image in left_out if image in known
        ]
        if strangers or len(set(left_out)) < len(left_out):
            raise ValueError(f"it does not fit predictions.csv: {first_three([printable(s) for s in strangers])}")
    return found


def positions_of_originals(result: RunResult, skipped: Sequence[Duplicate]) -> npt.NDArray[np.int64]:
    """Return the position of the image that each duplicate resembles."""
    position = {id_: i for i, id_ in enumerate(result.ids)}
    return np.array([position[duplicate.original] for duplicate in skipped], dtype=np.int64)


def with_skipped(result: RunResult, skipped: Sequence[Duplicate], folder: str | None) -> RunResult:
    """Return the result with the duplicates that were left out at its end, each with the category of its original.

    `folder` is the data folder of the run.
    """
    if not skipped:
        return result
    ids = tuple(duplicate.image for duplicate in skipped)
    rows = np.concatenate([np.arange(len(result)), positions_of_originals(result, skipped)])
    return replace(
        result,
        ids=(*result.ids, *ids),
        sources=(*result.sources, *paths_of(folder, ids)),
        part=(*result.part, *("labelled" if duplicate.label else "unlabelled" for duplicate in skipped)),
        truth=(*result.truth, *(duplicate.label or None for duplicate in skipped)),
        category=result.category[rows],
        certainty=result.certainty[rows],
        features=result.features[rows],
        guess=result.guess[rows],
        guess_certainty=result.guess_certainty[rows],
        counts={},
    )
