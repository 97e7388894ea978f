"""Clusterings of a finished run into other numbers of categories, so that a person can choose one without training.

`counts/<k>.safetensors` holds the clustering into k categories: `category` and `certainty` per image in the order of
the table, `centroids` on unit features, and `n_known`, the number of known categories, which come first.
"""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from sptnet.data.image_set import UNKNOWN
from sptnet.data.split import Split
from sptnet.errors import Misuse
from sptnet.results.predictions import FEATURES, read_features
from sptnet.results.run_content import COUNTS
from sptnet.results.run_folder import RunFolder
from sptnet.runtime.files import make_folder, write_atomically
from sptnet.runtime.seeds import seed_of
from sptnet.runtime.tensor_files import load_arrays, reading_tensors

MOST_KEPT = 12
MOST_IMAGES = 5_000
"""Largest run whose clusterings are kept; larger ones are clustered when a number is chosen."""
STARTS, ALL_STARTS_UP_TO = 10, 1_000
TEMPERATURE = 0.1
_TYPES = {
    "category": np.dtype(np.int64),
    "certainty": np.dtype(np.float32),
    "centroids": np.dtype(np.float32),
    "n_known": np.dtype(np.int64),
}

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Clustering:
    """All images of a run in k categories, the known ones first."""

    category: Ids
    """Category per image, of shape (n,)."""
    certainty: Floats
    """Certainty from 0 to 1, of shape (n,)."""
    centroids: Floats | None
    """k x d; None if the model of the run decides."""
    n_known: int

    def nearest(self, features: Floats) -> Ids:
        """Return the category with the nearest centroid per row of unit features, n x d."""
        assert self.centroids is not None
        scores: Floats = 2 * features @ self.centroids.T - np.square(self.centroids).sum(1)
        nearest: Ids = scores.argmax(1)
        return nearest


def certainty_of(features: Floats, centroids: Floats) -> Floats:
    """Return the highest probability per row of unit features: softmax of the cosines to the centroids over 0.1."""
    lengths = np.linalg.norm(centroids, axis=1, keepdims=True)
    logits = features @ (centroids / np.where(lengths > 0, lengths, 1)).T / TEMPERATURE
    certainty: Floats = 1 / np.exp(logits - logits.max(1, keepdims=True)).sum(1)
    return certainty


