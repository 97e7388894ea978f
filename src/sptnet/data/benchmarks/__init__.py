"""Readers of the benchmark data sets, by name.

Must not know about models or training.
"""

import difflib
from collections.abc import Callable, Sequence
from pathlib import Path

from sptnet.data.benchmarks.aircraft import AIRCRAFT
from sptnet.data.benchmarks.base import Benchmark
from sptnet.data.benchmarks.cars import CARS
from sptnet.data.benchmarks.cifar import CIFAR_10, CIFAR_100
from sptnet.data.benchmarks.cub import CUB
from sptnet.data.benchmarks.domains import DOMAINNET, PACS
from sptnet.data.benchmarks.fashion_mnist import FASHION_MNIST
from sptnet.data.benchmarks.herbarium import HERBARIUM
from sptnet.data.benchmarks.imagenet import IMAGENET_1K, IMAGENET_100
from sptnet.data.image_set import ImageSet
from sptnet.errors import Misuse
from sptnet.runtime.text import printable

BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        CIFAR_10,
        CIFAR_100,
        IMAGENET_100,
        IMAGENET_1K,
        CUB,
        CARS,
        AIRCRAFT,
        HERBARIUM,
        DOMAINNET,
        PACS,
        FASHION_MNIST,
    )
}


def find_benchmark(name: str, others: Sequence[str] = ()) -> Benchmark:
    """Return a benchmark by name; `others` are further names for the error message."""
    if name not in BENCHMARKS:
        names = [*BENCHMARKS, *others]
        close = difflib.get_close_matches(name, names, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        raise Misuse(f"there is no data set {printable(name)}.{hint} Those there are: {', '.join(names)}.")
    return BENCHMARKS[name]


def read_benchmark(name: str, folder: Path | str) -> ImageSet:
    """Read a benchmark from its original files; classes are in the published order, known ones first."""
    return find_benchmark(name).read(Path(folder))


def find_download(name: str) -> Callable[[Path], None]:
    """Return the function that downloads a benchmark from its makers into a folder."""
    benchmark = find_benchmark(name)
    if benchmark.download is None:
        raise Misuse(f"{name} cannot be downloaded from here. {benchmark.where}")
    return benchmark.download
