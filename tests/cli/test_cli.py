"""The command line in processes of its own: every command, and the files of a run."""

import csv
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from PIL import Image
from safetensors.torch import load_file

import sptnet
import sptnet.discovery.demo
from conftest import Answer, Call
from helpers.rounding import certainty_rounding, terms_of
from sptnet.cli import app
from sptnet.config import Config
from sptnet.config.recipes import load_recipe, read_config, recipe_names, recipe_text, to_toml
from sptnet.discovery.demo import run_demo
from sptnet.inference.predictor import Predictor, load
from sptnet.methods import METHODS
from sptnet.results.run_folder import RunFolder

VERBS = ("demo", "discover", "check", "data", "train", "evaluate", "predict", "estimate")
VERBS += ("edit", "export", "figures", "import", "recipes", "report")
TINY = {
    "backbone.name": "sptnet_digits_vit",
    "head.hidden": 16,
    "head.bottleneck": 8,
    "training.batch_size": 8,
    "training.evaluate_every": 1,
    "gcd.epochs": 1,
    "gcd.output": 32,
    "gcd.n_init": 2,
    "simgcd.epochs": 1,
    "sptnet.epochs": 2,
    "sptnet.k": 2,
    "prompt.border": 5,
}
LOSSES = {"info_nce", "supervised_contrastive", "self_distillation", "cross_entropy", "mean_entropy_gap", "total"}
SCORES = {"all", "old", "new", "balanced", "separate", "nmi", "ari", "images"}


def console_script() -> list[str]:
    script = Path(sys.executable).with_name("sptnet")
    return [str(script)] if script.exists() else [sys.executable, "-m", "sptnet"]


def shell(*arguments: object, command: list[str] | None = None, cwd: Path | None = None) -> Answer:
    """Run the command line in a process, as a terminal does."""
    kept = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "PYTHONWARNINGS")}
    env = kept | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "120", "PYTHONIOENCODING": "utf-8"}
    whole = [*(command or console_script()), *map(str, arguments)]
    done = subprocess.run(whole, capture_output=True, text=True, encoding="utf-8", env=env, cwd=cwd, timeout=120)
    assert "Traceback" not in done.stderr, done.stderr
    return Answer(done.returncode, done.stdout, done.stderr)


def paint(root: Path, seed: int = 0, **counts: int) -> Path:
    """Write small noisy PNGs; the brightness differs by class."""
    random = np.random.default_rng(seed)
    for number, (name, n) in enumerate(counts.items()):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(n):
            pixels = random.integers(0, 60, (20, 24, 3)) + 60 * (number % 4)
            Image.fromarray(pixels.astype(np.uint8)).save(root / name / f"{i}.png")
    return root


def sets(**changes: object) -> list[str]:
    return [part for key, value in {**TINY, **changes}.items() for part in ("--set", f"{key}={value}")]


@pytest.fixture(scope="session")
def cli_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paint(tmp_path_factory.mktemp("cli") / "birds", crow=8, owl=8, unlabelled=10)


@pytest.fixture(scope="session")
def cli_command(cli_data: Path) -> list[str]:
    return ["train", "sptnet", "--data", "birds", "--out", "runs/first", "--seed", "3", *sets(n_categories=4)]


@pytest.fixture(scope="session")
def cli_answer(cli_data: Path, cli_command: list[str]) -> Answer:
    return shell(*cli_command, cwd=cli_data.parent)


@pytest.fixture(scope="session")
def cli_run(cli_data: Path, cli_answer: Answer) -> RunFolder:
    assert cli_answer.code == 0, cli_answer.err
    return RunFolder(cli_data.parent / "runs" / "first")


