"""Points for counting: unit features, and their principal components."""

import numpy as np
import numpy.typing as npt

from sptnet.errors import Misuse

Floats = npt.NDArray[np.float32]


def unit_features(X: npt.ArrayLike) -> Floats:  # noqa: N803
    """Normalise rows to length one; a row of zeros stays zero."""
    data = np.asarray(X, dtype=np.float32)
    if data.ndim != 2 or data.size == 0:
        raise Misuse(f"X has the shape {data.shape}. Give one row of features for each point.")
    if not np.isfinite(data).all():
        raise Misuse("X holds values that are not finite. Leave out the points whose features are NaN or infinite.")
    data = data / np.maximum(np.abs(data).max(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    unit: Floats = data / np.maximum(np.linalg.norm(data, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return unit


def principal_components(points: Floats, dimensions: int) -> Floats:
    """Return centred points in the coordinates of at most `dimensions` principal components."""
    centred: Floats = points - points.mean(axis=0)
    if points.shape[1] <= dimensions:
        return centred
    directions = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :dimensions]
    reduced: Floats = np.ascontiguousarray(centred @ directions)
    return reduced
