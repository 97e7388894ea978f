"""docs/benchmarks.md: its tables agree with the recipes, and its commands can be run."""

import fnmatch
import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.paper_tables import printed_cells
from helpers.published_recipes import (
    INCONSISTENT,
    PAPER,
    PROMPTS,
    README,
    WITHOUT_NUMBERS,
    header,
    leaves,
    scores_of,
)
from sptnet.config import Config
from sptnet.config.recipes import load_recipe, recipe_names

DOCS = (Path(__file__).parents[2] / "docs/benchmarks.md").read_text(encoding="utf-8")


def doc_table(first: str) -> tuple[list[str], dict[str, list[str]]]:
    """The columns and rows of the table whose first column has this title."""
    block = re.search(rf"^\| {re.escape(first)} \|.*?(?=\n\n)", DOCS, re.MULTILINE | re.DOTALL)
    assert block is not None, first
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block[0].splitlines()]
    return head[1:], {row[0]: row[1:] for row in rows}


def as_printed(name: str) -> str:
    scores = scores_of(name)
    return f"{scores.all:.1f} / {scores.old:.1f} / {scores.new:.1f}"


@pytest.mark.parametrize(("title", "ending"), [("data set", ""), ("data set, DINOv2", "-dinov2")])
def test_the_tables_of_published_numbers_are_those_of_the_recipes(title: str, ending: str) -> None:
    columns, rows = doc_table(title)
    assert columns == ["SimGCD", "SPTNet-P", "SPTNet-S", "SPTNet"]
    assert sorted(rows) == (["cub", "imagenet100"] if ending else sorted(PAPER))
    for source, cells in rows.items():
        assert cells == [as_printed(f"{source}/{column.lower()}{ending}") for column in columns]


def test_the_table_of_baselines_is_that_of_the_recipes() -> None:
    columns, rows = doc_table("data set, baselines")
    assert sorted(rows) == sorted(PAPER)
    for source, cells in rows.items():
        assert cells == [as_printed(f"{source}/{column.lower()}") for column in columns]


@pytest.mark.parametrize(
    ("title", "systems"),
    [
        ("data set, systems", ["RankStats+", "UNO+", "ORCA", "DCCL", "PromptCAL"]),
        ("data set, elsewhere", ["GPC", "muGCD"]),
    ],
)
def test_the_tables_of_other_systems_are_those_of_the_recipes(title: str, systems: list[str]) -> None:
    columns, rows = doc_table(title)
    assert columns == systems
    assert sorted(rows) == sorted(PAPER)
    for source, cells in rows.items():
        names = [f"{source}/{column.lower().rstrip('+')}" for column in columns]
        assert cells == ["-" if name in WITHOUT_NUMBERS else as_printed(name) for name in names]


def test_the_rows_without_a_recipe_and_the_recipes_without_a_row_are_listed() -> None:
    cells = list(printed_cells())
    _, rows = doc_table("row of the paper")
    assert {cell.recipe for cell in cells} <= set(recipe_names())
    stage = load_recipe("herbarium19/sptnet").sptnet
    (why,) = rows["settings of SPTNet on Herbarium 19 (Table 7)"]
    assert f"learning rates, {stage.prompt_learning_rate:g} and {stage.learning_rate:g}, not" in why

    _, patterns = doc_table("recipes without a row")
    without = {name for name in recipe_names() if "/" in name and not name.startswith("ablation/")}
    without -= {cell.recipe for cell in cells}
    for pattern in patterns:
        assert fnmatch.filter(without, pattern.strip("`")), pattern
    assert {name for pattern in patterns for name in fnmatch.filter(recipe_names(), pattern.strip("`"))} == without


def test_the_tables_of_ablations_are_those_of_the_recipes() -> None:
    listed = re.findall(r"^\| `([\w./-]+)` \| ([^|]+) \|(?: ([^|]+) \|)?$", DOCS, re.MULTILINE)
    assert {name for name, *_ in listed} == {
        *(f"ablation/{row}" for row in ("prompt-none", *PROMPTS)),
        *(f"{source}/{method}-estimated" for source in ("cub", "imagenet100") for method in ("simgcd", "sptnet-p")),
    }
    for name, here, imagenet in listed:
        assert here == as_printed(name)
        assert imagenet == (as_printed(f"{name}-imagenet100") if "strategy" in name else "")
    _, domains = doc_table("DomainNet")
    assert list(domains) == ["RankStats+", "UNO+", "ORCA", "GCD", "SimGCD", "SPTNet"]
    for method, (real, painting, others) in domains.items():
        text = header(f"domainnet/{method.lower().rstrip('+')}")
        assert f"{real} (real)" in text
        assert f"Painting {painting}; the other four domains {others}." in text


