"""The map of a page: all images on a grid, by t-SNE of their features."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int64

from sptnet.report.tsne import plane
from sptnet.results.run_result import RunResult

MOST_POINTS = 5_000
SCALE = 1_000
_SEED = 0
_STEPS, _ANGLE = 350, 0.8  # a page need not be finer


@dataclass(frozen=True, eq=False)
class ImageMap:
    images: npt.NDArray[np.int64]
    """Positions of the images on the map."""
    places: npt.NDArray[np.int64]
    """n x 2, whole numbers from 0 to 1,000."""


def image_map(result: RunResult, most: int = MOST_POINTS) -> ImageMap:
    """The map of all images that were not dropped, or of a sample that keeps the categories' proportions."""
    images = sample(result.category, most)
    return ImageMap(images, on_grid(plane(result.features[images], _STEPS, _ANGLE)))


def sample(category: Int64[np.ndarray, " n"], most: int) -> Int64[np.ndarray, " m"]:
    """Positions of at most `most` images, each category by its share, but one image of each at least."""
    kept = np.flatnonzero(category >= 0)
    if len(kept) <= most:
        return kept
    random = np.random.RandomState(_SEED)
    chosen = []
    for index in np.unique(category[kept]):
        members = np.flatnonzero(category == index)
        n = max(1, len(members) * most // len(kept))
        chosen.append(random.permutation(members)[:n])
    return np.sort(np.concatenate(chosen))


def on_grid(places: Float[np.ndarray, "n 2"]) -> Int64[np.ndarray, "n 2"]:
    """To whole numbers from 0 to 1,000, at one scale in both directions, in the middle."""
    if len(places) == 0:
        return places.astype(np.int64)
    low, high = places.min(0), places.max(0)
    scale = SCALE / max(float((high - low).max()), 1e-12)
    whole: npt.NDArray[np.int64] = np.rint((places - (low + high) / 2) * scale + SCALE / 2).astype(np.int64)
    return whole
