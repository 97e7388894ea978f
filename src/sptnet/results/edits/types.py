"""Kinds of edits, and their JSON form."""

from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, get_type_hints

from sptnet.errors import Misuse
from sptnet.runtime.text import count, first_three, listed, printable


@dataclass(frozen=True)
class Rename:
    """Give a category another name."""

    category: str
    to: str


@dataclass(frozen=True)
class Merge:
    """Move all images of `categories` to `into`, which is one of them, another category or a new name.

    The merged category is known if any of them is.
    """

    categories: tuple[str, ...]
    into: str


@dataclass(frozen=True)
class SplitCategory:
    """Split a category by k-means on the features of its images: NAME-a is the largest part, then NAME-b and so on.

    Parts of a known category are known. Images that a person confirmed or moved are no longer confirmed, since the part
    is not the person's choice.
    """

    category: str
    parts: int
    seed: int = 0
    letters: str = field(default="", compare=False)
    """Part of each image of the category, in the order of the images of the run; empty before the images are split."""


@dataclass(frozen=True)
class Move:
    """Move images to a category."""

    images: tuple[str, ...]
    to: str
    create: bool = False
    """Create the category `to` if there is none."""


@dataclass(frozen=True)
class Drop:
    """Remove images from their category. Moving them to a category restores them."""

    images: tuple[str, ...]


@dataclass(frozen=True)
class Confirm:
    """Confirm that images are in the right category. Confirmed images are labels of the next round.

    A target is the name of a category, for all its present images, or else the id of an image.
    """

    targets: tuple[str, ...]


@dataclass(frozen=True)
class CarryNames:
    """Rename categories all at once to the names that they had in the earlier round."""

    categories: tuple[str, ...]
    to: tuple[str, ...]
    """New name of each of `categories`."""


@dataclass(frozen=True)
class Count:
    """Choose another number of categories; the images are grouped anew without training."""

    n_categories: int


@dataclass(frozen=True)
class Undo:
    """Undo the last edit that was not undone yet."""


Edit = Rename | Merge | SplitCategory | Move | Drop | Confirm | CarryNames | Count | Undo
VERBS: dict[str, type[Edit]] = {
    "rename": Rename,
    "merge": Merge,
    "split": SplitCategory,
    "move": Move,
    "drop": Drop,
    "confirm": Confirm,
    "carry": CarryNames,
    "count": Count,
    "undo": Undo,
}
_KINDS: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    tuple[str, ...]: "a list of texts, at least one",
}


def as_dict(edit: Edit) -> dict[str, Any]:
    """Return the edit as it is written in JSON."""
    verb = next(verb for verb, kind in VERBS.items() if isinstance(edit, kind))
    values = asdict(edit)
    if values.get("letters") == "":
        del values["letters"]
    return {"verb": verb, **values}


def parse_edit(value: Any) -> Edit:
    """Parse an edit from JSON. The key `at`, the time of the edit, is allowed and ignored."""
    verb = value.get("verb") if isinstance(value, dict) else None
    kind = VERBS.get(verb) if isinstance(verb, str) else None
    if kind is None:
        raise Misuse(f"{value!r:.80} is no edit. Give an object with a verb, one of {', '.join(VERBS)}.")
    given = {key: item for key, item in value.items() if key not in ("verb", "at")}
    hints = get_type_hints(kind)
    strangers = sorted(set(given) - set(hints))
    if strangers:
        raise Misuse(f"the edit {verb} has no {listed(strangers)}. It has: {', '.join(hints) or 'nothing else'}.")
    missing = [item.name for item in fields(kind) if item.name not in given and item.default is MISSING]
    if missing:
        raise Misuse(f"the edit {verb} lacks {listed(missing)}. It has: {', '.join(hints)}.")
    return kind(**{name: _checked(verb, name, item, hints[name]) for name, item in given.items()})


def _checked(verb: Any, name: str, item: Any, wanted: Any) -> Any:
    if wanted == tuple[str, ...]:
        if isinstance(item, list) and item and all(isinstance(text, str) for text in item):
            return tuple(item)
    elif type(item) is wanted:
        return item
    raise Misuse(f"{name} of the edit {verb} is {item!r:.80}. Give {_KINDS[wanted]}.")


def describe_edit(edit: Edit) -> str:
    """Describe an edit in a few words for the log."""
    match edit:
        case Rename(category, to):
            return f"rename {printable(category)} to {printable(to)}"
        case Merge(categories, into):
            return f"merge {listed(categories)} into {printable(into)}"
        case SplitCategory(category, parts, _):
            return f"split {printable(category)} into {parts} parts"
        case Move(images, to, _):
            return f"move {count(images, 'image')} to {printable(to)} ({_some(images)})"
        case Drop(images):
            return f"drop {count(images, 'image')} ({_some(images)})"
        case Confirm(targets):
            return f"confirm {_some(targets)}"
        case CarryNames(categories, to):
            pairs = [f"{printable(a)} is {printable(b)}" for a, b in zip(categories, to, strict=False)]
            return f"carry names from the earlier round ({first_three(pairs)})"
        case Count(n_categories):
            return f"count {n_categories} categories"
        case Undo():
            return "undo"


def _some(names: Sequence[str]) -> str:
    return first_three([printable(name) for name in names])
