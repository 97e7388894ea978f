"""What the prototypes of GPC do: its row of table A of `systems.py`, with one thing changed at a time.

    python benchmarks/prototypes.py --data DIR --weights vits14.safetensors --out runs/systems --seeds 2 \\
        --sets "CUB, 60 classes" --precision bf16

The runs share the token banks of `systems.py` if `--out` is the same. One JSON line per run is appended to `--results`;
runs that are there already are skipped.
"""

import argparse
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
from systems import add_line, add_run_options, arms_to_run, config_of, one_run

from sptnet.clustering.mixture.split_merge import split_and_merge
from sptnet.schedules import steps_per_epoch

COMPONENTS = 64
Split = Callable[..., tuple[Any, int]]


def on_components(points: Any, assignment: Any, n_known: int, mean: Any, seed: int, **settings: Any) -> tuple[Any, int]:
    """Split and merge on the first principal components."""
    centred = np.asarray(points, np.float64) - mean
    _, directions = np.linalg.eigh(centred.T @ centred)
    reduced = centred @ directions[:, ::-1][:, :COMPONENTS]
    return split_and_merge(reduced, assignment, n_known, reduced.mean(0), seed, **settings)


@dataclass(frozen=True)
class Arm:
    """First epoch with prototypes, as a share of all; how clusters split and merge; the mean temperature."""

    first: float | None = None
    """None: the second epoch, as published."""
    split: Split | None = split_and_merge
    """None: not at all, so that there are as many clusters as categories."""
    temperature: float = 1.0

    def settings(self, epochs: int) -> dict[str, Any]:
        """Settings of GPC for so many epochs."""
        first = 1 if self.first is None else int(self.first * epochs)
        return {"first_epoch": first, "split_merge": self.split is not None, "temperature": self.temperature}


ARMS = {
    "as published": Arm(),
    "no prototypes": Arm(first=1),
    "prototypes in the second half": Arm(first=0.5),
    "prototypes from the start": Arm(first=0),
    "true number of prototypes": Arm(split=None),
    "split and merge on principal components": Arm(split=on_components),
    "temperature 0.3": Arm(temperature=0.3),
    "temperature 0.1": Arm(temperature=0.1),
    "true number of prototypes, temperature 0.1": Arm(split=None, temperature=0.1),
}


def noting(split: Split, counts: list[int]) -> Split:
    """Return `split`, which also appends the number of clusters to `counts`."""

    def noted(*given: Any, **settings: Any) -> tuple[Any, int]:
        found, count = split(*given, **settings)
        counts.append(count)
        return found, count

    return noted


def main() -> None:
    """Run the arms that `--results` does not hold yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_run_options(parser, "prototypes.jsonl")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), help="all if not given")
    given = parser.parse_args()
    for key, place, base, data in arms_to_run(given, "a", given.arms):
        what = ARMS[key["arm"]]
        config = config_of("gpc", "a", place, base, steps_per_epoch(len(data.split.training), base.training.batch_size))
        config = config.changed(gpc=what.settings(config.gpc.epochs))
        counts: list[int] = []
        folder = place / "prototypes"
        with mock.patch("sptnet.methods.gpc.split_and_merge", noting(what.split or split_and_merge, counts)):
            line = key | one_run(config, folder, data) | {"clusters": counts}
        shutil.rmtree(folder)
        add_line(given.results, line)


if __name__ == "__main__":
    main()
