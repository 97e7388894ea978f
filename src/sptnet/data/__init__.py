"""From files to labelled, split images and the views that are cut from them.

Knows nothing of models, training or results.
"""
