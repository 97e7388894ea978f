"""Edits that a person made to the categories of a run: kinds, log, application, and the resulting names.

This folder must not know where edits come from: the command line, the page or Python.
"""
