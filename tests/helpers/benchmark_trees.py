"""Miniature data sets in their original layouts, and the published draw of labelled images."""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sptnet.data.benchmarks.base import ClassSplit
from sptnet.data.benchmarks.domains import PACS_CLASSES, PACS_DOMAINS
from sptnet.data.image_set import ImageSet
from sptnet.data.split import make_split


def encoded(form: str) -> bytes:
    """An image of 8x8 pixels in a file format."""
    stream = io.BytesIO()
    Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3)).save(stream, form)
    return stream.getvalue()


PICTURES = {".png": encoded("PNG"), ".jpg": encoded("JPEG"), ".jpeg": encoded("JPEG")}


def pictures(root: Path, *names: str) -> Path:
    """Write images of 8x8 pixels under these names."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PICTURES[path.suffix.lower()])
    return root


def lines(path: Path, *content: str) -> Path:
    """Write a text file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in content), encoding="utf-8")
    return path


def published_draw(ids: Iterable[str], share: float = 0.5) -> set[str]:
    """Draw the labelled images from the training images of the known classes, with NumPy's global generator."""
    candidates = list(ids)
    np.random.seed(0)
    drawn = np.random.choice(range(len(candidates)), replace=False, size=(int(share * len(candidates)),))
    return {candidates[i] for i in drawn}


SPLIT = ClassSplit(known=(2, 0), new=(1, 3))


def true_names(image_set: ImageSet) -> list[str]:
    """Class name per image."""
    return [image_set.names[label] for label in image_set.labels]


def assert_published_draw(image_set: ImageSet, n_known: int, **options: Any) -> None:
    """Assert that the labelled images are those of the published loaders."""
    known = [
        id_
        for id_, label, test in zip(image_set.ids, image_set.labels, image_set.test, strict=True)
        if label < n_known and not test
    ]
    split = make_split(image_set, n_known, **options)
    assert {image_set.ids[i] for i in split.labelled} == published_draw(known)


BIRDS = ["001.Albatross", "002.Bunting", "003.Cardinal", "004.Dove"]


def write_cub(root: Path) -> Path:
    """Write four birds; images.txt is not sorted, every third image is a test image."""
    rows = [(BIRDS[i % 4], f"bird_{99 - i:02d}.jpg") for i in range(24)]
    pictures(root / "images", *(f"{bird}/{file}" for bird, file in rows))
    lines(root / "classes.txt", *(f"{i} {bird}" for i, bird in enumerate(BIRDS, 1)))
    lines(root / "images.txt", *(f"{i} {bird}/{file}" for i, (bird, file) in enumerate(rows, 1)))
    lines(root / "image_class_labels.txt", *(f"{i} {BIRDS.index(bird) + 1}" for i, (bird, _) in enumerate(rows, 1)))
    lines(root / "train_test_split.txt", *(f"{i} {int(i % 3 > 0)}" for i in range(1, 25)))
    return root


def write_pacs(root: Path) -> Path:
    """Write two images per class and domain."""
    for domain in PACS_DOMAINS:
        pictures(root / domain, *(f"{name}/pic_{i}.jpg" for name in PACS_CLASSES for i in (1, 2)))
    return root
