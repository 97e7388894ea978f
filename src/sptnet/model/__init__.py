"""The model: prompts, Vision Transformer and head; its weights, its model directory and its token bank.

This folder must not know about methods, losses or training.
"""
