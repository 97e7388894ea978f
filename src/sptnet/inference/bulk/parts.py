"""Prediction over any number of images: a table for each part of the list, written whole or not at all.

Process r of N takes parts r, r + N and so on, and passes over those that are there: a job that was stopped goes on part
by part, with as many processes as it likes.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from sptnet.data.image_file import UnreadableImage
from sptnet.data.readable import too_many_unreadable
from sptnet.errors import Failure
from sptnet.inference.bulk.attempts import attempt
from sptnet.inference.features import Outputs
from sptnet.inference.predictor import Predictor
from sptnet.results.edits.names import EditedNames
from sptnet.results.predictions import COLUMNS, prediction_rows, write_features
from sptnet.runtime.files import write_csv_atomically
from sptnet.runtime.memory import memory_kept
from sptnet.runtime.progress import Bar, bar, say
from sptnet.runtime.torchrun import Rank


@dataclass(frozen=True)
class Naming:
    """A model with its categories as they are called: by itself, or by the person who edited the run."""

    predictor: Predictor
    edited: EditedNames | None
    with_features: bool = False
    """Whether each part's features are wanted beside its table."""

    def rows(self, images: Iterable[Path | str], outputs: Outputs) -> Iterator[list[str]]:
        """The table's row of each image."""
        categories, names, n_known = outputs.categories, self.predictor.categories, self.predictor.n_known
        if self.edited is not None:
            categories = self.edited.translate(categories, outputs.unit_features)
            names, n_known = self.edited.names, self.edited.n_known
        return prediction_rows(images, categories, outputs.probabilities.max(1), names, n_known)


@dataclass(frozen=True)
class Tally:
    """Parts that this process wrote, and those of its own that were there already."""

    done: int
    skipped: int


def features_file(table: Path) -> Path:
    """Where the features of a part's rows lie, in the order of the rows."""
    return table.with_suffix(".safetensors")


def part_file(folder: Path, number: int) -> Path:
    return folder / f"part-{number:05d}.csv"


def write_parts(
    naming: Naming, files: Sequence[Path], folder: Path, part_size: int, max_unreadable: float, here: Rank
) -> Tally:
    """This process's parts of the list; those that are there already stay as they are."""
    n_parts = -(-len(files) // part_size)
    own = range(here.rank, n_parts, here.size)
    missing = [number for number in own if not part_file(folder, number).exists()]
    bounds = {number: slice(number * part_size, (number + 1) * part_size) for number in missing}
    finished = 0
    with memory_kept(), bar("sorting images", sum(len(range(len(files))[part]) for part in bounds.values())) as update:
        for number, bound in bounds.items():
            part, to = files[bound], part_file(folder, number)
            problems = write_part(naming, part, to, max_unreadable, _counting_from(finished, update))
            finished += len(part)
            unreadable = f", {len(problems):,} of them unreadable" if problems else ""
            say(f"{to.name} (of {n_parts:,}): {len(part):,} images{unreadable}")
    return Tally(len(missing), len(own) - len(missing))


def _counting_from(start: int, update: Bar) -> Bar:
    return lambda done, note="": update(start + done, note)


def write_part(
    naming: Naming, files: Sequence[Path], to: Path, max_unreadable: float, update: Bar
) -> list[UnreadableImage]:
    """One table, row by row as the batches come; features, and a table of what cannot be read, are there before it."""
    problems: list[UnreadableImage] = []
    features = [torch.empty(0, naming.predictor.model.backbone.dim)]

    def rows() -> Iterator[list[str]]:
        done = 0
        for batch in attempt(naming.predictor, files):
            yield from naming.rows(batch.files, batch.outputs)
            problems.extend(batch.problems)
            if naming.with_features:
                features.append(batch.outputs.features)
            done += batch.n
            update(done)
        refusal = too_many_unreadable(problems, len(files), max_unreadable, "--max-unreadable ")
        if refusal is not None and max_unreadable < 1:
            raise Failure(f"{to.name}: {refusal} With --max-unreadable 1 all such images are passed over.")
        write_unreadable(to.with_suffix(".unreadable.csv"), problems)
        if naming.with_features:
            write_features(features_file(to), torch.cat(features))

    write_csv_atomically(to, COLUMNS, rows(), errors="surrogateescape")
    return problems


def write_unreadable(path: Path, problems: Sequence[UnreadableImage]) -> None:
    """Where all can be read there is no such file, nor one that an earlier attempt at the part has left."""
    if not problems:
        path.unlink(missing_ok=True)
        return

    rows = ([problem.name, problem.reason] for problem in problems)
    write_csv_atomically(path, ("image", "reason"), rows, errors="surrogateescape")
