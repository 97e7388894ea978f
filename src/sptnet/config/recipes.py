"""Recipes: TOML files that hold only what differs from the defaults, and `--set a.b=c` on top of them."""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError

from sptnet.config import Config
from sptnet.errors import Failure, Misuse
from sptnet.runtime.progress import say

Settings = Mapping[str, Any]
"""Values by dotted key, such as `{"training.batch_size": 64}`."""


def recipe_names() -> list[str]:
    """The recipes of the package: the plain ones first, then folder by folder, such as cub/sptnet."""
    return list(_sorted_names())


@cache
def _sorted_names() -> tuple[str, ...]:
    return tuple(sorted(_names_in(files("sptnet") / "recipes", ""), key=_place))


def _place(name: str) -> tuple[bool, list[str | float]]:
    """Numbers within a name count as numbers: k-5 comes before k-10."""
    return "/" in name, [float(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+\.?\d*)", name))]


def _names_in(folder: Traversable, prefix: str) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _names_in(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".toml"):
            yield prefix + entry.name.removesuffix(".toml")


def recipe_text(recipe: str) -> str:
    """The text of a recipe of the package by name, or of a TOML file by path."""
    if recipe in recipe_names():
        return (files("sptnet") / "recipes").joinpath(*f"{recipe}.toml".split("/")).read_text(encoding="utf-8")
    path = Path(recipe)
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise Misuse(f"{recipe} is not a text file in UTF-8. Give a TOML recipe.") from error
    raise Misuse(
        f"there is no recipe {recipe!r}, neither in the package nor as a file.{_recipe_hint(recipe)} "
        "`sptnet recipes list` shows the recipes of the package."
    )


def _recipe_hint(recipe: str) -> str:
    names = recipe_names()
    inside = [name for name in names if name.startswith(f"{recipe.rstrip('/')}/")]
    if inside:
        return f" It is a folder of recipes, such as {inside[0]}."
    likeness, closest = max((_likeness(recipe, name), name) for name in names)
    return f" Did you mean {closest}?" if likeness >= 0.6 else ""


def _likeness(asked: str, name: str) -> float:
    """Near one for a slip of the finger, and for the right words in another order: `sptnet-cub` for cub/sptnet."""
    in_order = ["/".join(sorted(re.split("[^a-z0-9.]+", text.lower()))) for text in (asked, name)]
    return max(difflib.SequenceMatcher(None, *pair).ratio() for pair in ((asked, name), in_order))


def load_recipe(recipe: str, settings: Settings | Iterable[str] = ()) -> Config:
    """A recipe with settings on top, by dotted key or as `key=value` texts; all mistakes are reported at once."""
    changes = settings if isinstance(settings, Mapping) else parse_settings(settings)
    return make_config(with_settings(parse_toml(recipe_text(recipe), recipe), changes), recipe)


def parse_toml(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Misuse(f"{source} is not valid TOML: {error}. Mend that line.") from error


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """`a.b=c` texts as values by dotted key; a later one overrules an earlier one."""
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise Misuse(f"--set {text!r} is not of the form a.b=c, such as --set training.batch_size=64.")
        settings[key.strip()] = parse_value(value.strip())
    return settings


def with_settings(values: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """A copy of values by section with settings by dotted key on top."""
    changed = {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    for key, value in settings.items():
        *parents, last = key.split(".")
        section = changed
        for parent in parents:
            section = section.setdefault(parent, {})
            if not isinstance(section, dict):
                raise Misuse(f"--set {key}={value}: {parent} is a value, not a section.")
        section[last] = value
    return changed


def parse_value(text: str) -> Any:
    """A TOML value, or the bare text where it is none: `0.5`, `true`, `[1, 2]`, `"x"`, `shared+global`."""
    if text in ("none", "None", "null"):
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


RETIRED: dict[str, Any] = {"views.cutting": "auto", "training.compile": False}
"""Settings of earlier versions that are gone, with their defaults of then. They are read and have no effect."""


def make_config(values: dict[str, Any], source: str) -> Config:
    """Validate settings by section; retired ones are dropped."""
    values = _without_retired(values, source)
    prompt = values.get("prompt")
    if isinstance(prompt, dict) and prompt.get("kind", "") is None:
        prompt["kind"] = "none"  # `--set prompt.kind=none` means the kind, not nothing
    try:
        return Config(**values)
    except ValidationError as error:
        listed = "".join(f"\n  - {problem}" for problem in _explain(error))
        raise Misuse(f"{source} and --set make no valid configuration; mend:{listed}") from error


def _without_retired(values: dict[str, Any], source: str) -> dict[str, Any]:
    kept = {name: dict(section) if isinstance(section, dict) else section for name, section in values.items()}
    for key, default in RETIRED.items():
        section, name = key.split(".")
        if isinstance(kept.get(section), dict) and name in kept[section]:
            value = kept[section].pop(name)
            if value != default:
                _tell_retired(source, key, str(value))
    return kept


@cache
def _tell_retired(source: str, key: str, value: str) -> None:
    """Say so once, however often the file is read."""
    say(f"{source}: {key} = {value} is a setting of an earlier version and has no effect")


def _explain(error: ValidationError) -> list[str]:
    """One line for every key at fault; what is wrong with a key in several ways is joined."""
    reasons: dict[str, list[str]] = {}
    for problem in error.errors():
        if not problem["loc"]:  # a rule about several keys
            reasons[problem["msg"].removeprefix("Value error, ") + "."] = []
            continue
        key = _key(problem["loc"])
        if problem["type"] == "extra_forbidden":
            reasons[f"unknown key {key}. {_suggestion(key)}"] = []
            continue
        reason = problem["msg"][0].lower() + problem["msg"][1:]
        if problem["type"] == "model_type":
            reason = f"this is a section with keys of its own, such as {_first_key_of(key)}"
        reasons.setdefault(f"{key}: {{}}. Got {problem['input']!r}.", []).append(reason)
    return [text.replace("{}", " or ".join(dict.fromkeys(why)), 1) for text, why in reasons.items()]


def _key(location: tuple[int | str, ...]) -> str:
    """The dotted key; what pydantic adds behind it (branches of a union, list positions) is left out."""
    head, *rest = [str(part) for part in location]
    section = Config.model_fields.get(head)
    is_section = section is not None and isinstance(section.default, BaseModel)
    return f"{head}.{rest[0]}" if rest and is_section else head


def _first_key_of(section: str) -> str:
    return next((key for key in all_keys() if key.startswith(f"{section}.")), section)


def _suggestion(key: str) -> str:
    names = all_keys() if "." in key else [*Config.model_fields, *all_keys()]
    close = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
    return f"Did you mean {close[0]}?" if close else "`sptnet recipes show sptnet --full` lists all keys."


def all_keys(model: type[BaseModel] = Config, prefix: str = "") -> list[str]:
    return [key for key, _ in _leaves(model, prefix)]


def _leaves(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _leaves(kind, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", kind


def to_toml(config: Config) -> str:
    """The whole configuration as TOML; settings that are None are left out, as TOML has no null."""
    return tomli_w.dumps(config.model_dump(exclude_none=True))


def read_config(path: Path) -> Config:
    """The resolved configuration that a run wrote."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Failure(f"{path} cannot be read ({error.strerror}). Is this the folder of a run?") from error
    return make_config(parse_toml(text, str(path)), str(path))


def epoch_settings(epochs: int | None) -> dict[str, int | None]:
    """Settings that give every stage of every method the same number of epochs."""
    return {f"{stage}.epochs": epochs for stage in ("gcd", "simgcd", "sptnet")}
