"""The model: prompts, then the Vision Transformer, then the head; its weights, its folder, its token bank.

Knows nothing of methods, losses or how it is trained.
"""
