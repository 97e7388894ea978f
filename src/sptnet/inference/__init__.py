"""Apply a model to images without training: features, predictions, scores, attention, counts, exports.

Independent of stages, optimisers and the state of training.
"""
