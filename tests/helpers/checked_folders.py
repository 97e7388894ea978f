"""Folders of images to check, and the result of a check without problems."""

from pathlib import Path

import numpy as np
from PIL import Image

from sptnet.data.check.folder_check import CategoryCount, FolderCheck


def picture(seed: int, size: tuple[int, int] = (80, 64)) -> Image.Image:
    """Image of smooth random colours."""
    blots = np.random.default_rng(seed).integers(0, 256, (8, 10, 3), dtype=np.uint8)
    return Image.fromarray(blots).resize(size, Image.Resampling.BICUBIC)


def paint(root: Path, **counts: int) -> Path:
    """Write folders of different images, `counts` per folder; train__cat is train/cat."""
    seed = 0
    for name, n in counts.items():
        folder = root / name.replace("__", "/")
        folder.mkdir(parents=True)
        for i in range(n):
            picture(seed).save(folder / f"{i}.png")
            seed += 1
    return root


GOOD = FolderCheck(
    folder="pets",
    images=40,
    categories=(CategoryCount("cat", 10, 0), CategoryCount("dog", 10, 0)),
    unsorted=20,
    unsorted_test=0,
    labels_are_given=True,
    unreadable=(),
    max_unreadable=0.01,
    others=0,
    hidden=0,
    heic_left_out=0,
    same_bytes=(),
    same_look=(),
    small=(),
    elongated=(),
    device="cpu",
    precision="float32",
)
"""A check without findings."""
