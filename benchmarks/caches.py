"""What the token bank costs in accuracy and saves in time: whole runs of SimGCD, then SPTNet, with V views an image.

    python benchmarks/caches.py --out runs/caches --views 0 2 4 8 16 --seeds 0 1 2 3 4
    python benchmarks/caches.py --out runs/cub --data CUB/images --classes 12 --recipe sptnet --views 0 4 --set ...

0 views stands for fresh ones at every step, with no picture kept in memory: nothing is cached. `--data` is a folder of
one sub-folder a class, of which the first `--classes` are taken, half of them known. Finished runs in `--out` are kept
and read, so an interrupted table goes on where it stopped; `--table` only prints it. For timings, begin the forms to be
compared at the same time, with one thread each.
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
    """A folder with links to the first so many class folders."""
    folder = out / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for part in sorted(path for path in source.iterdir() if path.is_dir())[:n_classes]:
        if not (folder / part.name).exists():
            (folder / part.name).symlink_to(part.resolve())
    return folder


def configured(arguments: argparse.Namespace) -> Config:
    config = load_recipe(arguments.recipe, arguments.set)
    if arguments.data is None:
        return config
    folder = linked(arguments.data, arguments.classes, arguments.out)
    known = len(list(folder.iterdir())) // 2
    return config.changed(data={"source": "folder", "folder": str(folder.resolve()), "known_classes": known})


def run(config: Config, views: int, seed: int, out: Path) -> None:
    """Both methods, the second from the model of the first; what is finished is left alone."""
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
    print("| method | views an image | All | Old | New | seconds | ratio | All of each seed |")
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
    mean = f"{statistics.mean(values):.1f}"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values):.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--recipe", default="digits")
    parser.add_argument("--data", type=Path, help="folder of class folders, instead of the recipe's data")
    parser.add_argument("--classes", type=int, help="take only the first so many")
    parser.add_argument("--views", type=int, nargs="+", default=[0, 2, 4, 8, 16])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--set", action="append", default=[], help="settings on top of the recipe")
    parser.add_argument("--table", action="store_true", help="print the table of what is there")
    arguments = parser.parse_args()
    if not arguments.table:
        config = configured(arguments)
        for seed in arguments.seeds:
            for v in arguments.views:
                run(config, v, seed, arguments.out / f"views-{v}" / f"seed-{seed}")
    table(arguments.out, arguments.views, arguments.seeds)


if __name__ == "__main__":
    main()
