"""The recipes of the package: what the paper and its authors' README say, nothing twice, and a table of them."""

import itertools
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import pytest

from helpers.rounding import DOUBLE
from sptnet.cli import main
from sptnet.config import Config, DataSource
from sptnet.config.recipe_table import PublishedScores, published, recipe_table
from sptnet.config.recipes import load_recipe, recipe_names, recipe_text
from sptnet.errors import Misuse
from sptnet.methods import METHODS, stages_of

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
PLAIN = ["digits", "gcd", "kmeans", "simgcd", "sptnet", "sptnet-dinov2", "sptnet-p", "sptnet-s"]
BENCHMARKS = [name for name in recipe_names() if "/" in name]
FOUR = ("simgcd", "sptnet", "sptnet-p", "sptnet-s")
PAPER = ("aircraft", "cars", "cifar10", "cifar100", "cub", "herbarium19", "imagenet100")
SSB = ("cub", "cars", "aircraft")

# Learning rates of prompts and model: the authors' README, and the paper's Table 6 for SPTNet-P and SPTNet-S.
README = {
    "cifar10": (1, 3e-3), "cifar100": (5, 3e-3), "imagenet100": (5, 3e-3), "herbarium19": (0.5, 1e-2),
    "cub": (25, 0.05), "cars": (10, 0.05), "aircraft": (1, 0.05),
}  # fmt: skip
TABLE_6 = {
    "cifar10": (20, 3e-3), "cifar100": (1, 1e-3), "imagenet100": (10, 3e-3), "herbarium19": (1, 5e-3),
    "cub": (25, 0.05), "cars": (10, 0.05), "aircraft": (1, 0.05),
}  # fmt: skip

# Share of images of known classes among those that are scored.
OLD_SHARE = {
    "cifar10": 1 / 3, "cifar100": 2 / 3, "imagenet100": 0.335, "imagenet1k": 1 / 3, "cub": 0.334, "cars": 0.325,
    "aircraft": 0.333, "herbarium19": 0.35,
}  # fmt: skip
# Published rows whose All is not the mix of Old and New, and that mix.
INCONSISTENT = {
    "cub/sptnet": 66.3,
    "cub/sptnet-p-dinov2": 75.9,
    "imagenet100/sptnet-p-estimated": 80.4,
    "ablation/border-30": 66.3,
    "ablation/prompt-only-global": 57.2,
    "ablation/strategy-end-to-end": 57.9,
    "ablation/strategy-data-first": 56.7,
    "ablation/strategy-data-first-imagenet100": 82.8,
}

# Tables 4 and 5: averages over the Semantic Shift Benchmark. Kind of prompt, strategy, All, Old, New.
PROMPTS = {
    "prompt-only-vpt": ("vpt", "prompts-only", 54.4, 64.7, 49.1),
    "prompt-only-global": ("global", "prompts-only", 56.7, 64.6, 53.5),
    "prompt-only-spatial": ("spatial", "prompts-only", 57.9, 67.2, 53.3),
    "prompt-global": ("global", "alternate", 57.8, 66.3, 53.8),
    "prompt-shared": ("shared", "alternate", 60.5, 68.6, 56.5),
    "prompt-spatial": ("spatial", "alternate", 59.1, 68.5, 54.5),
    "prompt-shared-global": ("shared+global", "alternate", 60.9, 69.0, 57.3),
    "prompt-spatial-global": ("spatial+global", "alternate", 61.4, 69.9, 57.5),
    "strategy-fine-tune": ("none", "fine-tune", 57.0, 66.0, 52.3),
    "strategy-end-to-end": ("spatial+global", "end-to-end", 58.6, 67.4, 53.2),
    "strategy-data-first": ("spatial+global", "data-first", 58.0, 66.4, 51.9),
    "strategy-model-first": ("spatial+global", "model-first", 59.2, 67.8, 54.9),
    "strategy-alternate": ("spatial+global", "alternate", 61.4, 69.9, 57.5),
}


def header(name: str) -> str:
    """The comment at the top as one line of text."""
    lines = recipe_text(name).splitlines()
    return " ".join(line.lstrip("# ") for line in lines[: next(i for i, line in enumerate(lines) if line[:1] != "#")])


def scores_of(name: str) -> PublishedScores:
    found = published(recipe_text(name))
    assert found is not None, name
    return found


