"""K-means, semi-supervised k-means, and how many categories there are: arrays in, arrays out.

Knows nothing of images, models or files.
"""
