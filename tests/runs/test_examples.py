"""The examples run unchanged in processes of their own and print what they announce."""

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: object, cwd: Path) -> str:
    env = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-W", "error::UserWarning", str(EXAMPLES / f"{name}.py"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=env, cwd=cwd, timeout=120)
    assert done.returncode == 0, done.stderr
    assert list(cwd.iterdir()) == [], "nothing is left behind"
    return done.stdout


def test_every_example_is_short_and_run_here() -> None:
    files = sorted(EXAMPLES.glob("*.py"))
    assert [file.stem for file in files] == ["compare_methods", "discover_folder", "own_training_loop"]
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert len(text.splitlines()) < 80
        assert f"\npython examples/{file.name}" in text


def test_a_folder(tmp_path: Path) -> None:
    output = run("discover_folder", cwd=tmp_path)
    sizes = [int(size) for size in re.findall(r"^\S+ \((?:known|new)\): (\d+) images", output, re.MULTILINE)]
    assert len(sizes) == 6
    assert sum(sizes) == 180
    assert re.search(r"^0 \(known\): \d+ images, such as \S*0-\d\d\.png", output, re.MULTILINE)
    assert output.splitlines()[-1].startswith("least certain: ")


def test_a_training_loop(tmp_path: Path) -> None:
    output = run("own_training_loop", cwd=tmp_path)
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", output)]
    assert len(losses) == 3
    assert losses[-1] < losses[0]
    (accuracy,) = re.findall(r"All ([\d.]+)%", output)
    assert 20 < float(accuracy) <= 100, "better than the tenth that guessing gives"


def test_a_comparison(tmp_path: Path) -> None:
    output = run("compare_methods", "--epochs", 1, cwd=tmp_path)
    scores = {
        method: float(score) for method, score in re.findall(r"^(\w+) +All ([\d.]+) ± 0\.0", output, re.MULTILINE)
    }
    assert list(scores) == ["kmeans", "gcd"]
    assert min(scores.values()) > 30
