"""The engines that throughput.py and peers.py measure: onward, and others on the same weights.

Each engine's module turns it into a ``Contestant`` (contest.py). None knows of another, and none
knows how rounds are timed or reported. peers.py runs each in a process of its own (serve.py,
child.py), in an environment of its own (environments.py).
"""
