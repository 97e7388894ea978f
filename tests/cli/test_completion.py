"""Shell completion: what the shell asks is answered in a process of its own, by the variables that typer reads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sptnet.cli import completion
from sptnet.methods import METHODS

PROBE = "import sys; from sptnet.cli import main\ntry: main()\nfinally: print('torch' in sys.modules, file=sys.stderr)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folders with runs at three depths, and others."""
    runs = ("runs/photos", "runs/birds", "runs/demo/sptnet", "mine", "runs/photos/model-1", ".hidden", "runs/two words")
    for run in runs:
        (tmp_path / run).mkdir(parents=True)
        (tmp_path / run / "config.toml").touch()
    (tmp_path / "rest").mkdir()
    (tmp_path / "runs.txt").touch()
    return tmp_path


def complete(line: str, folder: Path) -> list[str]:
    """Complete the last word of a command line as bash does."""
    words = line.split(" ")
    environment = os.environ | {
        **{"_SPTNET_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "HOME": str(folder),
    }
    done = subprocess.run(
        [sys.executable, "-c", PROBE], env=environment, cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "False\n"), done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("sptnet e", ["edit", "estimate", "evaluate", "export"]),
        ("sptnet discover --met", ["--method"]),
        ("sptnet discover --method si", ["simgcd"]),
        ("sptnet discover --continue runs/p", ["runs/photos"]),
        ("sptnet train cub/sptnet-s", ["cub/sptnet-s", "cub/sptnet-s-dinov2"]),
        ("sptnet train --set training.b", ["training.batch_size="]),
        ("sptnet recipes sh", ["show"]),
        ("sptnet recipes list pa", ["pacs"]),
        ("sptnet recipes list --method sptnet-", ["sptnet-p", "sptnet-s"]),
        ("sptnet export mine --as c", ["csv", "copies", "coco"]),
        ("sptnet edit ru", ["runs/birds", "runs/demo/sptnet", "runs/photos"]),
        ("sptnet edit mine re", ["rename"]),
        ("sptnet report ~/m", ["~/mine"]),
        ("sptnet figures mine runs/d", ["runs/demo/sptnet"]),
        ("sptnet evaluate runs/x", []),
    ],
)
def test_words_are_completed_without_torch(line: str, words: list[str], folder: Path) -> None:
    assert sorted(complete(line, folder)) == sorted(words)


def test_the_script_of_a_shell_can_be_shown() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "sptnet"],
        env=os.environ | {"_SPTNET_COMPLETE": "source_bash"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert shown.returncode == 0, shown.stderr
    assert "_SPTNET_COMPLETE=complete_bash" in shown.stdout


def test_runs_are_found_wherever_they_are_typed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert completion.runs("") == ["mine", "runs/birds", "runs/demo/sptnet", "runs/photos"]
    assert completion.runs("runs") == completion.runs("runs/") == ["runs/birds", "runs/demo/sptnet", "runs/photos"]
    assert completion.runs(f"{folder}/mi") == [f"{folder}/mine"]
    assert completion.runs("./mi") == ["./mine"]
    assert completion.runs("nowhere/") == completion.runs("runs.txt/") == []


def test_the_search_for_runs_is_limited(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(completion, "MOST_FOLDERS", 1)
    assert completion.runs("") == ["mine"]


def test_a_run_too_deep_is_found_from_nearer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "a" / "b" / "c" / "d"
    run.mkdir(parents=True)
    (run / "config.toml").touch()
    assert completion.runs("a") == []
    assert completion.runs("a/") == ["a/b/c/d"]


def test_every_method_is_a_candidate() -> None:
    assert ("auto", *METHODS) == completion.METHODS
