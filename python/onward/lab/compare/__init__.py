"""Two ways of computing a model side by side: how fast, how far apart, and why they part.

``setting`` reads what is to be compared, a ``side`` computes it (``local`` here, ``remote`` in
another interpreter, ``result_file`` from a file), ``comparison`` puts the same tokens to both,
``agreement`` and ``divergence`` judge the logits, ``tables`` and ``page`` tell it. Knows an
``onward.LLM`` as any caller does; the command line is ``cli``'s.
"""
