"""Recipes of the package: they repeat the numbers of the paper and of its authors' README, and nothing twice."""

import re
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import get_args

import pytest

from helpers.published_recipes import (
    INCONSISTENT,
    PAPER,
    PROMPTS,
    README,
    SSB,
    SYSTEMS,
    TABLE_6,
    header,
    leaves,
    scores_of,
)
from helpers.rounding import DOUBLE
from sptnet.config import Config, DataSource
from sptnet.config.recipe_table import PublishedScores, published, recipe_table
from sptnet.config.recipes import load_recipe, recipe_names, recipe_text
from sptnet.errors import Misuse
from sptnet.methods import METHODS, stages_of

ROOT = Path(__file__).parents[2]
PLAIN = sorted([*SYSTEMS, "digits", "gcd", "kmeans", "simgcd", "sptnet", "sptnet-dinov2", "sptnet-p", "sptnet-s"])
BENCHMARKS = [name for name in recipe_names() if "/" in name]
FOUR = ("simgcd", "sptnet", "sptnet-p", "sptnet-s")

# Share of images of known classes among those that are scored.
OLD_SHARE = {
    "cifar10": 1 / 3, "cifar100": 2 / 3, "imagenet100": 0.335, "imagenet1k": 1 / 3, "cub": 0.334, "cars": 0.325,
    "aircraft": 0.333, "herbarium19": 0.35,
}  # fmt: skip


# --- names and files --------------------------------------------------------------------------------------------------


def test_every_data_set_has_its_recipes_in_a_folder_of_its_name() -> None:
    names = recipe_names()
    assert names[: len(PLAIN)] == PLAIN
    benchmarks = set(get_args(DataSource)) - {"digits", "folder", "domains"}
    assert {name.split("/")[0] for name in BENCHMARKS} == benchmarks | {"ablation"}
    for source in benchmarks:
        expected = {f"{source}/{method}" for method in (FOUR[:2] if source in ("pacs", "fashion_mnist") else FOUR)}
        if source in ("cub", "imagenet100"):
            expected |= {f"{source}/{method}-dinov2" for method in FOUR}
            expected |= {f"{source}/simgcd-estimated", f"{source}/sptnet-p-estimated"}
        if source in PAPER:
            expected |= {f"{source}/gcd", f"{source}/kmeans"}
        if source == "domainnet":
            expected.add("domainnet/gcd")
        expected |= {f"{source}/{system}" for system, sources in SYSTEMS.items() if source in sources}
        assert {name for name in names if name.startswith(f"{source}/")} == expected


def test_every_row_of_the_ablations_has_its_recipe() -> None:
    steps = {
        "k": ["5", "10", "20", "40"],
        "m": ["1", "2", "4", "6"],
        "border": ["1", "10", "20", "30", "40", "50"],
        "categories": ["0.5x", "1x", "2x", "10x"],
        "known": ["10", "25", "50", "80"],
    }
    expected = {f"{what}-{step}" for what, those in steps.items() for step in those}
    expected |= {"prompt-none", *PROMPTS}
    expected |= {f"{name}-imagenet100" for name in PROMPTS if name.startswith("strategy-")}
    assert {name.removeprefix("ablation/") for name in BENCHMARKS if name.startswith("ablation/")} == expected


def test_folders_follow_one_another_and_numbers_count_as_numbers() -> None:
    names = recipe_names()
    folders = [name.rpartition("/")[0] for name in names]
    assert [folder for i, folder in enumerate(folders) if i == 0 or folders[i - 1] != folder] == [
        "", "ablation", "aircraft", "cars", "cifar10", "cifar100", "cub", "domainnet", "fashion_mnist", "herbarium19",
        "imagenet1k", "imagenet100", "pacs",
    ]  # fmt: skip
    assert [name for name in names if "/k-" in name] == [f"ablation/k-{k}" for k in (5, 10, 20, 40)]


