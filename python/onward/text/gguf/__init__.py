"""Tokenizers from the metadata of GGUF files."""
