"""Measuring the engine by itself: token ids in, rates and the machine's ceilings out.

``plan`` says which cases, ``measuring`` runs them, ``costs`` counts what they read and multiply,
``synthetic`` makes models of published sizes without a file, ``tables`` writes the report. Knows no
text and no other engine; the command line is ``cli``'s.
"""
