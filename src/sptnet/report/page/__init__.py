"""`report.html`: one page about a finished run, with pictures, a map, charts, and editing of categories.

This folder must not know about the paper's figures.
"""
