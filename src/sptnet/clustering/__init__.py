"""K-means, semi-supervised k-means, semi-supervised Infomap and the estimate of the number of categories, on arrays.

Must not know about images, models or files.
"""
