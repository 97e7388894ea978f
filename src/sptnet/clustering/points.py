"""Points for counting: unit features, and their principal components."""

from typing import Any

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
    return unit_rows(data)


def unit_rows(points: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Normalise rows (n x dim) to length one in their own precision; a row of zeros stays zero."""
    tiny = np.finfo(points.dtype).tiny
    scaled = points / np.maximum(np.abs(points).max(axis=1, keepdims=True, initial=0), tiny)  # else squares overflow
    unit: npt.NDArray[Any] = scaled / np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), tiny)
    return unit


def principal_components(points: Floats, dimensions: int) -> Floats:
    """Return centred points in the coordinates of at most `dimensions` principal components."""
    centred: Floats = points - points.mean(axis=0)
    if points.shape[1] <= dimensions:
        return centred
    directions = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :dimensions]
    reduced: Floats = np.ascontiguousarray(centred @ directions)
    return reduced
