"""Clusterings (k-means, selective neighbours, Infomap, split and merge) and the number of categories.

Works on arrays; must not know about images, models or files. The estimators are in `__all__`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sptnet.clustering.graph.infomap import SemiSupervisedInfomap
    from sptnet.clustering.hierarchy.selective_neighbors import SelectiveNeighborClustering
    from sptnet.clustering.mixture.split_merge_mixture import SplitMergeMixture
    from sptnet.clustering.semi_supervised_kmeans import SemiSupervisedKMeans

__all__ = ["SelectiveNeighborClustering", "SemiSupervisedInfomap", "SemiSupervisedKMeans", "SplitMergeMixture"]

_HOME = {
    "SelectiveNeighborClustering": "sptnet.clustering.hierarchy.selective_neighbors",
    "SemiSupervisedInfomap": "sptnet.clustering.graph.infomap",
    "SemiSupervisedKMeans": "sptnet.clustering.semi_supervised_kmeans",
    "SplitMergeMixture": "sptnet.clustering.mixture.split_merge_mixture",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that modules of this folder without torch are quick to import."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
