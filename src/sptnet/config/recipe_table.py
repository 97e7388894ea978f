"""Table of the package's recipes: data set, method, published accuracy and summary."""

import re
from dataclasses import dataclass

from sptnet.config import Config
from sptnet.config.recipes import load_recipe, recipe_names, recipe_text
from sptnet.errors import Misuse

VARIANTS = {"spatial": "sptnet-p", "shared": "sptnet-s"}

_LINE = re.compile(r"^# published:(.*)$", re.MULTILINE)
_SCORES = re.compile(r"(\d+\.\d) / (\d+\.\d) / (\d+\.\d)(?: \((.+)\))?")


@dataclass(frozen=True)
class PublishedScores:
    """Published accuracies in per cent."""

    all: float
    old: float
    new: float
    of: str | None = None
    """The images that were scored, if other than the unlabelled images of the recipe's data set."""


@dataclass(frozen=True)
class RecipeEntry:
    """Row of the table."""

    name: str
    data: str
    method: str
    published: PublishedScores | None
    summary: str


def published(text: str) -> PublishedScores | None:
    """Parse a recipe's line `# published: All / Old / New`; None for `# published: none` and without the line."""
    lines = _LINE.findall(text)
    if lines in ([], [" none"]):
        return None
    scores = _SCORES.fullmatch(lines[0].strip())
    if len(lines) > 1 or scores is None:
        raise Misuse(
            f"the recipe says `# published:{lines[-1]}`. Write one line, either `# published: 65.8 / 68.8 / 65.1` "
            "(All / Old / New) or `# published: none`."
        )
    return PublishedScores(float(scores[1]), float(scores[2]), float(scores[3]), of=scores[4])


def method_of(config: Config) -> str:
    """Return the method's name in the paper; the variants of SPTNet differ in their prompts."""
    alternates = config.method == "sptnet" and config.sptnet.strategy == "alternate"
    return VARIANTS.get(config.prompt.kind, config.method) if alternates else config.method


def folders() -> list[str]:
    """Return the folders of recipes, sorted."""
    return sorted({name.rpartition("/")[0] for name in recipe_names() if "/" in name})


def recipe_table(folder: str | None = None, method: str | None = None) -> list[RecipeEntry]:
    """Return one entry per recipe, of all recipes, of one folder or of one method."""
    if folder is not None and folder.rstrip("/") not in folders():
        raise Misuse(f"there is no folder of recipes {folder!r}. Choose from: {', '.join(folders())}.")
    within = "" if folder is None else f"{folder.rstrip('/')}/"
    entries = [_entry(name) for name in recipe_names() if name.startswith(within)]
    methods = sorted({entry.method for entry in entries})
    if method is not None and method not in methods:
        where = "" if folder is None else f" in {folder!r}"
        raise Misuse(f"there is no recipe of the method {method!r}{where}. Choose from: {', '.join(methods)}.")
    return [entry for entry in entries if method in (None, entry.method)]


def _entry(name: str) -> RecipeEntry:
    text, config = recipe_text(name), load_recipe(name)
    summary = text.splitlines()[0].lstrip("# ")
    return RecipeEntry(name, config.data.source, method_of(config), published(text), summary)
