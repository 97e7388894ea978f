"""Clusterings (k-means, selective neighbours, Infomap, split and merge) and the number of categories.

Works on arrays; must not know about images, models or files.
"""

from sptnet.clustering.hierarchy.selective_neighbors import SelectiveNeighborClustering

__all__ = ["SelectiveNeighborClustering"]
