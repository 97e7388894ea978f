"""Recipes against the tables of the paper, which the tests hold in a copy of their own."""

import re
from collections import Counter

import pytest

from helpers.paper_tables import ELSEWHERE, TABLE_11, TABLE_13, parse, printed_cells
from helpers.published_recipes import SSB, SYSTEMS, WITHOUT_NUMBERS, header, scores_of
from helpers.rounding import DOUBLE
from sptnet.config import Config
from sptnet.config.recipe_table import published, recipe_table
from sptnet.config.recipes import load_recipe, recipe_text

CELLS = list(printed_cells())
GCD_ON_SSB = 45.1


def test_the_copy_has_all_rows() -> None:
    dashes = {cell.recipe for cell in CELLS if cell.numbers is None}
    assert dashes == {"aircraft/dccl", "herbarium19/dccl"}
    assert Counter(cell.table for cell in CELLS) == {2: 27, 3: 36, 5: 5, 8: 12, 9: 16, 10: 16, 11: 6, 12: 8}
    assert all(cell.numbers is None or len(cell.numbers) == 3 for cell in CELLS)


@pytest.mark.parametrize("table", sorted({cell.table for cell in CELLS}))
def test_every_row_with_numbers_has_a_recipe_that_repeats_them(table: int) -> None:
    for _, name, numbers in (cell for cell in CELLS if cell.table == table):
        if numbers is None:
            assert published(recipe_text(name)) is None
            assert f"Table {table} of the paper has dashes here." in header(name)
        else:
            scores = scores_of(name)
            assert (scores.all, scores.old, scores.new) == numbers, name
            assert scores.of == ("real" if table == 11 else None)


def test_every_other_recipe_with_numbers_names_its_source() -> None:
    rows = {cell.recipe for cell in CELLS}
    others = {
        entry.name: (entry.published.all, entry.published.old, entry.published.new)
        for entry in recipe_table()
        if entry.published and entry.name not in rows and not entry.name.startswith("ablation/")
    }
    assert others == {**ELSEWHERE, "imagenet1k/simgcd": (57.1, 77.3, 46.9)}
    assert "SimGCD's README" in header("imagenet1k/simgcd")
    for name in ELSEWHERE:
        system, source = ("GPC", "GPC's own paper") if name.endswith("gpc") else ("muGCD", "a later paper (SEAL)")
        assert f"The paper has no row of {system}. These are the numbers of {source}" in header(name)


def test_the_header_names_a_table_that_has_the_row() -> None:
    tables: dict[str, list[int]] = {}
    for table, name, numbers in CELLS:
        if numbers is not None:
            tables.setdefault(name, []).append(table)
    for name, those in tables.items():
        assert re.search(rf"Table ({'|'.join(map(str, those))})\b", header(name)), name


def test_the_other_domains_are_in_the_header() -> None:
    for method, triples in parse(TABLE_11).items():
        _, painting, others = (" / ".join(f"{x:.1f}" for x in triple or ()) for triple in triples)
        assert f"Painting {painting}; the other four domains {others}." in header(f"domainnet/{method}")


@pytest.mark.parametrize("method", TABLE_13)
def test_accuracies_and_times_of_table_13(method: str) -> None:
    imagenet, seconds, ssb, ssb_seconds = TABLE_13[method]
    per_epoch = "s of SPTNet" if method == "sptnet" else "s an epoch"
    assert scores_of(f"imagenet100/{method}").all == imagenet
    assert f"{seconds} {per_epoch}" in header(f"imagenet100/{method}")
    mean = sum(scores_of(f"{source}/{method}").all for source in SSB) / 3
    if method == "gcd":  # the number is that of CUB alone
        assert (ssb, mean) == (scores_of("cub/gcd").all, pytest.approx(GCD_ON_SSB, abs=0.05 + DOUBLE))
    else:
        assert ssb == pytest.approx(mean, abs=0.05 + DOUBLE)
    for source in SSB:
        assert f"{ssb_seconds} {per_epoch} on the Semantic Shift Benchmark" in header(f"{source}/{method}")


