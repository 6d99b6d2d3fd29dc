"""One file that holds a model: its weights as the core packs them, and its texts (onward doctor
--docs pack).

``contents`` says what stands in the metadata, ``packing`` writes a file. The reader is the core's.
"""
