"""The map of the page: positions of images by t-SNE of their features."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int64

from sptnet.report.tsne import embed_2d
from sptnet.results.run_result import RunResult

MOST_POINTS = 5_000
SCALE = 1_000
_SEED = 0
_STEPS, _ANGLE = 350, 0.8  # fast and fine enough for the page


@dataclass(frozen=True, eq=False)
class ImageMap:
    """Images on the map and their coordinates."""

    images: npt.NDArray[np.int64]
    """Positions of the images in the run, of shape (n,)."""
    places: npt.NDArray[np.int64]
    """Coordinates, n x 2, whole numbers from 0 to 1,000."""


def image_map(result: RunResult, most: int = MOST_POINTS) -> ImageMap:
    """Compute the map of all images that were not dropped, or of a stratified sample of them."""
    images = sample(result.category, most)
    return ImageMap(images, on_grid(embed_2d(result.features[images], _STEPS, _ANGLE)))


def sample(category: Int64[np.ndarray, " n"], most: int) -> Int64[np.ndarray, " m"]:
    """Return the positions of about `most` images at most, in proportion to categories, at least one of each."""
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
    """Scale to whole numbers from 0 to 1,000, centred, with one scale for both axes."""
    if len(places) == 0:
        return places.astype(np.int64)
    low, high = places.min(0), places.max(0)
    scale = SCALE / max(float((high - low).max()), 1e-12)
    whole: npt.NDArray[np.int64] = np.rint((places - (low + high) / 2) * scale + SCALE / 2).astype(np.int64)
    return whole
