"""Categories by k-means: from the features of the training images to one centroid a category."""

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans
from sptnet.config import ClusteringSettings

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
    """Centroids of unit features, those of the known classes first; `labels` holds -1 for unlabelled images.

    Semi-supervised: labelled images are held to their class. Otherwise only unlabelled images are clustered, as in the
    published baseline, and a cluster gets the name of a known class by the labelled images that fall into it.
    """
    unit = F.normalize(features, dim=1).numpy()
    kmeans = SemiSupervisedKMeans(
        n_categories, settings.n_init, settings.max_iter, settings.tol, random_state=seed % 2**32, device=device
    )
    if semi_supervised:
        return torch.from_numpy(kmeans.fit(unit, labels).cluster_centers_).float()
    kmeans.fit(unit[labels < 0])
    known = labels >= 0
    order = (
        named_first(kmeans.predict(unit[known]), labels[known], n_categories)
        if known.any()
        else np.arange(n_categories)
    )
    return torch.from_numpy(kmeans.cluster_centers_[order]).float()


def named_first(clusters: Labels, labels: Labels, n_clusters: int) -> Labels:
    """An order of the clusters in which each class comes at its own place, by the best one-to-one matching."""
    n_known = int(labels.max()) + 1
    together = np.zeros((n_known, n_clusters), dtype=np.int64)
    np.add.at(together, (labels, clusters), 1)
    matched = linear_sum_assignment(together, maximize=True)[1]
    return np.concatenate([matched, np.setdiff1d(np.arange(n_clusters), matched)]).astype(np.int64)
