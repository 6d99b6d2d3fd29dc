"""GGUF files of the families: the names of tensors, and metadata as a config of Hugging Face.

A family has ``GGUF = gguf(TENSORS, ...)`` in its file beside its Hugging Face facts (family.py).
"""
