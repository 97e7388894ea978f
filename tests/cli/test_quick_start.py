"""Commands that compute nothing start quickly: they import no torch, sklearn, scipy or matplotlib."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.result_runs import make_run
from sptnet.results.counts import Clustering, write_clustering
from sptnet.results.edits.log import Count, SplitCategory, add_edits

HEAVY = ("torch", "timm", "torchvision", "sklearn", "scipy", "matplotlib", "wandb", "tensorboard")
VERBS = (
    *("demo", "discover", "check", "train", "estimate", "evaluate", "predict", "edit", "export", "report", "figures"),
    *("import", "data", "recipes"),
)
PROBE = """
import json, sys
from sptnet.cli import main

commands, heavy = map(json.loads, sys.argv[1:])
for words in commands:
    sys.argv = ["sptnet", *words]
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    print("PROBED", json.dumps([code, [name for name in heavy if name in sys.modules]]), flush=True)
"""


def probe(*commands: list[str]) -> dict[str, tuple[int, list[str]]]:
    """Run commands one after the other in a fresh process; return exit code and heavy modules so far per command."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(commands), json.dumps(HEAVY)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    found = [json.loads(line.removeprefix("PROBED")) for line in done.stdout.splitlines() if line.startswith("PROBED")]
    assert len(found) == len(commands), done.stdout + done.stderr
    return {" ".join(words): (code, heavy) for words, (code, heavy) in zip(commands, found, strict=True)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("quick"))


def test_commands_that_compute_nothing_import_nothing_heavy(run: Path) -> None:
    edit = ["edit", str(run)]
    to = run.parent / "exported"
    quick: list[list[str]] = [
        ["--version"],
        ["recipes", "list"],
        ["recipes", "show", "digits", "--full"],
        ["data"],
        [*edit, "log"],
        [*edit, "list"],
        [*edit, "list", "--json"],
        [*edit, "log", "--json"],
        [*edit, "confirm", "cat", "--json"],
        ["data", "--json"],
        ["recipes", "show", "digits", "--full", "--json"],
        [*edit, "rename", "new-1", "eel"],
        [*edit, "merge", "eel", "new-2", "--into", "fish"],
        [*edit, "move", "test/e.png", "--to", "dog"],
        [*edit, "drop", "cat/b.png"],
        [*edit, "confirm", "dog"],
        [*edit, "undo"],
        *(["export", str(run), "--as", form, "--to", f"{to}.{form}"] for form in ("csv", "json", "coco")),
    ]
    found = probe(*quick)
    assert found == dict.fromkeys(found, (0, []))


def test_mistakes_are_told_as_quickly(run: Path) -> None:
    found = probe(
        ["export", str(run), "--as", "pdf", "--to", str(run.parent / "x.pdf")],
        ["edit", str(run), "rename", "nobody", "x"],
        ["recipes", "show", "nothing"],
        ["train"],
    )
    assert found == dict.fromkeys(found, (2, []))


def test_help_imports_nothing_heavy() -> None:
    found = probe(["--help"], *([verb, "--help"] for verb in VERBS))
    assert found == dict.fromkeys(found, (0, []))


def test_a_kept_number_of_categories_is_read_without_torch(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    category, centroids = np.array([0, 0, 1, 1, 2, 2, 3, 4]), np.eye(5, 2, dtype=np.float32)
    write_clustering(run, Clustering(category, np.full(8, 0.5, np.float32), centroids, n_known=2))
    add_edits(run, [Count(5)])
    assert list(probe(["edit", str(run), "list"]).values()) == [(0, ["scipy"])]  # names are matched, nothing clustered


def test_a_split_is_replayed_without_torch(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    add_edits(run, [SplitCategory("new-1", 2)])
    assert list(probe(["edit", str(run), "list"]).values()) == [(0, [])]


def processor_seconds(*words: Any) -> float:
    """Processor time of a process: unlike the time on the clock, it does not grow when others use the processor."""
    before = os.times()
    subprocess.run([sys.executable, *map(str, words)], check=True, capture_output=True, timeout=300)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def test_a_quick_command_takes_less_than_half_the_time_of_importing_torch(run: Path) -> None:
    log = min(processor_seconds("-m", "sptnet", "edit", run, "log") for _ in range(2))
    assert log < processor_seconds("-c", "import torch") / 2
