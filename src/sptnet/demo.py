"""The demo: every method on the embedded digits, side by side."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sptnet.config import Config
from sptnet.data import LoadedData, load_data
from sptnet.errors import Misuse
from sptnet.experiment import Experiment
from sptnet.kmeans_baseline import kmeans_labels
from sptnet.progress import Say
from sptnet.recipe_book import load_recipe
from sptnet.run_folder import RunFolder
from sptnet.scoring import score

VARIANTS = {"SPTNet-S": "shared", "SPTNet-P": "spatial", "SPTNet": "spatial+global"}


@dataclass(frozen=True)
class Row:
    """One line of the table. SPTNet's seconds are those on top of the SimGCD model it starts from."""

    method: str
    all: float
    old: float
    new: float
    seconds: float
    trained_parameters: int


def run_demo(out: Path, seed: int, overwrite: bool, tell: Say) -> Iterator[Row]:
    """Yields each method's row as soon as it is known; leaves a run directory for each that trains."""
    if not overwrite and out.is_dir() and any(out.iterdir()):
        raise Misuse(f"{out} is not empty. Replace the runs in it with --overwrite, or give another --out.")
    config = load_recipe("digits", [f"seed={seed}"])
    data = load_data(config.data, tell)
    simgcd = RunFolder(out / "simgcd")
    plan = config.model_copy(update={"method": "simgcd"})

    def experiment(config: Config, folder: RunFolder) -> Experiment:
        return Experiment(config, folder, data, tell)

    first = experiment(plan, simgcd)
    yield timed("k-means", 0, lambda: kmeans_scores(first, data, seed))
    yield timed("SimGCD", trained_count(first), lambda: first.run(overwrite=overwrite)["unlabelled"])
    for method, kind in VARIANTS.items():
        variant = config.changed(prompt={"kind": kind}, sptnet={"start_from": str(simgcd.path.resolve())})
        trial = experiment(variant, RunFolder(out / method.lower()))
        row = timed(method, 0, lambda trial=trial: trial.run(overwrite=overwrite)["unlabelled"])  # type: ignore[misc]
        yield Row(method, row.all, row.old, row.new, row.seconds, trained_count(trial))


def timed(method: str, parameters: int, work: Callable[[], dict[str, float]]) -> Row:
    start = time.perf_counter()
    scores = work()
    return Row(method, scores["all"], scores["old"], scores["new"], time.perf_counter() - start, parameters)


def kmeans_scores(experiment: Experiment, data: LoadedData, seed: int) -> dict[str, float]:
    """K-means on the unlabelled images' features of the pre-trained backbone."""
    split = data.split
    features = experiment.outputs(split.unlabelled).features
    clusters = kmeans_labels(features, len(experiment.names), seed)
    return score(split.target[split.unlabelled], np.asarray(clusters), split.n_known)


def trained_count(experiment: Experiment) -> int:
    model = experiment.model
    return sum(p.numel() for group in ("prompt", "model") for p in model.group(group))  # type: ignore[arg-type]
