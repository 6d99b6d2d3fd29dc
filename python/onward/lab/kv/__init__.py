"""What the KV cache costs, counted before a model is run, and checked against one that is.

``plan`` is what is asked, ``sizes`` has the bytes of a vector and of a block, ``sequences`` the
blocks of a sequence and what fits into a room, ``models`` what is known of a model without its
weights; ``report`` puts the figures together, ``tables``, ``curves`` and ``plot`` show them,
``amounts`` are how bytes are written; ``check`` measures, on a ``stand_in`` where there are no
weights. Knows neither the core nor how a code is made; the command
line is ``cli``'s.
"""
