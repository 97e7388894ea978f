"""Draw folders of images as a user might have them, and measure what `sptnet discover` makes of them.

    python benchmarks/folders.py --label new --tree . --data DIR --weights vits14.safetensors --sets cub cifar100 \
        --draws 4 --method simgcd --minutes 5 --out runs/folders.jsonl

A draw is a set of categories of one data set, some of them known, with a few labels each; half of the draws are
long-tailed. It depends on the name of the set and its number alone. `--tree` is a checkout of sptnet whose `src` is
used, so that versions are compared on the same folders on one machine; each run is a process of its own. One JSON line
per run is appended to `--out`, and runs that are there already are skipped.

DIR holds the data sets by name: `CUB_200_2011/`, `cifar10/train/<class>/`, `cifar100/train/<class>/`,
`PACS/<domain>/<class>/` and `GroceryStore/`.
"""

import argparse
import csv
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import roc_auc_score

from sptnet.metrics import calibration_error, rightly_sorted

SUFFIXES = {".jpg", ".jpeg", ".png"}
CATEGORIES = {"cub": (10, 40), "cifar100": (10, 40), "grocery": (10, 40), "pacs": (6, 7), "cifar10": (6, 10)}
"""Smallest and largest number of categories per draw."""
IMAGES, UNSORTED = (500, 700), 400
LABELS = (5, 30)
KNOWN = (0.3, 0.8)


@dataclass(frozen=True)
class Draw:
    """Files of a folder with their category, and which of them carry a label."""

    set_name: str
    number: int
    known: tuple[str, ...]
    files: tuple[Path, ...]
    truth: tuple[str, ...]
    labelled: tuple[bool, ...]
    long_tailed: bool

    @property
    def n_categories(self) -> int:
        """Number of categories that have images."""
        return len(set(self.truth))


def read_classes(data: Path, set_name: str) -> dict[str, list[Path]]:
    """Files per category of a data set."""
    classes: dict[str, list[Path]] = defaultdict(list)
    if set_name == "cub":
        for file in sorted((data / "CUB_200_2011" / "images").rglob("*.jpg")):
            classes[file.parent.name].append(file)
    elif set_name == "grocery":
        for part in ("train", "val", "test"):
            for line in (data / "GroceryStore" / f"{part}.txt").read_text().splitlines():
                name, fine, _ = (word.strip() for word in line.split(","))
                classes[fine].append(data / "GroceryStore" / name)
    else:
        pattern = "PACS/*/*/*" if set_name == "pacs" else f"{set_name}/train/*/*"
        for file in sorted(data.glob(pattern)):
            if file.suffix.lower() in SUFFIXES:
                classes[file.parent.name].append(file)
    return dict(classes)


def draw_folder(classes: dict[str, list[Path]], set_name: str, number: int) -> Draw:
    """Draw categories, images and labels; the same for every version and machine."""
    draw = random.Random(f"{set_name} {number}")
    while True:
        least, most = CATEGORIES[set_name]
        names = draw.sample(sorted(classes), min(draw.randint(least, most), len(classes)))
        total, long_tailed = draw.randint(*IMAGES), draw.random() < 0.5
        shares = [draw.paretovariate(1.5) if long_tailed else 1.0 for _ in names]
        sizes = [max(4, round(total * share / sum(shares))) for share in shares]
        sizes = [min(size, len(classes[name])) for size, name in zip(sizes, names, strict=True)]
        known = draw.sample(names, max(2, round(draw.uniform(*KNOWN) * len(names))))
        per_class = draw.randint(*LABELS)
        files, truth, labelled = [], [], []
        for name, size in zip(names, sizes, strict=True):
            n_labels = min(per_class, size // 2) if name in known else 0
            for i, file in enumerate(draw.sample(classes[name], size)):
                files.append(file)
                truth.append(name)
                labelled.append(i < n_labels)
        if len(labelled) - sum(labelled) >= UNSORTED and IMAGES[0] <= len(files) <= IMAGES[1]:
            return Draw(set_name, number, tuple(known), tuple(files), tuple(truth), tuple(labelled), long_tailed)


def write_folder(draw: Draw, folder: Path) -> dict[str, str]:
    """Link the images as `sptnet discover` reads them; returns the category per path of the folder."""
    truth = {}
    for i, (file, category, labelled) in enumerate(zip(draw.files, draw.truth, draw.labelled, strict=True)):
        path = Path(category if labelled else "unlabelled") / f"{i:04d}{file.suffix}"
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).symlink_to(file.resolve())
        truth[str(path)] = category
    return truth


