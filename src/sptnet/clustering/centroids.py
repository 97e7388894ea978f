"""Cluster the features of the training images into one centroid per category."""

import warnings

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from jaxtyping import Float
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans
from sptnet.config import ClusteringSettings
from sptnet.metrics import best_matching, contingency

Labels = npt.NDArray[np.int64]


def find_centroids(
    features: Float[Tensor, "n dim"],
    labels: Labels,
    n_categories: int,
    settings: ClusteringSettings,
    seed: int,
    semi_supervised: bool,
    device: str = "cpu",
) -> Float[Tensor, "k dim"]:
    """Return the centroids of normalised features, known classes first; `labels` is -1 for unlabelled images.

    Semi-supervised: labelled images stay in the cluster of their class. Otherwise only unlabelled images are clustered,
    as in the published baseline, and each known class is matched to a cluster by assigning its labelled images to the
    nearest centroids.
    """
    unit = F.normalize(features, dim=1).numpy()
    kmeans = SemiSupervisedKMeans(
        n_categories, settings.n_init, settings.max_iter, settings.tol, random_state=seed % 2**32, device=device
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the report shows an empty category as such
        kmeans.fit(*((unit, labels) if semi_supervised else (unit[labels < 0],)))
    if semi_supervised:
        return torch.from_numpy(kmeans.cluster_centers_).float()
    known = labels >= 0
    order = (
        matched_first(kmeans.predict(unit[known]), labels[known], n_categories)
        if known.any()
        else np.arange(n_categories)
    )
    return torch.from_numpy(kmeans.cluster_centers_[order]).float()


def matched_first(clusters: Labels, labels: Labels, n_clusters: int) -> Labels:
    """Order clusters: those matched to the known classes first, in the order of the classes, then the others."""
    matched = best_matching(contingency(labels, clusters, (int(labels.max()) + 1, n_clusters)))[1]
    return np.concatenate([matched, np.setdiff1d(np.arange(n_clusters), matched)])
