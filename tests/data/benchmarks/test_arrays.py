"""CIFAR batches and Fashion-MNIST's idx files: arrays read byte by byte, hostile and damaged ones refused."""

import gzip
import os
import pickle
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sptnet.data.benchmarks import read_benchmark
from sptnet.data.benchmarks.cifar import HUNDRED, TEN, Batches, read_cifar
from sptnet.data.benchmarks.safe_pickle import ByteArray, read_pickle
from sptnet.errors import Failure, Misuse

TEN_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def python_2_pickle(pixels: np.ndarray, key: str, labels: list[int]) -> bytes:
    """As Python 2 wrote it: protocol 2, byte strings, the old name of NumPy's module."""
    raw = pixels.tobytes()

    def word(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + word(b"b") + b"\x87R("
    array += number(1) + number(pixels.shape[0]) + number(pixels.shape[1]) + b"\x86"
    array += b"cnumpy\ndtype\n" + word(b"u1") + number(0) + number(1) + b"\x87R("
    array += number(3) + word(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    array += b"\x89" + b"T" + struct.pack("<i", len(raw)) + raw + b"tb"
    listed = b"](" + b"".join(number(label) for label in labels) + b"e"
    return b"\x80\x02}(" + word(b"data") + array + word(key.encode()) + listed + b"u."


def write_cifar(root: Path, batches: Batches, names: list[str], per_batch: int = 4) -> dict[str, np.ndarray]:
    """Batches of random images; the label of the i-th image of all is i modulo the number of classes."""
    folder = root / batches.folder
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    pixels, first = {}, 0
    for file in (*batches.train, batches.test):
        pixels[file] = random.integers(0, 256, (per_batch, 3072), dtype=np.uint8)
        labels = [(first + i) % batches.classes for i in range(per_batch)]
        first += per_batch
        content = {batches.labels: labels, "data": pixels[file]}
        writes_2 = file == batches.train[0]
        (folder / file).write_bytes(
            python_2_pickle(pixels[file], batches.labels, labels) if writes_2 else pickle.dumps(content, protocol=2)
        )
    (folder / batches.meta).write_bytes(pickle.dumps({batches.names: names}, protocol=2))
    return pixels


@pytest.mark.parametrize("inside", [True, False])
def test_cifar_10(tmp_path: Path, inside: bool) -> None:
    pixels = write_cifar(tmp_path, TEN, TEN_NAMES)
    image_set = read_benchmark("cifar10", tmp_path / TEN.folder if inside else tmp_path)
    assert image_set.name == "cifar10"
    assert image_set.ids == (*(f"train-{i:05d}" for i in range(20)), *(f"test-{i:05d}" for i in range(4)))
    assert image_set.names == tuple(TEN_NAMES)
    assert image_set.labels.tolist() == [i % 10 for i in range(24)]
    assert image_set.test.tolist() == [False] * 20 + [True] * 4
    assert image_set.given is None
    third = np.asarray(image_set.sources[6])
    assert third.shape == (32, 32, 3) and third.dtype == np.uint8
    stored = pixels["data_batch_2"][2]
    assert third[5, 7].tolist() == [stored[channel * 1024 + 5 * 32 + 7] for channel in range(3)]


def test_the_images_are_those_that_torchvision_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import CIFAR10

    write_cifar(tmp_path, TEN, TEN_NAMES)
    monkeypatch.setattr(CIFAR10, "_check_integrity", lambda self: True)
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda path, md5: True)
    image_set = read_benchmark("cifar10", tmp_path)
    with warnings.catch_warnings(action="ignore"):  # NumPy has moved the module that the old batches name
        theirs = CIFAR10(tmp_path, train=True), CIFAR10(tmp_path, train=False)
    np.testing.assert_array_equal(np.stack([np.asarray(image) for image in image_set.sources[:20]]), theirs[0].data)
    np.testing.assert_array_equal(np.stack([np.asarray(image) for image in image_set.sources[20:]]), theirs[1].data)
    assert image_set.labels.tolist() == theirs[0].targets + theirs[1].targets
    assert list(image_set.names) == theirs[0].classes


def test_cifar_100_has_its_fine_names(tmp_path: Path) -> None:
    names = [f"name{i}" for i in range(100)]
    write_cifar(tmp_path, HUNDRED, names, per_batch=120)
    image_set = read_benchmark("cifar100", tmp_path)
    assert image_set.names == tuple(names)
    assert image_set.labels.tolist() == [i % 100 for i in range(240)]
    assert image_set.test.tolist() == [False] * 120 + [True] * 120


class Hostile:
    def __reduce__(self) -> Any:
        return os.system, ("touch ran",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_hostile_pickle_is_refused_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    write_cifar(tmp_path, TEN, TEN_NAMES)
    batch = tmp_path / TEN.folder / "data_batch_3"
    batch.write_bytes(pickle.dumps({"data": Hostile(), "labels": [0]}, protocol))
    with pytest.raises(
        Failure, match=r"data_batch_3 is not read: it asks for (posix|nt)\.system, .*could run code\. Fetch it again"
    ):
        read_benchmark("cifar10", tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "asked", [b"cbuiltins\neval\n.", b"cnumpy\nload\n.", b"cnumpy.core.multiarray\nscalar\n.", b"c_codecs\ndecode\n."]
)
def test_nothing_but_arrays_can_be_asked_for(tmp_path: Path, asked: bytes) -> None:
    (tmp_path / "file").write_bytes(asked)
    with pytest.raises(Failure, match="which could run code"):
        read_pickle(tmp_path / "file")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a pickle",
        pickle.dumps({"data": np.zeros((2, 3), np.uint8)}, protocol=2)[:-20],
        pickle.dumps(np.zeros(3, np.float64), protocol=2),
        pickle.dumps(np.zeros(3, np.int8), protocol=2),
        pickle.dumps(np.array([None], dtype=object), protocol=2),
        b"c_codecs\nencode\n(Va\nVutf-8\ntR.",
        b"cnumpy._core.multiarray\n_reconstruct\n)R(K\x01)NI00\nVa\ntb.",
    ],
)
def test_a_damaged_pickle_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(Failure, match=r"file is damaged \(\w+\)\. Fetch it again from its makers\.$"):
        read_pickle(tmp_path / "file")


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_come_back_as_they_were(tmp_path: Path, protocol: int, order: Any) -> None:
    array = np.asarray(np.arange(256, dtype=np.uint8).reshape(4, 64), order=order)
    (tmp_path / "file").write_bytes(pickle.dumps(array, protocol))
    read = read_pickle(tmp_path / "file")
    assert isinstance(read, ByteArray)
    np.testing.assert_array_equal(read.values, array)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("batches.meta", {"other": 1}, r"batches\.meta has no entry label_names\."),
        ("batches.meta", ["label_names"], r"batches\.meta has no entry label_names\."),
        ("batches.meta", {"label_names": ["a"]}, r"batches\.meta does not name 10 classes\."),
        ("data_batch_1", {"labels": [0]}, r"data_batch_1 has no entry data\."),
        ("data_batch_1", {"data": "x", "labels": [0]}, r"data_batch_1 holds no images of 32x32 pixels\."),
        ("test_batch", {"data": np.zeros((1, 9), np.uint8), "labels": [0]}, "test_batch holds no images of 32x32"),
        ("test_batch", {"data": np.zeros((1, 3072), np.uint8), "labels": [0, 1]}, "does not have a label for every"),
        ("test_batch", {"data": np.zeros((1, 3072), np.uint8), "labels": [10]}, "does not have a label for every"),
    ],
)
def test_other_content_is_refused(tmp_path: Path, file: str, content: Any, message: str) -> None:
    write_cifar(tmp_path, TEN, TEN_NAMES)
    (tmp_path / TEN.folder / file).write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(Failure, match=message):
        read_cifar(TEN, tmp_path)


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    write_cifar(tmp_path, TEN, TEN_NAMES)
    (tmp_path / TEN.folder / "data_batch_4").unlink()
    with pytest.raises(Failure, match=r"has no data_batch_4\. Fetch it again: CIFAR-10 is at https"):
        read_benchmark("cifar10", tmp_path)


