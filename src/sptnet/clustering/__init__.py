"""Clusterings (k-means, selective neighbours, Infomap, split and merge) and the number of categories.

Works on arrays; must not know about images, models or files.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sptnet.clustering.hierarchy.selective_neighbors import SelectiveNeighborClustering

__all__ = ["SelectiveNeighborClustering"]


def __getattr__(name: str) -> Any:
    """Import the public name on first use, so that modules of this folder without torch are quick to import."""
    if name == "SelectiveNeighborClustering":
        from sptnet.clustering.hierarchy.selective_neighbors import SelectiveNeighborClustering

        return SelectiveNeighborClustering
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
