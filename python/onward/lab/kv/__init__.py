"""Calculates the size of the KV cache before a model is run, and checks it against a running model.

``models`` reads the facts of a model without its weights, ``report`` calculates all figures, and
``tables`` and ``curves`` show them. ``check`` measures, on a ``stand_in`` where there are no
weights. The sizes themselves are in ``lab/counts``.
"""
