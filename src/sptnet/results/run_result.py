"""The result of a finished run, read from its folder: images, categories, certainty, features."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

from sptnet.errors import Misuse
from sptnet.model.description import read_categories
from sptnet.model.model_path import DESCRIPTION, find_model_folder
from sptnet.results.counts import Clustering, KeptCounts
from sptnet.results.predictions import FEATURES, damaged, read_features, read_predictions
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.text import first_three, printable

DROPPED = -1


@dataclass(frozen=True, eq=False)
class RunResult:
    """The images of a run with their categories; all columns have one entry per image."""

    ids: tuple[str, ...]
    sources: tuple[str | None, ...]
    """Path of each image; None if the image has no file, or its file is gone."""
    part: tuple[str, ...]
    """labelled, unlabelled, holdout or test."""
    names: tuple[str, ...]
    """Categories, the known ones first."""
    n_known: int
    category: npt.NDArray[np.int64]
    """Index into `names`, of shape (n,); -1 for a dropped image."""
    certainty: npt.NDArray[np.float32]
    """Probability that the category is right, of shape (n,); 1 where a person labelled, confirmed or moved the
    image."""
    features: npt.NDArray[np.float32]
    """n x d with unit rows."""
    truth: tuple[str | None, ...]
    """True class of each image, None where unknown."""
    confirmed: frozenset[str] = frozenset()
    """Ids of the images that a person confirmed in their category or moved to it."""
    guess: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """The model's own category, an index into `names` of shape (n,); `category` if not given."""
    guess_certainty: npt.NDArray[np.float32] = field(default_factory=lambda: np.empty(0, dtype=np.float32))
    """Probability that the guess is right, of shape (n,); `certainty` if not given."""
    counts: Mapping[int, Clustering] = field(default_factory=dict)
    """Clusterings of the images by number of categories."""

    def __post_init__(self) -> None:
        for column, default in (("guess", self.category), ("guess_certainty", self.certainty)):
            if len(getattr(self, column)) == 0:
                object.__setattr__(self, column, default)
        columns = ("sources", "part", "category", "certainty", "features", "truth", "guess", "guess_certainty")
        for column in columns:
            n = len(getattr(self, column))
            if n != len(self.ids):
                raise Misuse(f"there are {len(self.ids)} ids but {n} {column}. Give one for each image.")
        for kind, texts in (("ids", self.ids), ("category names", self.names)):
            if len(set(texts)) != len(texts):
                raise Misuse(f"the {kind} repeat. Give each its own.")
        indices = np.concatenate([self.category, self.guess])
        if ((indices < DROPPED) | (indices >= len(self.names))).any():
            raise Misuse(f"a category lies outside -1..{len(self.names) - 1}. Give an index into the names, or -1.")
        if not 0 <= self.n_known <= len(self.names):
            raise Misuse(
                f"{self.n_known} of {len(self.names)} categories cannot be known. Give 0 to {len(self.names)}."
            )

    def __len__(self) -> int:
        return len(self.ids)

    def members(self, name: str) -> npt.NDArray[np.int64]:
        """Return the positions of the images in a category."""
        return np.flatnonzero(self.category == self.names.index(name))

    def is_new(self, name: str) -> bool:
        """Return True if the category is not a known class."""
        return self.names.index(name) >= self.n_known


def read_result(run_path: str | Path) -> RunResult:
    """Read the result of a finished run without its edits.

    Labelled images have the category of their label, with certainty 1; the guess of the model may differ.
    """
    run = RunFolder(run_path)
    folder = run.config().data.folder
    names, n_known = read_categories(find_model_folder(run.path) / DESCRIPTION)
    rows = read_predictions(run.predictions_file, run.path)
    index = {name: i for i, name in enumerate(names)}
    named = {row[column] for row in rows for column in ("category", "guess")} | {row["second"] for row in rows} - {""}
    strangers = sorted(printable(name) for name in named if name not in index)
    if strangers:
        raise damaged(run.predictions_file, f"its model has no category {first_three(strangers)}", run.path)
    ids = tuple(row["image"] for row in rows)
    labelled = [row["part"] == "labelled" and row["truth"] in index for row in rows]
    category = [row["truth" if known else "category"] for row, known in zip(rows, labelled, strict=True)]
    category_ids = np.array([index[name] for name in category], dtype=np.int64)
    certainty = np.array(
        [1.0 if known else float(row["certainty"]) for row, known in zip(rows, labelled, strict=True)], dtype=np.float32
    )
    return RunResult(
        ids=ids,
        sources=tuple(paths_of(folder, ids)),
        part=tuple(row["part"] for row in rows),
        names=names,
        n_known=n_known,
        category=category_ids,
        certainty=certainty,
        features=read_features(run.path / FEATURES, len(rows), run.path),
        truth=tuple(row["truth"] or None for row in rows),
        guess=np.array([index[row["guess"]] for row in rows], dtype=np.int64),
        guess_certainty=np.array([float(row["certainty"]) for row in rows], dtype=np.float32),
        counts=KeptCounts(run.path, Clustering(category_ids, certainty, None, n_known), len(names)),
    )


def paths_of(folder: str | None, ids: tuple[str, ...]) -> Iterable[str | None]:
    """Yield the path of each image in the data folder, None if it has none. Paths outside the folder are ignored."""
    root = None if folder is None else Path(folder).absolute()
    for id_ in ids:
        inside = PurePosixPath(id_)
        is_inside = "\0" not in id_ and not inside.is_absolute() and ".." not in inside.parts
        path = root / inside if root is not None and is_inside else None
        yield str(path) if path is not None and os.path.isfile(path) else None  # a name may be too long


def image_ids(result: RunResult, images: Iterable[str]) -> tuple[str, ...]:
    """Return the id of every image that is given by its id or by the path of its file; other names stay as they are."""
    by_source = {source: id_ for id_, source in zip(result.ids, result.sources, strict=True) if source is not None}
    ids = set(result.ids)
    return tuple(image if image in ids else by_source.get(str(Path(image).absolute()), image) for image in images)
