"""The engines that throughput.py measures: onward, and others on the same weights.

Each module here turns one engine into a ``Contestant`` (contest.py). None knows of another, and
none knows how rounds are timed or reported.
"""
