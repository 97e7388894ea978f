"""Categories of a run: names, statistics, representative and doubtful images."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sptnet.errors import Misuse
from sptnet.results.run_result import RunResult
from sptnet.runtime.readers import read_text
from sptnet.runtime.text import count

MOST_REPRESENTATIVES = 12
DOUBTFUL_BELOW = 0.5

Floats = npt.NDArray[np.float32]


def category_names(known_classes: tuple[str, ...], n_categories: int) -> tuple[str, ...]:
    """Return the known classes, then new-1, new-2 and so on for the other categories."""
    taken = set(known_classes)
    candidates = (f"new-{i}" for i in range(1, n_categories + len(taken) + 1))
    new = [name for name in candidates if name not in taken][: n_categories - len(known_classes)]
    return (*known_classes, *new)


@dataclass(frozen=True)
class Category:
    """Statistics of one category."""

    name: str
    is_new: bool
    size: int
    """Number of images."""
    mean_certainty: float | None
    """None if the category has no images; so is the cohesion."""
    cohesion: float | None
    """Mean cosine similarity between the images and the mean direction of their category."""
    nearest_known: str | None
    """The other known category whose mean direction is nearest."""
    representatives: tuple[str, ...]
    """Ids of up to 12 images with the highest certainty times cosine to the mean direction, best first."""
    doubtful: tuple[str, ...]
    """Ids of the images without a label whose category is more likely wrong than right, least certain first."""


def describe_categories(result: RunResult) -> list[Category]:
    """Compute one entry per category in the order of the names, empty ones included. Dropped images do not count."""
    directions = mean_directions(result)
    filled = np.bincount(result.category[result.category >= 0], minlength=len(result.names)) > 0
    doubts = doubtful_images(result)
    return [_describe(result, index, directions, filled, doubts) for index in range(len(result.names))]


def doubtful_images(result: RunResult) -> npt.NDArray[np.bool_]:
    """Return True per image without a label whose category is more likely wrong than right, of shape (n,)."""
    unlabelled = np.array([part != "labelled" for part in result.part], dtype=np.bool_)
    return unlabelled & (result.certainty < DOUBTFUL_BELOW)


def labels_to_check(result: RunResult) -> npt.NDArray[np.int64]:
    """Return the positions of the labelled images whose label the model contradicts, most certain first.

    Dropped images and images that a person confirmed or moved are left out.
    """
    labelled = np.array([part == "labelled" for part in result.part], dtype=np.bool_)
    has_both = (result.category >= 0) & (result.guess >= 0)
    contradicted = np.flatnonzero(labelled & has_both & (result.guess != result.category))
    positions = np.array([i for i in contradicted if result.ids[i] not in result.confirmed], dtype=np.int64)
    return positions[np.argsort(-result.guess_certainty[positions], kind="stable")]


def mean_directions(result: RunResult) -> Floats:
    """Compute the normalised mean feature per category, n_categories x d; zeros for an empty category."""
    sums = np.zeros((len(result.names), result.features.shape[1]), dtype=np.float64)
    kept = result.category >= 0
    np.add.at(sums, result.category[kept], result.features[kept])
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return (sums / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _describe(
    result: RunResult, index: int, directions: Floats, filled: npt.NDArray[np.bool_], doubts: npt.NDArray[np.bool_]
) -> Category:
    members = np.flatnonzero(result.category == index)
    is_new = index >= result.n_known
    if len(members) == 0:
        return Category(result.names[index], is_new, 0, None, None, None, (), ())
    certainty = result.certainty[members]
    own = result.features[members] @ directions[index]
    rivals = filled & (np.arange(len(filled)) != index)
    best = np.argsort(-certainty * own, kind="stable")[:MOST_REPRESENTATIVES]
    doubtful = np.flatnonzero(doubts[members])
    doubtful = doubtful[np.argsort(certainty[doubtful], kind="stable")]
    return Category(
        name=result.names[index],
        is_new=is_new,
        size=len(members),
        mean_certainty=float(certainty.mean()),
        cohesion=float(own.mean()),
        nearest_known=_nearest_known(result, index, directions, rivals),
        representatives=tuple(result.ids[i] for i in members[best]),
        doubtful=tuple(result.ids[i] for i in members[doubtful]),
    )


def _nearest_known(result: RunResult, index: int, directions: Floats, rivals: npt.NDArray[np.bool_]) -> str | None:
    candidates = np.flatnonzero(rivals[: result.n_known])
    if len(candidates) == 0:
        return None
    return result.names[int(candidates[np.argmax(directions[candidates] @ directions[index])])]


def read_names(file: Path) -> tuple[str, ...]:
    """Read category names from a text file, one per line."""
    if not file.is_file():
        raise Misuse(f"there is no file {file}. Give a text file with one category name per line.")
    text = read_text(file, "Save it again as UTF-8.", Misuse, "is not text in UTF-8", encoding="utf-8-sig")
    lines = [line.strip() for line in text.rstrip().splitlines()]
    if "" in lines:
        raise Misuse(f"line {lines.index('') + 1} of {file} is empty. Write one category name per line.")
    times = Counter(lines)
    repeated = next((name for name in lines if times[name] > 1), None)
    if repeated is not None:
        raise Misuse(f"{file} names {repeated} more than once. Give each category its own name.")
    return tuple(lines)


def name_categories(names: tuple[str, ...], known: int | None, n_categories: int) -> tuple[tuple[str, ...], int]:
    """Name the categories of a model that has none, known ones first; return the names and the number of known ones.

    Without `known`, the named categories are the known ones, unless all of them are named.
    """
    if len(names) > n_categories:
        raise Misuse(f"{count(names, 'name')} for {n_categories} categories are too many. Leave out the last ones.")
    n_known = known if known is not None else len(names) if len(names) < n_categories else 0
    if n_known > n_categories:
        raise Misuse(
            f"the checkpoint has {n_categories} categories. Give `known` from 0 to {n_categories}, not {n_known}."
        )
    if names and len(names) < n_known:
        raise Misuse(
            f"{count(names, 'name')} for {n_known} known categories are too few. Name all known ones, or none."
        )
    return category_names(names or tuple(f"known-{i + 1}" for i in range(n_known)), n_categories), n_known
