"""Convert images and labels of Python programs into an image set."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from sptnet.data.image_file import ImageSource, find_images
from sptnet.data.image_set import UNKNOWN, ImageSet
from sptnet.errors import Misuse


@dataclass(frozen=True)
class GivenImages:
    """Images, and their labels if they came with labels."""

    sources: tuple[ImageSource, ...]
    labels: list[Any] | None
    """Label per image, if X is a Dataset of (image, label)."""


def as_images(X: Any) -> GivenImages:  # noqa: N803
    """Return the images of a folder, paths, arrays, Pillow images, tensors, or a Dataset with or without labels."""
    if isinstance(X, str | Path):
        return GivenImages(tuple(_images_in(Path(X))), None)
    if isinstance(X, Dataset):
        return _from_dataset(X)
    if isinstance(X, np.ndarray | Tensor) and X.ndim not in (3, 4) and not (X.ndim == 1 and _is_text(X)):
        raise Misuse(f"X has the shape {tuple(X.shape)}. Give images x height x width, with channels as a fourth axis.")
    if not isinstance(X, Iterable):
        raise Misuse(f"X is {type(X).__name__}. Give a folder, a list of images, an array of images, or a Dataset.")
    sources = tuple(as_source(image) for image in X)
    if not sources:
        raise Misuse("X has no images. Give at least one.")
    return GivenImages(sources, None)


def as_source(image: Any) -> ImageSource:
    """Convert an image into a source; tensors are channels first, floats are in [0, 1]."""
    if isinstance(image, str):
        return Path(image)
    if isinstance(image, Tensor):
        values = image.detach().cpu()
        values = values.permute(1, 2, 0) if values.ndim == 3 else values
        return values.numpy()
    if isinstance(image, Path | Image.Image | np.ndarray):
        return image
    raise Misuse(f"an image in X is {type(image).__name__}. Give paths, arrays, tensors or Pillow images.")


def _is_text(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype.kind in "UO"


def _images_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise Misuse(f"there is no folder {folder}. Give a folder of images; a single image goes into a list.")
    paths = find_images(folder)
    if not paths:
        raise Misuse(f"no images found in {folder}/. Give a folder that holds images.")
    return paths


def _from_dataset(dataset: Dataset[Any]) -> GivenImages:
    if not hasattr(dataset, "__len__") or len(dataset) == 0:
        raise Misuse("X is a Dataset without images or without a length. Give one that has both.")
    items = [dataset[i] for i in range(len(dataset))]
    if all(isinstance(item, tuple | list) and len(item) == 2 for item in items):
        return GivenImages(tuple(as_source(image) for image, _ in items), [_plain(label) for _, label in items])
    return GivenImages(tuple(as_source(item) for item in items), None)


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, Tensor | np.generic) else label


def plain_labels(y: Iterable[Any]) -> list[Any]:
    """Return the labels of any array or iterable as a list of Python values."""
    return [_plain(label) for label in (y.tolist() if isinstance(y, np.ndarray | Tensor) else y)]


def has_names(labels: Iterable[Any]) -> bool:
    """Return True if a label is a name; else all labels are numbers or missing."""
    return any(isinstance(label, str) and label != "" for label in labels)


def label_per_category(names: Sequence[str], n_known: int, named: bool) -> npt.NDArray[Any]:
    """Return the label that stands for each category, of shape (k,), in the form in which labels were given.

    These are the names or, if labels were given as numbers, the number of each known category; new categories then take
    the numbers after the largest.
    """
    if named:
        return np.array(names)
    known = [int(name) for name in names[:n_known]]
    first = max(known, default=-1) + 1
    return np.array([*known, *range(first, first + len(names) - n_known)])


def label_names(y: Iterable[Any], n_images: int) -> list[str | None]:
    """Return the name per label; None for -1, None, NaN and an empty text."""
    values = plain_labels(y)
    if len(values) != n_images:
        raise Misuse(f"y has {len(values)} labels but X has {n_images} images. Give one per image.")
    return [_name(label) for label in values]


def _name(label: Any) -> str | None:
    if label is None or label == "" or label == UNKNOWN or (isinstance(label, float) and math.isnan(label)):
        return None
    if isinstance(label, str):
        return label
    whole = isinstance(label, int) or (isinstance(label, float) and label.is_integer())
    if not whole or isinstance(label, bool) or label < 0:
        raise Misuse(
            f"y holds {label!r}. Give names or whole numbers from 0, and -1, None or NaN for unlabelled images."
        )
    return str(int(label))


def sorted_names(names: Iterable[str | None]) -> tuple[str, ...]:
    """Return the distinct names in order: numbers by value, then all others."""
    return tuple(sorted({name for name in names if name is not None}, key=_sort_key))


def _sort_key(name: str) -> tuple[bool, int, str]:
    number = name.isascii() and name.isdecimal()
    return not number, int(name) if number else 0, name


def as_image_set(images: GivenImages, names: Sequence[str | None]) -> ImageSet:
    """Build an image set in which images with a name are labelled."""
    classes = sorted_names(names)
    position = {name: i for i, name in enumerate(classes)}
    labels = np.array([UNKNOWN if name is None else position[name] for name in names], dtype=np.int64)
    return ImageSet(
        name="images",
        ids=_ids(images.sources),
        sources=images.sources,
        names=classes,
        labels=labels,
        given=labels != UNKNOWN,
        test=np.zeros(len(labels), dtype=np.bool_),
    )


def _ids(sources: Sequence[ImageSource]) -> tuple[str, ...]:
    """Return an id per image: its path if that is unique, else a number."""
    paths = [str(source) if isinstance(source, Path) else "" for source in sources]
    times, width = Counter(paths), len(str(len(sources) - 1))
    return tuple(path if path and times[path] == 1 else f"image-{i:0{width}d}" for i, path in enumerate(paths))


def seed_from(random_state: int | np.random.RandomState | None) -> int:
    """Return a whole number as it is; draw a seed from a generator."""
    from sklearn.utils import check_random_state

    if isinstance(random_state, Integral) and not isinstance(random_state, bool):
        if not 0 <= random_state < 2**32 - 1:
            raise Misuse(f"random_state is {random_state}. Give a whole number from 0 to {2**32 - 2}.")
        return int(random_state)
    seed: npt.NDArray[np.int64] = check_random_state(random_state).randint(2**31 - 1)
    return int(seed)
