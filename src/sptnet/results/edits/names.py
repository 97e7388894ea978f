"""The categories of a model under the names that a person gave them: for images that the model sees later.

A renamed or merged category has one new name. Of a split one, an image gets the part whose mean direction, at the time
of the split, is nearest to its feature. What was done to single images says nothing about others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sptnet.results.categories import mean_directions
from sptnet.results.edits.apply import apply_edit
from sptnet.results.edits.log import in_force, read_edits
from sptnet.results.edits.types import Edit, Merge, Rename, SplitCategory
from sptnet.results.run_result import RunResult, read_result

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Part:
    """All of a model's category, or one part of it after a split, under its present name."""

    name: str
    direction: Floats


@dataclass(frozen=True, eq=False)
class EditedNames:
    names: tuple[str, ...]
    """Present categories, the known ones first."""
    n_known: int
    parts: tuple[tuple[Part, ...], ...]
    """What each category of the model has become."""

    def translate(self, categories: Ids, features: Floats) -> Ids:
        """From the model's categories of images, with the features of the images, to indices into `names`."""
        position = {name: i for i, name in enumerate(self.names)}
        translated = np.empty(len(categories), dtype=np.int64)
        for category in np.unique(categories):
            its_parts, images = self.parts[category], np.flatnonzero(categories == category)
            cosines = features[images] @ np.stack([part.direction for part in its_parts]).T
            translated[images] = np.array([position[part.name] for part in its_parts])[cosines.argmax(axis=1)]
        return translated


def names_for(run: str | Path) -> EditedNames | None:
    """Of an edited run; None for one without edits, and for a model directory."""
    edits = read_edits(run)
    return edited_names(read_result(run), edits) if in_force(edits) else None


def edited_names(result: RunResult, edits: Sequence[Edit]) -> EditedNames:
    """What the categories of an unedited run are called after its edits."""
    nowhere = np.zeros(result.features.shape[1], dtype=np.float32)
    parts: list[tuple[Part, ...]] = [(Part(name, nowhere),) for name in result.names]
    for edit in in_force(edits):
        before, result = result, apply_edit(result, edit)
        match edit:
            case Rename(category, to):
                parts = [_renamed(its, {category}, to) for its in parts]
            case Merge(categories, into):
                parts = [_renamed(its, set(categories), into) for its in parts]
            case SplitCategory(category, n, _):
                first = before.names.index(category)
                directions = mean_directions(result)
                fresh = tuple(Part(result.names[i], directions[i]) for i in range(first, first + n))
                parts = [tuple(new for part in its for new in _divided(part, category, fresh)) for its in parts]
    return EditedNames(result.names, result.n_known, tuple(parts))


def _renamed(parts: tuple[Part, ...], old: set[str], new: str) -> tuple[Part, ...]:
    return tuple(replace(part, name=new) if part.name in old else part for part in parts)


def _divided(part: Part, category: str, fresh: tuple[Part, ...]) -> tuple[Part, ...]:
    return fresh if part.name == category else (part,)
