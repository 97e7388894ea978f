"""Twelve rooms in a row, each importing only from those before it. And a few rules for all source files."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import sptnet

SOURCE = Path(sptnet.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

FORMULAS = ("errors", "prompts", "head", "losses", "schedules", "metrics")
"""Modules at the root: they import errors and each other's names, and no room."""
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
"""Folders in the order of an image's way: each imports the formulas and the rooms before it."""


def module_name(file: Path) -> str:
    parts = ("sptnet", *file.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(file): file for file in FILES}


def imported(file: Path) -> Iterator[str]:
    """Every sptnet module that a file imports, at its top or later; a sub-module is not its package."""
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


def room_of(module: str) -> int | None:
    """0 for the formulas, then the rooms by number; nothing for modules that have no room yet."""
    first = module.removeprefix("sptnet").removeprefix(".").partition(".")[0]
    return 0 if first in FORMULAS else ROOMS.index(first) + 1 if first in ROOMS else None


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_only_from_its_own_room_and_those_before_it(module: str) -> None:
    own = room_of(module)
    rooms = {name: room_of(name) for name in GRAPH[module]}
    assert own is None or [name for name, room in rooms.items() if room is not None and room > own] == []


def test_there_is_no_cycle() -> None:
    """Independent of the list above: modules without imports are taken away until none is left."""
    left = {name: set(names) for name, names in GRAPH.items()}
    while free := [name for name, names in left.items() if not names & left.keys()]:
        for name in free:
            del left[name]
    assert left == {}


@pytest.mark.parametrize("file", FILES, ids=lambda file: module_name(file))
def test_a_file_keeps_the_house_rules(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    assert ".cuda(" not in text
    assert [place for place in ("/tmp", "/home", "/root") if place in text] == []
    handlers = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ExceptHandler)]
    assert [node.lineno for node in handlers if node.type is None] == []


def test_no_recipe_names_a_place_on_one_machine() -> None:
    recipes = sorted((SOURCE / "recipes").glob("*.toml"))
    assert recipes
    for recipe in recipes:
        text = recipe.read_text(encoding="utf-8")
        assert [place for place in ("/tmp", "/home", "/root") if place in text] == [], recipe.name
