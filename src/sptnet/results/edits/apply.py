"""Application of edits: pure functions from one state of a result to the next."""

import difflib
from collections.abc import Sequence
from dataclasses import replace
from string import ascii_lowercase

import numpy as np
import numpy.typing as npt

from sptnet.errors import Misuse
from sptnet.results.edits.choose_count import apply_count
from sptnet.results.edits.types import (
    CarryNames,
    Confirm,
    Count,
    Drop,
    Edit,
    Merge,
    Move,
    Rename,
    SplitCategory,
    Undo,
)
from sptnet.results.run_result import DROPPED, RunResult
from sptnet.runtime.text import first_three, listed, printable

LONGEST_NAME = 100


def apply_edit(result: RunResult, edit: Edit) -> RunResult:
    """Return the result after one edit. Deterministic."""
    match edit:
        case Rename():
            return _rename(result, edit)
        case Merge():
            return _merge(result, edit)
        case SplitCategory():
            return _split(result, edit)
        case Move():
            return _move(result, edit)
        case Drop():
            category = result.category.copy()
            category[_positions(result, edit.images)] = DROPPED
            return replace(result, category=category, confirmed=result.confirmed - set(edit.images))
        case Confirm():
            return _confirm(result, edit)
        case CarryNames():
            return _carry_names(result, edit)
        case Count():
            return apply_count(result, edit)
        case Undo():
            raise Misuse("an undo alone changes nothing. Replay it with the edits before it.")


def _rename(result: RunResult, edit: Rename) -> RunResult:
    index = _index(result, edit.category)
    if edit.to in result.names:
        raise Misuse(
            f"there is a category {printable(edit.to)} already. Choose another name, or put both together with "
            f"merge {printable(edit.category)} `into={printable(edit.to)}`."
        )
    check_name(edit.to)
    return replace(result, names=(*result.names[:index], edit.to, *result.names[index + 1 :]))


def _merge(result: RunResult, edit: Merge) -> RunResult:
    named = [_index(result, name) for name in edit.categories]
    if len(set(named)) != len(named):
        raise Misuse("a category is named twice to be merged. Name each once.")
    exists = edit.into in result.names
    group = sorted({*named, *([result.names.index(edit.into)] if exists else [])})
    if len(group) < 2:
        raise Misuse(
            f"there is nothing to merge {printable(edit.categories[0])} with. Name two or more categories, or give it "
            "another name with rename."
        )
    if not exists:
        check_name(edit.into)
    target = result.names.index(edit.into) if exists else named[0]
    if target >= result.n_known > group[0]:
        target = group[0]  # known categories come first: the merged category is known if any of the group is
    kept = [i for i in range(len(result.names)) if i == target or i not in group]
    new_index = np.full(len(result.names) + 1, DROPPED, dtype=np.int64)  # the last entry is for dropped images
    new_index[kept] = np.arange(len(kept))
    new_index[group] = kept.index(target)
    return replace(
        result,
        names=tuple(edit.into if i == target else result.names[i] for i in kept),
        n_known=sum(i < result.n_known for i in kept),
        category=new_index[result.category],
        guess=new_index[result.guess],
    )


def _split(result: RunResult, edit: SplitCategory) -> RunResult:
    index = _index(result, edit.category)
    members = np.flatnonzero(result.category == index)
    if not 2 <= edit.parts <= len(ascii_lowercase):
        raise Misuse(f"a category cannot be split into {edit.parts} parts. Give 2 to {len(ascii_lowercase)}.")
    if not 0 <= edit.seed < 2**32:
        raise Misuse(f"the seed {edit.seed} cannot be used. Give a whole number from 0 to {2**32 - 1}.")
    parts = _parts(result, members, edit)
    if len(np.unique(parts)) < edit.parts:
        raise Misuse(
            f"{printable(edit.category)} has too few different images ({len(members)} in all) for {edit.parts} parts. "
            "Ask for fewer."
        )
    free = [name for name in (f"{edit.category}-{x}" for x in ascii_lowercase) if name not in result.names]
    if len(free) < edit.parts:
        raise Misuse(f"too few names {printable(edit.category)}-a to -z are free. Rename the category first.")
    for name in free[: edit.parts]:
        check_name(name)
    category = np.where(result.category > index, result.category + edit.parts - 1, result.category)
    category[members] = index + parts
    guess = np.where(result.guess > index, result.guess + edit.parts - 1, result.guess)
    guess[members] = np.where(result.guess[members] == index, category[members], guess[members])
    return replace(
        result,
        names=(*result.names[:index], *free[: edit.parts], *result.names[index + 1 :]),
        n_known=result.n_known + (edit.parts - 1 if index < result.n_known else 0),
        category=category,
        guess=guess,
        confirmed=result.confirmed - {result.ids[i] for i in members},
    )