def test_a_missing_root_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"there is no folder .*none\. CIFAR-100 is at https://www\.cs\.toronto\.edu"):
        read_benchmark("cifar100", tmp_path / "none")
    with pytest.raises(Misuse, match=r"has no train-images-idx3-ubyte and no .*\.gz, nor has FashionMNIST/raw or raw"):
        read_benchmark("fashion_mnist", tmp_path)


def idx(array: np.ndarray) -> bytes:
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_fashion(folder: Path, zipped: bool = False) -> np.ndarray:
    folder.mkdir(parents=True)
    images = np.random.default_rng(0).integers(0, 256, (30, 28, 28), dtype=np.uint8)
    labels = (np.arange(30) % 10).astype(np.uint8)
    for part, chosen in (("train", slice(0, 20)), ("t10k", slice(20, 30))):
        for kind, array in (("images-idx3", images[chosen]), ("labels-idx1", labels[chosen])):
            data = gzip.compress(idx(array)) if zipped else idx(array)
            (folder / f"{part}-{kind}-ubyte{'.gz' if zipped else ''}").write_bytes(data)
    return images


@pytest.mark.parametrize(("folder", "zipped"), [("FashionMNIST/raw", False), ("", True), ("raw", False)])
def test_fashion_mnist(tmp_path: Path, folder: str, zipped: bool) -> None:
    images = write_fashion(tmp_path / "set" / folder, zipped)
    image_set = read_benchmark("fashion_mnist", tmp_path / "set")
    np.testing.assert_array_equal(np.stack([np.asarray(image) for image in image_set.sources]), images)
    assert image_set.ids[:2] == ("train-00000", "train-00001") and image_set.ids[20:22] == ("test-00000", "test-00001")
    assert image_set.names[0] == "T-shirt/top" and image_set.names[9] == "Ankle boot"
    assert image_set.labels.tolist() == [i % 10 for i in range(30)]
    assert image_set.test.tolist() == [False] * 20 + [True] * 10


