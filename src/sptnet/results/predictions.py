"""Reading and writing of `predictions.csv` and of the features of a run.

The table of a run has one row per image: category, new or not, certainty, part of the split, truth if known, and the
first and second choice of the model. The category of a labelled image is its label; that of any other image is the
guess of the model. The certainty is the probability that the guess is right. The second choice is the best category
other than the one in the column category. Tables of other images have the first four columns, and exports begin with
them.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from sptnet.data.folder import EXPORTED
from sptnet.data.image_set import ImageSet
from sptnet.data.split import Split
from sptnet.errors import Misuse, SptnetError
from sptnet.model.model_path import resuming
from sptnet.results.assessment import Assessment
from sptnet.runtime import readers
from sptnet.runtime.files import write_atomically, write_csv_atomically
from sptnet.runtime.readers import read_csv, reading
from sptnet.runtime.tensor_files import read_arrays
from sptnet.runtime.text import for_spreadsheet, printable

COLUMNS = EXPORTED
RUN_COLUMNS_0_2 = (*COLUMNS, "part", "truth")
"""Columns of runs of version 0.2 and before, whose category is the guess of the model."""
RUN_COLUMNS = (*RUN_COLUMNS_0_2, "guess", "second", "second_certainty")
PARTS = ("labelled", "unlabelled", "holdout", "test")
FEATURES = "features.safetensors"
SHORTEST = np.float32(1e-12)  # length below which a row counts as zeros

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


def prediction_rows(
    images: Iterable[Path | str], categories: Ids, certainty: Floats, names: tuple[str, ...], n_known: int
) -> Iterator[list[str]]:
    """Yield the first four columns per image; categories are indices into `names`, the known ones first."""
    for image, category, value in zip(images, categories, certainty, strict=True):
        yield [str(image), names[category], "yes" if category >= n_known else "no", f"{value:.4f}"]


def rows_for_people(rows: Iterable[list[str]]) -> Iterator[list[str]]:
    """Yield the rows of `prediction_rows` with names that no spreadsheet takes for a formula.

    For exports and tables of `predict`. The table of a run, which is read back, has the names as they are.
    """
    for image, category, *rest in rows:
        yield [for_spreadsheet(image), for_spreadsheet(category), *rest]


def final_categories(split: Split, guess: Ids) -> Ids:
    """Return the category per image: the label of labelled training images, else the guess of the model."""
    categories = guess.copy()
    categories[split.labelled] = split.target[split.labelled]
    return categories


def write_predictions(
    path: Path, image_set: ImageSet, split: Split, names: tuple[str, ...], assessment: Assessment
) -> None:
    """Write the table of a run."""
    part_of = np.full(len(image_set), "unlabelled", dtype=object)
    for part in ("labelled", "holdout", "test"):
        part_of[getattr(split, part)] = part
    truth = [split.classes[target] if target >= 0 else "" for target in split.target]
    guess, categories = assessment.guess, final_categories(split, assessment.guess)
    differs = categories != guess
    second = np.where(differs, guess, assessment.second)
    second_certainty = np.where(differs, assessment.certainty, assessment.second_certainty)

    def choices(i: int) -> list[str]:
        rest = [names[second[i]], f"{second_certainty[i]:.4f}"] if second[i] >= 0 else ["", ""]
        return [part_of[i], truth[i], names[guess[i]], *rest]

    rows = prediction_rows(image_set.ids, categories, assessment.certainty, names, split.n_known)
    write_csv_atomically(path, RUN_COLUMNS, ([*row, *choices(i)] for i, row in enumerate(rows)))


def read_predictions(file: Path, run: Path) -> list[dict[str, str]]:
    """Read the table of a run, one dict per row with all of `RUN_COLUMNS`.

    Tables of version 0.2 and before have no second choice, and the guess of the model in the column category.
    """
    if not file.is_file():
        raise Misuse(f"the run {run} has no {file.name}: it did not finish. Finish it with: {_again(run)}")
    with reading(file, _way_out(run)):
        columns, rows, _ = read_csv(file, _way_out(run))
        if columns not in (RUN_COLUMNS, RUN_COLUMNS_0_2):
            raise ValueError(f"its columns are not {','.join(RUN_COLUMNS)}")
        _check_rows(rows, len(columns))
    return [{"guess": row["category"], "second": "", "second_certainty": "", **row} for row in rows]


def _check_rows(rows: list[dict[str, str]], n_columns: int) -> None:
    seen: set[str] = set()
    for number, row in enumerate(rows, start=1):
        if len(row) != n_columns or None in row.values():
            raise ValueError(f"row {number} does not have {n_columns} values")
        if not 0 <= float(row["certainty"]) <= 1 or row["part"] not in PARTS:
            raise ValueError(f"row {number} has no certainty from 0 to 1, or no part")
        if not 0 <= float(row.get("second_certainty") or 0) <= 1:
            raise ValueError(f"row {number} has no second certainty from 0 to 1")
        if row["image"] in seen:
            raise ValueError(f"row {number} names {printable(row['image'])} again")
        seen.add(row["image"])


def write_features(path: Path, features: npt.ArrayLike) -> None:
    """Write the features of all images, n x d in the order of the table, as unit rows in half precision."""
    unit = np.ascontiguousarray(_unit_rows(np.asarray(features, dtype=np.float32)), dtype=np.float16)
    write_atomically(path, lambda part: save_file({"features": unit}, part))


def read_features(file: Path, n: int, run: Path) -> Floats:
    """Read the features of `n` images, n x d with unit rows."""
    if not file.is_file():
        raise Misuse(f"the run {run} has no {file.name}: an older sptnet made it. Write it with: {_again(run)}")
    features = read_arrays(file, _way_out(run)).get("features", np.empty(0))
    if features.ndim != 2 or features.dtype not in (np.float16, np.float32) or not np.isfinite(features).all():
        raise damaged(file, "it holds no finite features", run)
    if len(features) != n:
        raise damaged(file, f"it is for {len(features)} images, not {n}", run)
    return _unit_rows(features.astype(np.float32))


def _unit_rows(features: Floats) -> Floats:
    """Divide every row of n x d features by its length; rows of zeros stay."""
    lengths = np.linalg.norm(features, axis=1, keepdims=True)
    unit: Floats = features / np.maximum(lengths, SHORTEST)
    return unit


def damaged(file: Path, why: object, run: Path) -> SptnetError:
    """Return the error for a file of a run that can be written again."""
    return readers.damaged(file, why, _way_out(run))


def _way_out(run: Path) -> str:
    return f"Write it again with: {_again(run)}"


def _again(run: Path) -> str:
    return resuming(run)