def match(truth: npt.NDArray[Any], predicted: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """True where one Hungarian matching between categories and predictions makes an image right."""
    rows, columns = sorted(set(truth)), sorted(set(predicted))
    table = np.array([[((truth == row) & (predicted == column)).sum() for column in columns] for row in rows])
    pairs = {(rows[i], columns[j]) for i, j in zip(*linear_sum_assignment(-table), strict=True)}
    return np.array([pair in pairs for pair in zip(truth, predicted, strict=True)])


def measure(run: Path, truth: dict[str, str], known: tuple[str, ...]) -> dict[str, Any]:
    """Accuracy, count and calibration of a finished run on its unsorted images."""
    with (run / "predictions.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["image"].startswith("unlabelled/")]
    true = np.array([truth[row["image"]] for row in rows])
    predicted = np.array([row["category"] for row in rows])
    certainty = np.array([float(row["certainty"]) for row in rows])
    right, old = match(true, predicted), np.isin(true, known)
    order = {name: i for i, name in enumerate([*known, *sorted({*true, *predicted} - {*known})])}
    ids = [np.array([order[name] for name in names]) for names in (true, predicted)]
    as_named = rightly_sorted(ids[0], ids[1], len(known))
    facts = json.loads((run / "run.json").read_text())
    estimate = json.loads((run / "estimate.json").read_text()) if (run / "estimate.json").is_file() else None
    return {
        "all": round(float(right.mean()), 4),
        "old": round(float(right[old].mean()), 4) if old.any() else None,
        "new": round(float(right[~old].mean()), 4) if (~old).any() else None,
        "named": round(float(as_named.mean()), 4),
        "ece": round(calibration_error(certainty, as_named), 4),
        "auroc": round(float(roc_auc_score(as_named, certainty)), 4) if 0 < as_named.sum() < len(rows) else None,
        "certainty": round(float(certainty.mean()), 4),
        "count": None if estimate is None else estimate["n_categories"],
        "range": None if estimate is None else estimate["interval"],
        "expected": facts.get("expected_accuracy"),
        "method": (run / "config.toml").read_text().splitlines()[0].split('"')[1],
        "trial": facts.get("trial"),
    }


def run_draw(draw: Draw, given: argparse.Namespace) -> dict[str, Any]:
    """Run `sptnet discover` of a checkout on a draw, in a process of its own."""
    work = Path(tempfile.mkdtemp())
    try:
        truth = write_folder(draw, work / "photos")
        words = [sys.executable, "-m", "sptnet", "discover", str(work / "photos"), "--out", str(work / "run")]
        words += ["--backbone", given.backbone, "--weights", str(given.weights.resolve()), "--no-report"]
        words += ["--set", f"backbone.image_size={given.size}", "--minutes", str(given.minutes)]
        words += ["--categories", "auto" if given.count else str(draw.n_categories)]
        words += ["--method", given.method] if given.method else []
        words += [word for setting in given.set for word in ("--set", setting)]
        environment = dict(os.environ) | {"PYTHONPATH": str(given.tree.resolve() / "src")}
        began = time.perf_counter()
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{draw.set_name} {draw.number}: {done.stderr}")
        return measure(work / "run", truth, draw.known) | {"seconds": round(time.perf_counter() - began, 1)}
    finally:
        shutil.rmtree(work)


def add_image_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where images and weights are."""
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the data sets")
    parser.add_argument("--weights", type=Path, required=True, help="weights file of the backbone")
    parser.add_argument("--backbone", default="vit_small_patch14_dinov2.lvd142m", help="timm name of the backbone")
    parser.add_argument("--size", type=int, default=112, help="pixels per side of a view")


def main() -> None:
    """Run the draws that `--out` does not hold yet and print the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_image_options(parser)
    parser.add_argument("--tree", type=Path, required=True, help="checkout of sptnet")
    parser.add_argument("--label", required=True, help="name of this version and its settings in the results")
    parser.add_argument("--sets", nargs="+", default=["cub", "cifar100"], choices=sorted(CATEGORIES))
    parser.add_argument("--draws", type=int, default=4, help="draws per set")
    parser.add_argument("--method", help="method of sptnet discover; its own choice if not given")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--count", action="store_true", help="count the categories instead of giving their number")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="settings for sptnet discover")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    lines = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    given.out.parent.mkdir(parents=True, exist_ok=True)
    own = []
    for set_name in given.sets:
        classes = read_classes(given.data, set_name)
        for number in range(given.draws):
            key = {"label": given.label, "set": set_name, "draw": number, "count_given": not given.count}
            key["minutes"] = given.minutes
            line = next((line for line in lines if key.items() <= line.items()), None)
            if line is None:
                draw = draw_folder(classes, set_name, number)
                facts = {"categories": draw.n_categories, "known": len(draw.known), "long_tailed": draw.long_tailed}
                facts |= {"images": len(draw.files), "labels": sum(draw.labelled)}
                line = key | facts | run_draw(draw, given)
                with given.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)
            own.append(line)
    for name in ("all", "old", "new", "ece", "auroc", "seconds"):
        values = [line[name] for line in own if line[name] is not None]
        print(f"{name}: {np.mean(values):.3f} (standard error {np.std(values, ddof=1) / len(values) ** 0.5:.3f})")


if __name__ == "__main__":
    main()