def leaves(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, str, str]]:
    def run(*arguments: object) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["sptnet", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return run


# --- which there are --------------------------------------------------------------------------------------------------


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
    """What setuptools is told to pack, against what lies there."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    told = patterns["tool"]["setuptools"]["package-data"]["sptnet"]
    package = Path(str(files("sptnet")))
    packed = {path for pattern in told for path in package.glob(pattern)}
    there = sorted((package / "recipes").rglob("*.toml"))
    assert len(there) == len(recipe_names()) == len(set(recipe_names()))
    assert [path for path in there if path not in packed] == []


# --- what they say ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_says_its_method_and_only_what_differs_from_the_defaults(name: str) -> None:
    values = leaves(tomllib.loads(recipe_text(name)))
    defaults = leaves(Config().model_dump())
    assert values.pop("method") in METHODS
    assert {key: value for key, value in values.items() if defaults[key] == value} == {}
    assert bool(stages_of(load_recipe(name))) == (load_recipe(name).method != "kmeans")


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_short_lines_and_names_no_place(name: str) -> None:
    text = recipe_text(name)
    assert [line for line in text.splitlines() if len(line) > 120] == []
    assert [place for place in ("/tmp", "/home", "/root") if place in text] == []
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
    if config.method in ("kmeans", "gcd"):  # they have no such term
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
            here, there = load_recipe(f"ablation/{name}-imagenet100"), load_recipe(f"ablation/{name}")
            assert here.changed(sptnet={"strategy": "alternate"}).sptnet.learning_rate == 0.003
            assert (here.data.source, here.sptnet.strategy) == ("imagenet100", there.sptnet.strategy)
            assert here.prompt == there.prompt


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
    found = {}
    for entry in recipe_table():
        if entry.published is None or entry.data == "domainnet":  # the mix of its domains is not printed
            continue
        average = entry.published.of == "SSB average"
        share = sum(OLD_SHARE[source] for source in SSB) / 3 if average else OLD_SHARE[entry.data]
        mix = share * entry.published.old + (1 - share) * entry.published.new
        if abs(mix - entry.published.all) > 0.3:
            found[entry.name] = round(mix, 1)
    assert found == INCONSISTENT
    for name, mix in INCONSISTENT.items():
        assert f"does not fit Old and New, which mix to {mix}" in header(name)


def test_what_else_does_not_agree_is_said() -> None:
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


# --- the command line -------------------------------------------------------------------------------------------------


def test_the_list_has_a_line_for_every_recipe(call: Callable[..., tuple[Any, str, str]]) -> None:
    code, out, err = call("recipes", "list")
    head, *lines = out.splitlines()
    assert (code, err, head.split()) == (
        0, "", ["name", "data", "set", "method", "All", "Old", "New", "what", "it", "does"],
    )  # fmt: skip
    assert [line.split()[0] for line in lines] == recipe_names()
    by_name = {line.split()[0]: re.split(r" {2,}", line) for line in lines}
    sentence = "SPTNet on CUB-200-2011 (Semantic Shift Benchmark)."
    assert by_name["cub/sptnet"] == ["cub/sptnet", "cub", "sptnet", "65.8", "68.8", "65.1", sentence]
    assert by_name["pacs/simgcd"][1:6] == ["pacs", "simgcd", "-", "-", "-"]
    assert by_name["sptnet-p"][1:3] == ["folder", "sptnet-p"]
    assert by_name["ablation/prompt-shared"][2] == "sptnet-s"
    assert by_name["ablation/prompt-only-spatial"][2] == "sptnet"
    assert by_name["ablation/prompt-shared"][-1].endswith(" (published: SSB average)")


@pytest.mark.parametrize("folder", ["cub", "cub/"])
def test_the_list_of_a_folder_also_as_json(folder: str, call: Callable[..., tuple[Any, str, str]]) -> None:
    names = [name for name in recipe_names() if name.startswith("cub/")]
    assert [line.split()[0] for line in call("recipes", "list", folder)[1].splitlines()[1:]] == names
    code, out, _ = call("recipes", "list", folder, "--json")
    entries = json.loads(out)
    assert (code, [entry["name"] for entry in entries]) == (0, names)
    assert entries[names.index("cub/sptnet")] == {
        "name": "cub/sptnet",
        "data": "cub",
        "method": "sptnet",
        "published": {"all": 65.8, "old": 68.8, "new": 65.1, "of": None},
        "summary": "SPTNet on CUB-200-2011 (Semantic Shift Benchmark).",
    }


def test_a_folder_that_is_none_is_refused(call: Callable[..., tuple[Any, str, str]]) -> None:
    code, out, err = call("recipes", "list", "cup")
    assert (code, out) == (2, "")
    assert "no folder of recipes 'cup'. Choose from: ablation, aircraft, cars," in err
    with pytest.raises(Misuse, match="no folder of recipes ''"):
        recipe_table("")


def test_a_recipe_of_a_folder_is_shown_and_copied(tmp_path: Path, call: Callable[..., tuple[Any, str, str]]) -> None:
    assert call("recipes", "show", "cub/sptnet")[1] == recipe_text("cub/sptnet")
    mine = tmp_path / "mine.toml"
    assert call("recipes", "copy", "cub/sptnet", mine)[0] == 0
    assert mine.read_text(encoding="utf-8") == recipe_text("cub/sptnet")
    assert load_recipe(str(mine)) == load_recipe("cub/sptnet")


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
    with pytest.raises(Misuse, match=r"It is a folder of recipes, such as cub/gcd\."):
        recipe_text(folder)


# --- docs/benchmarks.md -----------------------------------------------------------------------------------------------


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


def test_the_tables_of_ablations_are_those_of_the_recipes() -> None:
    listed = re.findall(r"^\| `(\S+)` \| ([^|]+) \|(?: ([^|]+) \|)?$", DOCS, re.MULTILINE)
    assert {name for name, *_ in listed} == {
        *(f"ablation/{row}" for row in ("prompt-none", *PROMPTS)),
        *(f"{source}/{method}-estimated" for source in ("cub", "imagenet100") for method in ("simgcd", "sptnet-p")),
    }
    for name, here, imagenet in listed:
        assert here == as_printed(name)
        assert imagenet == (as_printed(f"{name}-imagenet100") if "strategy" in name else "")
    _, domains = doc_table("DomainNet")
    for method, (real, painting, others) in domains.items():
        text = header(f"domainnet/{method.lower()}")
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
    assert len(finished) == 3 * 7 * 6 + 3 * 3 * 8 + 4 + 14 + 2 * 4 + 3 + 2 * 2 + 4 + 4 + 3 + 3


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
