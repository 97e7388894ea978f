"""What the prototypes of GPC do: its row of table A of `systems.py`, with one thing changed at a time.

    python benchmarks/prototypes.py --data DIR --weights vits14.safetensors --out runs/systems --seeds 2 \\
        --sets "CUB, 60 classes" --precision bf16

The runs share the token banks of `systems.py` if `--out` is the same. One JSON line per run is appended to `--results`;
runs that are there already are skipped.
"""

import argparse
import shutil
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
from systems import SETS, add_line, add_run_options, config_of, one_run, prepare_set
from systems_tables import read_lines

from sptnet.clustering.mixture.split_merge import split_and_merge
from sptnet.config import Config
from sptnet.schedules import steps_per_epoch

COMPONENTS = 64
Split = Callable[..., tuple[Any, int]]


def keep_count(points: Any, assignment: Any, *others: Any, **settings: Any) -> tuple[Any, int]:
    """Leave the clusters of k-means as they are."""
    return assignment.astype(np.int64), int(assignment.max()) + 1


def on_components(points: Any, assignment: Any, n_known: int, mean: Any, seed: int, **settings: Any) -> tuple[Any, int]:
    """Split and merge on the first principal components."""
    centred = np.asarray(points, np.float64) - mean
    _, directions = np.linalg.eigh(centred.T @ centred)
    reduced = centred @ directions[:, ::-1][:, :COMPONENTS]
    return split_and_merge(reduced, assignment, n_known, reduced.mean(0), seed, **settings)


ARMS: dict[str, tuple[Callable[[Config], int], Split]] = {
    "as published": (lambda config: 1, split_and_merge),
    "no prototypes": (lambda config: config.gpc.epochs, split_and_merge),
    "prototypes in the second half": (lambda config: config.gpc.epochs // 2, split_and_merge),
    "prototypes from the start": (lambda config: 0, split_and_merge),
    "true number of prototypes": (lambda config: 1, keep_count),
    "split and merge on principal components": (lambda config: 1, on_components),
}
"""First epoch with prototypes, and how clusters change before an epoch."""


def main() -> None:
    """Run the arms that `--results` does not hold yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_run_options(parser, "prototypes.jsonl")
    given = parser.parse_args()
    lines = read_lines(given.results) if given.results.exists() else []
    for seed in given.seeds:
        for name in given.sets or SETS["a"]:
            place, base, data = prepare_set(given, "a", name, seed)
            batches = steps_per_epoch(len(data.split.training), base.training.batch_size)
            for arm, (first_epoch, split) in ARMS.items():
                key = {"set": name, "arm": arm, "seed": seed}
                if any(key.items() <= line.items() for line in lines):
                    continue
                config = config_of("gpc", "a", place, base, batches)
                config = config.changed(gpc={"first_epoch": first_epoch(config)})
                counts: list[int] = []

                def counted(*given: Any, split: Split = split, counts: list[int] = counts, **settings: Any) -> Any:
                    found, count = split(*given, **settings)
                    counts.append(count)
                    return found, count

                folder = place / f"seed-{seed}" / "prototypes"
                with mock.patch("sptnet.methods.gpc.split_and_merge", counted):
                    line = key | one_run(config, folder, data) | {"clusters": counts}
                shutil.rmtree(folder)
                add_line(given.results, line)


if __name__ == "__main__":
    main()
