"""Folders of digits, some of them unsorted."""

from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

from sptnet.data.benchmarks.digits import digits
from sptnet.data.image_set import ImageSet


def fill(root: Path, known: int = 3, per_class: int = 8, labelled: int = 4) -> Path:
    """Write digits 0 to 5, `per_class` each; `labelled` images per known digit are in its folder, the rest unsorted."""
    image_set = all_digits()
    for digit in range(6):
        for n, i in enumerate(np.flatnonzero(image_set.labels == digit)[:per_class]):
            folder = f"{digit}" if digit < known and n < labelled else "unlabelled/more" if n % 2 else "unlabelled"
            save_digit(int(i), root / (folder if n < per_class - 1 else ".") / f"{digit}-{n}.png")
    return root


def save_digit(position: int, path: Path) -> None:
    """Write one digit as an image file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(all_digits().sources[position])).save(path)


@cache
def all_digits() -> ImageSet:
    """The digits, read once."""
    return digits()
