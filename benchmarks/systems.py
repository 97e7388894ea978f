"""Compare all systems on real images at equal numbers of updates: Tables A and B of docs/results.md.

    python benchmarks/systems.py --table a --data DIR --weights vits14.safetensors --out runs/systems --seeds 0 1 2
    python benchmarks/systems.py --table b --data DIR --weights vits14.safetensors --out runs/systems --seeds 0 1 2

DIR holds the data sets by name: `CUB_200_2011/`, `cifar100/train/<class>/`, `PACS/<domain>/<class>/`, `GroceryStore/`.
Half of the classes are known, half of their images labelled. All runs of table A on one set share a bank of eight views
per image, in `--out`. One JSON line per run is appended to `--results`; runs that are there already are skipped, and an
unfinished run is resumed. The table is printed from the lines at the end; `systems_tables.py` compares rows.
"""

import argparse
import csv
import json
import math
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from folders import add_image_options
from systems_tables import print_table, read_lines

from sptnet.config import Config
from sptnet.config.recipes import load_recipe
from sptnet.data.load import SplitImages, load_data
from sptnet.discovery.departures import FROM_CLUSTERS
from sptnet.discovery.discover import Wishes, plan_discovery
from sptnet.discovery.lengths import warm_up
from sptnet.results.run_folder import RunFolder
from sptnet.schedules import steps_per_epoch
from sptnet.training.experiment import Experiment

OUTPUT = 8192
"""Length of GCD's and other wide projections: the published 65,536 would take most of the time of a step here."""
Classes = dict[str, list[Path]]
Changes = dict[str, dict[str, Any]]


def cub(data: Path, n_classes: int) -> Classes:
    """Training images of the first classes of CUB."""
    root = data / "CUB_200_2011"
    train = {
        line.split()[0] for line in (root / "train_test_split.txt").read_text().splitlines() if line.split()[1] == "1"
    }
    classes: Classes = {}
    for line in (root / "images.txt").read_text().splitlines():
        number, name = line.split()
        if number in train and int(name[:3]) <= n_classes:
            classes.setdefault(name.split("/")[0], []).append(root / "images" / name)
    return classes


def cifar100(data: Path, n_classes: int) -> Classes:
    """Training images of the first classes of CIFAR-100."""
    folders = sorted(path for path in (data / "cifar100" / "train").iterdir() if path.is_dir())[:n_classes]
    return {folder.name: sorted(folder.iterdir()) for folder in folders}


def pacs(data: Path, domains: tuple[str, ...]) -> Classes:
    """Images of some domains of PACS, together."""
    classes: Classes = {}
    for domain in domains:
        for folder in sorted(path for path in (data / "PACS" / domain).iterdir() if path.is_dir()):
            classes.setdefault(folder.name, []).extend(sorted(folder.iterdir()))
    return classes


def grocery(data: Path) -> Classes:
    """Training images of Grocery by coarse class."""
    root, classes = data / "GroceryStore", {}  # type: tuple[Path, Classes]
    with (root / "train.txt").open(newline="", encoding="utf-8") as file:
        for name, _, coarse in csv.reader(file, skipinitialspace=True):
            classes.setdefault(f"{int(coarse):02d}", []).append(root / name)
    return classes


SETS: dict[str, dict[str, Callable[[Path], Classes]]] = {
    "a": {
        "CUB, 60 classes": lambda data: cub(data, 60),
        "CIFAR-100, 40 classes": lambda data: cifar100(data, 40),
        "PACS, photo and art": lambda data: pacs(data, ("photo", "art_painting")),
        "Grocery, coarse": grocery,
    },
    "b": {
        "CUB, 12 classes": lambda data: cub(data, 12),
        "PACS, photo": lambda data: pacs(data, ("photo",)),
    },
}
ROWS = {
    "a": (
        "kmeans",
        "sskmeans",
        "gcd",
        "simgcd",
        "rankstats",
        "uno",
        "orca",
        "dccl",
        "cipr",
        "gpc",
        "mugcd",
        "discover",
        "by-default",
    ),
    "b": ("kmeans", "sskmeans", "simgcd", "fine-tuned", "sptnet-s", "sptnet-p", "sptnet", "promptcal"),
}
ON_SIMGCD = ("fine-tuned", "sptnet-s", "sptnet-p", "sptnet")
"""Rows of table B that start from its SimGCD model."""
UPDATES = {"a": 1000, "b": 60}
START_UPDATES = 300
"""Updates of the SimGCD model that rows of table B start from."""
PROMPTCAL_RATE = 0.01
"""Learning rate of PromptCAL: in batches of 32 the published 0.1 makes all features alike within eleven updates."""


