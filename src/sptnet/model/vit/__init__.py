"""timm's Vision Transformers: building them, their patch embedding, and a last block for the class token only.

This folder must not know about prompts, heads or files of a run.
"""
