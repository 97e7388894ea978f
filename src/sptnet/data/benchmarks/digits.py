"""Handwritten digits that come with scikit-learn; no folder and no download needed."""

import numpy as np

from sptnet.data.image_set import ImageSet


def digits() -> ImageSet:
    """Return the 1,797 handwritten digits of scikit-learn: grey images of 8x8 pixels, no test images."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    data = load_digits()
    pixels = np.rint(data.images * 255 / 16).astype(np.uint8)
    return ImageSet(
        name="digits",
        ids=tuple(f"digit-{i:04d}" for i in range(len(pixels))),
        sources=tuple(pixels),
        names=tuple("0123456789"),
        labels=data.target.astype(np.int64),
        given=None,
        test=np.zeros(len(pixels), dtype=np.bool_),
    )