@pytest.fixture(scope="session")
def cli_benchmark(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run on a sorted folder, so that it has scores."""
    root = tmp_path_factory.mktemp("benchmark")
    paint(root / "data", crow=8, owl=8, tern=8, wren=8)
    config = load_recipe("sptnet", [f"{key}={value}" for key, value in TINY.items()])
    config = config.changed(data={"folder": str(root / "data"), "known_classes": ["crow", "owl"]})
    from sptnet.training.experiment import train

    train(config, root / "run", command=["test"])
    return RunFolder(root / "run")


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


# --- quick verbs ------------------------------------------------------------------------------------------------------


def test_help_is_quick_and_lists_every_verb() -> None:
    """The CPU time of the process counts, best of ten, because the machine may be busy."""
    seconds: list[float] = []
    while len(seconds) < 10 and min(seconds, default=1.0) >= 0.5:
        start, before = time.perf_counter(), os.times()
        answer = shell("--help")
        after = os.times()
        computing = after.children_user + after.children_system - before.children_user - before.children_system
        seconds.append(min(time.perf_counter() - start, computing or float("inf")))
        assert answer.code == 0
    assert min(seconds) < 0.5
    assert [verb for verb in VERBS if verb not in answer.out] == []


def test_the_command_line_imports_nothing_heavy() -> None:
    heavy = "('torch', 'pydantic', 'numpy', 'timm', 'torchvision', 'scipy', 'sklearn', 'PIL')"
    program = f"import sys, sptnet, sptnet.cli; print([m for m in {heavy} if m in sys.modules])"
    assert shell(command=[sys.executable, "-c", program]).out.strip() == "[]"


def test_the_version_and_the_module_as_a_program() -> None:
    assert shell("--version", command=[sys.executable, "-m", "sptnet"]) == Answer(0, f"{sptnet.__version__}\n", "")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, call: Call) -> None:
    answer = call(verb, "--help")
    assert answer.code == 0
    assert f"sptnet {verb}" in answer.out


def test_recipes_can_be_listed_shown_and_copied(tmp_path: Path, call: Call) -> None:
    listed = shell("recipes", "list")
    assert listed.code == 0
    assert [name for name in recipe_names() if name not in listed.out] == []
    for name in recipe_names():
        assert call("recipes", "show", name).out == recipe_text(name)
        assert call("recipes", "show", name, "--full").out == to_toml(load_recipe(name))
    mine = tmp_path / "mine.toml"
    answer = call("recipes", "copy", "sptnet", mine)
    assert (answer.code, mine.read_text(encoding="utf-8")) == (0, recipe_text("sptnet"))
    assert f"sptnet train {mine}" in answer.out
    again = call("recipes", "copy", "simgcd", mine)
    assert (again.code, mine.read_text(encoding="utf-8")) == (2, recipe_text("sptnet"))
    assert "exists already" in again.err


# --- train ------------------------------------------------------------------------------------------------------------


def test_training_prints_progress_on_stderr_and_scores_on_stdout(cli_answer: Answer) -> None:
    assert cli_answer.code == 0
    assert cli_answer.out.splitlines()[-1] == "run: runs/first"
    for phrase in ("simgcd epoch 1/1", "sptnet epoch 1/2", "sptnet epoch 2/2", "images/s", "finished in"):
        assert phrase in cli_answer.err


def test_a_run_has_these_files(cli_run: RunFolder) -> None:
    assert sorted(path.name for path in cli_run.path.iterdir()) == [
        ".sptnet-run",
        "categories",
        "checkpoints",
        "config.toml",
        "features.safetensors",
        "metrics.jsonl",
        "model",
        "model-simgcd",
        "predictions.csv",
        "run.json",
        "split.json",
    ]
    assert list(cli_run.path.rglob("*.part")) == []


def test_the_resolved_settings_are_kept(cli_run: RunFolder, cli_data: Path) -> None:
    config = read_config(cli_run.config_file)
    assert (config.seed, config.n_categories, config.training.batch_size) == (3, 4, 8)
    assert config.data.folder == str(cli_data.resolve())
    assert tomllib.loads(to_toml(config)) == tomllib.loads(cli_run.config_file.read_text(encoding="utf-8"))
    expected = load_recipe(
        "sptnet", [f"{key}={value}" for key, value in {**TINY, "n_categories": 4, "seed": 3}.items()]
    )
    assert config == expected.changed(data={"folder": str(cli_data.resolve())})


def test_the_facts_of_a_run_are_kept(cli_run: RunFolder, cli_command: list[str]) -> None:
    facts = json.loads(cli_run.facts_file.read_text(encoding="utf-8"))
    assert facts["status"] == "finished"
    assert facts["seed"] == 3
    assert facts["command"] == ["sptnet", *cli_command]
    assert set(facts["versions"]) == {"sptnet", "torch", "torchvision", "timm", "numpy", "python"}
    assert facts["versions"]["sptnet"] == sptnet.__version__
    assert len(facts["data"]["fingerprint"]) == 64
    assert facts["data"]["fingerprint_version"] == 2
    assert {key: facts["data"][key] for key in ("name", "images", "labelled", "unlabelled", "unreadable")} == {
        "name": "birds",
        "images": 26,
        "labelled": 16,
        "unlabelled": 10,
        "unreadable": [],
    }
    started, finished = (datetime.fromisoformat(facts[key]) for key in ("started", "finished"))
    assert (finished - started).total_seconds() == pytest.approx(facts["seconds"], abs=2)
    assert facts["parts"] == [{"started": facts["started"], "seconds": facts["seconds"]}]


def check_metrics(lines: list[dict[str, Any]]) -> None:
    assert [(line["stage"], line["epoch"]) for line in lines] == [("simgcd", 1), ("sptnet", 1), ("sptnet", 2)]
    assert [set(line["losses"]) for line in lines] == [{"raw"}, {"prompt", "model"}, {"prompt", "model"}]
    assert [set(line["learning_rates"]) for line in lines] == [{"model"}, {"prompt", "model"}, {"prompt", "model"}]
    for line in lines:
        assert line["images_per_second"] > 0
        assert all(set(parts) == LOSSES for parts in line["losses"].values())
        assert all(isinstance(value, float) for parts in line["losses"].values() for value in parts.values())
        assert all(rate > 0 for rate in line["learning_rates"].values())
        assert "scores" in line


def test_every_epoch_has_a_line(cli_run: RunFolder, cli_benchmark: RunFolder) -> None:
    lines = [json.loads(line) for line in cli_run.metrics_file.read_text(encoding="utf-8").splitlines()]
    check_metrics(lines)
    assert [line["scores"] for line in lines] == [{}, {}, {}]  # these images have no ground truth
    lines = cli_benchmark.metrics()
    check_metrics(lines)
    for line in lines:
        assert set(line["scores"]) == {"unlabelled"}
        assert set(line["scores"]["unlabelled"]) == SCORES
    assert lines[-1]["scores"] == cli_benchmark.facts()["scores"]


def test_the_split_is_kept_by_name(cli_run: RunFolder) -> None:
    split = json.loads(cli_run.split_file.read_text(encoding="utf-8"))
    assert (split["known_classes"], split["new_classes"]) == (["crow", "owl"], [])
    assert split["labelled"] == [f"{name}/{i}.png" for name in ("crow", "owl") for i in range(8)]
    assert split["unlabelled"] == [f"unlabelled/{i}.png" for i in range(10)]
    assert split["holdout"] == split["test"] == []


def test_the_model_is_kept_as_json_and_safetensors(cli_run: RunFolder) -> None:
    for folder, kind in ((cli_run.model, "spatial+global"), (cli_run.model_of_stage("simgcd"), "none")):
        assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.safetensors"]
        description = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        assert description["categories"] == ["crow", "owl", "new-1", "new-2"]
        assert description["prompt"]["kind"] == kind
        assert load_file(folder / "model.safetensors")["head.prototypes"].shape == (4, 96)


def test_predictions_have_one_row_per_image(cli_run: RunFolder, cli_data: Path) -> None:
    rows = rows_of(cli_run.predictions_file.read_text(encoding="utf-8"))
    columns = ["image", "category", "is_new", "certainty", "part", "truth", "guess", "second", "second_certainty"]
    assert list(rows[0]) == columns
    assert [row["image"] for row in rows] == sorted(p.relative_to(cli_data).as_posix() for p in cli_data.rglob("*.png"))
    names = load(cli_run.path).categories
    for row in rows:
        folder = row["image"].split("/")[0]
        assert row["category"] in names
        assert row["is_new"] == ("yes" if row["category"] in names[2:] else "no")
        assert 0.25 <= float(row["certainty"]) <= 1
        assert (row["part"], row["truth"]) == (("unlabelled", "") if folder == "unlabelled" else ("labelled", folder))
        assert row["category"] == (row["guess"] if folder == "unlabelled" else folder)
        assert row["guess"] in names and row["second"] in names and row["second"] != row["category"]
        assert 0 <= float(row["second_certainty"]) <= 1


def test_categories_with_images_have_pictures(cli_run: RunFolder) -> None:
    rows = rows_of(cli_run.predictions_file.read_text(encoding="utf-8"))
    names = load(cli_run.path).categories
    used = {row["category"] for row in rows}
    found = sorted(path.name for path in (cli_run.path / "categories").iterdir())
    assert found == [f"{i:03d}-{name}.png" for i, name in enumerate(names) if name in used]
    for name in found:
        with Image.open(cli_run.path / "categories" / name) as image:
            image.load()


def test_a_folder_with_a_test_part_is_scored_on_it(tmp_path: Path, call: Call) -> None:
    paint(tmp_path / "d" / "train", crow=6, owl=6, unlabelled=6)
    paint(tmp_path / "d" / "test", crow=3, owl=3, tern=3)
    settings = sets(n_categories=3, **{"sptnet.epochs": 1})
    trained = call("train", "sptnet", "--data", tmp_path / "d", "--out", tmp_path / "run", *settings)
    assert trained.code == 0
    assert "test (9 images)" in trained.out
    scored = call("evaluate", tmp_path / "run", "--json")
    assert json.loads(scored.out) == RunFolder(tmp_path / "run").facts()["scores"]
    assert json.loads(scored.out)["test"]["images"] == 9


def test_an_image_of_one_pixel_is_an_image(tmp_path: Path, call: Call) -> None:
    data = paint(tmp_path / "d", crow=5, owl=5, unlabelled=5)
    Image.new("RGB", (1, 1), "red").save(data / "crow" / "0.png")
    Image.new("L", (1, 200)).save(data / "unlabelled" / "0.png")
    settings = sets(n_categories=3, **{"sptnet.epochs": 1, "sptnet.strategy": "end-to-end"})
    assert call("train", "sptnet", "--data", data, "--out", tmp_path / "run", *settings).code == 0
    assert len(rows_of((tmp_path / "run" / "predictions.csv").read_text(encoding="utf-8"))) == 15


def test_few_unreadable_images_are_skipped_and_counted(tmp_path: Path, call: Call) -> None:
    data = paint(tmp_path / "d", crow=5, owl=5, unlabelled=5)
    (data / "crow" / "0.png").write_bytes(b"no image")
    settings = sets(n_categories=3, **{"sptnet.epochs": 1, "sptnet.strategy": "end-to-end", "data.max_unreadable": 0.1})
    answer = call("train", "sptnet", "--data", data, "--out", tmp_path / "run", *settings)
    assert answer.code == 0
    assert "skipped crow/0.png: not an image" in answer.err
    assert "skipped 1 unreadable of 15 images" in answer.err
    facts = RunFolder(tmp_path / "run").facts()["data"]
    assert (facts["images"], facts["unreadable"]) == (14, [{"image": "crow/0.png", "reason": "not an image"}])
    assert len(rows_of((tmp_path / "run" / "predictions.csv").read_text(encoding="utf-8"))) == 14


def test_a_finished_run_can_be_resumed_and_stays_the_same(cli_run: RunFolder, call: Call) -> None:
    facts = cli_run.facts()
    before = {p: p.read_bytes() for p in sorted(cli_run.path.rglob("*")) if p.is_file() and p.name != "run.json"}
    answer = call("train", "--resume", "--out", cli_run.path)
    assert answer.code == 0
    assert "going on from stage1-epoch00002" in answer.err
    after = {p: p.read_bytes() for p in sorted(cli_run.path.rglob("*")) if p.is_file() and p.name != "run.json"}
    assert after == before
    now = cli_run.facts()
    assert (now["status"], now["started"], now["parts"][:-1]) == ("finished", facts["started"], facts["parts"])
    assert now["seconds"] == pytest.approx(sum(part["seconds"] for part in now["parts"]))


def test_a_run_can_be_replaced(tmp_path: Path, cli_data: Path, call: Call) -> None:
    run = RunFolder(tmp_path / "run")
    settings = sets(n_categories=3, **{"sptnet.epochs": 1})
    command = ["train", "sptnet", "--data", cli_data, "--out", run.path, *settings]
    assert call(*command, "--seed", 1).code == 0
    refused = call(*command, "--seed", 2)
    assert (refused.code, run.config().seed) == (2, 1)
    assert "is not empty" in refused.err
    assert "--overwrite" in refused.err
    assert call(*command, "--seed", 2, "--overwrite").code == 0
    assert run.config().seed == 2
    assert len(run.metrics()) == 2


@pytest.mark.parametrize("name", ["sptnet_digits_vit", "auto"])
def test_the_backbone_can_be_given_by_name_and_file(
    name: str, tmp_path: Path, cli_run: RunFolder, tiny_weights: Path, call: Call
) -> None:
    data = cli_run.config().data.folder
    backbone = ["--backbone", name, "--weights", tiny_weights]
    settings = sets(method="kmeans", n_categories=4, **{"backbone.image_size": 32, "data.known_classes": 2})
    answer = call("train", "digits", "--data", data, "--out", tmp_path / "run", *backbone, *settings)
    assert answer.code == 0, answer.err
    used = RunFolder(tmp_path / "run").config().backbone
    assert (used.name, used.weights) == ("sptnet_digits_vit", str(tiny_weights)), "auto leaves the recipe's name"


def test_sptnet_can_start_from_a_finished_run(tmp_path: Path, cli_run: RunFolder, call: Call) -> None:
    data = cli_run.config().data.folder
    settings = sets(n_categories=4, **{"sptnet.epochs": 1})
    answer = call("train", "sptnet", "--data", data, "--out", tmp_path / "b", "--start-from", cli_run.path, *settings)
    assert answer.code == 0
    run = RunFolder(tmp_path / "b")
    assert [line["stage"] for line in run.metrics()] == ["sptnet"]
    assert run.config().sptnet.start_from == str(cli_run.path.resolve())


def test_mugcd_can_start_from_a_finished_run(tmp_path: Path, cli_run: RunFolder, call: Call) -> None:
    data, settings = cli_run.config().data.folder, sets(n_categories=4, **{"mugcd.epochs": 1})
    gcd, out = tmp_path / "gcd", tmp_path / "mugcd"
    assert call("train", "gcd", "--data", data, "--out", gcd, *settings).code == 0
    method = ("--set", "method=mugcd")
    answer = call("train", "gcd", *method, "--data", data, "--out", out, "--start-from", gcd, *settings)
    assert answer.code == 0, answer.err
    run = RunFolder(out)
    assert [line["stage"] for line in run.metrics()] == ["mugcd"]
    assert (run.config().mugcd.start_from, run.config().sptnet.start_from) == (str(gcd.resolve()), None)


def test_every_method_is_named_in_the_help() -> None:
    command = typer.main.get_command(app).commands["discover"]  # type: ignore[attr-defined]
    (method,) = (option for option in command.params if option.name == "method")
    for text in (method.help, str(sptnet.CategoryDiscoverer.__doc__)):
        assert [name for name in METHODS if not re.search(rf"\b{name}\b", text)] == []


def test_a_run_that_starts_from_another_keeps_the_backbone_it_really_has(
    tmp_path: Path, cli_run: RunFolder, call: Call
) -> None:
    """The model comes from the other run, so other settings of the backbone are refused or corrected."""
    settings = [part for part in sets(n_categories=4, **{"sptnet.epochs": 1}) if "backbone" not in part]
    settings = [part for i, part in enumerate(settings) if part != "--set" or settings[i + 1 : i + 2] != ["--set"]]
    out = tmp_path / "b"
    data = cli_run.config().data.folder
    answer = call("train", "sptnet", "--data", data, "--out", out, "--start-from", cli_run.path, *settings)
    if answer.code == 0:
        assert RunFolder(out).config().backbone.name == load(out).model.backbone.name
    else:
        assert (answer.code, "backbone" in answer.err) == (2, True)


def test_stopping_says_how_to_resume(
    tmp_path: Path, cli_data: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sptnet.training.trainer.StageTrainer.run_epoch", stop)
    out = tmp_path / "my run"
    answer = call("train", "sptnet", "--data", cli_data, "--out", out, *sets(n_categories=3))
    assert answer.code == 130
    assert f"sptnet train --resume --out '{out}'" in answer.err
    monkeypatch.undo()
    assert RunFolder(out).facts()["status"] == "stopped"


def test_settings_of_stages_that_do_not_train_are_named(train_words: list[str], tmp_path: Path, call: Call) -> None:
    """Also those that the recipe's own words give, but not those of the k-means that a training may begin with."""
    more = sets(**{"method": "uno", "uno.epochs": 1, "cipr.level": 0, "kmeans.n_init": 3, "sskmeans.n_init": 3})
    answer = call(*train_words, *more, "--out", tmp_path / "uno")
    assert answer.code == 0, answer.err
    (line,) = [line for line in answer.err.splitlines() if "no effect" in line]
    unused = re.fullmatch(r"(.*): no effect, since uno has no such stage", line)
    assert unused is not None
    named = unused[1].split(", ")
    assert {"cipr.level", "kmeans.n_init", "simgcd.epochs"} <= set(named)
    assert not [name for name in named if name.split(".")[0] in ("uno", "sskmeans", "head", "training", "views")]
    again = call("train", "--resume", "--out", tmp_path / "uno")
    assert "no effect" not in again.err


def test_evaluate_says_that_centroids_score_a_run_of_cipr(train_words: list[str], tmp_path: Path, call: Call) -> None:
    out, said = (
        tmp_path / "run",
        "sorted the images of the run by a clustering; the scores here are those of its centroids",
    )
    settings = sets(**{"method": "cipr", "cipr.epochs": 1, "cipr.output": 16})
    assert call(*train_words, *settings, "--out", out).code == 0
    answer = call("evaluate", out)
    assert (answer.code, answer.err.count(f"cipr {said}")) == (0, 1)
    other = call(*train_words, *sets(**{"method": "sskmeans"}), "--out", tmp_path / "other")
    assert other.code == 0 and said not in call("evaluate", tmp_path / "other").err


# --- evaluate ---------------------------------------------------------------------------------------------------------


def test_evaluate_scores_a_sorted_folder(tmp_path: Path, cli_run: RunFolder) -> None:
    data = paint(tmp_path / "sorted", seed=5, crow=3, owl=3, tern=3, unlabelled=2)
    answer = shell("evaluate", cli_run.path, "--data", data, "--json", "--no-prompts")
    assert (answer.code, answer.err) == (0, "")
    scores = json.loads(answer.out)
    assert list(scores) == ["sorted"]
    assert set(scores["sorted"]) == SCORES
    assert scores["sorted"]["images"] == 9  # the two unsorted images cannot be scored
    assert all(0 <= scores["sorted"][key] <= 1 for key in ("all", "old", "new"))


def test_evaluate_repeats_the_scores_of_the_run(cli_benchmark: RunFolder, call: Call) -> None:
    assert json.loads(call("evaluate", cli_benchmark.path, "--json").out) == cli_benchmark.facts()["scores"]
    table = call("evaluate", cli_benchmark.path).out
    for phrase in ("accuracy in per cent", "All", "Old", "New", "NMI", "ARI", "one matching (v2)", "class-balanced"):
        assert phrase in table
    scores = cli_benchmark.facts()["scores"]["unlabelled"]
    assert f"unlabelled ({scores['images']} images)" in table
    assert f"{100 * scores['all']:.1f}" in table


def test_evaluate_takes_a_model_directory_with_data(cli_benchmark: RunFolder, call: Call) -> None:
    data = cli_benchmark.config().data.folder
    by_run = call("evaluate", cli_benchmark.path, "--data", data, "--json")
    by_model = call("evaluate", cli_benchmark.model, "--data", data, "--json")
    assert by_run.code == by_model.code == 0
    assert json.loads(by_run.out) == json.loads(by_model.out)
    assert json.loads(by_run.out)["data"]["images"] == 32


def test_known_classes_are_old_whatever_their_order_and_others_new(
    tmp_path: Path, cli_benchmark: RunFolder, call: Call
) -> None:
    only_new = json.loads(call("evaluate", cli_benchmark.path, "--json", "--data", paint(tmp_path / "n", a=3, b=3)).out)
    assert (only_new["n"]["old"], only_new["n"]["new"] is None) == (None, False)
    only_old = json.loads(call("evaluate", cli_benchmark.path, "--json", "--data", paint(tmp_path / "o", owl=3)).out)
    assert (only_old["o"]["new"], only_old["o"]["old"] is None) == (None, False)
    assert "-" in call("evaluate", cli_benchmark.path, "--data", tmp_path / "o").out


@pytest.mark.parametrize(("flags", "prompted"), [([], True), (["--no-prompts"], False)])
def test_prompts_are_left_out_when_asked(
    flags: list[str],
    prompted: bool,
    cli_benchmark: RunFolder,
    call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, outputs = [], Predictor.outputs

    def spy(self: Predictor, images: Any, prompted: bool = True) -> Any:
        asked.append(prompted)
        return outputs(self, images, prompted)

    monkeypatch.setattr(Predictor, "outputs", spy)
    assert call("evaluate", cli_benchmark.path, "--json", *flags).code == 0
    assert asked == [prompted]


# --- predict ----------------------------------------------------------------------------------------------------------


def test_predict_writes_a_table_of_later_images(tmp_path: Path, cli_run: RunFolder) -> None:
    later = paint(tmp_path / "later", seed=7, deep=3)
    (later / "notes.txt").write_text("no image", encoding="utf-8")
    answer = shell("predict", cli_run.path, "later", "--out", "sorted.csv", cwd=tmp_path)
    assert (answer.code, answer.out) == (0, "")
    assert "sorted 3 images" in answer.err
    rows = rows_of((tmp_path / "sorted.csv").read_text(encoding="utf-8"))
    assert [row["image"] for row in rows] == [f"later/deep/{i}.png" for i in range(3)]
    predictor = load(cli_run.path)
    expected = predictor.predict([later / "deep" / f"{i}.png" for i in range(3)])
    assert [row["category"] for row in rows] == [predictor.categories[i] for i in expected]


def test_predict_agrees_with_the_run_s_own_table(cli_run: RunFolder, cli_data: Path, call: Call) -> None:
    answer = call("predict", cli_run.path, cli_data)
    assert (answer.code, answer.err) == (0, "")
    rows = rows_of(answer.out)
    own = rows_of(cli_run.predictions_file.read_text(encoding="utf-8"))
    assert list(rows[0]) == ["image", "category", "is_new", "certainty"]
    assert [row["image"] for row in rows] == [str(cli_data / row["image"]) for row in own]
    for key in ("category", "is_new"):
        assert [row[key] for row in rows] == [row[key] for row in own]
    folded = certainty_rounding(terms_of(load(cli_run.path).model))
    assert [float(r["certainty"]) for r in rows] == pytest.approx([float(r["certainty"]) for r in own], abs=folded)


def test_predict_takes_files_and_folders_and_each_image_once(cli_run: RunFolder, cli_data: Path, call: Call) -> None:
    one = cli_data / "owl" / "1.png"
    assert len(rows_of(call("predict", cli_run.model, one).out)) == 1
    rows = rows_of(call("predict", cli_run.path, one, cli_data / "owl", one).out)
    assert [row["image"] for row in rows] == [
        str(one),
        *(str(cli_data / "owl" / f"{i}.png") for i in (0, *range(2, 8))),
    ]


def test_predict_skips_few_unreadable_images(tmp_path: Path, cli_run: RunFolder, call: Call) -> None:
    data = paint(tmp_path / "d", x=3)
    (data / "x" / "1.png").write_bytes(b"")
    answer = call("predict", cli_run.path, data, "--max-unreadable", "0.5")
    assert answer.code == 0
    assert f"skipped {data / 'x' / '1.png'}: empty file" in answer.err
    assert [Path(row["image"]).name for row in rows_of(answer.out)] == ["0.png", "2.png"]


def test_predict_skips_all_unreadable_images_when_asked_and_lists_them(
    tmp_path: Path, cli_run: RunFolder, call: Call
) -> None:
    data = paint(tmp_path / "d", x=2)
    for i in range(12):
        (data / "x" / f"bad-{i:02d}.png").write_bytes(b"")
    out, listed = tmp_path / "d.csv", tmp_path / "d.unreadable.csv"
    refused = call("predict", cli_run.path, data, "--out", out)
    assert (refused.code, out.exists(), listed.exists()) == (1, False, False)
    assert refused.err.endswith("or skip them all with --skip-unreadable.\n")
    answer = call("predict", cli_run.path, data, "--out", out, "--skip-unreadable")
    assert answer.code == 0, answer.err
    assert answer.err.count("skipped ") == 11
    assert f"skipped 12 unreadable of 14 images: {listed}\n" in answer.err
    assert [row["reason"] for row in rows_of(listed.read_text(encoding="utf-8"))] == ["empty file"] * 12
    assert [Path(row["image"]).name for row in rows_of(out.read_text(encoding="utf-8"))] == ["0.png", "1.png"]
    shown = call("predict", cli_run.path, data, "--skip-unreadable")
    assert (shown.code, shown.err.count("skipped ")) == (0, 12), "without a file, all are named"
    out.unlink()
    again = call("predict", cli_run.path, data, "--out", out)
    assert (again.code, again.err) == (2, f"error: {listed} exists already. Give another --out.\n")


# --- demo -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tiny_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the demo use a few small images."""
    data = paint(tmp_path / "digits", zero=6, one=6, two=6, three=6)

    def tiny_recipe(name: str, settings: dict[str, Any]) -> Config:
        config = load_recipe(name, {**settings, **TINY, "sptnet.epochs": 1})
        return config.changed(data={"source": "folder", "folder": str(data), "known_classes": 2})

    monkeypatch.setattr("sptnet.discovery.demo.load_recipe", tiny_recipe)
    return tmp_path


def test_the_demo_compares_all_methods(tiny_demo: Path) -> None:
    told: list[str] = []
    rows = list(run_demo(tiny_demo / "out", 1, False, told.append))
    assert [row.method for row in rows] == ["k-means", "GCD", "SimGCD", "SPTNet-S", "SPTNet-P", "SPTNet"]
    assert all(0 <= value <= 1 for row in rows for value in (row.all, row.old, row.new))
    assert all(row.seconds > 0 for row in rows)
    counts = {row.method: row.trained_parameters for row in rows}
    assert counts["k-means"] == 0
    assert counts["GCD"] - counts["SimGCD"] == 32 * 8 - 4 * 96, "a wide layer instead of prototypes"
    frame, border = 3 * (16 * 16 - 14 * 14), 3 * (96 * 96 - 86 * 86)  # widths 1 and 5
    assert counts["SPTNet-S"] - counts["SimGCD"] == frame
    assert counts["SPTNet-P"] - counts["SimGCD"] == 36 * frame
    assert counts["SPTNet"] - counts["SimGCD"] == 36 * frame + border
    runs = ["gcd", "kmeans", "simgcd", "sptnet", "sptnet-p", "sptnet-s"]
    assert sorted(path.name for path in (tiny_demo / "out").iterdir()) == runs
    for name, kind in (("sptnet-s", "shared"), ("sptnet-p", "spatial"), ("sptnet", "spatial+global")):
        config = RunFolder(tiny_demo / "out" / name).config()
        assert (config.prompt.kind, config.seed) == (kind, 1)
        assert config.sptnet.start_from == str((tiny_demo / "out" / "simgcd").resolve())
    assert told


def test_the_demo_of_all_methods_runs_the_other_systems_too(
    tiny_demo: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    inner = sptnet.discovery.demo.load_recipe
    short = {f"{stage}.epochs": 1 for stage in Config.stage_names()}
    narrow = {f"{system}.output": 32 for system in ("dccl", "promptcal", "cipr", "gpc")}
    asked: list[dict[str, Any]] = []

    def short_recipe(name: str, settings: dict[str, Any]) -> Config:
        asked.append(settings)
        return inner(name, {**settings, **short, **narrow})

    monkeypatch.setattr("sptnet.discovery.demo.load_recipe", short_recipe)
    answer = call("demo", "--out", tiny_demo / "out", "--all")
    assert answer.code == 0
    stored = ("simgcd", "gcd", "rankstats", "uno", "orca", "dccl", "cipr", "gpc", "mugcd")
    assert len({asked[0][f"{stage}.epochs"] for stage in stored}) == 1, "systems with stored views train equally long"
    systems = ("RankStats+", "UNO+", "ORCA", "DCCL", "PromptCAL", "CiPR", "GPC", "muGCD")
    assert [name for name in systems if name not in answer.out] == []
    mugcd = RunFolder(tiny_demo / "out" / "mugcd")
    assert {line["stage"] for line in mugcd.metrics()} == {"mugcd"}, "it starts from the demo's GCD run"


def test_the_demo_prints_one_table_and_does_not_replace_runs_unasked(tiny_demo: Path, call: Call) -> None:
    out = tiny_demo / "out"
    answer = call("demo", "--out", out)
    assert answer.code == 0
    assert [name for name in ("k-means", "GCD", "SimGCD", "SPTNet-S", "SPTNet-P") if name not in answer.out] == []
    page = out / "sptnet" / "report.html"
    assert answer.out.splitlines()[-3:] == [
        f"pictures of the categories found: {out / 'sptnet' / 'categories'}",
        f"report of SPTNet: {page}",
        f"open it in a browser: {page.as_uri()}",
    ]
    assert "<html" in page.read_text(encoding="utf-8")[:400]
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    refused = call("demo", "--out", out)
    assert refused.code == 2
    assert "--overwrite" in refused.err
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