@pytest.mark.parametrize("keep", [0, 3, 6, 15, -1])
def test_a_truncated_idx_file_is_refused(tmp_path: Path, keep: int) -> None:
    write_fashion(tmp_path / "set")
    file = tmp_path / "set" / "t10k-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(Failure, match=r"t10k-images-idx3-ubyte is no idx file of bytes, or cut short\."):
        read_benchmark("fashion_mnist", tmp_path / "set")


@pytest.mark.parametrize("keep", [0, 5, -12])
def test_a_truncated_zipped_file_is_refused(tmp_path: Path, keep: int) -> None:
    write_fashion(tmp_path / "set", zipped=True)
    file = tmp_path / "set" / "train-labels-idx1-ubyte.gz"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(Failure, match=r"train-labels-idx1-ubyte\.gz is (damaged|no idx file)"):
        read_benchmark("fashion_mnist", tmp_path / "set")


@pytest.mark.parametrize("labels", [np.zeros(9, np.uint8), np.full(10, 10, np.uint8)])
def test_labels_must_fit_the_images(tmp_path: Path, labels: np.ndarray) -> None:
    write_fashion(tmp_path / "set")
    (tmp_path / "set" / "t10k-labels-idx1-ubyte").write_bytes(idx(labels))
    with pytest.raises(Failure, match=r"the t10k files of .* do not have a label from 0 to 9 for every image\."):
        read_benchmark("fashion_mnist", tmp_path / "set")


def test_a_missing_idx_file_is_named(tmp_path: Path) -> None:
    write_fashion(tmp_path / "set")
    (tmp_path / "set" / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(Failure, match=r"has no t10k-labels-idx1-ubyte\.gz\. Fetch it again: Fashion-MNIST is at"):
        read_benchmark("fashion_mnist", tmp_path / "set")
