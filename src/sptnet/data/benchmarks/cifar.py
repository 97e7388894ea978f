"""CIFAR-10 and CIFAR-100 in the original Python batches."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sptnet.data.benchmarks.base import Benchmark, Expected, exactly
from sptnet.data.benchmarks.download import from_torchvision
from sptnet.data.benchmarks.layout import Tree
from sptnet.data.benchmarks.safe_pickle import ByteArray, read_pickle
from sptnet.data.image_set import ImageSet

PAGE = "https://www.cs.toronto.edu/~kriz"


class Batches(NamedTuple):
    """File names and dictionary keys of a CIFAR data set."""

    name: str
    folder: str
    where: str
    train: tuple[str, ...]
    test: str
    labels: str
    meta: str
    names: str
    classes: int


def _where(name: str, title: str, archive: str, folder: str) -> str:
    return (
        f"{title} is at {PAGE}/{archive} (the Python version) or comes with "
        f"`data('{name}', data='DIR', download=True)`; the folder must be or hold {folder}/."
    )


TEN = Batches(
    name="cifar10",
    folder="cifar-10-batches-py",
    where=_where("cifar10", "CIFAR-10", "cifar-10-python.tar.gz", "cifar-10-batches-py"),
    train=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test="test_batch",
    labels="labels",
    meta="batches.meta",
    names="label_names",
    classes=10,
)
HUNDRED = Batches(
    name="cifar100",
    folder="cifar-100-python",
    where=_where("cifar100", "CIFAR-100", "cifar-100-python.tar.gz", "cifar-100-python"),
    train=("train",),
    test="test",
    labels="fine_labels",
    meta="meta",
    names="fine_label_names",
    classes=100,
)


def read_cifar(batches: Batches, folder: Path) -> ImageSet:
    """Read the images in the order of the batches; class numbers are the original ones."""
    tree = Tree.find(folder, [batches.meta], [batches.folder], batches.where)
    names = _entries(tree, batches.meta, batches.names)[0]
    if not isinstance(names, list) or len(names) != batches.classes:
        raise tree.incomplete(f"{tree.root / batches.meta} does not name {batches.classes} classes")
    parts = [_batch(tree, file, batches) for file in (*batches.train, batches.test)]
    sizes = [len(pixels) for pixels, _ in parts]
    n_train, n_test = sum(sizes[:-1]), sizes[-1]
    return ImageSet(
        name=batches.name,
        ids=tuple(f"train-{i:05d}" for i in range(n_train)) + tuple(f"test-{i:05d}" for i in range(n_test)),
        sources=tuple(image for pixels, _ in parts for image in pixels),
        names=tuple(map(str, names)),
        labels=np.concatenate([labels for _, labels in parts]),
        given=None,
        test=np.arange(n_train + n_test) >= n_train,
    )


def _batch(tree: Tree, file: str, batches: Batches) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return images (n x 32 x 32 x 3) and labels (n)."""
    pixels, labels = _entries(tree, file, "data", batches.labels)
    if not isinstance(pixels, ByteArray) or pixels.values.shape[1:] != (3 * 32 * 32,):
        raise tree.incomplete(f"{tree.root / file} holds no images of 32x32 pixels")
    allowed = range(batches.classes)
    if (
        not isinstance(labels, list)
        or len(labels) != len(pixels.values)
        or any(label not in allowed for label in labels)
    ):
        raise tree.incomplete(f"{tree.root / file} does not have a label for every image")
    return pixels.values.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), np.array(labels, dtype=np.int64)


def _entries(tree: Tree, file: str, *keys: str) -> list[Any]:
    content = read_pickle(tree.file(file))
    missing = [key for key in keys if not isinstance(content, dict) or key not in content]
    if missing:
        raise tree.incomplete(f"{tree.root / file} has no entry {missing[0]}")
    return [content[key] for key in keys]


CIFAR_10 = Benchmark(
    name="cifar10",
    title="CIFAR-10",
    read=partial(read_cifar, TEN),
    n_known=5,
    expected=Expected(10, exactly(50000), exactly(12500), exactly(37500), exactly(10000)),
    where=TEN.where,
    download=from_torchvision("CIFAR10", f"{PAGE}/cifar-10-python.tar.gz"),
)
CIFAR_100 = Benchmark(
    name="cifar100",
    title="CIFAR-100",
    read=partial(read_cifar, HUNDRED),
    n_known=80,
    expected=Expected(100, exactly(50000), exactly(20000), exactly(30000), exactly(10000)),
    where=HUNDRED.where,
    download=from_torchvision("CIFAR100", f"{PAGE}/cifar-100-python.tar.gz"),
)
