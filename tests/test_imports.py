"""The modules form a line: each imports only from those before it. And a few rules for all source files."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import sptnet

SOURCE = Path(sptnet.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

ORDER = [
    # what everything may use
    "sptnet.errors",
    "sptnet.place",
    "sptnet.config",
    "sptnet.recipe_book",
    "sptnet.recipe_table",
    "sptnet.progress",
    "sptnet.wording",
    "sptnet.seeds",
    "sptnet.files",
    "sptnet.interrupt",
    "sptnet.kept_memory",
    "sptnet.evaluating",
    "sptnet.distributed",
    # images, who is labelled, views
    "sptnet.heic",
    "sptnet.listing",
    "sptnet.packed_paths",
    "sptnet.named_images",
    "sptnet.images",
    "sptnet.pile",
    "sptnet.folder",
    "sptnet.readable",
    "sptnet.likeness",
    "sptnet.duplicates",
    "sptnet.split",
    # the benchmarks, each a small file
    "sptnet.datasets.base",
    "sptnet.datasets.counts",
    "sptnet.datasets.layout",
    "sptnet.datasets.class_splits",
    "sptnet.datasets.download",
    "sptnet.datasets.safe_pickle",
    "sptnet.datasets.domains",
    "sptnet.datasets.cifar",
    "sptnet.datasets.fashion_mnist",
    "sptnet.datasets.imagenet",
    "sptnet.datasets.cub",
    "sptnet.datasets.cars",
    "sptnet.datasets.aircraft",
    "sptnet.datasets.herbarium",
    "sptnet.datasets.domainnet",
    "sptnet.datasets.pacs",
    "sptnet.datasets",
    "sptnet.data",
    "sptnet.pixels",
    "sptnet.token_bank",
    "sptnet.windows",
    "sptnet.views",
    "sptnet.sampler",
    "sptnet.loader",
    # the model: prompts, backbone, head
    "sptnet.prompts",
    "sptnet.state_dicts",
    "sptnet.weights_file",
    "sptnet.fetch",
    "sptnet.class_token",
    "sptnet.frozen_block",
    "sptnet.side_by_side",
    "sptnet.vit_parts",
    "sptnet.vit_weights",
    "sptnet.timm_vits",
    "sptnet.backbone",
    "sptnet.head",
    "sptnet.cluster_head",
    "sptnet.model",
    "sptnet.folding",
    # what is minimised, and in which turns
    "sptnet.losses",
    "sptnet.phases",
    "sptnet.schedules",
    "sptnet.methods.method",
    "sptnet.methods.kmeans",
    "sptnet.methods.sskmeans",
    "sptnet.methods.gcd",
    "sptnet.methods.simgcd",
    "sptnet.methods.sptnet",
    "sptnet.methods",
    # training, which takes and gives checkpoints, and the folders it fills
    "sptnet.device",
    "sptnet.compiling",
    "sptnet.checkpoint",
    "sptnet.run_bank",
    "sptnet.stage_batches",
    "sptnet.epoch_loader",
    "sptnet.step",
    "sptnet.micro_batches",
    "sptnet.training",
    "sptnet.run_folder",
    "sptnet.run_facts",
    "sptnet.model_folder",
    "sptnet.features",
    "sptnet.attention",
    "sptnet.model_pictures",
    # scores, which are made of metrics, and what was found
    "sptnet.kmeans_steps",
    "sptnet.ss_kmeans",
    "sptnet.clustering",
    "sptnet.metrics",
    "sptnet.count_curve",
    "sptnet.count_search",
    "sptnet.estimate",
    "sptnet.auto_count",
    "sptnet.count_plot",
    "sptnet.outputs",
    "sptnet.scoring",
    "sptnet.looking",
    "sptnet.categories",
    # what a person makes of it
    "sptnet.found",
    "sptnet.category_table",
    "sptnet.edit_types",
    "sptnet.edit_steps",
    "sptnet.edits",
    "sptnet.export_folders",
    "sptnet.export",
    # the figures of the paper
    "sptnet.figures.canvas",
    "sptnet.figures.chosen_runs",
    "sptnet.figures.tiles",
    "sptnet.figures.prompt_sheet",
    "sptnet.figures.samples",
    "sptnet.figures.attention_maps",
    "sptnet.figures.differences",
    "sptnet.figures.accuracy",
    "sptnet.figures.panels",
    "sptnet.figures.tsne",
    "sptnet.figures",
    # the page of a run
    "sptnet.report.chart",
    "sptnet.report.curves",
    "sptnet.report.overview",
    "sptnet.report.pictured",
    "sptnet.report.thumbnails",
    "sptnet.report.embedding",
    "sptnet.report.confusion",
    "sptnet.report.gaze",
    "sptnet.report.facts",
    "sptnet.report.model_views",
    "sptnet.report.content",
    "sptnet.report.page",
    "sptnet.report.images_of_run",
    "sptnet.report.write",
    "sptnet.report",
    # other people's checkpoints as models
    "sptnet.published",
    "sptnet.published_model",
    # a trained model to use
    "sptnet.predictor",
    "sptnet.attempts",
    # what to know before a run
    "sptnet.check",
    "sptnet.findings",
    # whole runs, pre-training, the demo
    "sptnet.learner",
    "sptnet.starting_model",
    "sptnet.preparation",
    "sptnet.stage_run",
    "sptnet.experiment",
    # what a plan is made from; rounds, and all of it as an estimator, which the package itself offers
    "sptnet.speed",
    "sptnet.costs",
    "sptnet.plan",
    "sptnet.discovery",
    "sptnet.edited_names",
    "sptnet.parts_job",
    "sptnet.parts",
    "sptnet.export_model",
    "sptnet.rounds",
    "sptnet.estimator_inputs",
    "sptnet.estimator",
    "sptnet",
    "sptnet.knn",
    "sptnet.pretrain_views",
    "sptnet.pretrain",
    "sptnet.demo",
    # the command line
    "sptnet.cli.tables",
    "sptnet.cli.options",
    "sptnet.cli.processes",
    "sptnet.cli.stopping",
    "sptnet.cli.train",
    "sptnet.cli.check",
    "sptnet.cli.estimate",
    "sptnet.cli.evaluate",
    "sptnet.cli.discover_text",
    "sptnet.cli.discover",
    "sptnet.cli.predict",
    "sptnet.cli.edit",
    "sptnet.cli.export",
    "sptnet.cli.report",
    "sptnet.cli.figures",
    "sptnet.cli.import_",
    "sptnet.cli.pretrain",
    "sptnet.cli.recipes",
    "sptnet.cli.data",
    "sptnet.cli.demo",
    "sptnet.cli",
    "sptnet.__main__",
]


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
    assert "sptnet.backbone" in GRAPH["sptnet.model"]
    assert "sptnet.errors" in GRAPH["sptnet.pile"]  # a relative import
    assert "sptnet.experiment" in GRAPH["sptnet.cli.train"]  # an import inside a function
    assert "sptnet.methods.simgcd" in GRAPH["sptnet.methods"]  # a sub-module of the package


def test_only_modules_that_exist_are_imported() -> None:
    assert {name for names in GRAPH.values() for name in names} <= set(MODULES)


def test_every_module_has_one_place_in_the_order() -> None:
    assert sorted(ORDER) == sorted(MODULES)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_only_from_earlier_ones(module: str) -> None:
    earlier = set(ORDER[: ORDER.index(module)])
    assert [name for name in GRAPH[module] if name not in earlier] == []


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
