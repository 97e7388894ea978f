"""A model over images without learning: features, predictions, attention, counts, exports.

Knows nothing of stages, optimisers or the run that is being trained.
"""
