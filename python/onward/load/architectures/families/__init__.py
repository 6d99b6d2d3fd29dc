"""The families of decoders, one file each, named after the ``model_type`` of their configs.

A file has ``read_spec(config)``, which turns a config into a DecoderSpec, and ``TENSORS``, the
table of the names that such models have for the parts of weights (names.py), or a function from
the spec to it.
"""
