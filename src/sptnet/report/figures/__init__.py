"""The paper's figures from any runs: t-SNE, attention per head, prompts, accuracy against a setting, count curves.

This folder must not know about the report page.
"""
