"""Demo: compare all methods on the embedded digits."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sptnet.config.recipes import load_recipe
from sptnet.data.load import load_data
from sptnet.methods import METHODS, NAMES
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.files import check_new_folder
from sptnet.runtime.progress import Say
from sptnet.training.experiment import Experiment

BASELINES = {"k-means": "kmeans", "GCD": "gcd", "SimGCD": "simgcd"}
# The recipe's 24 epochs with new views at every step end near 79; 120 epochs with eight stored views per image are
# quicker and end at 85 to 94, depending on the seed.
LONGER = {"views.bank": 8, "simgcd.epochs": 120, "simgcd.teacher_warm_up": 24}
AS_LONG = {
    **{f"{method}.epochs": 120 for method in ("gcd", "rankstats", "uno", "orca", "dccl", "cipr", "gpc", "mugcd")},
    "rankstats.ramp_up": 90,
    "dccl.warm_up": 3,
    "dccl.weight_epochs": 60,
    "mugcd.teacher_warm_up": 24,
}
"""Settings of a demo of all methods: the systems whose views are stored train as long as SimGCD."""
SYSTEMS = tuple(name for name in METHODS if name not in {*BASELINES.values(), "sskmeans", "sptnet"})
"""Systems that only a demo of all methods runs."""
VARIANTS = {"SPTNet-S": "shared", "SPTNet-P": "spatial", "SPTNet": "spatial+global"}
MAIN = "sptnet"
"""Folder of the run whose report is written."""


@dataclass(frozen=True)
class DemoRow:
    """Scores and costs of a method, without the model that it starts from: SimGCD for SPTNet, GCD for muGCD."""

    method: str
    all: float
    old: float
    new: float
    seconds: float
    trained_parameters: int


def run_demo(out: Path, seed: int, overwrite: bool, tell: Say, all_methods: bool = False) -> Iterator[DemoRow]:
    """Run every method in a run directory of its own below `out`; yield a row per method as soon as it is finished.

    With `all_methods` also those that SPTNet is compared with, all that read stored views for as many epochs as SimGCD.
    """
    check_new_folder(out, "the runs of a demo", [], overwrite=overwrite)
    bank = out / "tokens"
    lengths = LONGER | (AS_LONG if all_methods else {})
    config = load_recipe("digits", {"seed": seed, "views.bank_folder": str(bank.resolve()), **lengths})
    data = load_data(config.data, tell)
    for name, method in BASELINES.items():
        trial = Experiment(config.model_copy(update={"method": method}), RunFolder(out / method), data, tell)
        yield run_timed(name, trial, overwrite)
    start = {"start_from": str((out / "simgcd").resolve())}
    for name, kind in VARIANTS.items():
        variant = config.changed(prompt={"kind": kind}, sptnet=start)
        yield run_timed(name, Experiment(variant, RunFolder(out / name.lower()), data, tell), overwrite)
    for method in SYSTEMS if all_methods else ():
        chosen = config.changed(mugcd={"start_from": str((out / "gcd").resolve())})
        if method == "promptcal":  # its deep prompts change what enters the last block
            chosen = chosen.changed(views={"bank": 0, "bank_folder": None})
        trial = Experiment(chosen.model_copy(update={"method": method}), RunFolder(out / method), data, tell)
        yield run_timed(NAMES[method], trial, overwrite)
    shutil.rmtree(bank, ignore_errors=True)


def run_timed(name: str, experiment: Experiment, overwrite: bool) -> DemoRow:
    """Run an experiment and measure its time."""
    start = time.perf_counter()
    scores = experiment.run(overwrite=overwrite)["unlabelled"]
    seconds = time.perf_counter() - start
    return DemoRow(name, scores["all"], scores["old"], scores["new"], seconds, experiment.trained_parameters)
