"""Count the categories of many drawn folders, and judge the certainty of their clustering, on features computed once.

    python benchmarks/folder_counts.py --data DIR --weights vits14.safetensors --features runs/features \
        --sets cub cifar100 grocery pacs cifar10 --draws 40 --out runs/folder_counts.jsonl

The draws are those of `folders.py`. Each is counted by the default rule and by "balance", the default of 0.1.0; then
semi-supervised k-means with the counted number sorts the images, and its certainty is compared with the truth. One JSON
line per draw is appended to `--out`; draws that are there already are skipped. Features are kept in `--features`.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from folders import CATEGORIES, Draw, add_image_options, draw_folder, read_classes
from sklearn.metrics import roc_auc_score

from sptnet.clustering.count import estimate_n_categories
from sptnet.clustering.points import unit_features
from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans
from sptnet.data.split import Split
from sptnet.head import CentroidHead
from sptnet.inference.assess import assess
from sptnet.inference.features import Outputs, extract_features
from sptnet.metrics import calibration_error, rightly_sorted
from sptnet.model.backbone import build_backbone
from sptnet.runtime.compute import choose_compute

RULES = {"new": "auto", "balance": "balance"}
UNLABELLED_RULES = {"between": "between", "silhouette": "silhouette"}
Floats = npt.NDArray[np.float32]


def features_of(files: list[Path], cache: Path, given: argparse.Namespace) -> dict[str, Floats]:
    """Features by path; those that the cache lacks are computed and added to it."""
    known: dict[str, Floats] = {}
    if cache.is_file():
        with np.load(cache) as stored:
            known = dict(zip(stored["paths"].tolist(), stored["features"].astype(np.float32), strict=True))
    missing = [file for file in files if str(file) not in known]
    if missing:
        backbone = build_backbone(given.backbone, given.weights, given.size)
        made = extract_features(backbone, missing, 0.875, choose_compute("cpu")).numpy()
        known |= dict(zip(map(str, missing), made, strict=True))
        cache.parent.mkdir(parents=True, exist_ok=True)
        np.savez(cache, paths=np.array(list(known)), features=np.stack(list(known.values())).astype(np.float16))
    return known


def measure(draw: Draw, features: dict[str, Floats], seed: int) -> dict[str, Any]:
    """Count the categories of a draw, sort its images, and compare with the truth."""
    names = [*draw.known, *(name for name in dict.fromkeys(draw.truth) if name not in draw.known)]
    truth = np.array([names.index(name) for name in draw.truth])
    points = unit_features(np.stack([features[str(file)] for file in draw.files]))
    labelled = np.array(draw.labelled)
    ranks, n_known = np.where(labelled, truth, -1), len(draw.known)
    line: dict[str, Any] = {}
    for name, rule in RULES.items():
        began = time.process_time()
        found = estimate_n_categories(points, ranks, random_state=seed, method=rule)  # type: ignore[arg-type]
        line[name] = {"count": found.n_categories, "range": found.interval, "seconds": time.process_time() - began}
    k = line["new"]["count"]
    kmeans = SemiSupervisedKMeans(k, random_state=seed).fit(points, ranks)
    head = CentroidHead(points.shape[1], k)
    head.centroids.copy_(torch.from_numpy(kmeans.cluster_centers_))
    nothing = np.zeros(0, np.int64)
    parts = np.flatnonzero(labelled), np.flatnonzero(~labelled), nothing, nothing
    split = Split(tuple(draw.known), n_known, ranks, *parts)
    outputs = Outputs(torch.from_numpy(points), head.classify(torch.from_numpy(points)))
    category_names = tuple(f"c{i}" for i in range(k))
    judged = assess(outputs, split, category_names, outputs.features, seed)
    right = rightly_sorted(truth[~labelled], judged.guess[~labelled], n_known)
    certainty = judged.certainty[~labelled]
    assert judged.expected is not None
    return line | {
        "right": float(right.mean()),
        "ece": calibration_error(certainty, right),
        "auroc": float(roc_auc_score(right, certainty)) if 0 < right.sum() < len(right) else None,
        "expected": [judged.expected.value, judged.expected.low, judged.expected.high],
    }


def measure_without_labels(draw: Draw, features: dict[str, Floats], seed: int) -> dict[str, Any]:
    """Count the categories of a draw as if no image had a label."""
    points = unit_features(np.stack([features[str(file)] for file in draw.files]))
    nothing, line = np.full(len(points), -1), {}
    for name, rule in UNLABELLED_RULES.items():
        found = estimate_n_categories(points, nothing, random_state=seed, method=rule)  # type: ignore[arg-type]
        line[name] = {"count": found.n_categories, "range": found.interval}
    return line


def summary(lines: list[dict[str, Any]], rule: str) -> str:
    """How often the range holds the truth, the median error, the direction of errors, and the median width."""
    true = np.array([line["categories"] for line in lines])
    count = np.array([line[rule]["count"] for line in lines])
    low, high = (np.array([line[rule]["range"][i] for line in lines]) for i in (0, 1))
    inside, error = ((low <= true) & (true <= high)).mean(), np.median(np.abs(count / true - 1))
    return (
        f"{rule}: inside {inside:.0%}, median error {error:.1%}, too low {(count < true).mean():.0%}, "
        f"too high {(count > true).mean():.0%}, median width {np.median(high / low):.2f}"
    )


def main() -> None:
    """Measure the draws that `--out` does not hold yet and print a summary per set and over all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_image_options(parser)
    parser.add_argument("--features", type=Path, required=True, help="folder to keep the features in")
    parser.add_argument("--sets", nargs="+", default=sorted(CATEGORIES), choices=sorted(CATEGORIES))
    parser.add_argument("--draws", type=int, default=40, help="draws per set")
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    parser.add_argument("--without-labels", action="store_true", help="hide all labels, and only count")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    rules, way = (UNLABELLED_RULES, measure_without_labels) if given.without_labels else (RULES, measure)
    done = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for set_name in given.sets:
        classes = read_classes(given.data, set_name)
        draws = [draw_folder(classes, set_name, number) for number in range(given.first, given.first + given.draws)]
        files = list(dict.fromkeys(file for draw in draws for file in draw.files))
        features = features_of(files, given.features / f"{set_name}.npz", given)
        for draw in draws:
            key = {"set": set_name, "draw": draw.number}
            if any(key.items() <= line.items() for line in done):
                continue
            facts = {"categories": draw.n_categories, "known": len(draw.known), "long_tailed": draw.long_tailed}
            line = key | facts | {"labels": sum(draw.labelled)} | way(draw, features, seed=0)
            with given.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
            done.append(line)
    for name in (*given.sets, "all"):
        lines = [line for line in done if name in ("all", line["set"])]
        print(f"{name}, {len(lines)} draws")
        for rule in rules:
            print(f"  {summary(lines, rule)}")
        if given.without_labels:
            continue
        held = np.mean([line["expected"][1] <= line["right"] <= line["expected"][2] for line in lines])
        ece, auroc = (np.mean([line[key] for line in lines if line[key] is not None]) for key in ("ece", "auroc"))
        print(f"  certainty: ECE {ece:.3f}, AUROC {auroc:.3f}, expected accuracy holds in {held:.0%}")


if __name__ == "__main__":
    main()
