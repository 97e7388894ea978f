"""Mixtures whose clusters split and merge by their marginal likelihood.

Must not know about images, models or files.
"""
