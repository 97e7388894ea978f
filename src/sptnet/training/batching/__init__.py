"""Batches of a stage: which images, which views of them, and the processes that load them.

Must not know about models and losses.
"""
