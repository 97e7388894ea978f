"""Short runs on real images: k-means, SimGCD, then SPTNet and its control.

    python benchmarks/real_images.py --data DIR --weights vits14.safetensors --out runs/real --sets cub pacs

DIR holds the data sets by name: `cifar10/{train,test}/<class>/`, `cifar100/...`, `CUB_200_2011/` and
`PACS/<domain>/<class>/`. The weights are those of a `vit_small_patch14_dinov2` at 112 px; `--backbone` and `--size`
change that. The runs are short and use a bank of two views per image, so the numbers only compare methods with each
other. Finished runs in `--out` are read, so an interrupted table can be continued. The features of the pre-trained
backbone are saved beside the runs as `features.npz`, for the benchmark of counting.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans
from sptnet.config import Config
from sptnet.config.recipes import load_recipe
from sptnet.data.load import SplitImages, load_data, split_image_set
from sptnet.results.run_folder import RunFolder
from sptnet.results.scores import format_scores, score_sets
from sptnet.training.experiment import Experiment

SETS: dict[str, dict[str, Any]] = {
    "cifar10": {"source": "folder", "folder": "cifar10", "known_classes": 5},
    "cifar100": {"source": "folder", "folder": "cifar100", "known_classes": 80},
    "cub": {"source": "cub", "folder": "CUB_200_2011"},
    "pacs": {"source": "pacs", "folder": "PACS"},
}
SHORT = [
    *("views.bank=2", "training.batch_size=64", "training.evaluate_every=1000", "prompt.border=15"),
    *("simgcd.epochs=20", "simgcd.teacher_warm_up=5"),
    *("sptnet.prompt_warm_up=20", "sptnet.teacher_warm_up=1"),
]
ROWS: dict[str, dict[str, dict[str, Any]]] = {
    "SimGCD, further fine-tuning": {"sptnet": {"strategy": "fine-tune"}},
    "SPTNet-P": {"prompt": {"kind": "spatial"}},
    "SPTNet": {},
}


def finished(experiment: Experiment) -> tuple[dict[str, Any], float]:
    """Run the experiment unless it is finished; return the scores of every set of images, and the seconds."""
    folder = experiment.run_folder
    facts = folder.facts() if folder.is_run else {}
    if facts.get("status") != "finished":
        experiment.run(resume=folder.is_run)
        facts = folder.facts()
    return facts["scores"], facts["seconds"]


def kmeans(experiment: Experiment, data: SplitImages, out: Path) -> tuple[dict[str, Any], float]:
    """K-means on the unlabelled images; each unseen domain is clustered separately."""
    start, state = time.perf_counter(), experiment.state
    file = out / "features.npz"
    if file.is_file():
        features = np.load(file)["features"]
    else:
        features = state.outputs(np.arange(len(data.image_set))).features.numpy()
        file.parent.mkdir(parents=True, exist_ok=True)
        split = data.split
        np.savez(file, features=features, target=split.target, labelled=split.labelled, unlabelled=split.unlabelled)
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    predicted = np.full(len(data.image_set), -1, dtype=np.int64)
    parts = [data.split.unlabelled]
    if len(data.split.test):
        domains = np.array(data.image_set.domains or [""] * len(data.image_set))[data.split.test]
        parts += [data.split.test[domains == name] for name in dict.fromkeys(domains.tolist())]
    for part in parts:
        model = SemiSupervisedKMeans(len(state.names), random_state=state.config.seed)
        predicted[part] = model.fit_predict(unit[part])
    return score_sets(data.image_set, data.split, predicted), time.perf_counter() - start


def some(data: SplitImages, config: Config, per_class: int | None) -> SplitImages:
    """The first `per_class` training images of every class, and a fifth of that for test; all if None."""
    if per_class is None:
        return data
    seen: dict[tuple[int, bool], int] = {}
    chosen = []
    for i, key in enumerate(zip(data.image_set.labels.tolist(), data.image_set.test.tolist(), strict=True)):
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= (per_class // 5 if key[1] else per_class):
            chosen.append(i)
    image_set = data.image_set.subset(chosen)
    return SplitImages(image_set, split_image_set(config.data, image_set), [])


def one_set(name: str, config: Config, out: Path, rows: list[str], per_class: int | None) -> None:
    """Run all methods on one data set and print their scores."""
    data = some(load_data(config.data), config, per_class)
    first = Experiment(config.model_copy(update={"method": "simgcd"}), RunFolder(out / "simgcd"), data)
    results = {"k-means": kmeans(first, data, out)}
    say(name, config.seed, "k-means", *results["k-means"])
    results["SimGCD"] = finished(first)
    say(name, config.seed, "SimGCD", *results["SimGCD"])
    start = {"start_from": str((out / "simgcd").resolve())}
    for row in rows:
        changes = {**ROWS[row], "sptnet": {**ROWS[row].get("sptnet", {}), **start}}
        experiment = Experiment(config.changed(**changes), RunFolder(out / row.replace(" ", "-")), data)
        results[row] = finished(experiment)
        say(name, config.seed, row, *results[row])


def say(name: str, seed: int, row: str, scores: dict[str, Any], seconds: float) -> None:
    """Print the rows of one method."""
    for images, numbers in scores.items():
        print(f"| {name} | {seed} | {row} | {images} | {format_scores(numbers)} | {seconds:.0f} s |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds the data sets")
    parser.add_argument("--weights", type=Path, required=True, help="weights file of the backbone")
    parser.add_argument("--backbone", default="vit_small_patch14_dinov2", help="timm name of the backbone")
    parser.add_argument("--size", type=int, default=112, help="image size of the backbone")
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--per-class", type=int, help="number of training images to use per class")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], help="settings on top of the short schedule")
    arguments = parser.parse_args()
    backbone = {"name": arguments.backbone, "weights": str(arguments.weights.resolve()), "image_size": arguments.size}
    for name in arguments.sets:
        out = arguments.out / name / f"seed-{arguments.seed}"
        data = SETS[name] | {"folder": str(arguments.data.resolve() / SETS[name]["folder"])}
        bank = str((arguments.out / name / "tokens").resolve())
        config = load_recipe("sptnet", [*SHORT, *arguments.set, f"seed={arguments.seed}"])
        config = config.changed(data=data, backbone=backbone, views={"bank_folder": bank})
        one_set(name, config, out, arguments.rows, arguments.per_class)


if __name__ == "__main__":
    main()
