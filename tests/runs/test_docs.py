"""Commands, names and settings in README and docs exist today; commands that need nothing from outside are run."""

import argparse
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image

from conftest import Call
from helpers.digit_folders import all_digits
from sptnet.cli import app
from sptnet.config.recipes import all_keys, load_recipe
from sptnet.methods import METHODS

ROOT = Path(__file__).parents[2]
DOCUMENTS = {file.name: file.read_text(encoding="utf-8") for file in (ROOT / "README.md", *ROOT.glob("docs/*.md"))}

DATA = "needs a benchmark data set and the default backbone, and trains for hours"
NETWORK = "downloads"
CHECKPOINT = "needs a published checkpoint"
MEASURES = "measures for minutes to hours"
SEVERAL = "needs several devices or machines"
SET_UP = "sets up an environment"

RUN = {
    "README.md": {"pip install --constraint": "test_readme.py", "sptnet edit runs/photos rename": "test_readme.py"},
    "results.md": {"OMP_NUM_THREADS=1 sptnet train digits": "test_prompts_without_noise"},
}
"""First words of the shell blocks that are run, by document, with the test that does it."""

NOT_RUN = {
    "README.md": {"make demo": SET_UP, "make test": SET_UP},
    "benchmarks.md": {
        "sptnet data cub": NETWORK,
        "for set in cifar10 cifar100 imagenet100 cub cars aircraft herbarium19; do\n  for seed": DATA,
        "for seed in 0 1 2": DATA,
        "for set in cifar10 cifar100 imagenet100 cub cars aircraft herbarium19; do\n  for system": DATA,
        "for row in prompt-only-global": DATA,
        "for row in fine-tune": DATA,
        "for row in k-5": DATA,
        "for set in cub imagenet100; do\n  sptnet train $set/simgcd-dinov2": DATA,
        "for system in rankstats uno orca gcd simgcd": DATA,
        "for set in cub imagenet100; do\n  sptnet train $set/simgcd-estimated": DATA,
        "for known in 80": DATA,
        "sptnet train cub/sptnet --data data/cub --out runs/few": DATA,
        "sptnet import dinoB16_best.pt": CHECKPOINT,
        "sptnet train cub/sptnet --data data/cub --out runs/v2": NETWORK,
    },
    "performance.md": {
        "python benchmarks/steps.py": MEASURES,
        "OMP_NUM_THREADS=1 python benchmarks/caches.py --out runs/caches": MEASURES,
        "OMP_NUM_THREADS=1 python benchmarks/caches.py --out runs/cub": MEASURES,
        "OMP_NUM_THREADS=1 python benchmarks/precision.py": MEASURES,
        "OMP_NUM_THREADS=1 python benchmarks/graph.py": MEASURES,
        "python benchmarks/groupings.py": MEASURES,
        "python benchmarks/memory.py": MEASURES,
        "python benchmarks/reading.py": MEASURES,
        "OMP_NUM_THREADS=1 python benchmarks/scaling.py": MEASURES,
        "torchrun --nproc-per-node 8 -m sptnet train": SEVERAL,
        "#SBATCH": SEVERAL,
        "torchrun --nproc-per-node 8 -m sptnet predict": SEVERAL,
    },
    "reliability.md": {"make campaign": MEASURES},
    "results.md": {
        "OMP_NUM_THREADS=1 python benchmarks/digits.py": MEASURES,
        "export OMP_NUM_THREADS=1\nR=": MEASURES,
        "export OMP_NUM_THREADS=1\npython benchmarks/systems.py": MEASURES,
        "python benchmarks/clustering.py": MEASURES,
        "OMP_NUM_THREADS=1 python benchmarks/counting.py --features FEATURES --seeds 5": MEASURES,
        "OMP_NUM_THREADS=1 python benchmarks/counting.py --features FEATURES --seeds 3": MEASURES,
        "python benchmarks/folders.py": MEASURES,
        "for certainty in calibrated own": MEASURES,
        "OMP_NUM_THREADS=1 sptnet demo --all": MEASURES,
        "OMP_NUM_THREADS=1 python benchmarks/prototypes.py": MEASURES,
        'R="python benchmarks/departures.py': MEASURES,
        "OMP_NUM_THREADS=1 python benchmarks/sorting.py": MEASURES,
        "OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/prompts.py": MEASURES,
        "python benchmarks/folder_counts.py --data DIR --weights FILE --features runs/features --draws 40": MEASURES,
        "python benchmarks/folder_counts.py --data DIR --weights FILE --features runs/features --draws 15": MEASURES,
    },
}
"""First words of the shell blocks that are not run, with the reason. Their commands and settings are still checked."""


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOCUMENTS[name], flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_shell_block_is_run_or_has_a_reason_why_not(name: str) -> None:
    listed = [*RUN.get(name, {}), *NOT_RUN.get(name, {})]
    assert [[start for start in listed if block.startswith(start)] for block in blocks(name, "bash")] == [
        [start] for start in sorted(listed, key=lambda start: DOCUMENTS[name].index(f"```bash\n{start}"))
    ]


