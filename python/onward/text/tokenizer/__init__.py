"""Tokenizers of model folders, over the `tokenizers` library."""
