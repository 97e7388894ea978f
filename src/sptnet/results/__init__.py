"""The files of a run, read and written: run folder, predictions, categories, scores, edits, exports.

This folder must not know about training, and must not run a model.
"""
