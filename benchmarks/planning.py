"""Compare the time that `sptnet discover` announces with the time it takes.

    python benchmarks/planning.py --data DIR --weights vits14.safetensors --out runs/planning.jsonl [--load 2]

DIR holds one folder of images per category; `--backbone` and `--size` describe the weights. Each case draws some
categories and images, labels a few of half of the categories, and runs a discovery with a limit of 1 to 3 minutes in a
process of its own. `--load N` keeps N other processes busy meanwhile, `--threads N` limits torch. Cases are appended to
`--out` as JSON lines; those that are there already are skipped. The announced time is that of the plan; the time taken
runs from the plan to the written report.
"""

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CASES = 10
SUFFIXES = {".jpg", ".jpeg", ".png"}
PROMISE = 1.5


def draw_case(number: int) -> dict[str, Any]:
    """Numbers of categories, images and labels, and the time limit of a case."""
    draw = random.Random(number)
    return {
        "case": number,
        "categories": draw.choice([4, 6, 8, 10]),
        "images": draw.choice([120, 250, 500, 900]),
        "labels": draw.choice([5, 10, 20]),
        "minutes": draw.choice([1.0, 1.5, 2.0, 3.0]),
        "method": draw.choice(["auto", "auto", "simgcd", "sskmeans"]),
    }


def write_folder(case: dict[str, Any], classes: dict[str, list[Path]], folder: Path) -> None:
    """Link the images of a case into a folder as `sptnet discover` expects it."""
    draw = random.Random(f"folder {case['case']}")
    names = draw.sample(sorted(classes), case["categories"])
    for i, name in enumerate(names):
        files = draw.sample(classes[name], min(len(classes[name]), case["images"] // case["categories"]))
        for j, file in enumerate(files):
            labelled = i < len(names) // 2 and j < min(case["labels"], len(files) // 2)
            target = folder / (name if labelled else "unlabelled") / f"{i}-{j}{file.suffix}"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(file)


def run_case(case: dict[str, Any], folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Discover in this process; returns announced and taken seconds."""
    from sptnet.discovery.discover import Wishes, finish, first_round

    changes = {"data.folder": str(folder), "backbone.name": given.backbone, "backbone.image_size": given.size}
    changes["backbone.weights"] = str(given.weights.resolve())
    method = None if case["method"] == "auto" else case["method"]
    wishes = Wishes(method, case["minutes"], frozenset(changes))
    began = time.perf_counter()
    discovery = first_round(folder.parent / "run", changes, wishes)
    planned = time.perf_counter()
    experiment = discovery.train(False, ["planning"])
    finish(discovery.run.path, experiment)
    return {
        "chosen": discovery.plan.config.method,
        "announced": round(discovery.plan.seconds, 1),
        "taken": round(time.perf_counter() - planned, 1),
        "planning": round(planned - began, 1),
    }


def in_own_process(case: dict[str, Any], classes: dict[str, list[Path]], given: argparse.Namespace) -> dict[str, Any]:
    """Run a case in a fresh process beside the load."""
    work = Path(tempfile.mkdtemp())
    load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.load)]
    try:
        write_folder(case, classes, work / "photos")
        environment = dict(os.environ) | ({"OMP_NUM_THREADS": str(given.threads)} if given.threads else {})
        words = [sys.executable, __file__, *sys.argv[1:], "--one", json.dumps(case), "--folder", str(work / "photos")]
        done = subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        taken: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return taken
    finally:
        for process in load:
            process.kill()
            process.wait()
        shutil.rmtree(work)


def main() -> None:
    """Run the cases that `--out` does not hold yet and print the share within the promise."""
    parser = argparse.ArgumentParser(description="Announced against taken time of sptnet discover.")
    parser.add_argument("--data", type=Path, required=True, help="folder with one folder of images per category")
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--backbone", default="vit_small_patch14_dinov2.lvd142m")
    parser.add_argument("--size", type=int, default=112)
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one per case")
    parser.add_argument("--load", type=int, default=0, help="busy processes beside the discovery")
    parser.add_argument("--threads", type=int, default=0, help="threads of torch; its own choice if 0")
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(run_case(json.loads(given.one), given.folder, given)))
        return
    classes = {
        folder.name: sorted(file.resolve() for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES)
        for folder in sorted(given.data.iterdir())
        if folder.is_dir()
    }
    condition = {"load": given.load, "threads": given.threads}
    lines = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    for number in range(given.cases):
        case = draw_case(number) | condition
        if not any(line["case"] == number and condition.items() <= line.items() for line in lines):
            lines.append(case | in_own_process(case, classes, given))
            given.out.parent.mkdir(parents=True, exist_ok=True)
            with given.out.open("a") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    own = [line for line in lines if condition.items() <= line.items()]
    ratios = sorted(line["taken"] / line["announced"] for line in own)
    held = sum(1 / PROMISE <= ratio <= PROMISE for ratio in ratios)
    late = max(line["taken"] - 60 * line["minutes"] for line in own)
    print(f"{condition}: within a factor of {PROMISE} in {held} of {len(own)}; taken / announced ", end="")
    print(f"{ratios[0]:.2f} to {ratios[-1]:.2f}, median {ratios[len(ratios) // 2]:.2f}; at most {late:.0f} s late")


if __name__ == "__main__":
    main()