def test_python_is_in_readme_alone() -> None:
    """README's block is run by test_readme.py; one in docs would need a test."""
    assert [name for name in DOCUMENTS if blocks(name, "python")] == ["README.md"]


@pytest.fixture
def expand(tmp_path: Path) -> Iterator[Any]:
    """`expand(block)` lets bash run a block with programs that only record how they are called."""
    programs, calls = tmp_path / "programs", tmp_path / "calls"
    programs.mkdir()
    stubs = dict.fromkeys(
        ("sptnet", "torchrun", "python", "pip", "make"), r"printf '%s\037' ${0##*/} $@ >> $CALLS; echo >> $CALLS"
    )
    stubs = {name: line.replace("$@", '"$@"').replace("$CALLS", f'"{calls}"') for name, line in stubs.items()}
    for name, line in {**stubs, "srun": '"$@"', "scontrol": "echo node-0"}.items():
        (programs / name).write_text(f"#!/bin/bash\n{line}\n")
        (programs / name).chmod(0o755)

    def run(block: str) -> list[list[str]]:
        calls.write_text("")
        env = {"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_NNODES": "4", "SLURM_JOB_ID": "1"}
        env["SLURM_JOB_NODELIST"] = "node-[0-3]"
        subprocess.run(["bash", "-euc", block], check=True, env=env, cwd=tmp_path, timeout=60)
        return [line.split("\037")[:-1] for line in calls.read_text().splitlines()]

    yield run


def check_sptnet(words: list[str]) -> None:
    """The command line takes these words, and the recipe and the settings exist."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("sptnet", ["--version"])
    name, verb, rest = command.resolve_command(context, words)
    parsed = verb.make_context(name, list(rest), parent=context)
    if name == "train" and parsed.params["recipe"] is not None:
        config = load_recipe(parsed.params["recipe"], parsed.params["settings"] or [])
        assert config.method


class Parsed(Exception):
    """A script has taken its arguments."""


def check_script(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The script imports what it needs and takes these arguments."""
    parse = argparse.ArgumentParser.parse_args

    def stop(parser: argparse.ArgumentParser) -> None:
        given = parse(parser)
        load_recipe("sptnet", getattr(given, "set", []))
        raise Parsed

    script = ROOT / words[0]
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    monkeypatch.setattr(sys, "argv", [str(script), *words[1:]])
    monkeypatch.syspath_prepend(str(script.parent))
    with pytest.raises(Parsed):
        runpy.run_path(str(script), run_name="__main__")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_is_valid(name: str, expand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [call for block in blocks(name, "bash") for call in expand(block)]
    assert len(calls) >= len(blocks(name, "bash"))
    for program, *words in calls:
        if program == "torchrun":
            assert words[words.index("-m") + 1] == "sptnet"
            program, words = "sptnet", words[words.index("-m") + 2 :]
        if program == "sptnet":
            check_sptnet(words)
        elif program == "python":
            check_script(words, monkeypatch)
        else:
            assert (program, words[0]) in {("make", name) for name in ("demo", "test", "campaign")} | {
                ("pip", "install")
            }


def test_a_wrong_command_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    from sptnet.errors import Misuse

    with pytest.raises(Exception, match="No such option"):
        check_sptnet(["train", "cub/sptnet", "--no-such-option"])
    with pytest.raises(Misuse):
        check_sptnet(["train", "cub/sptnet", "--set", "views.nothing=1"])
    with pytest.raises(Misuse):
        check_sptnet(["train", "cub/nothing"])
    with pytest.raises(SystemExit):
        check_script(["benchmarks/memory.py", "--no-such-option"], monkeypatch)


def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    """Its commands in their order, on digits; what `edit` and `ls` answer is as printed, as it holds no measurement."""
    text = DOCUMENTS["tutorial.md"]
    steps = re.findall(r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)", text, flags=re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    folders = re.findall(r"groceries/(\w+)/\*\.jpg", text)
    named = list(dict.fromkeys(re.findall(r"unlabelled/(IMG_\d+\.jpg) ", text)))  # `edit` repeats some
    assert folders == ["banana", "carrots", "lemon", "tomato"] and len(named) == 6
    of_class = {digit: iter((all_digits().labels == digit).nonzero()[0]) for digit in range(10)}
    unsorted = [f"unlabelled/{file}" for file in named] + [f"unlabelled/IMG_{n}.jpg" for n in range(48)]
    wanted = [(f"groceries/{folder}/{n}.jpg", digit) for digit, folder in enumerate(folders) for n in range(6)]
    wanted += [(f"groceries/{file}", n % 9) for n, file in enumerate(unsorted)]
    wanted += [(f"more-photos/{n}.jpg", n) for n in range(3)]
    for file, digit in wanted:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(all_digits().sources[next(of_class[digit])]).resize((64, 64)).save(tmp_path / file)
    done = []
    for line, printed in steps:
        program, *words = shlex.split(line)
        if program == "ls":
            assert sorted(path.name for path in (tmp_path / words[0]).glob("[!.]*")) == printed.split()
            continue
        if words[:2] == ["discover", "groceries"]:
            words += ["--backbone", "sptnet_digits_vit", "--categories", "9"]
        answer = call(*words)
        assert answer.code == 0, answer.err
        if words[0] == "edit":
            assert answer.out.strip() == printed.strip()
        done.append(words[0])
    assert done == ["check", "discover", *["edit"] * 6, "discover", "export", "predict"]
    assert len((tmp_path / "more.csv").read_text().splitlines()) == 4


def test_prompts_without_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call, expand: Any, tiny_settings: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = (block for block in blocks("results.md", "bash") if "prompt.noise" in block)
    ((program, *words),) = expand(block)
    assert program == "sptnet"
    short = [*tiny_settings, "simgcd.epochs=1", "sptnet.epochs=1", "training.batch_size=128"]
    settings = [word for setting in short for word in ("--set", setting)]
    start = words[words.index("--start-from") + 1]
    first = call("train", "digits", "--set", "method=simgcd", "--out", start, *settings)
    assert first.code == 0, first.err
    answer = call(*words, *settings)
    assert answer.code == 0, answer.err
    assert (tmp_path / "RUN" / "model" / "model.json").is_file()


def names_in(text: str) -> set[str]:
    """Dotted names and paths in backticks, without what is assigned or called."""
    found = set()
    for span in re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)):
        for word in span.split():
            match = re.fullmatch(r"'?((?:[\w-]+[./])+\w+)(?:[=(].*)?", word)
            if match:
                found.add(match.group(1))
    return found