def cluster_at(features: Floats, labels: Ids, k: int, n_known: int, seed: int) -> Clustering:
    """Cluster unit features (n x d) into k categories by semi-supervised k-means.

    `labels` has one index of a known category per image, -1 for unlabelled images; labelled images keep theirs. With
    more than 1,000 images there are fewer starts, so that it stays quick.
    """
    # Here, since k-means needs torch and reading clusterings does not.
    from sklearn.exceptions import ConvergenceWarning

    from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans

    if len(np.unique(labels[labels >= 0])) != n_known:
        raise Misuse(f"not all of the {n_known} known categories have a labelled image. Label one of each.")
    starts = max(1, min(STARTS, STARTS * ALL_STARTS_UP_TO // len(features)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # an empty category is shown as such
        kmeans = SemiSupervisedKMeans(k, n_init=starts, random_state=seed).fit(features, labels)
    centroids = kmeans.cluster_centers_.astype(np.float32)
    certainty = np.where(labels >= 0, np.float32(1), certainty_of(features, centroids))
    return Clustering(kmeans.labels_.astype(np.int64), certainty.astype(np.float32), centroids, n_known)


def seed_of_counts(seed: int) -> int:
    """Return the seed of the clusterings from the seed of the run."""
    return seed_of(seed, "counts") % 2**32


def counts_to_keep(low: int, high: int, chosen: int, least: int, most: int) -> list[int]:
    """Return the numbers of categories to keep: the plausible range from `low` to `high`, and the chosen one.

    A range of more than 12 numbers is thinned out geometrically. Numbers below `least`, the number of known categories,
    and above `most` are left out.
    """
    low, high = (min(max(bound, least, 1), most) for bound in (low, high))
    if high - low < MOST_KEPT:
        return sorted({*range(low, high + 1), chosen})
    spread = {round(low * (high / low) ** (i / (MOST_KEPT - 1))) for i in range(MOST_KEPT)}
    return sorted({*spread, low, high, chosen})


def count_file(run: Path, k: int) -> Path:
    """Path of the clustering into k categories."""
    return run / COUNTS / f"{k}.safetensors"


def write_clustering(run: Path, clustering: Clustering) -> None:
    """Write a clustering into the folder of the run."""
    assert clustering.centroids is not None
    file = count_file(run, len(clustering.centroids))
    columns: dict[str, npt.NDArray[Any]] = {
        "category": clustering.category,
        "certainty": clustering.certainty,
        "centroids": np.ascontiguousarray(clustering.centroids),
        "n_known": np.array(clustering.n_known),
    }
    make_folder(file.parent)
    write_atomically(file, lambda part: save_file(columns, part))


def read_clustering(run: Path, k: int, n: int) -> Clustering:
    """Read the clustering of the n images of a run into k categories."""
    file = count_file(run, k)
    with reading_tensors(file, f"Delete it, then cluster again with: `edit({str(run)!r}, 'count', '{k}')`"):
        tensors = load_arrays(file)
        for name, dtype in _TYPES.items():
            if name not in tensors or tensors[name].dtype != dtype:
                raise ValueError(f"it has no {name} of the type {dtype}")
        if tensors["n_known"].size != 1:
            raise ValueError("n_known is not one number")
        category, certainty = tensors["category"], tensors["certainty"]
        centroids, n_known = tensors["centroids"], int(tensors["n_known"])
        if category.shape != (n,) or certainty.shape != (n,) or centroids.ndim != 2 or len(centroids) != k:
            raise ValueError(f"it is not for {n} images in {k} categories")
        if not ((category >= 0) & (category < k)).all() or not 0 <= n_known <= k:
            raise ValueError("a category is not one of them")
        if not ((certainty >= 0) & (certainty <= 1)).all() or not np.isfinite(centroids).all():
            raise ValueError("a certainty or a centroid is not a number in its range")
    columns = category.astype(np.int64), certainty.astype(np.float32)
    return Clustering(*columns, centroids.astype(np.float32), n_known)


class KeptCounts(Mapping[int, Clustering]):
    """Clusterings of a run by number of categories, read when they are needed.

    The number of the run itself stands for the categories of its model.
    """

    def __init__(self, run: Path, own: Clustering, n_own: int):
        self.run, self.own, self.n_own = run, own, n_own
        self._read: dict[int, Clustering] = {}

    def __getitem__(self, k: int) -> Clustering:
        if k == self.n_own:
            return self.own
        if k not in self._read:
            if not count_file(self.run, k).is_file():
                raise KeyError(k)
            self._read[k] = read_clustering(self.run, k, len(self.own.category))
        return self._read[k]

    def __iter__(self) -> Iterator[int]:
        stems = [file.stem for file in (self.run / COUNTS).glob("*.safetensors")]
        return iter(sorted({self.n_own, *(int(stem) for stem in stems if stem.isdecimal())}))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptCounts) and self.run == other.run

    def __hash__(self) -> int:
        return hash(self.run)


def keep_counts(run: RunFolder, split: Split, n_own: int, seed: int) -> None:
    """Cluster a finished run into the plausible numbers of categories and write the clusterings.

    `n_own` is the number of categories of the model, which needs no clustering. A run keeps none if its number was
    given, or if it has more than 5,000 images.
    """
    plausible, n = run.plausible_counts(), len(split.target)
    if plausible is None or n > MOST_IMAGES:
        return
    labels = np.full(n, UNKNOWN)
    labels[split.labelled] = split.target[split.labelled]
    features = read_features(run.path / FEATURES, n, run.path)
    for k in counts_to_keep(*plausible, n_own, split.n_known, split.n_known + n - len(split.labelled)):
        if k != n_own:
            write_clustering(run.path, cluster_at(features, labels, k, split.n_known, seed_of_counts(seed)))
