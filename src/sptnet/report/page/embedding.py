"""All images on a plane, near ones near: t-SNE of the features, the same every time."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int64

from sptnet.results.run_result import RunResult

MOST_POINTS = 5_000
SCALE = 1_000
_SEED = 0
_COMPONENTS = 50
_STEPS = 350
_PERPLEXITY = 30.0


@dataclass(frozen=True, eq=False)
class ImageMap:
    images: npt.NDArray[np.int64]
    """Positions of the images on the map."""
    places: npt.NDArray[np.int64]
    """n x 2, whole numbers from 0 to 1,000."""


def image_map(result: RunResult, most: int = MOST_POINTS) -> ImageMap:
    """The map of all images that were not dropped, or of a sample that keeps the categories' proportions."""
    images = sample(result.category, most)
    return ImageMap(images, on_grid(plane(result.features[images])))


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


def plane(features: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n 2"]:
    """t-SNE after PCA; too few or too equal images for it come as PCA leaves them."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    n, d = features.shape
    spread = float(features.std(0).max()) if n else 0.0
    if spread < 1e-6:
        return np.zeros((n, 2), dtype=np.float32)
    # More threads would add numbers up in another order each time, and t-SNE makes much of small differences.
    with threadpool_limits(1):
        reduced = PCA(min(_COMPONENTS, n, d), svd_solver="full").fit_transform(features)
        if n < 5:
            return np.pad(reduced[:, :2], ((0, 0), (0, max(0, 2 - reduced.shape[1]))))
        tsne = TSNE(
            perplexity=min(_PERPLEXITY, (n - 1) / 3),
            init=np.ascontiguousarray(_first_places(reduced)),
            max_iter=_STEPS,
            angle=0.8,
            random_state=_SEED,
        )
        places: npt.NDArray[np.float32] = tsne.fit_transform(reduced)
    return places


def _first_places(reduced: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n 2"]:
    """The first two components, small, as t-SNE likes to begin."""
    two = np.pad(reduced[:, :2], ((0, 0), (0, max(0, 2 - reduced.shape[1]))))
    small: npt.NDArray[np.float32] = (two / two[:, 0].std() * 1e-4).astype(np.float32)
    return small


def on_grid(places: Float[np.ndarray, "n 2"]) -> Int64[np.ndarray, "n 2"]:
    """To whole numbers from 0 to 1,000, at one scale in both directions, in the middle."""
    if len(places) == 0:
        return places.astype(np.int64)
    low, high = places.min(0), places.max(0)
    scale = SCALE / max(float((high - low).max()), 1e-12)
    whole: npt.NDArray[np.int64] = np.rint((places - (low + high) / 2) * scale + SCALE / 2).astype(np.int64)
    return whole
