"""timm's Vision Transformers from pixels to the last block, and exact short cuts through them."""
