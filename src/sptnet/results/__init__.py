"""Everything a run leaves behind: its folder, predictions, categories, scores, a person's edits, exports.

Reads and writes files; knows nothing of training, and runs no model.
"""