def test_copied_rows_and_other_sources_are_stated() -> None:
    assert scores_of("aircraft/rankstats") == scores_of("herbarium19/rankstats")
    assert scores_of("aircraft/uno") == scores_of("herbarium19/uno")
    for system, elsewhere in (("rankstats", "26.9 / 36.4 / 22.2"), ("uno", "40.3 / 56.4 / 32.2")):
        assert "the numbers of Herbarium 19, copied" in header(f"aircraft/{system}")
        assert elsewhere in header(f"aircraft/{system}")
        assert "The row of Aircraft has the same numbers" in header(f"herbarium19/{system}")
    for source, elsewhere in {
        "cub": "35.3 / 45.6 / 30.2",
        "cars": "23.5 / 50.1 / 10.7",
        "aircraft": "22.0 / 31.8 / 17.1",
        "herbarium19": "24.6 / 26.5 / 23.7",
    }.items():
        assert f"A later paper (SEAL) has {elsewhere} for ORCA" in header(f"{source}/orca")
    assert "Old and New of painting mix to 22.8" in header("domainnet/orca")
    (_, painting, _) = parse(TABLE_11)["orca"]
    assert painting is not None
    assert sum(painting[1:]) / 2 == pytest.approx(22.8)
    for source, elsewhere in {
        "cub": "74.0 / 75.9 / 73.1",
        "cars": "76.1 / 91.0 / 68.9",
        "aircraft": "66.3 / 68.7 / 65.1",
    }.items():
        assert f"it has {elsewhere}." in header(f"{source}/mugcd")


def test_recipes_without_numbers_say_so() -> None:
    names = {f"{source}/{system}" for system, sources in SYSTEMS.items() for source in sources}
    assert {name for name in names if "# published: none\n" in recipe_text(name)} == WITHOUT_NUMBERS
    for name in WITHOUT_NUMBERS:
        assert re.search(r"paper has (no row of (CiPR|GPC|muGCD)|dashes here)", header(name)), name


# --- settings ---------------------------------------------------------------------------------------------------------

PROMPTCAL = {  # epochs of both stages, neighbours, quantile, bank, negatives
    "cub": (200, 100, 5, 0.8, 4096, 1024),
    "cars": (200, 100, 5, 0.8, 4096, 1024),
    "aircraft": (200, 100, 5, 0.8, 4096, 1024),
    "cifar10": (200, 70, 10, 0.5, 4096, 1024),
    "cifar100": (200, 70, 10, 0.5, 4096, 1024),
    "imagenet100": (100, 70, 10, 0.5, 4096, 1024),
    "herbarium19": (100, 100, 7, 0.8, 20000, 5000),
}


@pytest.mark.parametrize("source", PROMPTCAL)
def test_promptcal_has_the_settings_of_its_code_per_set(source: str) -> None:
    config = load_recipe(f"{source}/promptcal")
    one, two = config.promptcal, config.promptcal_calibrated
    numbers = (one.epochs, two.epochs, two.neighbors, two.quantile, two.bank, two.negatives)
    assert numbers == PROMPTCAL[source]


@pytest.mark.parametrize("system", SYSTEMS)
def test_systems_have_their_published_settings_and_the_defaults_otherwise(system: str) -> None:
    for name in (system, *(f"{source}/{system}" for source in SYSTEMS[system])):
        config = load_recipe(name)
        assert config.method == system
        assert config.training.batch_size == (256 if system == "gpc" else 128)
        ramp = (config.rankstats.ramp_up, config.rankstats.consistency)
        assert ramp == ((50, 5) if name == "cifar10/rankstats" else (150, 50))
        if system != "promptcal" and name != "cifar10/rankstats":
            assert getattr(config, system) == getattr(Config(), system)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_is_built_on_the_recipe_of_its_kind(system: str) -> None:
    base = "simgcd" if system in ("rankstats", "uno", "orca") else "gcd"
    for source in SYSTEMS[system]:
        lines = recipe_text(f"{source}/{system}").splitlines()
        assert [line for line in lines if not line.startswith("#")][:2] == [
            f'base = "{source}/{base}"',
            f'method = "{system}"',
        ]
        assert load_recipe(f"{source}/{system}").data == load_recipe(f"{source}/{base}").data
