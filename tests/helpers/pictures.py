"""Random images."""

import numpy as np
import numpy.typing as npt


def picture(height: int, width: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """Random pixels, height x width x 3."""
    return np.random.RandomState(seed).randint(0, 256, (height, width, 3)).astype(np.uint8)