def exists(name: str) -> bool:
    """True for a file or folder of the repository or the package, a setting, and an attribute of a module."""
    if name.endswith(".py") or "/" in name:
        return any((folder / name).exists() for folder in (ROOT, ROOT / "src/sptnet"))
    if name in all_keys():
        return True
    parts = name.removeprefix("sptnet.").split(".")
    for n in range(len(parts) - 1, -1, -1):
        module = ".".join(["sptnet", *parts[:n]])
        if (ROOT / "src" / module.replace(".", "/")).with_suffix(".py").is_file() or (
            ROOT / "src" / module.replace(".", "/") / "__init__.py"
        ).is_file():
            found: Any = import_module(module)
            for part in parts[n:]:
                found = getattr(found, part, None)
            return found is not None
    return False


OTHER = re.compile(
    r"vit_\w+\.\w+|torch\.\w+|a\.b"  # models of timm, functions of torch, and a name for any setting
    r"|(?:[\w-]+/)*[\w.-]+\.(?:md|json|jsonl|csv|toml|html|safetensors|txt|npz|cff|bin|lock)"  # files that runs write
    r"|(?:runs|data|ablation|cub|cars|aircraft|cifar100|imagenet1k|imagenet100)/[\w./-]+"  # data, runs and recipes
)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_name_exists(name: str) -> None:
    missing = {word for word in names_in(DOCUMENTS[name]) if not OTHER.fullmatch(word) and not exists(word)}
    assert missing == set()


def test_a_wrong_name_is_noticed() -> None:
    text = "`model/backbone.py` `losses.info_nce` `views.bank=4` `prompts.SpatialPrompt(shared=True)` `sptnet.load`"
    assert all(exists(name) for name in names_in(text)) and len(names_in(text)) == 5
    assert not any(exists(name) for name in ("kept_memory.py", "losses.nothing", "views.cutting", "sptnet.nothing"))


def test_every_recipe_exists() -> None:
    methods = "|".join(METHODS)
    for name in re.findall(rf"`(ablation/[\w.-]+|[a-z0-9_]+/(?:{methods})[\w-]*)[` ]", DOCUMENTS["benchmarks.md"]):
        load_recipe(name)


def test_versions_agree() -> None:
    (version,) = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    newest = re.search(r"^## \[?([\d.]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None and newest.group(1) == version


def test_the_picture_of_the_folders_is_current() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "draw_rooms.py"))
    assert (ROOT / "docs" / "rooms.svg").read_text(encoding="utf-8") == tool["draw"]()


def test_the_way_is_no_longer_than_documented() -> None:
    """The tool runs a discovery; the method with the shortest way keeps this quick. Other machines load otherwise."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "trace_way.py", "--quiet", "--method", "sskmeans"],
        check=True,
        capture_output=True,
        text=True,
    )
    measured = [int(number) for number in re.findall(r"\d+", done.stdout.splitlines()[-1])]
    row = re.search(r"\| `sskmeans` \| (\d+) \| (\d+) \| (\d+) \|", DOCUMENTS["architecture.md"])
    assert row is not None
    documented = [int(number) for number in row.groups()]
    assert len(measured) == 3 and all(n > 0 for n in measured)
    assert all(n <= 1.1 * limit for n, limit in zip(measured, documented, strict=True)), (measured, documented)