def write_folder(classes: Classes, folder: Path) -> None:
    """Link the images of every class into a folder of its own."""
    for name, files in classes.items():
        for i, file in enumerate(files):
            link = folder / name / f"{i:05d}{file.suffix}"
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.exists():
                link.symlink_to(file.resolve())


def lengths(updates: int, batches: int) -> Changes:
    """Epochs for so many updates, with warm-ups in proportion to the published ones; two stages share them."""
    epochs, half = max(1, math.ceil(updates / batches)), max(1, math.ceil(updates / batches / 2))
    plain = {"epochs": epochs}
    return {
        "gcd": plain | {"output": OUTPUT, "n_init": 10},
        "simgcd": plain | {"teacher_warm_up": warm_up(epochs)},
        "rankstats": plain | {"ramp_up": max(1, round(0.75 * epochs))},
        "uno": plain,
        "orca": plain,
        "dccl": plain
        | {"output": OUTPUT, "n_init": 10, "warm_up": round(epochs / 40), "weight_epochs": max(1, epochs // 2)},
        "cipr": plain | {"output": OUTPUT},
        "gpc": plain | {"n_init": 10},
        "mugcd": {"epochs": half, "teacher_warm_up": warm_up(half)},
        "promptcal": {"epochs": half, "learning_rate": PROMPTCAL_RATE, "output": OUTPUT, "n_init": 10},
        "promptcal_calibrated": {"epochs": half, "learning_rate": PROMPTCAL_RATE, "bank": 1024, "negatives": 256},
        "sptnet": plain | {"teacher_warm_up": warm_up(epochs), "prompt_warm_up": max(1, updates // 20), "k": 5},
    }


def updates_of(row: str, table: str) -> int:
    """Updates that a row trains for; training ends with the epoch in which they are reached."""
    if row in ("kmeans", "sskmeans"):
        return 0
    return START_UPDATES if (table, row) == ("b", "simgcd") else UPDATES[table]


def config_of(row: str, table: str, start: Path, base: Config, batches: int) -> Config:
    """Settings of a row; rows of table B that build on SimGCD start from its run."""
    changes = lengths(updates_of(row, table), batches)
    method = row
    if row == "discover":
        method = "simgcd"
        for key, value in FROM_CLUSTERS.items():
            section, name = key.split(".")
            changes[section] = changes.get(section, {}) | {name: value}
    elif row == "mugcd":
        changes["gcd"] |= {"epochs": changes["mugcd"]["epochs"]}
    elif row in ON_SIMGCD:
        method = "sptnet"
        kinds = {"sptnet-s": "shared", "sptnet-p": "spatial", "sptnet": "spatial+global", "fine-tuned": "none"}
        changes["prompt"] = {"kind": kinds[row], "noise": 0.0, "border": 15}
        changes["sptnet"] |= {"start_from": str(start.resolve()), "counter": "continuous"}
        changes["sptnet"] |= {"strategy": "fine-tune"} if row == "fine-tuned" else {}
    if row in (*ON_SIMGCD, "promptcal"):  # prompted views cannot come from a bank, so all rows have fresh ones
        changes["views"] = {"bank": 0, "bank_folder": None, "bank_at_end": False}
    return base.changed(**changes).model_copy(update={"method": method})


def one_run(config: Config, folder: Path, data: SplitImages) -> dict[str, Any]:
    """Run or resume an experiment; returns scores and seconds."""
    run = RunFolder(folder)
    resume = run.is_run and run.config() == config
    if run.is_run and not resume:
        shutil.rmtree(folder)
    Experiment(config, run, data, tell=lambda line: None).run(resume=resume)
    return scores_of(run)


def scores_of(run: RunFolder) -> dict[str, Any]:
    """Scores of a finished run on its unlabelled images, and its seconds."""
    facts = run.facts()
    scores = facts["scores"]["unlabelled"]
    return {name: round(scores[name], 4) for name in ("all", "old", "new")} | {"seconds": round(facts["seconds"], 1)}


def discovered(config: Config, folder: Path, data: SplitImages) -> dict[str, Any]:
    """Let `sptnet discover` choose method and length in its usual time; returns its choice, scores and seconds."""
    wishes = Wishes(given=frozenset({"views.bank"}), report=False)
    discovery = plan_discovery(config, data, RunFolder(folder), wishes)
    chosen = discovery.train(overwrite=True, command=()).state.config
    batches = steps_per_epoch(len(data.split.training), chosen.training.batch_size)
    updates = chosen.simgcd.epochs * batches if chosen.method == "simgcd" else 0
    return {"method": chosen.method, "updates": updates} | scores_of(RunFolder(folder))


def prepare_set(given: argparse.Namespace, table: str, name: str, seed: int) -> tuple[Path, Config, SplitImages]:
    """Link the images of a set; return the folder of its runs, the settings that they share, and the images."""
    place = given.out / name.replace(", ", "-").replace(" ", "-")
    classes = SETS[table][name](given.data)
    write_folder(classes, place / "images")
    base = load_recipe("simgcd", {"seed": seed, "training.evaluate_every": 10000, "views.workers": 0})
    base = base.model_copy(update={"n_categories": len(classes)})  # as the run resolves it, so that it resumes
    base = base.changed(
        data={"source": "folder", "folder": str((place / "images").resolve()), "labels": None}
        | {"known_classes": len(classes) // 2, "split_seed": seed},
        backbone={"name": given.backbone, "weights": str(given.weights.resolve()), "image_size": given.size},
        views={"bank": 8, "bank_folder": str((place / "tokens").resolve()), "bank_at_end": True},
        training={"batch_size": 128 if table == "a" else 32},
    ).model_copy(update={"precision": given.precision})
    return place, base, load_data(base.data, lambda line: None)


def add_run_options(parser: argparse.ArgumentParser, results: str) -> None:
    """Add the options that say where runs and lines go and how they are computed."""
    add_image_options(parser)
    parser.add_argument("--out", type=Path, required=True, help="folder for runs, images and banks")
    parser.add_argument("--results", type=Path, default=Path(f"benchmarks/results/{results}"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    parser.add_argument("--sets", nargs="+", help="names of sets; all if not given")


def read_results(results: Path) -> list[dict[str, Any]]:
    """Lines of the runs so far."""
    results.parent.mkdir(parents=True, exist_ok=True)
    return read_lines(results) if results.exists() else []


def arms_to_run(
    given: argparse.Namespace, table: str, arms: Collection[str]
) -> Iterator[tuple[dict[str, Any], Path, Config, SplitImages]]:
    """Yield what `--results` does not hold yet of a row with one thing changed at a time.

    That is the key of its line, the folder of its runs, the settings that all rows share, and the images.
    """
    lines = read_results(given.results)
    for seed in given.seeds:
        for name in given.sets or SETS[table]:
            keys = [{"set": name, "arm": arm, "seed": seed} for arm in arms]
            keys = [key for key in keys if not any(key.items() <= line.items() for line in lines)]
            place, base, data = prepare_set(given, table, name, seed)
            yield from ((key, place / f"seed-{seed}", base, data) for key in keys)


def add_line(results: Path, line: dict[str, Any]) -> None:
    """Print the line of a run and append it to the results."""
    print(json.dumps(line), flush=True)
    with results.open("a") as file:
        file.write(json.dumps(line) + "\n")


def main() -> None:
    """Run what `--results` does not hold yet and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=sorted(SETS), required=True)
    add_run_options(parser, "systems.jsonl")
    parser.add_argument("--rows", nargs="+", help="rows; all if not given")
    given = parser.parse_args()
    lines = read_results(given.results)
    for seed in given.seeds:
        for name in SETS[given.table]:
            if given.sets and name not in given.sets:
                continue
            place, base, data = prepare_set(given, given.table, name, seed)
            batches = steps_per_epoch(len(data.split.training), base.training.batch_size)
            for row in ROWS[given.table]:
                key = {"table": given.table, "set": name, "row": row, "seed": seed}
                if (given.rows and row not in given.rows) or any(key.items() <= line.items() for line in lines):
                    continue
                start = place / f"seed-{seed}" / "simgcd"
                folder = place / f"seed-{seed}" / row
                line = key | {"images": len(data.split.training), "updates": updates_of(row, given.table)}
                line |= {"precision": given.precision}
                if row == "by-default":
                    line |= discovered(base, folder, data)
                else:
                    line |= one_run(config_of(row, given.table, start, base, batches), folder, data)
                if row != "simgcd":
                    shutil.rmtree(folder)  # models take more room than the disk may have
                lines.append(line)
                add_line(given.results, line)
    for name in SETS[given.table]:
        mine = [line for line in lines if (line["table"], line["set"]) == (given.table, name)]
        if mine:
            print_table(mine, name)


if __name__ == "__main__":
    main()
