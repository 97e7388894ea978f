"""K-means, semi-supervised k-means, selective-neighbour clustering and the estimate of the number of categories.

Works on arrays; must not know about images, models or files.
"""

from sptnet.clustering.selective_neighbors import SelectiveNeighborClustering

__all__ = ["SelectiveNeighborClustering"]
