"""Measures the speed of the engine on token ids, and compares it with the limits of the machine.

``plan`` selects the cases, ``measuring`` runs them, ``synthetic`` makes models of published sizes
without a file, ``tables`` writes the report. ``lab/counts`` counts the bytes that the cases read
and the multiply-adds that they compute.
"""
