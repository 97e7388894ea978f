"""Image files, labels, splits and views.

Must not know about models, training or results.
"""
