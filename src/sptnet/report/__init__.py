"""Pages and figures about finished runs.

Reads what a run left behind; trains nothing and changes no file of a run but its report.
"""
