"""Selective neighbour clustering: levels of a hierarchy, and the number of categories that they suggest.

Must not know about images, models or files.
"""
