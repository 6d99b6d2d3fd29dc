"""The engines that throughput.py and peers.py measure: onward, and others on the same weights.

The module of each engine implements ``Contestant`` (contest.py) and depends on no other engine.
peers.py runs each engine in a process of its own (serve.py, child.py), in an environment of its own
(environments.py).
"""
