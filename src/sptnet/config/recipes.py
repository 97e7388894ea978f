"""Recipes: TOML files with the settings that differ from the defaults, and single settings on top of them."""

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError

from sptnet.config import Config
from sptnet.errors import Misuse, with_reasons
from sptnet.runtime import readers
from sptnet.runtime.progress import say
from sptnet.runtime.readers import one_line, read_text, shown
from sptnet.runtime.text import printable

Settings = Mapping[str, Any]
"""Values by dotted key, such as `{"training.batch_size": 64}`."""


def recipe_names() -> list[str]:
    """Return the names of the package's recipes: those without a folder first, then others such as cub/sptnet."""
    return list(_sorted_names())


@cache
def _sorted_names() -> tuple[str, ...]:
    return tuple(sorted(_names_in(files("sptnet") / "recipes", ""), key=_sort_key))


def _sort_key(name: str) -> tuple[bool, list[str | float]]:
    """Sort numbers within a name as numbers: k-5 before k-10."""
    return "/" in name, [float(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+\.?\d*)", name))]


def _names_in(folder: Traversable, prefix: str) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _names_in(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".toml"):
            yield prefix + entry.name.removesuffix(".toml")


def recipe_text(recipe: str) -> str:
    """Return the text of a recipe, given the name of a recipe of the package or the path of a TOML file."""
    if recipe in recipe_names():
        return (files("sptnet") / "recipes").joinpath(*f"{recipe}.toml".split("/")).read_text(encoding="utf-8")
    path = Path(recipe)
    if os.path.isfile(path):  # False for a path that is no valid one
        return read_text(path, "Give a TOML recipe.", Misuse, "is not a text file in UTF-8")
    raise Misuse(
        f"there is no recipe {shown(recipe)}, neither in the package nor as a file.{_recipe_hint(recipe)} "
        "`sptnet recipes list` shows the recipes of the package."
    )


def _recipe_hint(recipe: str) -> str:
    names = recipe_names()
    inside = [name for name in names if name.startswith(f"{recipe.rstrip('/')}/")]
    if inside:
        return f" It is a folder of recipes, such as {inside[0]}."
    similarity, closest = max((_similarity(recipe[:80], name), name) for name in names)
    return f" Did you mean {closest}?" if similarity >= 0.6 else ""


def _similarity(asked: str, name: str) -> float:
    """Return a value near one for typing errors and for the right words in another order: sptnet-cub, cub/sptnet."""
    in_order = ["/".join(sorted(re.split("[^a-z0-9.]+", text.lower()))) for text in (asked, name)]
    return max(difflib.SequenceMatcher(None, *pair).ratio() for pair in ((asked, name), in_order))


def load_recipe(recipe: str, settings: Settings | Iterable[str] = ()) -> Config:
    """Load a recipe and apply settings, by dotted key or as `key=value` texts; all errors are reported at once."""
    changes = settings if isinstance(settings, Mapping) else parse_settings(settings)
    return make_config(with_settings(recipe_values(recipe), changes), recipe)


def recipe_values(recipe: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the values of a recipe by section, on top of those of the recipe that it names as its `base`.

    A base is the name of a recipe of the package, or a path, which is relative to the recipe's own file. `above` are
    the recipes that led here.
    """
    values = parse_toml(recipe_text(recipe), recipe)
    base = values.pop("base", None)
    if base is None:
        return values
    base = _base_of(recipe, base)
    if _place(base) in map(_place, (recipe, *above)):
        raise Misuse(
            f"the recipe {recipe} has itself as its base: {' -> '.join((*above, recipe, base))}. Name another."
        )
    return merged(recipe_values(base, (*above, recipe)), values)


def _base_of(recipe: str, base: Any) -> str:
    """Return the name or the path of the base that a recipe names."""
    if not isinstance(base, str):
        raise Misuse(f'{recipe} says base = {shown(base)}. Give the name of a recipe, such as base = "cub/simgcd".')
    if base in recipe_names():
        return base
    path = base if recipe in recipe_names() else str(Path(recipe).parent / base)
    if not os.path.isfile(path):
        raise Misuse(
            f"{recipe} says base = {shown(base)}. There is no such recipe, neither in the package nor as the file "
            f"{one_line(path)}."
            f"{_recipe_hint(base)} `sptnet recipes list` shows the recipes of the package."
        )
    return path


def _place(recipe: str) -> str:
    """Return the same text for the same recipe, however its path is written."""
    return recipe if recipe in recipe_names() else str(Path(recipe).resolve())


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of `below` with those of `above` on top, key by key within each section."""
    both = dict(below)
    for name, value in above.items():
        section = both.get(name)
        both[name] = {**section, **value} if isinstance(section, dict) and isinstance(value, dict) else value
    return both


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """Parse TOML; `source` names the text in error messages."""
    try:
        return readers.parse_toml(text)
    except ValueError as error:
        raise Misuse(f"{source} is not valid TOML: {one_line(error)}. Mend that line.") from error


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """Parse `a.b=c` texts into values by dotted key; a later text overrides an earlier one."""
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise Misuse(f"`settings` {text!r} is not of the form a.b=c, such as `training.batch_size=64`.")
        settings[key.strip()] = parse_value(value.strip())
    return settings


def with_settings(values: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return a copy of `values` (by section) with `settings` (by dotted key) applied."""
    changed = {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    for key, value in settings.items():
        *parents, last = key.split(".")
        section = changed
        for parent in parents:
            section = section.setdefault(parent, {})
            if not isinstance(section, dict):
                raise Misuse(f"`{key}={shown(value)}`: {parent} is a value, not a section.")
        section[last] = value
    return changed


def parse_value(text: str) -> Any:
    """Parse a TOML value such as `0.5`, `true`, `[1, 2]` or `"x"`; anything else, such as `shared+global`, is text."""
    if text in ("none", "None", "null"):
        return None
    try:
        return readers.parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text


MOST_EXPLAINED = 20
"""Invalid keys that a message explains."""
RETIRED: dict[str, Any] = {"views.cutting": "auto", "training.compile": False}
"""Removed settings of earlier versions with their former defaults; they are accepted and have no effect."""


def make_config(values: dict[str, Any], source: str) -> Config:
    """Validate settings by section; removed ones are dropped. `source` names their origin in error messages."""
    try:
        return _validated(values, source)
    except ValidationError as error:
        message = f"{source} and `settings` make no valid configuration; mend:"
        raise Misuse(with_reasons(message, _explain(error))) from error


def _validated(values: dict[str, Any], source: str) -> Config:
    values = _without_retired(values, source)
    for name, key in (("prompt", "kind"), ("training", "track")):
        section = values.get(name)
        if isinstance(section, dict) and section.get(key, "") is None:
            section[key] = "none"  # `parse_value` turns none into None, but here it is the name of a choice
    return Config(**values)


def _without_retired(values: dict[str, Any], source: str) -> dict[str, Any]:
    kept = {name: dict(section) if isinstance(section, dict) else section for name, section in values.items()}
    for key, default in RETIRED.items():
        section, name = key.split(".")
        if isinstance(kept.get(section), dict) and name in kept[section]:
            value = kept[section].pop(name)
            if value != default:
                _warn_retired(source, key, printable(value) if isinstance(value, str) else shown(value))
    return kept


@cache
def _warn_retired(source: str, key: str, value: str) -> None:
    """Warn once, however often the file is read."""
    say(f"{source}: {key} = {value} is a setting of an earlier version and has no effect")


def _explain(error: ValidationError) -> list[str]:
    """Return one line per invalid key; several reasons for one key are joined."""
    reasons: dict[str, list[str]] = {}
    for problem in error.errors()[:MOST_EXPLAINED]:
        if not problem["loc"]:  # a rule about several keys
            reasons[problem["msg"].removeprefix("Value error, ") + "."] = []
            continue
        key = _key(problem["loc"])
        if problem["type"] == "extra_forbidden":
            reasons[f"unknown key {key}. {_suggestion(key)}"] = []
            continue
        reason = problem["msg"][0].lower() + problem["msg"][1:]
        reason = re.sub(r"\b10{15,}\b", lambda power: f"1e{len(power[0]) - 1}", reason)
        if problem["type"] == "model_type":
            reason = f"this is a section with keys of its own, such as {_first_key_of(key)}"
        reasons.setdefault(f"{key}: {{}}. Got {shown(problem['input'])}.", []).append(reason)
    return [text.replace("{}", " or ".join(dict.fromkeys(why)), 1) for text, why in reasons.items()]


def _key(location: tuple[int | str, ...]) -> str:
    """Return the dotted key without the parts that pydantic appends (branches of a union, list positions)."""
    head, *rest = [printable(str(part)) for part in location]
    section = Config.model_fields.get(head)
    is_section = section is not None and isinstance(section.default, BaseModel)
    return f"{head}.{rest[0]}" if rest and is_section else head


def _first_key_of(section: str) -> str:
    return next((key for key in all_keys() if key.startswith(f"{section}.")), section)


def _suggestion(key: str) -> str:
    names = all_keys() if "." in key else ["base", *Config.model_fields, *all_keys()]
    elsewhere = [name for name in names if "." in key and name.endswith(f".{key.rpartition('.')[2]}")]
    close = difflib.get_close_matches(key, elsewhere or names, n=1, cutoff=0.3 if elsewhere else 0.5)
    return f"Did you mean {close[0]}?" if close else "`recipes('show', 'sptnet', full=True)` lists all keys."


def all_keys(model: type[BaseModel] = Config, prefix: str = "") -> list[str]:
    """Return the dotted keys of all settings."""
    return [key for key, _ in _leaves(model, prefix)]


def _leaves(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _leaves(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", kind


def to_toml(config: Config) -> str:
    """Return the whole configuration as TOML; settings that are None are left out, as TOML has no null."""
    return tomli_w.dumps(config.model_dump(exclude_none=True))


def read_config(path: Path) -> Config:
    """Read the complete configuration that a run wrote."""
    with readers.reading(path, "Restore it, or train into another folder."):
        values = readers.parse_toml(readers.decoded(path))
        try:
            return _validated(values, str(path))
        except ValidationError as error:
            raise ValueError(" ".join(_explain(error)[:3])) from error


def epoch_settings(epochs: int | None) -> dict[str, int | None]:
    """Settings that give every stage of every method the same number of epochs."""
    return {f"{stage}.epochs": epochs for stage in Config.stage_names()}
