"""Time of the clusterings that CiPR and DCCL run before every epoch, on many points.

    python benchmarks/groupings.py
    python benchmarks/groupings.py --points 2000 --dim 64 --clusters 40

Unit vectors round random directions; half of the directions are known, and half of their points labelled. Every
clustering runs once; only its CPU time is meaningful on a busy machine.
"""

import argparse
from functools import partial

import numpy as np
import torch

from clustering import Stopwatch, blobs
from sptnet.clustering import SelectiveNeighborClustering
from sptnet.clustering.graph.infomap import SemiSupervisedInfomap


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=30_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--clusters", type=int, default=200)
    settings = parser.parse_args()
    k = settings.clusters
    points, y = blobs(settings.points, settings.dim, k, k // 2, seed=0)
    kinds: dict[str, SelectiveNeighborClustering | SemiSupervisedInfomap] = {
        "selective neighbours": SelectiveNeighborClustering(),
        f"selective neighbours, {k} clusters": SelectiveNeighborClustering(k),
        "Infomap": SemiSupervisedInfomap(threshold=0.2, random_state=0),
    }
    classes = len(np.unique(y[y >= 0]))
    print(f"{len(points)} points of {settings.dim} values, {classes} known classes, {torch.get_num_threads()} threads")
    print(f"{'':36}{'wall s':>9}{'CPU s':>9}{'clusters':>10}")
    for name, clustering in kinds.items():
        watch = Stopwatch()
        watch.time(partial(clustering.fit, points, y))
        print(f"{name:36}{watch.wall[0]:9.1f}{watch.processor[0]:9.1f}{clustering.n_clusters_:10}")


if __name__ == "__main__":
    main()
