"""The training-free baseline: k-means on the backbone's features of the unlabelled images."""

import numpy as np
import numpy.typing as npt
import torch.nn.functional as F
from sklearn.cluster import KMeans
from torch import Tensor


def kmeans_labels(features: Tensor, n_clusters: int, seed: int = 0) -> npt.NDArray[np.int64]:
    """Clusters of length-one features. `n_init` is given because its default changed between versions."""
    unit = F.normalize(features, dim=1).numpy()
    labels: npt.NDArray[np.int64] = KMeans(n_clusters, n_init=10, random_state=seed).fit_predict(unit)
    return labels.astype(np.int64)
