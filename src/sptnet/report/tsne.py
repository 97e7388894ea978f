"""Deterministic t-SNE of features."""

import numpy as np
import numpy.typing as npt
from jaxtyping import Float

_SEED = 0
_COMPONENTS = 50
_PERPLEXITY = 30.0


def embed_2d(features: Float[np.ndarray, "n d"], steps: int = 1000, angle: float = 0.5) -> Float[np.ndarray, "n 2"]:
    """Compute 2D positions by t-SNE after PCA; by PCA only for fewer than five images, zeros for equal images.

    Fewer `steps` and a larger `angle` are faster and coarser.
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    n, d = features.shape
    spread = float(features.std(0).max()) if n else 0.0
    if spread < 1e-6:
        return np.zeros((n, 2), dtype=np.float32)
    # With several threads the order of sums varies, and t-SNE amplifies small differences.
    with threadpool_limits(1):
        reduced = PCA(min(_COMPONENTS, n, d), svd_solver="full").fit_transform(features)
        if n < 5:
            return np.pad(reduced[:, :2], ((0, 0), (0, max(0, 2 - reduced.shape[1]))))
        tsne = TSNE(
            perplexity=min(_PERPLEXITY, (n - 1) / 3),
            init=np.ascontiguousarray(_first_positions(reduced)),
            max_iter=steps,
            angle=angle,
            random_state=_SEED,
        )
        positions: npt.NDArray[np.float32] = tsne.fit_transform(reduced)
    return positions


def _first_positions(reduced: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n 2"]:
    """Return the first two components at a small scale, as is usual for t-SNE."""
    two = np.pad(reduced[:, :2], ((0, 0), (0, max(0, 2 - reduced.shape[1]))))
    small: npt.NDArray[np.float32] = (two / two[:, 0].std() * 1e-4).astype(np.float32)
    return small
