"""Candidates for the shell's completion: runs, recipes, methods, settings and other values.

Completion runs at every press of the tab key, so nothing here imports torch. A function that finds nothing leaves the
word to the shell, which completes names of files.
"""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

METHODS = (
    *("auto", "kmeans", "sskmeans", "gcd", "simgcd", "sptnet", "rankstats", "uno", "orca", "dccl", "promptcal"),
    *("cipr", "gpc", "mugcd"),
)
"""Values of --method; a copy, because `sptnet.methods` imports torch."""
DEEPEST = 3
"""Levels of folders that are searched for runs, such as runs/demo/sptnet."""
MOST_FOLDERS = 2_000
"""Largest number of folders that are searched for runs."""


def runs(incomplete: str) -> list[str]:
    """Return the run directories whose path begins with `incomplete`, sorted; `~` is expanded for the search only.

    Paths that a shell would need quotes for are left out.
    """
    above, slash, start = incomplete.rpartition("/")
    typed = above + slash
    found = _runs_in(Path(typed or ".").expanduser(), start, iter(range(MOST_FOLDERS)), DEEPEST)
    return sorted(typed + path for path in found if shlex.quote(path) == path)


def _runs_in(folder: Path, start: str, visits: Iterator[int], depth: int) -> Iterator[str]:
    """Yield the relative paths of runs below a folder whose first name begins with `start`."""
    for name in sorted(_sub_folders(folder, start)):
        if next(visits, None) is None:
            return
        if (folder / name / "config.toml").is_file():
            yield name
        elif depth > 1:
            yield from (f"{name}/{inner}" for inner in _runs_in(folder / name, "", visits, depth - 1))


def _sub_folders(folder: Path, start: str) -> list[str]:
    """Return the names of visible sub-folders; none of a folder that cannot be read."""
    try:
        with os.scandir(folder) as entries:
            inside = [entry.name for entry in entries if entry.is_dir()]
    except OSError:  # gone, no folder, or not ours to read: the shell says so when the command is run
        return []
    return [name for name in inside if name.startswith(start) and not name.startswith(".")]


def recipes(incomplete: str) -> list[str]:
    """Return the recipes of the package that begin with `incomplete`."""
    from sptnet.config.recipes import recipe_names

    return _beginning(incomplete, recipe_names())


def recipe_folders(incomplete: str) -> list[str]:
    """Return the folders of recipes that begin with `incomplete`."""
    from sptnet.config.recipe_table import folders

    return _beginning(incomplete, folders())


def recipe_methods(incomplete: str) -> list[str]:
    """Return the methods of recipes that begin with `incomplete`."""
    from sptnet.config.recipe_table import recipe_table

    return _beginning(incomplete, sorted({entry.method for entry in recipe_table()}))


def settings(incomplete: str) -> list[str]:
    """Return the settings that begin with `incomplete`, each with its equals sign."""
    from sptnet.config.recipes import all_keys

    return _beginning(incomplete, [f"{key}=" for key in all_keys()])


def methods(incomplete: str) -> list[str]:
    """Return the methods that begin with `incomplete`."""
    return _beginning(incomplete, METHODS)


def trackers(incomplete: str) -> list[str]:
    """Return the kinds of tracks that begin with `incomplete`."""
    return _beginning(incomplete, ("none", "tensorboard", "wandb"))


def devices(incomplete: str) -> list[str]:
    """Return the devices that begin with `incomplete`."""
    return _beginning(incomplete, ("auto", "cpu", "cuda", "mps"))


def export_forms(incomplete: str) -> list[str]:
    """Return the forms of an export that begin with `incomplete`."""
    from sptnet.results.export.files import FORMS, MODEL_FORMS

    return _beginning(incomplete, (*FORMS, *MODEL_FORMS))


def benchmarks(incomplete: str) -> list[str]:
    """Return the benchmarks that begin with `incomplete`."""
    from sptnet.data.benchmarks import BENCHMARKS

    return _beginning(incomplete, tuple(BENCHMARKS))


def _beginning(incomplete: str, values: list[str] | tuple[str, ...]) -> list[str]:
    return [value for value in values if value.startswith(incomplete)]
