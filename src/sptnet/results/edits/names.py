"""Edited names for predictions on new images.

A renamed or merged category has one new name. For a split category, an image is assigned to the part whose mean
direction at the time of the split is nearest to its feature. After the choice of another number of categories, an image
is assigned to the nearest centroid of that clustering instead of by the model. Edits of single images do not affect
others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sptnet.results.categories import mean_directions
from sptnet.results.counts import Clustering, certainty_of
from sptnet.results.edits.apply import apply_edit
from sptnet.results.edits.log import in_force, read_edits
from sptnet.results.edits.types import CarryNames, Count, Edit, Merge, Rename, SplitCategory
from sptnet.results.run_result import RunResult, read_result

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Part:
    """A category of the model, or one part of it after a split, with its current name."""

    name: str
    direction: Floats
    """Mean direction of shape (d,), zeros for a category that was not split."""


@dataclass(frozen=True, eq=False)
class EditedNames:
    """Mapping from the categories of a model to those of the edited run."""

    names: tuple[str, ...]
    """Current categories, the known ones first."""
    n_known: int
    parts: tuple[tuple[Part, ...], ...]
    """Parts of each category of the model, or of the clustering that replaces it."""
    clustering: Clustering | None = None
    """Clustering that decides instead of the model."""

    def assign(self, categories: Ids, certainty: Floats, features: Floats) -> tuple[Ids, Floats]:
        """Return the categories of n images as indices into `names`, and their certainty.

        `categories` and `certainty` are those of the model, `features` are n x d with unit rows.
        """
        if self.clustering is not None and self.clustering.centroids is not None:
            categories = self.clustering.nearest(features)
            certainty = certainty_of(features, self.clustering.centroids)
        return self.translate(categories, features), certainty

    def translate(self, categories: Ids, features: Floats) -> Ids:
        """Translate categories of n images, as indices into `parts`, to indices into `names`; `features` are n x d."""
        position = {name: i for i, name in enumerate(self.names)}
        translated = np.empty(len(categories), dtype=np.int64)
        for category in np.unique(categories):
            parts, images = self.parts[category], np.flatnonzero(categories == category)
            cosines = features[images] @ np.stack([part.direction for part in parts]).T
            translated[images] = np.array([position[part.name] for part in parts])[cosines.argmax(axis=1)]
        return translated


def names_for(run: str | Path) -> EditedNames | None:
    """Return the names of an edited run; None for a run without edits, and for a model directory."""
    edits = read_edits(run)
    return edited_names(read_result(run), edits) if in_force(edits) else None


def edited_names(result: RunResult, edits: Sequence[Edit]) -> EditedNames:
    """Return the names after the edits; `result` is the unedited result of the run."""
    zeros = np.zeros(result.features.shape[1], dtype=np.float32)
    parts: list[tuple[Part, ...]] = [(Part(name, zeros),) for name in result.names]
    clustering: Clustering | None = None
    for edit in in_force(edits):
        before, result = result, apply_edit(result, edit)
        match edit:
            case Rename(category, to):
                parts = [_renamed(its, {category: to}) for its in parts]
            case Merge(categories, into):
                parts = [_renamed(its, dict.fromkeys(categories, into)) for its in parts]
            case CarryNames(categories, names):
                parts = [_renamed(its, dict(zip(categories, names, strict=True))) for its in parts]
            case SplitCategory(category, n, _):
                first = before.names.index(category)
                directions = mean_directions(result)
                fresh = tuple(Part(result.names[i], directions[i]) for i in range(first, first + n))
                parts = [tuple(new for part in its for new in _divided(part, category, fresh)) for its in parts]
            case Count(n_categories):
                chosen = result.counts[n_categories]
                clustering = None if chosen.centroids is None else chosen
                parts = [(Part(name, zeros),) for name in result.names]
    return EditedNames(result.names, result.n_known, tuple(parts), clustering)


def _renamed(parts: tuple[Part, ...], to: Mapping[str, str]) -> tuple[Part, ...]:
    return tuple(replace(part, name=to.get(part.name, part.name)) for part in parts)


def _divided(part: Part, category: str, fresh: tuple[Part, ...]) -> tuple[Part, ...]:
    return fresh if part.name == category else (part,)
