"""Accuracy and time with the token bank: whole runs of SimGCD, then SPTNet, with V views per image.

    python benchmarks/caches.py --out runs/caches --views 0 2 4 8 16 --seeds 0 1 2 3 4
    python benchmarks/caches.py --out runs/cub --data CUB/images --classes 12 --recipe sptnet --views 0 4 --set ...

0 views means fresh views at every step and no images kept in memory: nothing is cached. `--data` is a folder with one
sub-folder per class; the first `--classes` are used, half of them known. Finished runs in `--out` are read, so an
interrupted table can be continued; `--table` only prints it. For timings, start the variants to be compared at the same
time, with one thread each.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any

from sptnet.config import Config
from sptnet.config.recipes import load_recipe
from sptnet.results.run_folder import RunFolder
from sptnet.training.experiment import Experiment

METHODS = ("simgcd", "sptnet")


def linked(source: Path, n_classes: int | None, out: Path) -> Path:
    """Create a folder with links to the first `n_classes` class folders."""
    folder = out / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for part in sorted(path for path in source.iterdir() if path.is_dir())[:n_classes]:
        if not (folder / part.name).exists():
            (folder / part.name).symlink_to(part.resolve())
    return folder


def configured(arguments: argparse.Namespace) -> Config:
    """Read the recipe, with the given folder as its data."""
    config = load_recipe(arguments.recipe, arguments.set)
    if arguments.data is None:
        return config
    folder = linked(arguments.data, arguments.classes, arguments.out)
    known = len(list(folder.iterdir())) // 2
    return config.changed(data={"source": "folder", "folder": str(folder.resolve()), "known_classes": known})


def run(config: Config, views: int, seed: int, out: Path) -> None:
    """Train both methods, the second from the model of the first; skip finished runs."""
    bank = {"bank": views, "bank_folder": str((out / "tokens").resolve())}  # one for both, as in a run of both stages
    cached = bank if views else {"bank": 0, "cache_mb": 0}
    for method in METHODS:
        start = {"sptnet": {"start_from": str((out / "simgcd").resolve())}} if method == "sptnet" else {}
        changed = config.changed(views=cached, **start).model_copy(update={"method": method, "seed": seed})
        folder = RunFolder(out / method)
        if not (folder.is_run and folder.facts().get("status") == "finished"):
            Experiment(changed, folder, tell=lambda line: None).run(resume=folder.is_run)
        print(f"views {views}, seed {seed}, {method}: {folder.facts()['seconds']:.0f} s", flush=True)


def table(out: Path, views: list[int], seeds: list[int]) -> None:
    """Print mean scores and times per method and number of views."""
    print("| method | views per image | All | Old | New | seconds | ratio | All of each seed |")
    print("|---|---|---|---|---|---|---|---|")
    for method in METHODS:
        fresh: float | None = None
        for v in views:
            facts = [RunFolder(out / f"views-{v}" / f"seed-{seed}" / method).facts() for seed in seeds]
            scores: list[dict[str, Any]] = [fact["scores"]["unlabelled"] for fact in facts]
            cells = [spread([100 * score[part] for score in scores]) for part in ("all", "old", "new")]
            seconds = statistics.mean(fact["seconds"] for fact in facts)
            fresh = seconds if v == 0 else fresh
            ratio = "-" if fresh is None else f"{fresh / seconds:.2f}"
            each = ", ".join(f"{100 * score['all']:.1f}" for score in scores)
            print(f"| {method} | {v or 'fresh'} | {' | '.join(cells)} | {seconds:.0f} | {ratio} | {each} |")


def spread(values: list[float]) -> str:
    """Format mean and standard deviation."""
    mean = f"{statistics.mean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--recipe", default="digits")
    parser.add_argument("--data", type=Path, help="folder of class folders, instead of the recipe's data")
    parser.add_argument("--classes", type=int, help="number of classes to use")
    parser.add_argument("--views", type=int, nargs="+", default=[0, 2, 4, 8, 16])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", action="append", default=[], help="settings on top of the recipe")
    parser.add_argument("--table", action="store_true", help="print the table of the finished runs")
    arguments = parser.parse_args()
    if not arguments.table:
        config = configured(arguments)
        for seed in arguments.seeds:
            for v in arguments.views:
                run(config, v, seed, arguments.out / f"views-{v}" / f"seed-{seed}")
    table(arguments.out, arguments.views, arguments.seeds)


if __name__ == "__main__":
    main()
