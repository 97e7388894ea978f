"""Fashion-MNIST: ten classes of clothes, grey images of 28x28 pixels in idx files."""

import gzip
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sptnet.data.benchmarks.base import Benchmark, Expected, exactly
from sptnet.data.benchmarks.download import from_torchvision
from sptnet.data.benchmarks.layout import Tree
from sptnet.data.image_set import ImageSet

URL = "https://github.com/zalandoresearch/fashion-mnist"
WHERE = (
    f"Fashion-MNIST is at {URL} or comes with `data('fashion_mnist', data='DIR', download=True)`; the folder must hold "
    "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, with or "
    "without .gz, directly or below FashionMNIST/raw/."
)
# The files have class numbers only; these names are on the page of the data set.
NAMES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
PARTS = ("train", "t10k")


def read_fashion_mnist(folder: Path) -> ImageSet:
    """Read the training images, then the test images, in the order of the files."""
    first = f"{PARTS[0]}-images-idx3-ubyte"
    tree = Tree.find(folder, [first, f"{first}.gz"], ["FashionMNIST/raw", "raw"], WHERE)
    images = [_idx(tree, f"{part}-images-idx3-ubyte") for part in PARTS]
    labels = [_idx(tree, f"{part}-labels-idx1-ubyte") for part in PARTS]
    for part, pixels, numbers in zip(PARTS, images, labels, strict=True):
        if pixels.ndim != 3 or numbers.shape != pixels.shape[:1] or (numbers >= len(NAMES)).any():
            raise tree.incomplete(f"the {part} files of {tree.root} do not have a label from 0 to 9 for every image")
    n_train, n_test = map(len, labels)
    return ImageSet(
        name="fashion_mnist",
        ids=tuple(f"train-{i:05d}" for i in range(n_train)) + tuple(f"test-{i:05d}" for i in range(n_test)),
        sources=tuple(image for pixels in images for image in pixels),
        names=NAMES,
        labels=np.concatenate(labels).astype(np.int64),
        given=None,
        test=np.arange(n_train + n_test) >= n_train,
    )


def _idx(tree: Tree, name: str) -> npt.NDArray[np.uint8]:
    """Read an idx file of bytes.

    Layout: two zero bytes, the type code of bytes, the number of axes, the length of each axis, the data.
    """
    path = tree.file(name if (tree.root / name).exists() else f"{name}.gz")
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise tree.incomplete(f"{path} is damaged") from error
    axes = data[3] if data[:3] == b"\0\0\x08" and len(data) > 3 else 0
    shape = tuple(np.frombuffer(data[4 : 4 + 4 * axes], dtype=">u4").tolist()) if len(data) >= 4 + 4 * axes else ()
    if not shape or len(data) != 4 + 4 * axes + int(np.prod(shape)):
        raise tree.incomplete(f"{path} is no idx file of bytes, or cut short")
    return np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)


FASHION_MNIST = Benchmark(
    name="fashion_mnist",
    title="Fashion-MNIST",
    read=read_fashion_mnist,
    n_known=5,
    expected=Expected(10, exactly(60000), exactly(15000), exactly(45000), exactly(10000)),
    where=WHERE,
    download=from_torchvision("FashionMNIST", URL),
)
