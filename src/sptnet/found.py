"""What a finished run found, read back from its directory: images, categories, certainty, features."""

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from sptnet.errors import Failure, Misuse
from sptnet.model.model_folder import DESCRIPTION, find_model_folder
from sptnet.run_folder import RunFolder
from sptnet.runtime.files import write_atomically
from sptnet.runtime.text import first_three, printable

FEATURES = "features.safetensors"
DROPPED = -1
PARTS = ("labelled", "unlabelled", "holdout", "test")
COLUMNS = ["image", "category", "is_new", "certainty", "part", "truth"]


@dataclass(frozen=True, eq=False)
class Found:
    """Every image of a run with its category; one entry an image in every column."""

    ids: tuple[str, ...]
    sources: tuple[str | None, ...]
    """The file of each image; None where it has none, or none that is still there."""
    part: tuple[str, ...]
    """labelled, unlabelled, holdout or test."""
    names: tuple[str, ...]
    """Categories, the known ones first."""
    n_known: int
    category: npt.NDArray[np.int64]
    """Index into `names`; -1 for an image that a person has dropped."""
    certainty: npt.NDArray[np.float32]
    """The model's, from 0 to 1; 1 where a person has labelled or moved the image."""
    features: npt.NDArray[np.float32]
    """n x d, rows of length one."""
    truth: tuple[str | None, ...]

    def __post_init__(self) -> None:
        for column in ("sources", "part", "category", "certainty", "features", "truth"):
            n = len(getattr(self, column))
            if n != len(self.ids):
                raise Misuse(f"there are {len(self.ids)} ids but {n} {column}. Give one for each image.")
        for kind, texts in (("ids", self.ids), ("category names", self.names)):
            if len(set(texts)) != len(texts):
                raise Misuse(f"the {kind} repeat. Give each its own.")
        if ((self.category < DROPPED) | (self.category >= len(self.names))).any():
            raise Misuse(f"a category lies outside -1..{len(self.names) - 1}. Give an index into the names, or -1.")
        if not 0 <= self.n_known <= len(self.names):
            raise Misuse(
                f"{self.n_known} of {len(self.names)} categories cannot be known. Give 0 to {len(self.names)}."
            )

    def __len__(self) -> int:
        return len(self.ids)

    def members(self, name: str) -> npt.NDArray[np.int64]:
        """Positions of the images in a category."""
        return np.flatnonzero(self.category == self.names.index(name))

    def is_new(self, name: str) -> bool:
        return self.names.index(name) >= self.n_known


def write_features(path: Path, features: Float[Tensor, "n d"]) -> None:
    """Features of all images of a run, in the order of predictions.csv: rows of length one, in half precision."""
    unit = F.normalize(features.detach().float().cpu(), dim=1).half().contiguous()
    write_atomically(path, lambda part: save_file({"features": unit}, part))


def read_found(run_path: str | Path) -> Found:
    """What a finished run found, before anybody edited it: labelled images are where their label says.

    Where the model disagrees with a label, the image is near another category, which makes it doubtful.
    """
    run = RunFolder(run_path)
    folder = run.config().data.folder
    names, n_known = _categories(find_model_folder(run.path) / DESCRIPTION)
    rows = _rows(run.predictions_file, run.path)
    index = {name: i for i, name in enumerate(names)}
    strangers = sorted({printable(row["category"]) for row in rows if row["category"] not in index})
    if strangers:
        raise _damaged(run.predictions_file, f"its model has no category {first_three(strangers)}", run.path)
    ids = tuple(row["image"] for row in rows)
    labelled = [row["part"] == "labelled" and row["truth"] in index for row in rows]
    placed = [row["truth" if known else "category"] for row, known in zip(rows, labelled, strict=True)]
    return Found(
        ids=ids,
        sources=tuple(_sources(folder, ids)),
        part=tuple(row["part"] for row in rows),
        names=names,
        n_known=n_known,
        category=np.array([index[name] for name in placed], dtype=np.int64),
        certainty=np.array(
            [1.0 if known else row["certainty"] for row, known in zip(rows, labelled, strict=True)], dtype=np.float32
        ),
        features=_features(run.path / FEATURES, len(rows), run.path),
        truth=tuple(row["truth"] or None for row in rows),
    )


def _again(run: Path) -> str:
    return f"sptnet train --resume --out {run}"


def _damaged(file: Path, why: object, run: Path) -> Failure:
    return Failure(f"{file} is damaged ({why}). Write it again with: {_again(run)}")


def _categories(description: Path) -> tuple[tuple[str, ...], int]:
    """The names alone: no weights are read."""
    try:
        content = json.loads(description.read_text(encoding="utf-8"))
        names, n_known = tuple(content["categories"]), content["n_known"]
        if not all(isinstance(name, str) for name in names) or not isinstance(n_known, int):
            raise TypeError("categories are names, n_known is a number")
    except (ValueError, KeyError, TypeError) as error:
        raise Failure(f"{description} is damaged ({error}). Copy it again or train again.") from error
    return names, n_known


def _rows(file: Path, run: Path) -> list[dict[str, str]]:
    if not file.is_file():
        raise Misuse(f"the run {run} has no {file.name}: it did not finish. Finish it with: {_again(run)}")
    try:
        with file.open(encoding="utf-8", errors="surrogatepass", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            if reader.fieldnames != COLUMNS:
                raise ValueError(f"its columns are not {','.join(COLUMNS)}")
            rows = list(reader)
        _check_rows(rows)
    except (ValueError, csv.Error) as error:
        raise _damaged(file, error, run) from error
    return rows


def _check_rows(rows: list[dict[str, str]]) -> None:
    seen: set[str] = set()
    for number, row in enumerate(rows, start=1):
        if len(row) != len(COLUMNS) or None in row.values():
            raise ValueError(f"row {number} does not have {len(COLUMNS)} values")
        if not 0 <= float(row["certainty"]) <= 1 or row["part"] not in PARTS:
            raise ValueError(f"row {number} has no certainty from 0 to 1, or no part")
        if row["image"] in seen:
            raise ValueError(f"row {number} names {printable(row['image'])} again")
        seen.add(row["image"])


def _sources(folder: str | None, ids: tuple[str, ...]) -> Iterable[str | None]:
    """The file of every image that has one; an id never leads out of the data folder."""
    root = None if folder is None else Path(folder).absolute()
    for id_ in ids:
        inside = PurePosixPath(id_)
        below = root is not None and "\0" not in id_ and not inside.is_absolute() and ".." not in inside.parts
        path = root / inside if root is not None and below else None
        yield str(path) if path is not None and path.is_file() else None


def _features(file: Path, n: int, run: Path) -> npt.NDArray[np.float32]:
    if not file.is_file():
        raise Misuse(f"the run {run} has no {file.name}: an older sptnet made it. Write it with: {_again(run)}")
    try:
        tensors = load_file(file)
    except (SafetensorError, OSError) as error:
        raise _damaged(file, error, run) from error
    features = tensors.get("features", torch.empty(0)).float()
    if features.ndim != 2 or not features.isfinite().all():
        raise _damaged(file, "it holds no finite features", run)
    if len(features) != n:
        raise _damaged(file, f"it is for {len(features)} images, not {n}", run)
    unit: npt.NDArray[np.float32] = F.normalize(features, dim=1).numpy()
    return unit
