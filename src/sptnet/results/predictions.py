"""Reading and writing of `predictions.csv` and of the features of a run.

The table of a run has one row per image: category, new or not, certainty, part of the split, truth if known. Tables of
other images and exports have the first four columns.
"""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from sptnet.data.image_set import ImageSet
from sptnet.data.split import Split
from sptnet.errors import Failure, Misuse
from sptnet.runtime.files import write_atomically, write_csv_atomically
from sptnet.runtime.text import printable

COLUMNS = ("image", "category", "is_new", "certainty")
RUN_COLUMNS = (*COLUMNS, "part", "truth")
PARTS = ("labelled", "unlabelled", "holdout", "test")
FEATURES = "features.safetensors"

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


def prediction_rows(
    images: Iterable[Path | str], categories: Ids, certainty: Floats, names: tuple[str, ...], n_known: int
) -> Iterator[list[str]]:
    """Yield the first four columns per image; categories are indices into `names`, the known ones first."""
    for image, category, value in zip(images, categories, certainty, strict=True):
        yield [str(image), names[category], "yes" if category >= n_known else "no", f"{value:.4f}"]


def write_predictions(
    path: Path, image_set: ImageSet, split: Split, names: tuple[str, ...], categories: Ids, certainty: Floats
) -> None:
    """Write the table of a run."""
    part_of = np.full(len(image_set), "unlabelled", dtype=object)
    for part in ("labelled", "holdout", "test"):
        part_of[getattr(split, part)] = part
    truth = [split.classes[target] if target >= 0 else "" for target in split.target]
    rows = prediction_rows(image_set.ids, categories, certainty, names, split.n_known)
    write_csv_atomically(path, RUN_COLUMNS, ([*row, part_of[i], truth[i]] for i, row in enumerate(rows)))


def read_predictions(file: Path, run: Path) -> list[dict[str, str]]:
    """Read the table of a run, one dict per row."""
    if not file.is_file():
        raise Misuse(f"the run {run} has no {file.name}: it did not finish. Finish it with: {_again(run)}")
    try:
        with file.open(encoding="utf-8", errors="surrogatepass", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            if reader.fieldnames != list(RUN_COLUMNS):
                raise ValueError(f"its columns are not {','.join(RUN_COLUMNS)}")
            rows = list(reader)
        _check_rows(rows)
    except (ValueError, csv.Error) as error:
        raise damaged(file, error, run) from error
    return rows


def _check_rows(rows: list[dict[str, str]]) -> None:
    seen: set[str] = set()
    for number, row in enumerate(rows, start=1):
        if len(row) != len(RUN_COLUMNS) or None in row.values():
            raise ValueError(f"row {number} does not have {len(RUN_COLUMNS)} values")
        if not 0 <= float(row["certainty"]) <= 1 or row["part"] not in PARTS:
            raise ValueError(f"row {number} has no certainty from 0 to 1, or no part")
        if row["image"] in seen:
            raise ValueError(f"row {number} names {printable(row['image'])} again")
        seen.add(row["image"])


def write_features(path: Path, features: Float[Tensor, "n d"]) -> None:
    """Write the features of all images in the order of the table, as unit rows in half precision."""
    unit = F.normalize(features.detach().float().cpu(), dim=1).half().contiguous()
    write_atomically(path, lambda part: save_file({"features": unit}, part))


def read_features(file: Path, n: int, run: Path) -> Floats:
    """Read the features of `n` images, n x d with unit rows."""
    if not file.is_file():
        raise Misuse(f"the run {run} has no {file.name}: an older sptnet made it. Write it with: {_again(run)}")
    try:
        tensors = load_file(file)
    except (SafetensorError, OSError) as error:
        raise damaged(file, error, run) from error
    features = tensors.get("features", torch.empty(0)).float()
    if features.ndim != 2 or not features.isfinite().all():
        raise damaged(file, "it holds no finite features", run)
    if len(features) != n:
        raise damaged(file, f"it is for {len(features)} images, not {n}", run)
    unit: Floats = F.normalize(features, dim=1).numpy()
    return unit


def damaged(file: Path, why: object, run: Path) -> Failure:
    """Return the error for a file of a run that can be written again."""
    return Failure(f"{file} is damaged ({why}). Write it again with: {_again(run)}")


def _again(run: Path) -> str:
    return f"`train(resume=True, out={str(run)!r})`"
