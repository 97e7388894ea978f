"""Rules of the source tree: twelve folders in order, their imports, names and sizes, and messages without flags."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import sptnet

SOURCE = Path(sptnet.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
FOLDERS = sorted({file.parent for file in FILES})

FORMULAS = ("errors", "prompts", "head", "losses", "schedules", "metrics")
"""Modules at the root. They import each other, and no folder."""
ROOMS = (
    "runtime",
    "config",
    "data",
    "clustering",
    "model",
    "methods",
    "results",
    "inference",
    "training",
    "report",
    "discovery",
    "cli",
)
"""Folders in order: each imports the formulas and the folders before it."""
START = ("sptnet", "sptnet.__main__")
"""Modules that may import everything."""
DOORS = {
    "cli.verbs": (),
    "clustering.graph": ("clustering.graph.affinity", "clustering.graph.infomap"),
    "clustering.hierarchy": ("clustering.hierarchy.count_neighbors", "clustering.hierarchy.selective_neighbors"),
    "clustering.mixture": (
        "clustering.mixture.niw",
        "clustering.mixture.split_merge",
        "clustering.mixture.split_merge_mixture",
    ),
    "data.benchmarks": ("data.benchmarks", "data.benchmarks.counts"),
    "data.check": ("data.check.findings", "data.check.folder_check", "data.check.skip_duplicates"),
    "inference.bulk": (),
    "model.vit": ("model.vit.embedding", "model.vit.last_block"),
    "report.figures": ("report.figures.attention_maps", "report.figures.count_plot", "report.figures.write"),
    "report.page": ("report.page.overview", "report.page.write"),
    "results.export": ("results.export.files",),
    "training.batching": ("training.batching.loader", "training.batching.sampler"),
}
"""Modules of a sub-folder that other folders may import; the rest is private to its folder."""
OPEN = ("results.edits",)
"""Sub-folders of which every module is for others."""
RIDDLES = {"place", "looking", "found", "likeness", "attempts", "windows", "parts", "evaluating"}
"""Names that modules once had and that did not describe them."""
FLAG = re.compile(r"--[a-z]")
MAY_NAME_FLAGS = {
    "sptnet.report.page.facts": "the page shows a command for the user to copy",
}
"""Modules outside the command line whose strings may contain flags, with the reason."""


def module_name(file: Path) -> str:
    parts = ("sptnet", *file.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(file): file for file in FILES}


def imported(file: Path) -> Iterator[str]:
    """Yield every sptnet module that a file imports, at its top or later; a sub-module is not its package."""
    name = module_name(file)
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "sptnet")
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
                base = f"{above}.{base}".rstrip(".")
            if base.split(".")[0] == "sptnet":
                for alias in node.names:
                    whole = f"{base}.{alias.name}"
                    yield whole if whole in MODULES else base


GRAPH = {name: sorted(set(imported(file))) for name, file in MODULES.items()}


def test_the_graph_is_read_from_the_source() -> None:
    assert "sptnet.model.backbone" in GRAPH["sptnet.model.gcd_model"]
    assert "sptnet.errors" in GRAPH["sptnet.data.image_set"]  # a relative import
    assert "sptnet.training.experiment" in GRAPH["sptnet.cli.verbs.train"]  # an import inside a function
    assert "sptnet.methods.simgcd" in GRAPH["sptnet.methods"]  # a sub-module of the package


def test_only_modules_that_exist_are_imported() -> None:
    assert {name for names in GRAPH.values() for name in names} <= set(MODULES)


def room_of(module: str) -> int:
    """Return 0 for the formulas, then the number of the folder."""
    first = module.split(".")[1]
    return 0 if first in FORMULAS else ROOMS.index(first) + 1


def test_every_module_is_a_formula_or_in_a_folder() -> None:
    assert {name.split(".")[1] for name in MODULES if name not in START} == {*FORMULAS, *ROOMS}
    assert all(f"sptnet.{name}" in MODULES for name in FORMULAS)


@pytest.mark.parametrize("module", sorted(set(MODULES) - set(START)))
def test_a_module_imports_only_from_its_own_folder_and_those_before_it(module: str) -> None:
    own = room_of(module)
    # `from sptnet import __version__` is allowed everywhere.
    assert [name for name in GRAPH[module] if name != "sptnet" and room_of(name) > own] == []


def sub_folder(module: str) -> str | None:
    """Return the sub-folder that a module is in, such as model.vit."""
    folder = MODULES[module].parent.relative_to(SOURCE).parts
    return ".".join(folder) if len(folder) == 2 else None


def test_every_sub_folder_has_its_doors() -> None:
    assert {sub_folder(name) for name in MODULES} - {None} == {*DOORS, *OPEN}


@pytest.mark.parametrize("folder", sorted(DOORS))
def test_other_folders_enter_a_sub_folder_by_its_doors(folder: str) -> None:
    room = MODULES[f"sptnet.{folder}"].parents[1]
    outside = [name for name, file in MODULES.items() if not file.is_relative_to(room)]
    entered = {name.removeprefix("sptnet.") for user in outside for name in GRAPH[user] if sub_folder(name) == folder}
    assert entered <= set(DOORS[folder])


def test_there_is_no_cycle() -> None:
    """Independent of the order above: modules without imports are removed until none is left."""
    left = {name: set(names) for name, names in GRAPH.items()}
    while free := [name for name, names in left.items() if not names & left.keys()]:
        for name in free:
            del left[name]
    assert left == {}


@pytest.mark.parametrize("file", FILES, ids=lambda file: module_name(file))
def test_a_file_keeps_the_house_rules(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    assert ".cuda(" not in text
    assert [folder for folder in ("/tmp", "/home", "/root") if folder in text] == []
    handlers = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ExceptHandler)]
    assert [node.lineno for node in handlers if node.type is None] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_folder_is_small_and_described(folder: Path) -> None:
    modules = [file for file in folder.glob("*.py") if file.name != "__init__.py"]
    assert len(modules) <= (10 if folder == SOURCE else 15)
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))


def test_no_module_has_a_name_that_describes_nothing() -> None:
    assert {name.rpartition(".")[2] for name in MODULES} & RIDDLES == set()


def test_no_two_classes_have_one_name() -> None:
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in FILES]
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    assert [name for name, times in names.items() if times > 1] == []


def strings_with_flags(file: Path) -> list[str]:
    """Return every string, or constant part of an f-string, that contains a command-line flag; docstrings too."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [text for text in texts if FLAG.search(text)]


@pytest.mark.parametrize("module", sorted(name for name in MODULES if not name.startswith("sptnet.cli")))
def test_only_the_command_line_speaks_of_flags(module: str) -> None:
    """Library messages name parameters between backticks; `sptnet.cli.flags` turns them into flags."""
    named = strings_with_flags(MODULES[module])
    assert bool(named) == (module in MAY_NAME_FLAGS), named


def test_no_recipe_names_a_folder_of_one_machine() -> None:
    recipes = sorted((SOURCE / "recipes").glob("*.toml"))
    assert recipes
    for recipe in recipes:
        text = recipe.read_text(encoding="utf-8")
        assert [folder for folder in ("/tmp", "/home", "/root") if folder in text] == [], recipe.name
