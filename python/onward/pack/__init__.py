"""One file that holds a model: its weights as the core packs them, and its texts (docs/pack.md).

``contents`` says what stands in the metadata, ``packing`` writes a file. The reader is the core's.
"""
