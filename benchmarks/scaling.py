"""Plot time and memory against the number of images, of categories and of processes.

    python benchmarks/scaling.py --out docs/scaling.png

Handwritten digits, repeated as often as needed, with the embedded backbone; every point is measured in a separate
process with one thread. Images and categories: a whole run of one epoch of SimGCD, predictions of all images,
semi-supervised k-means of their features. Processes: the second of two epochs under torchrun, and the memory of the
largest process.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

IMAGES, CATEGORIES, PROCESSES = (500, 1000, 2000, 4000, 8000), (10, 100, 500, 2000), (1, 2, 4)
Point = dict[str, float]


def measure_here(n_images: int, n_categories: int) -> Point:
    """Measure the parts of a run in seconds, and the peak memory of this process."""
    import torch

    from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans
    from sptnet.config.recipes import load_recipe
    from sptnet.data.benchmarks.digits import digits
    from sptnet.data.image_set import ImageSet
    from sptnet.data.load import SplitImages, split_image_set
    from sptnet.results.run_folder import RunFolder
    from sptnet.training.experiment import Experiment

    torch.set_num_threads(1)
    ten = digits()
    chosen = np.arange(n_images) % len(ten)
    ids = tuple(f"digit-{i:06d}" for i in range(n_images))
    sources, test = tuple(ten.sources[i] for i in chosen), np.zeros(n_images, dtype=np.bool_)
    image_set = ImageSet("digits", ids, sources, ten.names, ten.labels[chosen], None, test)
    settings = ["method='simgcd'", "simgcd.epochs=1", "simgcd.teacher_warm_up=1", f"n_categories={n_categories}"]
    config = load_recipe("digits", [*settings, "training.evaluate_every=1000"])
    data = SplitImages(image_set, split_image_set(config.data, image_set), [])
    taken: Point = {}
    with tempfile.TemporaryDirectory() as folder:
        experiment = Experiment(config, RunFolder(Path(folder) / "run"), data, tell=lambda line: None)
        start = time.perf_counter()
        experiment.run()
        taken["one epoch of SimGCD, all in all"] = time.perf_counter() - start
    experiment.state.features.forget()
    start = time.perf_counter()
    outputs = experiment.state.outputs(np.arange(n_images))
    taken["sorting all images"] = time.perf_counter() - start
    known = np.where(np.isin(np.arange(n_images), data.split.labelled), data.split.target, -1)
    start = time.perf_counter()
    SemiSupervisedKMeans(min(n_categories, n_images), n_init=1, random_state=0).fit(outputs.unit_features, known)
    taken["semi-supervised k-means, one start"] = time.perf_counter() - start
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {**taken, "gigabytes": int(peak.split()[1]) / 2**20}


def measure_elsewhere(*counts: int) -> Point:
    """Measure in a separate process, since memory is a peak: for images and categories, or for processes."""
    words = [sys.executable, __file__, "--measure", *map(str, counts)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    point: Point = json.loads(done.stdout.splitlines()[-1])
    return point


def measure_processes(n: int) -> Point:
    """Time an epoch under torchrun with `n` processes."""
    with tempfile.TemporaryDirectory() as folder:
        train = ["-m", "sptnet", "train", "digits", "--out", f"{folder}/run"]
        settings = ("method='simgcd'", "simgcd.epochs=2", "simgcd.teacher_warm_up=1", "training.evaluate_every=1000")
        words = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n}", *train]
        changes = [word for setting in settings for word in ("--set", setting)]
        one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([*words, *changes], check=True, capture_output=True, env=one_thread)
        epochs = [json.loads(line) for line in Path(f"{folder}/run/metrics.jsonl").read_text().splitlines()]
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return {"one epoch of SimGCD": float(epochs[-1]["seconds"]), "gigabytes": largest}


def draw(panels: dict[str, dict[int, Point]], out: Path) -> None:
    """Draw one column of plots per quantity."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6), layout="constrained")
    axes = figure.subplots(2, 3)
    for column, (name, points) in enumerate(panels.items()):
        counts = list(points)
        for part in (part for part in points[counts[0]] if part != "gigabytes"):
            axes[0, column].plot(counts, [points[n][part] for n in counts], "o-", label=part, markersize=4)
        axes[1, column].plot(counts, [points[n]["gigabytes"] for n in counts], "o-", color="black", markersize=4)
        for axis in axes[:, column]:
            axis.set(xlabel=name, xscale="log")
            axis.set_xticks(counts, [f"{n:,}" for n in counts])
            axis.minorticks_off()
            axis.grid(alpha=0.3)
        parts_differ = len(points[counts[0]]) > 2
        axes[0, column].set(ylabel="seconds", **({"yscale": "log"} if parts_differ else {"ylim": (0, None)}))
        axes[1, column].set(ylabel="peak memory, GB", ylim=(0, None))
        axes[0, column].legend(fontsize=7)
    figure.savefig(out, dpi=110)


def show(panels: dict[str, dict[int, Point]]) -> None:
    """Print one table per quantity."""
    for name, points in panels.items():
        parts: list[str] = list(next(iter(points.values())))
        print(f"\n| {name} | {' | '.join(parts)} |\n|{'---|' * (len(parts) + 1)}")
        for n, point in points.items():
            print(f"| {n:,} | {' | '.join(f'{point[part]:.2f}' for part in parts)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("scaling.png"), help="image file to write")
    parser.add_argument("--measure", type=int, nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure = measure_here if len(arguments.measure) == 2 else measure_processes
        print(json.dumps(measure(*arguments.measure)))
        return
    panels: dict[str, dict[int, Any]] = {
        "images, 10 categories": {n: measure_elsewhere(n, 10) for n in IMAGES},
        "categories, 2,000 images": {n: measure_elsewhere(2000, n) for n in CATEGORIES},
        "processes, two cores": {n: measure_elsewhere(n) for n in PROCESSES},
    }
    show(panels)
    draw(panels, arguments.out)


if __name__ == "__main__":
    main()
