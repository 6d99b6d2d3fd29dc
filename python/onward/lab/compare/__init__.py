"""Compares two ways to compute a model: their speed, the distance of their logits, and its reason.

``setting`` reads the settings to compare. A ``side`` computes one (``local`` here, ``remote`` in
another interpreter, ``result_file`` from a file). ``comparison`` gives the same tokens to both,
``agreement`` and ``divergence`` judge the logits, ``tables`` and ``page`` write the report.
"""
