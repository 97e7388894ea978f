"""Predict image files into tables: one table, or one per part of a long list; each is written atomically.

Rank r of N takes parts r, r + N and so on, and skips parts that exist: a stopped job resumes with the next part, with
any number of processes.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
import torch

from sptnet.data.image_file import UnreadableImage
from sptnet.data.image_set import UNKNOWN, ImageSet
from sptnet.data.readable import drop_unreadable, too_many_unreadable
from sptnet.errors import Failure
from sptnet.inference.bulk.file_batches import predict_batches
from sptnet.inference.features import Outputs
from sptnet.inference.predictor import Predictor
from sptnet.results.edits.names import EditedNames
from sptnet.results.predictions import COLUMNS, prediction_rows, rows_for_people, write_features
from sptnet.runtime.files import make_folder, write_csv_atomically
from sptnet.runtime.memory import memory_kept
from sptnet.runtime.progress import Bar, bar, say, tracker
from sptnet.runtime.text import for_spreadsheet, from_spreadsheet, printable
from sptnet.runtime.torchrun import Rank

MOST_SHOWN = 10
"""Unreadable images that are named on stderr, if a file lists them all."""


@dataclass(frozen=True)
class NamedPredictor:
    """A predictor with the category names of its tables: those of the model, or those of the edited run."""

    predictor: Predictor
    edited: EditedNames | None
    with_features: bool = False
    """Write the features of each part beside its table."""

    def rows(self, images: Iterable[Path | str], outputs: Outputs) -> Iterator[list[str]]:
        """Yield a table row per image, with names that no spreadsheet takes for a formula."""
        categories, names, n_known = outputs.categories, self.predictor.categories, self.predictor.n_known
        certainty = self.predictor.probabilities(outputs).max(1)
        if self.edited is not None:
            categories, certainty = self.edited.assign(categories, certainty, outputs.unit_features)
            names, n_known = self.edited.names, self.edited.n_known
        return rows_for_people(prediction_rows(images, categories, certainty, names, n_known))


@dataclass(frozen=True)
class Tally:
    """Numbers of parts that this rank wrote and skipped."""

    done: int
    skipped: int


@dataclass(frozen=True)
class Prediction:
    """Row of a table."""

    image: str
    category: str
    is_new: bool
    certainty: float

    @staticmethod
    def from_row(row: Sequence[str]) -> "Prediction":
        """Read a row of `NamedPredictor.rows`."""
        image, category, is_new, certainty = row
        return Prediction(from_spreadsheet(image), from_spreadsheet(category), is_new == "yes", float(certainty))


@dataclass(frozen=True)
class PredictedTable:
    """Rows of a table, and the images that were skipped."""

    rows: list[Prediction]
    unreadable: list[UnreadableImage]


def features_file(table: Path) -> Path:
    """Path of the features of a part, in the order of its rows."""
    return table.with_suffix(".safetensors")


def unreadable_file(table: Path) -> Path:
    """Path of the list of unreadable images beside a table."""
    return table.with_suffix(".unreadable.csv")


def part_file(folder: Path, number: int) -> Path:
    """Path of the table of a part."""
    return folder / f"part-{number:05d}.csv"


def write_table(
    named: NamedPredictor, paths: Sequence[str], out: Path | TextIO, max_unreadable: float
) -> PredictedTable:
    """Write one table for all images to a file or a text stream, after every image has been predicted."""
    if isinstance(out, Path):
        make_folder(out.parent)
    image_set, unreadable = drop_unreadable(_as_image_set(paths), max_unreadable, tracker("reading images"))
    shown = unreadable[:MOST_SHOWN] if isinstance(out, Path) else unreadable
    for problem in shown:
        say(f"skipped {printable(problem.name)}: {problem.reason}")
    rows = list(named.rows(image_set.ids, named.predictor.outputs(image_set.sources)))
    if isinstance(out, Path):
        if unreadable:
            write_unreadable(unreadable_file(out), unreadable)
        write_csv_atomically(out, COLUMNS, rows, errors="surrogateescape")
        if unreadable:
            say(f"skipped {len(unreadable):,} unreadable of {len(paths):,} images: {unreadable_file(out)}")
        say(f"sorted {len(image_set)} images into {len({category for _, category, *_ in rows})} categories: {out}")
    else:
        csv.writer(out).writerows([COLUMNS, *rows])
    return PredictedTable(list(map(Prediction.from_row, rows)), list(unreadable))


def _as_image_set(paths: Sequence[str]) -> ImageSet:
    return ImageSet(
        name="images",
        ids=tuple(paths),
        sources=tuple(map(Path, paths)),
        names=(),
        labels=np.full(len(paths), UNKNOWN, dtype=np.int64),
        given=None,
        test=np.zeros(len(paths), dtype=np.bool_),
    )


def write_parts(
    named: NamedPredictor, paths: Sequence[str], folder: Path, part_size: int, max_unreadable: float, rank: Rank
) -> Tally:
    """Write the parts of this rank; existing parts are kept."""
    n_parts = -(-len(paths) // part_size)
    own = range(rank.rank, n_parts, rank.size)
    missing = [number for number in own if not part_file(folder, number).exists()]
    bounds = {number: slice(number * part_size, (number + 1) * part_size) for number in missing}
    finished = 0
    with memory_kept(), bar("sorting images", sum(len(range(len(paths))[part]) for part in bounds.values())) as update:
        for number, bound in bounds.items():
            part, to = [Path(path) for path in paths[bound]], part_file(folder, number)
            problems = write_part(named, part, to, max_unreadable, _counting_from(finished, update))
            finished += len(part)
            unreadable = f", {len(problems):,} of them unreadable" if problems else ""
            say(f"{to.name} (of {n_parts:,}): {len(part):,} images{unreadable}")
    return Tally(len(missing), len(own) - len(missing))


def _counting_from(start: int, update: Bar) -> Bar:
    return lambda done, note="": update(start + done, note)


def write_part(
    named: NamedPredictor, files: Sequence[Path], to: Path, max_unreadable: float, update: Bar
) -> list[UnreadableImage]:
    """Write the table of one part batch by batch; features and the table of unreadable files are complete before it."""
    problems: list[UnreadableImage] = []
    features = [torch.empty(0, named.predictor.model.backbone.dim)]

    def rows() -> Iterator[list[str]]:
        done = 0
        for batch in predict_batches(named.predictor, files):
            yield from named.rows(batch.files, batch.outputs)
            problems.extend(batch.problems)
            if named.with_features:
                features.append(batch.outputs.features)
            done += batch.n
            update(done)
        refusal = too_many_unreadable(problems, len(files), max_unreadable)
        if refusal is not None and max_unreadable < 1:
            skip = " Or skip them with `data.max_unreadable=1`." if len(problems) == len(files) else ""
            raise Failure(f"{to.name}: {refusal}{skip}")
        write_unreadable(unreadable_file(to), problems)
        if named.with_features:
            write_features(features_file(to), torch.cat(features).float().numpy())

    write_csv_atomically(to, COLUMNS, rows(), errors="surrogateescape")
    return problems


def write_unreadable(path: Path, problems: Sequence[UnreadableImage]) -> None:
    """Write the table of unreadable files; without any, remove the one that a stopped job may have left."""
    if not problems:
        path.unlink(missing_ok=True)
        return

    rows = ([for_spreadsheet(problem.name), for_spreadsheet(problem.reason)] for problem in problems)
    write_csv_atomically(path, ("image", "reason"), rows, errors="surrogateescape")
