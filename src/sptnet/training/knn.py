"""Nearest neighbours: how good features are without any training on top."""

import numpy as np
import numpy.typing as npt
import torch.nn.functional as F
from torch import Tensor


def knn_accuracy(features: Tensor, labels: npt.NDArray[np.int64], k: int = 10) -> float:
    """Leave-one-out: the share of images whose label most of their k most similar others have."""
    unit = F.normalize(features, dim=1)
    n_classes = int(labels.max()) + 1
    hits = 0
    for start in range(0, len(unit), 1024):
        similarity = unit[start : start + 1024] @ unit.T
        rows = np.arange(len(similarity))
        similarity[rows, start + rows] = -2.0  # below every cosine: an image is no neighbour of itself
        neighbours = labels[similarity.topk(k, dim=1).indices.numpy()]
        votes = np.stack([(neighbours == c).sum(1) for c in range(n_classes)], axis=1)
        hits += int((votes.argmax(1) == labels[start : start + len(similarity)]).sum())
    return hits / len(labels)
