"""Semi-supervised k-means: this package compared with the published form, and its memory on many points.

    python benchmarks/clustering.py
    python benchmarks/clustering.py --points 2000 --dim 128 --clusters 40 --known 20 --starts 1 --large 20000

The published form computes differences of all points and all centres, recomputes all distances for every centre that
k-means++ adds, and averages the clusters one by one. Both forms get the same points, starts and iterations and run in
alternation. Wall-clock times are meaningful only on an idle machine. The published form holds as many differences as
fit into memory; `--block-mb 4` measures it with blocks that fit into the cache.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans

Points = Float[Tensor, "n dim"]
Result = TypeVar("Result")


def blobs(n: int, dim: int, k: int, n_known: int, seed: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Draw unit vectors around k directions; half of the points of known classes are labelled, the others have -1."""
    random = np.random.RandomState(seed)
    directions = random.standard_normal((k, dim)).astype(np.float32) / dim**0.5
    truth = random.randint(k, size=n)
    points = random.standard_normal((n, dim)).astype(np.float32)
    points *= 1.5 / dim**0.5
    points += directions[truth]
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    labelled = (truth < n_known) & (random.uniform(size=n) < 0.5)
    return points, np.where(labelled, truth, -1)


def published_form(
    points: npt.NDArray[np.float32], y: npt.NDArray[np.int64], n_clusters: int, iterations: int, block: int, seed: int
) -> float:
    """Run one start at the cost of the published implementation; return its lowest inertia."""
    random = torch.Generator().manual_seed(seed)
    x, targets = torch.from_numpy(points), torch.from_numpy(y)
    pinned, everyone = targets >= 0, torch.arange(len(x))
    free = x[~pinned]
    centres = torch.stack([x[targets == c].mean(0) for c in targets[pinned].unique()])
    while len(centres) < n_clusters:
        weights = all_squared_differences(free, centres, block).amin(1)
        chosen = torch.multinomial(weights / weights.sum(), 1, generator=random)
        centres = torch.cat([centres, free[chosen]])
    lowest = float("inf")
    for round_ in range(iterations + 1):
        squared = all_squared_differences(x, centres, block)
        labels = torch.where(pinned, targets, squared.argmin(1))
        lowest = min(lowest, float(squared[everyone, labels].double().sum()))
        if round_ < iterations:
            centres = torch.stack(
                [x[labels == c].mean(0) if bool((labels == c).any()) else centres[c] for c in range(n_clusters)]
            )
    return lowest


def all_squared_differences(x: Points, centres: Points, block: int) -> Float[Tensor, "n k"]:
    """Squared distances of all points and centres, with `block` differences in memory at a time."""
    rows = max(1, block // centres.numel())
    return torch.cat([(part[:, None] - centres).pow(2).sum(2) for part in x.split(rows)])


@dataclass
class Stopwatch:
    """Wall-clock and CPU time; only the latter is meaningful on a busy machine."""

    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def time(self, work: Callable[[], Result]) -> Result:
        """Call `work` and record how long it takes."""
        wall, processor = time.perf_counter(), time.process_time()
        result = work()
        self.wall.append(time.perf_counter() - wall)
        self.processor.append(time.process_time() - processor)
        return result


def compare(settings: argparse.Namespace) -> None:
    """Time both forms on the same points and print the table."""
    points, y = blobs(settings.points, settings.dim, settings.clusters, settings.known, settings.seed)
    k, starts, iterations = settings.clusters, settings.starts, settings.iterations
    block = settings.block_mb * 2**20 // points.itemsize
    fast, slow, inertias = Stopwatch(), Stopwatch(), []
    model = SemiSupervisedKMeans(k, n_init=starts, max_iter=iterations, tol=0.0, random_state=settings.seed)
    model.fit(points, y)
    for start in range(starts):
        fast.time(lambda: model.fit(points, y))
        inertias.append(slow.time(partial(published_form, points, y, k, iterations, block, settings.seed + start)))
        fast.time(lambda: model.fit(points, y))
    slow_wall, slow_processor = sum(slow.wall), sum(slow.processor)
    fast_wall, fast_processor = statistics.median(fast.wall), statistics.median(fast.processor)
    print(f"{len(points)} points of {settings.dim} dimensions, {k} clusters of which {settings.known} known")
    print(f"{starts} starts of {iterations} iterations, {torch.get_num_threads()} threads")
    print(f"published form in blocks of {settings.block_mb} MB")
    print("                     wall s    processor s      inertia")
    print(f"published form   {slow_wall:10.3f}     {slow_processor:10.3f}   {min(inertias):10.4f}")
    print(f"this package     {fast_wall:10.3f}     {fast_processor:10.3f}   {model.inertia_:10.4f}")
    print(f"ratio            {slow_wall / fast_wall:10.1f}     {slow_processor / fast_processor:10.1f}")


def measure_large(settings: argparse.Namespace) -> None:
    """Fit many points; runs in a separate process, so that the peak memory is that of this fit."""
    points, y = blobs(settings.large, settings.dim, settings.large_clusters, settings.large_clusters // 2, 0)
    model = SemiSupervisedKMeans(settings.large_clusters, n_init=2, random_state=0)
    watch = Stopwatch()
    watch.time(lambda: model.fit(points, y))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(f"{len(points)} points of {settings.dim} dimensions, {settings.large_clusters} clusters, 2 starts")
    print(f"wall time        {watch.wall[0]:10.3f} s    processor {watch.processor[0]:.3f} s")
    print(f"inertia          {model.inertia_:10.4f}      {model.n_iter_} iterations")
    print(f"peak memory      {peak / 1e9:10.2f} GB")


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=6000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--clusters", type=int, default=200)
    parser.add_argument("--known", type=int, default=100)
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--block-mb", type=int, default=512, help="differences that the published form holds at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--large", type=int, default=127_000, help="number of points of the large fit; 0 skips it")
    parser.add_argument("--large-clusters", type=int, default=100)
    parser.add_argument("--only-large", action="store_true")
    return parser.parse_args()


def main() -> None:
    settings = arguments()
    if settings.only_large:
        measure_large(settings)
        return
    compare(settings)
    if settings.large:
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--only-large"], check=True)


if __name__ == "__main__":
    main()
