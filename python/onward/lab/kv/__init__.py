"""Calculates the size of the KV cache before a model is run, and checks it against a running model.

``models`` reads the facts of a model without its weights, ``report`` calculates all figures, and
``tables`` and ``curves`` show them. ``check`` measures a running model, or a ``stand_in`` for a
model without weights. The sizes themselves are in ``lab/counts``.
"""