def _parts(result: RunResult, members: npt.NDArray[np.int64], edit: SplitCategory) -> npt.NDArray[np.int64]:
    """Return the part of each member, of shape (n,): as it was decided, or else by clustering."""
    if not edit.letters:
        return _cluster(result.features[members], edit.parts, edit.seed)
    if len(edit.letters) != len(members) or set(edit.letters) != set(ascii_lowercase[: edit.parts]):
        raise Misuse(f"the letters of the split are not those of the images of {printable(edit.category)}. Omit them.")
    return np.array([ascii_lowercase.index(letter) for letter in edit.letters])


def decided(edit: Edit, before: RunResult, after: RunResult) -> Edit:
    """Return the edit with its outcome where that takes a clustering, so that a replay always gives the same."""
    if not isinstance(edit, SplitCategory):
        return edit
    index = before.names.index(edit.category)
    parts = after.category[before.category == index] - index
    return replace(edit, letters="".join(ascii_lowercase[part] for part in parts))


def _cluster(features: npt.NDArray[np.float32], parts: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the part of each image, of shape (n,). Parts are ordered by size, then by their first image."""
    if len(np.unique(features, axis=0)) < parts:
        return np.zeros(len(features), dtype=np.int64)
    from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans  # needs torch; other edits do not

    labels = SemiSupervisedKMeans(parts, random_state=seed).fit(features).labels_
    clusters, first, sizes = np.unique(labels, return_index=True, return_counts=True)
    rank = np.empty(parts, dtype=np.int64)
    rank[clusters[np.lexsort((first, -sizes))]] = np.arange(len(clusters))
    return rank[labels]


def _move(result: RunResult, edit: Move) -> RunResult:
    images = _positions(result, edit.images)
    names = result.names
    if edit.create and edit.to not in names:
        check_name(edit.to)
        names = (*names, edit.to)
    elif edit.to not in names:
        raise Misuse(_no_category(result, edit.to) + " To make a new category, add `create=True`.")
    category, certainty = result.category.copy(), result.certainty.copy()
    category[images] = names.index(edit.to)
    certainty[images] = 1.0
    confirmed = result.confirmed | set(edit.images)
    return replace(result, names=names, category=category, certainty=certainty, confirmed=confirmed)


def _confirm(result: RunResult, edit: Confirm) -> RunResult:
    position = {id_: i for i, id_ in enumerate(result.ids)}
    images: list[int] = []
    for target in edit.targets:
        if target in result.names:
            members = result.members(target).tolist()
            if not members:
                raise Misuse(f"{printable(target)} has no images to confirm. Move some to it first, or leave it out.")
            images += members
        elif target not in position:
            raise Misuse(_no_category(result, target) + " Or give an image from the column image of predictions.csv.")
        elif result.category[position[target]] == DROPPED:
            raise Misuse(f"{printable(target)} was dropped. Move it to a category instead, which confirms it too.")
        else:
            images.append(position[target])
    certainty = result.certainty.copy()
    certainty[images] = 1.0
    return replace(result, certainty=certainty, confirmed=result.confirmed | {result.ids[i] for i in images})


def _carry_names(result: RunResult, edit: CarryNames) -> RunResult:
    named = [_index(result, name) for name in edit.categories]
    if len(set(named)) != len(named) or len(named) != len(edit.to):
        raise Misuse("a category has no name to carry over, or two. Give one name for each category.")
    names = list(result.names)
    for index, name in zip(named, edit.to, strict=True):
        check_name(name)
        names[index] = name
    repeated = next((name for name in edit.to if names.count(name) > 1), None)
    if repeated is not None:
        raise Misuse(f"two categories would be called {printable(repeated)}. Give each category its own name.")
    return replace(result, names=tuple(names))


def check_name(name: str) -> None:
    """Raise if a name cannot be that of a folder, since exports make one folder per category."""
    shown = printable(name) or "an empty name"
    if not name.strip() or name != name.strip() or len(name) > LONGEST_NAME:
        raise Misuse(
            f"{shown:.60} cannot name a category. Give 1 to {LONGEST_NAME} characters without spaces at the ends."
        )
    if not name.isprintable() or "/" in name or "\\" in name or name.startswith("."):
        raise Misuse(
            f"{shown} cannot name a category, because names become folders. "
            "Leave out slashes, control characters and a dot at the beginning."
        )


def _no_category(result: RunResult, name: str) -> str:
    close = difflib.get_close_matches(name, result.names, n=3)
    hint = f"Did you mean {listed(close)}?" if close else f"Choose from: {listed(result.names)}."
    return f"there is no category {printable(name)}. {hint}"


def _index(result: RunResult, name: str) -> int:
    if name not in result.names:
        raise Misuse(_no_category(result, name))
    return result.names.index(name)


def _positions(result: RunResult, images: Sequence[str]) -> npt.NDArray[np.int64]:
    position = {id_: i for i, id_ in enumerate(result.ids)}
    strangers = [printable(id_) for id_ in images if id_ not in position]
    if strangers:
        raise Misuse(
            f"the run has no {'image' if len(strangers) == 1 else 'images'} {first_three(strangers)}. "
            "Give names from the column image of predictions.csv."
        )
    return np.array([position[id_] for id_ in images], dtype=np.int64)
