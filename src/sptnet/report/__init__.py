"""Pages and figures about finished runs.

This folder must not train, and must not change files of a run except its report.
"""
