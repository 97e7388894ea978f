"""The commands and the Python example of README work as printed."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sptnet.cli
from sptnet.data.benchmarks.digits import digits

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
TINY = [
    "backbone.name=sptnet_digits_vit",
    "backbone.image_size=32",
    "head.hidden=16",
    "prompt.border=5",
    "simgcd.epochs=1",
    "sptnet.epochs=1",
    "sptnet.k=1",
    "training.batch_size=4",
]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["sptnet", *arguments])
    try:
        sptnet.cli.main()
    except SystemExit as end:
        assert end.code in (0, None)


def small_image(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (40, 50, 3), dtype=np.uint8))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders of digits as in README: otter holds 0, heron holds 1, the unlabelled images are 0 to 6."""
    image_set = digits()
    of_class = {label: iter(np.flatnonzero(image_set.labels == label)) for label in range(7)}
    wanted = [("photos/otter", [0] * 8), ("photos/heron", [1] * 8), ("more-photos", [2, 3])]
    wanted += [("photos/unlabelled", list(range(7)) * 6)]
    for name, labels in wanted:
        (tmp_path / name).mkdir(parents=True)
        for i, label in enumerate(labels):
            picture = Image.fromarray(image_set.sources[next(of_class[label])])
            picture.resize((64, 64), Image.Resampling.NEAREST).save(tmp_path / name / f"{i}.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_first_command_comes_early() -> None:
    lines = README.splitlines()
    assert 0 < lines.index("make demo") < 12
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    for target in ("demo", "test", "lint", "numerical"):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)
        assert f"make {target}" in README


def test_the_commands_for_own_images(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.startswith("sptnet ")]
    commands = [shlex.split(line, comments=True)[1:] for line in lines]
    verbs = [command[0] for command in commands]
    assert verbs == ["check", "discover", "edit", "edit", "edit", "discover", "export", "predict"]
    quick = ["--backbone", "sptnet_digits_vit", "--categories", "7", "--method", "sskmeans"]
    more = {"check": ["--no-time"], "discover": quick}  # the time of the default backbone takes long to measure
    for command in commands:
        run(command + (more.get(command[0], []) if "photos" in command else []), monkeypatch)
    assert (folder / "runs/photos/report.html").is_file() and (folder / "runs/second/report.html").is_file()
    assert len((folder / "more.csv").read_text().splitlines()) == 3
    assert {path.name for path in (folder / "sorted").iterdir()} >= {"beaver", "coot"}
    labels = (folder / "runs/second/labels.csv").read_text()
    assert "beaver" in labels and "coot" in labels


def test_the_python_example(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [part for setting in (*TINY, "n_categories=3") for part in ("--set", setting)]
    run(["train", "sptnet", "--data", "photos", "--out", "runs/demo/sptnet", *settings], monkeypatch)
    for i, name in enumerate(("one.png", "two.png")):
        small_image(i).save(name)
    capsys.readouterr()
    (example,) = blocks("python")
    exec(compile(example, "README.md", "exec"), {})  # the example is ours
    first, second, score = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"one\.png: \S+ \(\d+% sure\)", first), first
    assert re.fullmatch(r"two\.png: \S+ \(\d+% sure\)", second), second
    assert score == "1.0 1.0 1.0"


def test_every_setting_that_readme_names_exists() -> None:
    from sptnet.config.recipes import all_keys, load_recipe

    named = set(re.findall(r"`(?:--set )?((?:data|prompt|sptnet|backbone|views)\.[a-z_]+)", README))
    named = {name for name in named if not hasattr(sptnet, name.removeprefix("sptnet."))}
    assert len(named) > 6
    assert named <= set(all_keys())
    strategies = re.search(r"sptnet\.strategy=`: (.*?)\n\* ", README, re.DOTALL)
    kinds = re.search(r"prompt\.kind=`: (.*?); `prompt", README, re.DOTALL)
    assert strategies is not None
    assert kinds is not None
    for kind in re.findall(r"`([a-z+]+)`", kinds.group(1)):
        load_recipe("sptnet", [f"prompt.kind={kind}"])
    for strategy in re.findall(r"`([a-z]+(?:-[a-z]+)*)`", strategies.group(1)):
        if strategy not in ("epoch", "continuous"):
            load_recipe("sptnet", [f"sptnet.strategy={strategy}"])