def test_a_wheel_has_all_recipes() -> None:
    """The package data of setuptools include every recipe."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    package_data = patterns["tool"]["setuptools"]["package-data"]["sptnet"]
    package = Path(str(files("sptnet")))
    packed = {path for pattern in package_data for path in package.glob(pattern)}
    existing = sorted((package / "recipes").rglob("*.toml"))
    assert len(existing) == len(recipe_names()) == len(set(recipe_names()))
    assert [path for path in existing if path not in packed] == []


# --- contents ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_says_its_method_and_only_what_differs_from_its_base_or_the_defaults(name: str) -> None:
    values = leaves(tomllib.loads(recipe_text(name)))
    base = values.pop("base", None)
    below = leaves((Config() if base is None else load_recipe(base)).model_dump())
    assert values.pop("method") in METHODS
    assert {key: value for key, value in values.items() if below[key] == value} == {}
    assert bool(stages_of(load_recipe(name))) == (load_recipe(name).method != "kmeans")


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_has_short_lines_and_no_absolute_paths(name: str) -> None:
    text = recipe_text(name)
    assert [line for line in text.splitlines() if len(line) > 120] == []
    assert [path for path in ("/tmp", "/home", "/root") if path in text] == []
    for key in re.findall(r"--set ([a-z_.]+)=", text):
        assert key in leaves(Config().model_dump()), key


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_begins_with_a_sentence_its_published_numbers_and_its_cost(name: str) -> None:
    lines = recipe_text(name).splitlines()
    assert re.fullmatch(r"# [A-Z].{10,98}\.", lines[0])
    assert re.fullmatch(r"# published: (none|\d\d\.\d / \d\d\.\d / \d\d\.\d( \(.+\))?)", lines[1])
    assert not any(line.startswith("# published") for line in lines[2:])
    assert re.search(r"Table \d|Figure \d|SimGCD's README|has no row|[Nn]either numbers", header(name))
    assert re.search(r"Cost: (\d+ s an epoch|the paper gives no time)|gives no time for it", header(name))
    source = name.split("/")[0]
    if source != "ablation":
        assert load_recipe(name).data.source == source


@pytest.mark.parametrize("source", PAPER)
def test_learning_rates_are_those_of_the_readme_and_of_table_6(source: str) -> None:
    def rates(name: str) -> tuple[float, float]:
        stage = load_recipe(name).sptnet
        return stage.prompt_learning_rate, stage.learning_rate

    assert rates(f"{source}/sptnet") == README[source]
    assert rates(f"{source}/sptnet-p") == rates(f"{source}/sptnet-s") == TABLE_6[source]
    for name in BENCHMARKS:
        if name.startswith(f"{source}/sptnet"):
            assert rates(name) == (TABLE_6 if re.search(r"sptnet-[ps]", name) else README)[source], name
            prompts, model = rates(name)
            assert f"{prompts:g} for prompts and {model:g} for the model" in header(name)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_entropy_weights_are_those_of_the_two_repositories(name: str) -> None:
    config = load_recipe(name)
    if config.method not in ("simgcd", "sptnet"):  # they have no such term, or one of their own
        return
    assert config.simgcd.entropy_weight == {"cub": 2, "cifar100": 4}.get(config.data.source, 1)
    if config.method == "sptnet":
        assert config.sptnet.entropy_weight == (2 if config.data.source == "cub" else 1)


@pytest.mark.parametrize("name", [name for name in BENCHMARKS if not name.startswith("ablation/")])
def test_the_name_says_method_prompts_backbone_and_number_of_categories(name: str) -> None:
    method = name.split("/")[1]
    variant = re.sub("-(dinov2|estimated)$", "", method)
    config = load_recipe(name)
    assert config.method == variant.split("-")[0]
    assert config.prompt.kind == {"sptnet-p": "spatial", "sptnet-s": "shared"}.get(variant, "spatial+global")
    dinov2 = "vit_base_patch14_dinov2.lvd142m"
    assert config.backbone.name == (dinov2 if method.endswith("-dinov2") else "vit_base_patch16_224.dino")
    estimate = {"cub": 231, "imagenet100": 109}[config.data.source] if method.endswith("-estimated") else None
    assert config.n_categories == estimate
    assert config.sptnet.strategy == "alternate"


@pytest.mark.parametrize("row", PROMPTS)
def test_ablations_of_prompts_and_strategies_are_the_rows_of_the_tables(row: str) -> None:
    kind, strategy, *numbers = PROMPTS[row]
    config = load_recipe(f"ablation/{row}")
    assert (config.data.source, config.prompt.kind, config.sptnet.strategy) == ("cub", kind, strategy)
    assert scores_of(f"ablation/{row}") == PublishedScores(*numbers, of="SSB average")  # type: ignore[arg-type]
    assert "For the others add --set data.source=cars" in header(f"ablation/{row}")


def test_strategies_on_imagenet_are_imagenet_with_that_strategy() -> None:
    for name in PROMPTS:
        if name.startswith("strategy-"):
            imagenet, cub = load_recipe(f"ablation/{name}-imagenet100"), load_recipe(f"ablation/{name}")
            assert imagenet.changed(sptnet={"strategy": "alternate"}).sptnet.learning_rate == 0.003
            assert (imagenet.data.source, imagenet.sptnet.strategy) == ("imagenet100", cub.sptnet.strategy)
            assert imagenet.prompt == cub.prompt


@pytest.mark.parametrize(
    ("row", "benchmark"),
    [
        ("prompt-none", "cub/simgcd"),
        ("prompt-shared", "cub/sptnet-s"),
        ("prompt-spatial", "cub/sptnet-p"),
        ("prompt-spatial-global", "cub/sptnet"),
        ("strategy-alternate", "cub/sptnet"),
        ("strategy-alternate-imagenet100", "imagenet100/sptnet"),
        ("k-20", "cub/sptnet"),
        ("m-1", "cub/sptnet"),
        ("border-30", "cub/sptnet"),
        ("categories-1x", "cub/sptnet-p"),
    ],
)
def test_a_row_that_is_the_method_itself_equals_its_recipe(row: str, benchmark: str) -> None:
    assert load_recipe(f"ablation/{row}") == load_recipe(benchmark)
    text = header(f"ablation/{row}")
    assert re.search(rf"\b(it|this) is {benchmark}\b", text, re.IGNORECASE)


def test_the_steps_of_the_figures_change_one_setting() -> None:
    cub, patch = load_recipe("cub/sptnet"), load_recipe("cub/sptnet-p")
    for k in (5, 10, 40):
        assert load_recipe(f"ablation/k-{k}") == cub.changed(sptnet={"k": k})
    for width in (2, 4, 6):
        assert load_recipe(f"ablation/m-{width}") == cub.changed(prompt={"width": width})
    for border in (1, 10, 20, 40, 50):
        assert load_recipe(f"ablation/border-{border}") == cub.changed(prompt={"border": border})
    for factor in (0.5, 2, 10):
        expected = patch.model_copy(update={"category_factor": factor})
        assert load_recipe(f"ablation/categories-{factor:g}x") == expected
    for known in (10, 25, 50, 80):
        cifar = load_recipe("cifar100/sptnet-p")
        assert load_recipe(f"ablation/known-{known}") == cifar.changed(data={"known_classes": known})


@pytest.mark.parametrize("k", [5, 10, 20, 40])
def test_the_header_counts_the_steps_of_an_epoch(k: int) -> None:
    (_, stage) = stages_of(load_recipe(f"ablation/k-{k}"))
    phases = [stage.turns.at(0, batch, 1000, 46).name for batch in range(46)]
    expected = f"46 batches: {phases.count('prompt')} for the prompts and {phases.count('model')} for the model"
    assert expected in header(f"ablation/k-{k}")


# --- published numbers ------------------------------------------------------------------------------------------------


def test_all_is_the_mix_of_old_and_new_except_where_the_header_says_so() -> None:
    inconsistent = {}
    for entry in recipe_table():
        if entry.published is None or entry.data == "domainnet":  # the mix of its domains is not printed
            continue
        average = entry.published.of == "SSB average"
        share = sum(OLD_SHARE[source] for source in SSB) / 3 if average else OLD_SHARE[entry.data]
        mix = share * entry.published.old + (1 - share) * entry.published.new
        if abs(mix - entry.published.all) > 0.3:
            inconsistent[entry.name] = round(mix, 1)
    assert inconsistent == INCONSISTENT
    for name, mix in INCONSISTENT.items():
        assert f"does not fit Old and New, which mix to {mix}" in header(name)


def test_other_contradictions_are_stated() -> None:
    assert "44.0 / 58.0 / 36.4" in header("herbarium19/simgcd")
    assert "not above SimGCD" in header("herbarium19/sptnet")
    assert "71.5 / 78.1 / 68.3" in header("cub/simgcd-dinov2")
    assert "there are 100" in header("aircraft/sptnet")
    for source in ("cifar10", "cifar100"):
        assert f"run {source}/sptnet and {source}/sptnet-p both" in header(f"{source}/sptnet")


def test_averages_over_ssb_are_those_of_its_three_sets() -> None:
    for method, row in (
        ("simgcd", "none"),
        ("sptnet-s", "shared"),
        ("sptnet-p", "spatial"),
        ("sptnet", "spatial-global"),
    ):
        average = scores_of(f"ablation/prompt-{row}")
        parts = [scores_of(f"{source}/{method}") for source in SSB]
        for key in ("all", "old", "new"):
            mean = sum(getattr(part, key) for part in parts) / 3
            assert mean == pytest.approx(getattr(average, key), abs=0.05 + DOUBLE)  # published with one decimal


def test_recipes_without_published_numbers_say_so() -> None:
    for source in ("pacs", "fashion_mnist"):
        for method in ("simgcd", "sptnet"):
            assert "# published: none\n" in recipe_text(f"{source}/{method}")
            assert "Neither numbers nor settings are published" in header(f"{source}/{method}")
    assert "# published: none\n" in recipe_text("imagenet1k/sptnet")
    assert scores_of("imagenet1k/simgcd") == PublishedScores(57.1, 77.3, 46.9)
    assert scores_of("domainnet/sptnet") == PublishedScores(63.1, 75.9, 56.4, of="real")


def test_the_line_of_published_numbers_is_read() -> None:
    assert published("# x\n# published: 65.8 / 68.8 / 65.1\n") == PublishedScores(65.8, 68.8, 65.1)
    assert published("# published: 1.0 / 2.0 / 3.0 (some average)") == PublishedScores(1, 2, 3, of="some average")
    assert published("# x\n# published: none\n") is None
    assert published("# x\nmethod = 'sptnet'\n") is None


@pytest.mark.parametrize(
    "text",
    ["# published:", "# published: 65.8", "# published: 65.8/68.8/65.1", "# published: soon", "# published: 1 / 2 / 3",
     "# published: none\n# published: none", "# published: 1.0 / 2.0 / 3.0\n# published: 1.0 / 2.0 / 3.0"],
)  # fmt: skip
def test_a_line_that_cannot_be_read_is_refused_with_the_right_form(text: str) -> None:
    with pytest.raises(Misuse, match=r"Write one line, either `# published: 65\.8 / 68\.8 / 65\.1` .*published: none`"):
        published(text)


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("cub-sptnet", "cub/sptnet"),
        ("sptnet/cub", "cub/sptnet"),
        ("sptnet-p-cub", "cub/sptnet-p"),
        ("CUB/SPTNet", "cub/sptnet"),
        ("cub/sptnte", "cub/sptnet"),
        ("sptnet_s cars", "cars/sptnet-s"),
        ("sptnetp", "sptnet-p"),
        ("simgdc", "simgcd"),
        ("ablation/categories-2", "ablation/categories-2x"),
    ],
)
def test_a_wrong_name_finds_the_right_one(asked: str, meant: str) -> None:
    with pytest.raises(Misuse, match=rf"no recipe '{asked}'.* Did you mean {meant}\? `sptnet recipes list`"):
        recipe_text(asked)


def test_a_name_far_from_all_others_gets_no_suggestion() -> None:
    with pytest.raises(Misuse) as error:
        recipe_text("zzz")
    assert "Did you mean" not in str(error.value)


@pytest.mark.parametrize("folder", ["cub", "cub/"])
def test_a_folder_is_not_a_recipe(folder: str) -> None:
    with pytest.raises(Misuse, match=r"It is a folder of recipes, such as cub/cipr\."):
        recipe_text(folder)


def test_a_folder_without_a_name_has_no_table() -> None:
    with pytest.raises(Misuse, match="no folder of recipes ''"):
        recipe_table("")
