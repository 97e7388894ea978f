"""Errors of the command line: one clear message, the right exit code, and no file lost."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from conftest import Answer, Call
from sptnet.config.recipes import load_recipe
from sptnet.model.backbone import build_backbone
from sptnet.results.run_folder import RunFolder

TINY = ["backbone.name=sptnet_digits_vit", "n_categories=4", "head.hidden=16", "head.bottleneck=8",
        "training.batch_size=8", "simgcd.epochs=1", "sptnet.epochs=1", "sptnet.k=1", "prompt.border=5",
        "device=cpu"]  # fmt: skip


def paint(root: Path, **counts: int) -> Path:
    random = np.random.default_rng(0)
    for name, n in counts.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(n):
            Image.fromarray(random.integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(root / name / f"{i}.png")
    return root


def tree(folder: Path) -> dict[str, bytes | None]:
    """Return the content of all files below a folder."""
    paths = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in paths}


@pytest.fixture(scope="session")
def err_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paint(tmp_path_factory.mktemp("errors") / "pets", cat=6, dog=6, unlabelled=6)


@pytest.fixture(scope="session")
def err_run(err_data: Path) -> Path:
    from sptnet.training.experiment import train

    config = load_recipe("sptnet", TINY).changed(data={"folder": str(err_data)})
    train(config, err_data.parent / "run", command=["test"])
    return err_data.parent / "run"


@pytest.fixture
def train(call: Call, err_data: Path, tmp_path: Path) -> Call:
    """Run `sptnet train` with small settings, which later ones override; it must fail and write nothing."""

    def run(*arguments: object, data: Path | None = None, recipe: object = "sptnet", out: Path | None = None) -> Answer:
        target = out or tmp_path / "out"
        before = tree(target) if target.is_dir() else None
        settings = [part for setting in TINY for part in ("--set", setting)]
        answer = call("train", recipe, "--data", data or err_data, "--out", target, *settings, *arguments)
        assert answer.code in (1, 2), answer
        assert (tree(target) if target.is_dir() else None) == before, "something was written or lost"
        return answer

    return run


def refused(answer: Answer, *phrases: str, code: int = 2) -> None:
    assert answer.code == code
    assert answer.out == ""
    assert answer.err.startswith("error: ") and "\\n  - " not in answer.err
    assert [phrase for phrase in phrases if phrase not in answer.err] == [], answer.err


# --- in processes of their own ----------------------------------------------------------------------------------------


def shell(*arguments: object) -> Answer:
    script = Path(sys.executable).with_name("sptnet")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "sptnet"]
    env = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "COLUMNS": "120"}
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, env=env, timeout=120)
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (["fly"], "No such command 'fly'"),
        (["train", "sptnet", "--fast"], "--fast"),
        (["recipes", "show", "nothing"], "no recipe 'nothing'"),
    ],
    ids=["verb", "flag", "recipe"],
)
def test_misuse_ends_a_process_with_2(arguments: list[str], phrase: str) -> None:
    answer = shell(*arguments)
    assert "Traceback" not in answer.err
    assert phrase in answer.err
    assert (answer.code, answer.out) == (2, "")


def test_failure_ends_a_process_with_1(tmp_path: Path, err_run: Path, err_data: Path) -> None:
    shutil.copytree(err_run / "model", tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    answer = shell("predict", tmp_path / "model", err_data)
    assert "Traceback" not in answer.err
    assert "model.safetensors is damaged (its checksum differs)" in answer.err
    assert (answer.code, answer.out) == (1, "")


# --- verbs and flags --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (["fly"], "fly"),
        (["--fast"], "--fast"),
        (["train", "sptnet", "--fast"], "--fast"),
        (["train", "sptnet", "--seed", "x"], "--seed"),
        (["train", "sptnet", "again"], "again"),
        (["train", "sptnet", "--data"], "--data"),
        (["evaluate"], "run"),
        (["predict", "run"], "images"),
        (["demo", "--seed", "-1"], "--seed"),
        (["recipes", "fly"], "fly"),
        (["recipes", "copy", "sptnet"], "file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_verbs_and_flags_are_misuse(arguments: list[str], phrase: str, call: Call) -> None:
    answer = call(*arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert phrase in answer.err.lower()


@pytest.mark.parametrize("arguments", [[], ["recipes"]])
def test_no_verb_at_all_shows_the_help(arguments: list[str], call: Call) -> None:
    answer = call(*arguments)
    assert answer.code in (0, 2)
    assert "Usage: sptnet" in answer.out + answer.err


# --- data -------------------------------------------------------------------------------------------------------------


def test_folders_without_images_are_refused(tmp_path: Path, train: Call) -> None:
    refused(train(data=tmp_path / "missing"), f"there is no folder {tmp_path / 'missing'}")
    (tmp_path / "empty").mkdir()
    refused(train(data=tmp_path / "empty"), f"no images found in {tmp_path / 'empty'}", "PNG")
    (tmp_path / "file").write_text("x", encoding="utf-8")
    refused(train(data=tmp_path / "file"), "is a file, not a folder")


def test_no_data_at_all_is_refused(tmp_path: Path, call: Call) -> None:
    refused(call("train", "sptnet", "--out", tmp_path / "out"), "no images given", "--data DIR")
    assert not (tmp_path / "out").exists()


def test_a_sorted_folder_needs_known_classes(tmp_path: Path, train: Call) -> None:
    data = paint(tmp_path / "d", cat=4, dog=4, eel=4)
    refused(train(data=data), "every image is labelled", "--set data.known_classes=", "unlabelled")
    for value, phrases in (
        ('["cat", "dgo"]', ["names dgo", "did you mean dog?", "cat, dog, eel"]),
        ("9", ["known_classes is 9", "3 classes"]),
        ("[]", ["known_classes is empty"]),
    ):
        refused(train("--set", f"data.known_classes={value}", data=data), *phrases)


def test_a_folder_without_labels_is_refused(tmp_path: Path, train: Call) -> None:
    refused(train(data=paint(tmp_path / "d", unlabelled=9)), "no training image has a label")


def test_many_unreadable_images_are_a_failure(tmp_path: Path, train: Call) -> None:
    data = paint(tmp_path / "d", cat=6, dog=6, unlabelled=6)
    (data / "cat" / "0.png").write_bytes(b"no image")
    refused(train(data=data), "1 of 18 images", "cat/0.png (not an image)", "--set data.max_unreadable=", code=1)
    refused(train("--set", "data.max_unreadable=0", data=data), "1 of 18", code=1)
    for path in data.rglob("*.png"):
        path.write_bytes(b"")
    refused(train(data=data), "none of the 18 images can be read", "empty file", code=1)


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("path,label\na/0.png,x\na/9.png,x\n", ["1 path that no image", "a/9.png (line 3)"]),
        ("path,label\na/0.png,x\na/0.png,y\n", ["lists images again", "a/0.png (line 3)", "one row per image"]),
        ("file,class\na/0.png,x\n", ["no column path and no column label", "path,label"]),
        ("path\na/0.png\n", ["no column label"]),
        ("", ["no column path"]),
        ("path,label\na/0.png,\n", ["no label in any"]),
    ],
    ids=["unknown", "twice", "columns", "column", "empty", "no label"],
)
def test_mistakes_in_a_labels_file_are_named(text: str, phrases: list[str], tmp_path: Path, train: Call) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text(text, encoding="utf-8")
    refused(train("--labels", labels, data=paint(tmp_path / "d", a=8)), str(labels), *phrases)


def test_a_missing_labels_file_is_refused(tmp_path: Path, train: Call) -> None:
    refused(train("--labels", tmp_path / "no.csv"), f"no labels file {tmp_path / 'no.csv'}")


def test_the_number_of_categories_must_make_sense(train: Call) -> None:
    refused(train("--set", "n_categories=1"), "`n_categories` is 1, but 2 categories are known", "at least 2")
    refused(train("--set", "n_categories=none"), "how many categories", "2 are known", "--set n_categories=")


def test_a_batch_larger_than_the_data_is_refused_before_anything_is_written(train: Call) -> None:
    refused(
        train("--set", "training.batch_size=500"), "batch_size is 500", "only 18 training images", "--set training."
    )


def test_data_given_for_a_recipe_with_data_of_its_own_is_not_ignored(
    tmp_path: Path, err_data: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: list[Any] = []

    class Stub:
        def __init__(self, config: Any, run: Any) -> None:
            configs.append(config)

        def run(self, *arguments: object) -> dict[str, Any]:
            return {}

    monkeypatch.setattr("sptnet.training.experiment.Experiment", Stub)
    answer = call("train", "digits", "--data", err_data, "--out", tmp_path / "out")
    if answer.code == 0:
        assert [config.data.source for config in configs] == ["folder"]
    else:
        refused(answer, "--data")


# --- recipes and settings ---------------------------------------------------------------------------------------------


def test_unknown_recipes_are_refused_with_a_suggestion(tmp_path: Path, call: Call, train: Call) -> None:
    refused(train(recipe="sptnte"), "no recipe 'sptnte'", "Did you mean sptnet?", "sptnet recipes list")
    refused(train(recipe="zzz"), "no recipe 'zzz'", "sptnet recipes list")
    refused(call("train", "--out", tmp_path / "out"), "no recipe given", "sptnet recipes list")
    refused(call("recipes", "copy", "sptnte", tmp_path / "mine.toml"), "Did you mean sptnet?")
    assert list(tmp_path.iterdir()) == []


def test_one_reason_stands_on_the_line_and_several_are_listed(train: Call) -> None:
    first, second = "unknown key seeed. Did you mean seed?", r"unknown key 'a\n  - b'."
    one, two = train("--set", "seeed=1"), train("--set", "seeed=1", "--set", "a\n  - b=1")
    assert one.err.splitlines() == [f"error: sptnet and --set make no valid configuration; mend: {first}"]
    assert two.err.splitlines()[:2] == ["error: sptnet and --set make no valid configuration; mend:", f"  - {first}"]
    assert two.err.splitlines()[2].startswith(f"  - {second}")


@pytest.mark.parametrize(
    ("setting", "phrases"),
    [
        ("training.batchsize=4", ["unknown key training.batchsize", "Did you mean training.batch_size?"]),
        ("batch_size=4", ["unknown key batch_size", "Did you mean training.batch_size?"]),
        ("training.batch_size", ["--set 'training.batch_size' is not of the form a.b=c"]),
        ("=3", ["is not of the form a.b=c"]),
        ("training.batch_size=many", ["training.batch_size", "valid integer", "Got 'many'"]),
        ("training.batch_size=1", ["training.batch_size", "greater than or equal to 2", "Got 1"]),
        ("seed=-1", ["seed", "Got -1"]),
        ("prompt.kind=sptial", ["prompt.kind", "'spatial'", "Got 'sptial'"]),
        ("precision=fp8", ["precision", "'float32'", "Got 'fp8'"]),
        ("training=3", ["training"]),
        ("method=simgdc", ["unknown method 'simgdc'", "simgcd, sptnet"]),
        ("prompt.kind=none", ["needs prompts", "sptnet.strategy=fine-tune"]),
        ("training.select=best-old-holdout", ["holdout", "--set data.holdout_share="]),
        ("device=gpu", ["unknown device 'gpu'", "auto, cpu, cuda"]),
        ("device=xpu", ["device 'xpu' is not", "auto, cpu, cuda"]),
        ("precision=fp16", ["precision fp16 needs CUDA", "--set precision=float32"]),
        ("prompt.width=8", ["largest allowed is 7 for 16 x 16 pixels", "Got 8"]),
        ("prompt.border=48", ["largest allowed is 47 for 96 x 96 pixels", "Got 48"]),
        ("backbone.image_size=100", ["100", "patch", "16"]),
        ("backbone.trainable_blocks=5", ["`backbone.trainable_blocks` must be from 1 to 4", "Got 5"]),
        ("backbone.name=vit_bse", ["timm knows no model named 'vit_bse'", "vit_base_patch16_224"]),
        ("backbone.name=vit_base_patch16_224.dinosaur", ["dinosaur"]),
        ("backbone.name=resnet18", ["resnet18 is not a Vision Transformer", "vit_base_patch16_224.dino"]),
        ("backbone.weights=none.pth", ["no weights file at none.pth"]),
        ("data.split=none.json", ["no split file none.json"]),
    ],
)
def test_a_wrong_setting_is_named(setting: str, phrases: list[str], train: Call) -> None:
    refused(train("--set", setting), *phrases)


@pytest.mark.parametrize(
    ("backbone", "phrase"),
    [(("weights", "none.pth"), "no weights file at "), (("name", "vit_bse"), "timm knows no model named 'vit_bse'")],
)
def test_a_wrong_backbone_is_refused_before_images_are_read(
    backbone: tuple[str, str], phrase: str, err_data: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_early(*given: Any, **settings: Any) -> Any:
        raise AssertionError("images were read")

    places = ("training.prepare.load_data", "inference.count_categories.load_data")
    for reader in (*places, "discovery.discover.read_images", "discovery.preview.read_image_set"):
        monkeypatch.setattr(f"sptnet.{reader}", too_early)
    wrong = ("--set", f"backbone.{backbone[0]}={backbone[1]}")
    out = ("--out", tmp_path / "out")
    refused(call("train", "simgcd", "--data", err_data, *out, *wrong), phrase)
    refused(call("discover", err_data, *out, *wrong), phrase)
    refused(call("check", err_data, *wrong), phrase)
    refused(call("estimate", "--data", err_data, *wrong), phrase)


@pytest.mark.parametrize("recipe", ["simgcd", "sptnet"])
def test_an_image_size_that_no_patch_divides_is_refused_by_every_method(recipe: str, train: Call) -> None:
    refused(train("--set", "backbone.image_size=100", "--set", "prompt.kind=global", recipe=recipe), "100")


def test_cuda_where_there_is_none_is_refused(train: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused(train("--device", "cuda"), "device 'cuda' is not available here", "--device cpu")


def test_all_mistakes_of_a_configuration_are_reported_at_once(tmp_path: Path, train: Call) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text("metod = 'x'\n[training]\nbatchsize = 3\nmomentum = 'a'\n", encoding="utf-8")
    phrases = [
        "mine.toml",
        "Did you mean method?",
        "Did you mean training.batch_size?",
        "training.momentum",
        "head.hidden",
    ]
    refused(train("--set", "head.hidden=0", recipe=recipe), *phrases)


@pytest.mark.parametrize(
    "content",
    [b"method = 'x\n", b"[[[", b"\xff\xfe", b"seed = 1\nseed = 2\n", b"prompt = 5\n"],
    ids=["quote", "bracket", "bytes", "twice", "section"],
)
def test_a_recipe_file_that_is_not_a_recipe_is_named(
    content: bytes, tmp_path: Path, err_data: Path, call: Call
) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_bytes(content)
    refused(call("train", recipe, "--data", err_data, "--out", tmp_path / "out"), "mine.toml")
    assert not (tmp_path / "out").exists()


# --- the backbone's weights -------------------------------------------------------------------------------------------


def test_weights_that_do_not_fit_are_refused(tmp_path: Path, train: Call) -> None:
    file = tmp_path / "w.pth"
    state = build_backbone("sptnet_digits_vit", pretrained=False).vit.state_dict()
    torch.save(state | {"norm.weight": torch.zeros(3)}, file)
    refused(train("--set", f"backbone.weights={file}"), "does not fit", "norm.weight: (3,), wanted (96,)")
    torch.save({"epoch": 3, "losses": [1.0]}, file)
    refused(train("--set", f"backbone.weights={file}"), "not a plain state dict")


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_a_file_that_is_no_weights_is_a_failure(name: str, tmp_path: Path, train: Call) -> None:
    (tmp_path / name).write_bytes(b"these are no weights")
    refused(train("--set", f"backbone.weights={tmp_path / name}"), name, "cannot be read as weights", code=1)


class Program:
    def __init__(self, marker: Path):
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"echo run > '{self.marker}'",)


def test_a_program_in_a_weights_file_is_not_run(tmp_path: Path, train: Call) -> None:
    marker, file = tmp_path / "marker", tmp_path / "w.pth"
    torch.save({"norm.weight": Program(marker)}, file)
    refused(train("--set", f"backbone.weights={file}"), "w.pth", "cannot be read as weights", code=1)
    assert not marker.exists()
    torch.load(file, weights_only=False)
    assert marker.exists()  # it would have been run


def test_weights_that_cannot_be_downloaded_are_one_error_with_ways_out(
    tmp_path: Path, train: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    answer = train("--set", "backbone.name=vit_tiny_patch16_224", "--set", "prompt.border=30")
    ways = ["network", "--weights FILE", "--backbone sptnet_digits_vit"]
    refused(answer, "weights of vit_tiny_patch16_224 could not be downloaded", *ways, code=1)
    assert len(answer.err.splitlines()) == 1


# --- the run directory ------------------------------------------------------------------------------------------------


def test_an_output_folder_with_other_files_is_left_alone(tmp_path: Path, train: Call) -> None:
    out = tmp_path / "papers"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work", encoding="utf-8")
    refused(train(out=out), "other files than a run", "--out")
    refused(train("--overwrite", out=out), "other files than a run", "never deletes")
    file = tmp_path / "file"
    file.write_text("x", encoding="utf-8")
    refused(train(out=file), "is a file")
    assert file.read_text(encoding="utf-8") == "x"


def test_a_folder_is_no_run_just_because_it_has_a_config_file(tmp_path: Path, train: Call) -> None:
    out = tmp_path / "project"
    out.mkdir()
    (out / "config.toml").write_text("[site]\ntitle = 'mine'\n", encoding="utf-8")
    (out / "thesis.txt").write_text("years of work", encoding="utf-8")
    refused(train("--overwrite", out=out), "project")


def test_a_run_in_the_way_is_left_alone(tmp_path: Path, err_run: Path, train: Call) -> None:
    out = tmp_path / "run"
    shutil.copytree(err_run, out)
    refused(train(out=out), "is not empty", "--resume", "--overwrite")


@pytest.mark.parametrize(
    "setting",
    [
        "n_categories=1",
        "prompt.width=9",
        "backbone.weights=none.pth",
        "training.batch_size=500",
        "backbone.trainable_blocks=5",
    ],
)
def test_a_run_is_not_replaced_for_settings_that_cannot_work(
    setting: str, tmp_path: Path, err_run: Path, train: Call
) -> None:
    out = tmp_path / "run"
    shutil.copytree(err_run, out)
    refused(train("--overwrite", "--set", setting, out=out))


def test_a_run_inside_its_own_data_is_refused_or_works(tmp_path: Path, call: Call) -> None:
    data = paint(tmp_path / "d", cat=6, dog=6, unlabelled=6)
    settings = [part for setting in TINY for part in ("--set", setting)]
    answer = call("train", "sptnet", "--data", data, "--out", data / "run", *settings)
    if answer.code == 0:  # its pictures must not count as images then
        assert call("train", "--resume", "--out", data / "run").code == 0
    else:
        refused(answer, "--out")


def test_resume_needs_a_run_and_nothing_else(tmp_path: Path, err_run: Path, call: Call) -> None:
    before = tree(err_run)
    refused(call("train", "--resume", "--out", tmp_path / "missing"), "is not a run", "config.toml")
    refused(call("train", "--resume", "--out", tmp_path), "is not a run")
    refused(call("train", "sptnet", "--resume", "--out", err_run), "--resume", "alone")
    refused(call("train", "--resume", "--out", err_run, "--set", "seed=3"), "--resume", "alone")
    refused(call("train", "--resume", "--out", err_run, "--seed", "3"), "--resume", "alone")
    refused(call("train", "--resume", "--overwrite", "--out", err_run), "exclude each other")
    assert tree(err_run) == before
    assert list(tmp_path.iterdir()) == []


def test_resume_notices_other_images(tmp_path: Path, err_run: Path, call: Call) -> None:
    data, run = paint(tmp_path / "d", cat=6, dog=6, unlabelled=6), tmp_path / "run"
    shutil.copytree(err_run, run)
    text = (run / "config.toml").read_text(encoding="utf-8")
    (run / "config.toml").write_text(
        text.replace(RunFolder(run).config().data.folder or "", str(data)), encoding="utf-8"
    )
    Image.new("RGB", (9, 9)).save(data / "cat" / "0.png")
    answer = call("train", "--resume", "--out", run)
    assert (answer.code, "the images are not those this run began with" in answer.err) == (2, True)
    assert RunFolder(run).facts()["status"] == "finished"


def test_resume_notices_a_change_in_the_middle_of_an_image(tmp_path: Path, call: Call) -> None:
    data, run = paint(tmp_path / "d", cat=6, dog=6, unlabelled=6), tmp_path / "run"
    noise = np.random.RandomState(0).randint(0, 256, (300, 300, 3), dtype=np.uint8)
    large = data / "cat" / "0.bmp"
    Image.fromarray(noise).save(large)
    settings = [part for setting in TINY for part in ("--set", setting)]
    answer = call("train", "simgcd", "--data", data, "--out", run, *settings)
    assert answer.code == 0, answer.err
    content = bytearray(large.read_bytes())
    content[len(content) // 2] ^= 1
    large.write_bytes(content)
    answer = call("train", "--resume", "--out", run)
    assert (answer.code, "the images are not those this run began with" in answer.err) == (2, True)


def test_start_from_needs_a_fitting_run(tmp_path: Path, err_run: Path, train: Call) -> None:
    refused(train("--start-from", tmp_path), "neither a run nor a model directory")
    refused(train("--start-from", tmp_path / "missing"), "neither a run nor a model directory")
    refused(train("--start-from", err_run, "--set", "n_categories=5"), "trained for 4 categories", "this run has 5")
    other = paint(tmp_path / "d", ant=6, bee=6, unlabelled=6)
    refused(train("--start-from", err_run, data=other), "cat, dog", "ant, bee", "same data")


@pytest.mark.parametrize("method", ["simgcd", "gcd", "uno", "kmeans"])
def test_only_some_methods_start_from_a_run(method: str, err_run: Path, train: Call) -> None:
    answer = train("--start-from", err_run, "--set", f"method={method}")
    refused(answer, "does not build on another run", "Leave --start-from out, or train sptnet or mugcd.")


def test_start_from_does_not_hide_an_unknown_method(err_run: Path, train: Call) -> None:
    refused(train("--start-from", err_run, "--set", "method=nothing"), "unknown method 'nothing'")


def test_a_resumed_run_takes_no_other_start(err_run: Path, call: Call) -> None:
    refused(call("train", "--resume", "--out", err_run, "--start-from", err_run), "Give --resume and --out alone.")


# --- models, predict, evaluate ----------------------------------------------------------------------------------------


def changed_model(source: Path, target: Path, **changes: object) -> Path:
    shutil.copytree(source / "model", target)
    description = json.loads((target / "model.json").read_text(encoding="utf-8"))
    kept = {key: value for key, value in (description | changes).items() if value is not None}
    (target / "model.json").write_text(json.dumps(kept), encoding="utf-8")
    return target


@pytest.mark.parametrize("verb", ["predict", "evaluate"])
def test_broken_models_are_named(verb: str, tmp_path: Path, err_run: Path, err_data: Path, call: Call) -> None:
    def use(model: Path) -> Answer:
        return call(verb, model, *([err_data] if verb == "predict" else ["--data", err_data]))

    refused(use(changed_model(err_run, tmp_path / "a", format=2)), "has format 2", "reads format 1")
    model = changed_model(err_run, tmp_path / "b")
    (model / "model.json").write_text("{", encoding="utf-8")
    refused(use(model), "model.json is damaged", code=1)
    model = changed_model(err_run, tmp_path / "c")
    (model / "model.safetensors").unlink()
    refused(use(model), "model.safetensors is damaged or missing", code=1)
    refused(use(tmp_path), "neither a run nor a model directory")
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    shutil.copy(err_run / "config.toml", unfinished)
    refused(use(unfinished), "no finished model yet", f"sptnet train --resume --out {unfinished}")
    (unfinished / "run.json").write_text('{"plan": {}}', encoding="utf-8")
    refused(use(unfinished), "no finished model yet", f"sptnet discover --resume --out {unfinished}")


def test_a_model_description_with_a_part_missing_is_named(
    tmp_path: Path, err_run: Path, err_data: Path, call: Call
) -> None:
    answer = call("predict", changed_model(err_run, tmp_path / "m", sha256=None), err_data)
    refused(answer, "model.json", code=1)


def test_images_that_are_not_there_are_refused(tmp_path: Path, err_run: Path, call: Call) -> None:
    refused(call("predict", err_run, tmp_path / "no.png"), f"there is no {tmp_path / 'no.png'}")
    (tmp_path / "empty").mkdir()
    refused(call("predict", err_run, tmp_path / "empty"), "no images found")
    (tmp_path / "bad.png").write_bytes(b"x")
    refused(call("predict", err_run, tmp_path / "bad.png"), "can be read", "bad.png (not an image)", code=1)


def test_predict_names_a_limit_that_it_has(tmp_path: Path, err_run: Path, call: Call) -> None:
    """The message names --max-unreadable, because `predict` has no --set."""
    data = paint(tmp_path / "d", x=3)
    (data / "x" / "0.png").write_bytes(b"x")
    answer = call("predict", err_run, data)
    refused(answer, "1 of 3 images", "0.png (not an image)", "--max-unreadable", code=1)
    assert "--set" not in answer.err


def test_predict_replaces_no_file(tmp_path: Path, err_run: Path, err_data: Path, call: Call) -> None:
    out = tmp_path / "mine.csv"
    out.write_text("mine", encoding="utf-8")
    refused(call("predict", err_run, err_data, "--out", out), "exists already", "--out")
    assert out.read_text(encoding="utf-8") == "mine"


def test_predict_into_a_missing_folder_does_not_lose_the_work(
    tmp_path: Path, err_run: Path, err_data: Path, call: Call
) -> None:
    out = tmp_path / "new" / "sorted.csv"
    answer = call("predict", err_run, err_data, "--out", out)
    if answer.code == 0:
        assert len(out.read_text(encoding="utf-8").splitlines()) == 19
    else:
        refused(answer, "--out")
        assert "Errno" not in answer.err


def test_there_must_be_something_to_score(err_run: Path, err_data: Path, call: Call) -> None:
    refused(call("evaluate", err_run / "model"), "without data", "--data DIR")
    refused(call("evaluate", err_run), "no image has a known category", "--data")
    refused(call("evaluate", err_run, "--data", err_data / "cat"), "no image has a known category")
    refused(call("evaluate", err_run, "--data", err_data / "missing"), "there is no folder")
    refused(call("evaluate", err_run, "--device", "gpu"), "unknown device 'gpu'")


def test_too_little_memory_is_one_line(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("sptnet.config.recipes.recipe_text", full)
    answer = call("recipes", "show", "simgcd")
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("error: not enough memory. ")
    assert answer.err.count("\n") == 1
