"""Numbers and properties in docs/methods.md are those of the code."""

import ast
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sptnet.config import Config
from sptnet.config.recipes import all_keys
from sptnet.methods import METHODS, NAMES, stages_of
from sptnet.methods.method import Method
from sptnet.methods.phases import View

TEXT = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
ROWS = [re.split(r"\s*\|\s*", line.strip("| ")) for line in re.findall(r"^\|.*\|$", TEXT, re.MULTILINE)]
DEFAULTS = Config()
STAGES = Config.stage_names()
COMPARED = ("rankstats", "uno", "orca", "dccl", "promptcal", "promptcal_calibrated", "cipr", "gpc", "mugcd")
GENERAL = ("minutes", "max_steps", "anneal_steps", "min_steps", "max_iter", "tol")
"""Settings of all stages and of all clusterings, which the page does not repeat per method."""
STATED = {name.strip("`"): value for name, value, *_ in ROWS if re.fullmatch(r"`\w+(\.\w+)+`", name)}
"""Settings and constants in the tables, with their values as text."""


def table(first: str, second: str) -> tuple[list[str], dict[str, list[str]]]:
    """Header of a table without its first cell, and the other cells of each row by the name in the first one."""
    start = next(i for i, row in enumerate(ROWS) if row[:2] == [first, second])
    width, rows = len(ROWS[start]), {}
    for row in ROWS[start + 2 :]:
        if len(row) != width:
            break
        rows[row[0].strip("`")] = row[1:]
    return ROWS[start][1:], rows


def value_of(text: str) -> Any:
    """Value of a number, a tuple, a truth value or `none`; thousands may be separated by commas."""
    words = {"none": None, "true": True, "false": False}
    return words[text] if text in words else ast.literal_eval(re.sub(r"(?<=\d),(?=\d{3}\b)", "", text))


def in_code(name: str) -> Any:
    """Default of a setting, or a constant of a module."""
    path, last = name.rsplit(".", 1)
    return getattr(getattr(DEFAULTS, path) if name in all_keys() else import_module(f"sptnet.{path}"), last)


@pytest.mark.parametrize("name", STATED)
def test_a_stated_value_is_that_of_the_code(name: str) -> None:
    assert value_of(STATED[name]) == in_code(name)


def test_the_tables_are_read() -> None:
    assert len(STATED) > 80
    assert (value_of("65,536"), value_of("(0.3, 1.0)"), value_of("none")) == (65536, (0.3, 1.0), None)
    assert in_code("uno.epsilon") != value_of("0.06")
    assert value_of("true") is True is not value_of("false")


def test_all_settings_of_the_compared_systems_are_stated() -> None:
    columns, _ = table("stage", "`epochs`")
    shared = {column.strip("`") for column in columns} | {*GENERAL}
    own = [key for key in all_keys() if key.split(".")[0] in COMPARED and key.split(".")[1] not in shared]
    assert len(own) > 40
    assert [key for key in own if key not in STATED] == []


def test_length_and_optimiser_are_stated_for_every_stage() -> None:
    columns, rows = table("stage", "`epochs`")
    names = [column.strip("`") for column in columns]
    made = {stage: [value_of(cell) if cell != "-" else None for cell in row] for stage, row in rows.items()}
    assert made == {stage: [getattr(getattr(DEFAULTS, stage), name, None) for name in names] for stage in STAGES}


def test_the_stages_with_weight_decay_on_vectors_are_named() -> None:
    (named,) = re.findall(r"other vectors have weight decay in (.*?), and\s+none in the others", TEXT, re.DOTALL)
    plans = [plan for method in METHODS for plan in stages_of(Config(method=method))]
    decaying = {plan.name for plan in plans if plan.optimisers["model"].decay_vectors}
    assert set(re.findall(r"`(\w+)`", named)) == decaying


def test_every_method_has_a_section_with_its_name() -> None:
    sections = dict(re.findall(r"^## (.+)\n\n`(\w+)`\. ", TEXT, re.MULTILINE))
    assert {name.casefold(): method for name, method in sections.items()} == {
        NAMES[method].casefold(): method for method in METHODS
    }


def stored(views: list[View]) -> str:
    """Views that a token bank can hold."""
    prompted = [view.prompted for view in views]
    return "no views" if all(prompted) else "some views" if any(prompted) else "all views"


def needs(name: str, method: Method) -> list[str]:
    """Cells of the table of needs."""
    plans = stages_of(Config(method=name))
    views = [view for plan in plans for phase in plan.turns.phases for view in phase.all_views]
    decides = {
        "no": "classifier",
        "plain": "k-means",
        "semi-supervised": "semi-supervised k-means",
        "neighbors": "neighbour clustering",
    }
    return [
        str(len(plans)),
        stored(views) if plans else "-",
        yes(any(plan.teacher for plan in plans)),
        yes(any(plan.refresh for plan in plans)),
        decides[method.clusters],
        yes(method.count is not None),
    ]


def yes(fact: bool) -> str:
    return "yes" if fact else "no"


def test_the_needs_of_every_method_are_stated() -> None:
    _, rows = table("method", "stages")
    assert rows == {name: needs(name, method) for name, method in METHODS.items()}


def test_the_other_pages_list_every_method() -> None:
    root = Path(__file__).parents[2]
    readme, architecture = ((root / file).read_text(encoding="utf-8") for file in ("README.md", "docs/architecture.md"))
    assert [name for name in METHODS if name != "sptnet" and not re.search(rf"^\| .*`{name}`", readme, re.M)] == []
    files = {Path(import_module(f"sptnet.methods.{name}").__file__ or "").name for name in {*METHODS} - {"sskmeans"}}
    assert [file for file in sorted(files) if f"| `methods/{file}`" not in architecture] == []
