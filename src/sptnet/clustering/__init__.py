"""K-means, semi-supervised k-means and the estimate of the number of categories, on arrays.

Must not know about images, models or files.
"""
