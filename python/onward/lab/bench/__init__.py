"""Measures the engine alone, on token ids: rates, beside the ceilings of the machine.

``plan`` selects the cases, ``measuring`` runs them, ``synthetic`` makes models of published sizes
without a file, ``tables`` writes the report. ``lab/counts`` counts what the cases read and
multiply.
"""
