"""Clusters and neighbours in graphs of features: the map equation, semi-supervised Infomap, the affinity graph.

Must not know about images, models or files.
"""