def test_the_table_of_settings_is_that_of_the_recipes() -> None:
    for line in re.findall(r"^\| (\w+) \| (\S+), (\S+) \| (\S+), (\S+) \| (\d), (\d) \|$", DOCS, re.MULTILINE):
        source, *numbers = line
        one, two = load_recipe(f"{source}/sptnet"), load_recipe(f"{source}/sptnet-s")
        expected = [config.sptnet for config in (one, two)]
        rates = [rate for stage in expected for rate in (stage.prompt_learning_rate, stage.learning_rate)]
        assert [*map(float, numbers)] == [*rates, one.simgcd.entropy_weight, one.sptnet.entropy_weight]
    assert sorted(doc_table("data set")[1]) == sorted(PAPER)


def test_the_table_of_inconsistencies_is_whole() -> None:
    _, rows = doc_table("row")
    assert sorted(float(cells[1].split(";")[0]) for cells in rows.values()) == sorted(set(INCONSISTENT.values()))


def test_the_counts_are_those_that_sptnet_data_checks() -> None:
    from sptnet.data.benchmarks import BENCHMARKS

    _, rows = doc_table("name")
    assert list(rows) == list(BENCHMARKS)
    for name, cells in rows.items():
        known, expected = BENCHMARKS[name].n_known, BENCHMARKS[name].expected
        numbers = [expected.labelled, known, expected.unlabelled, expected.classes, expected.test]
        assert cells == ["-" if number is None else str(number) for number in numbers], name


def after(flag: str, command: list[str]) -> list[str]:
    return [value for name, value in itertools.pairwise(command) if name == flag]


@pytest.fixture(scope="module")
def commands() -> list[list[str]]:
    """Every command of the page, in order, as the shell would call it, loops included."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    script = "\n".join(re.findall(r"```bash\n(.*?)```", DOCS, re.DOTALL))
    say = "sptnet() { printf '%s\\t' \"$@\"; printf '\\n'; }\n"
    done = subprocess.run([bash, "-eu"], input=say + script, capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr == ""
    return [line.rstrip("\t").split("\t") for line in done.stdout.splitlines()]


def test_the_commands_train_recipes_that_exist_with_settings_that_hold(commands: list[list[str]]) -> None:
    finished: dict[str, Config] = {}
    for _, recipe, *options in (command for command in commands if command[0] == "train"):
        config = load_recipe(recipe, after("--set", options))
        (data,), (out,) = after("--data", options), after("--out", options)
        assert data == f"data/{config.data.source}"
        assert out not in finished
        for start in after("--start-from", options):  # the SimGCD run that this recipe would train itself
            same = {"simgcd", "data", "backbone", "head", "n_categories", "category_factor"}
            assert finished[start].method == "simgcd"
            wanted = config.changed(simgcd={"entropy_weight": finished[start].simgcd.entropy_weight})
            assert finished[start].model_dump(include=same) == wanted.model_dump(include=same), (recipe, start)
        finished[out] = config
    systems = 3 * 7 * 5 + 7 * 3
    assert len(finished) == systems + 3 * 7 * 6 + 3 * 3 * 8 + 4 + 14 + 2 * 4 + 6 + 2 * 2 + 4 + 4 + 3 + 3


def test_the_loop_over_ssb_gives_every_set_its_own_learning_rate(commands: list[list[str]]) -> None:
    for _, recipe, *options in (command for command in commands if command[0] == "train"):
        (data,) = after("--data", options)
        if recipe.startswith("ablation/") and data in ("data/cars", "data/aircraft"):
            stage = load_recipe(recipe, after("--set", options)).sptnet
            expected = (*README[data.removeprefix("data/")], 1)
            assert (stage.prompt_learning_rate, stage.learning_rate, stage.entropy_weight) == expected


def test_settings_outside_commands_exist_too(commands: list[list[str]]) -> None:
    keys = re.findall(r"(?:--set '?|`)([a-z]+\.[a-z_]+|n_categories|category_factor)[=`]", DOCS)
    assert set(keys) <= set(leaves(Config().model_dump())) | {"run.json", "split.json"}
    assert {command[0] for command in commands} == {"train", "evaluate", "predict", "data", "import"}
    assert {command[1] for command in commands if command[0] == "data"} == {"cub"}
