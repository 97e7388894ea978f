"""Category discovery as one call: plan, count, train, report, and another round from a person's edits.

Composes the rooms before it; knows nothing of flags and terminals.
"""
