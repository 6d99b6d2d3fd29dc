"""The default texts of a comparison: prose, code, other languages, and one that is longer than a
chunk of prefill."""

from __future__ import annotations

_REPORT = (
    "In the year the railway came, the town had three shops, one church and a river that flooded "
    "every spring. The mayor kept a notebook of the water levels, and nobody but the teacher ever "
    "asked to see it. When the bridge was built, the engineer asked for the notebook, and the "
    "mayor gave it to him without a word. They set the piers two metres higher than planned, and "
    "the next spring the water stopped one hand below the deck. After that the council paid for a "
    "stone gauge with the years cut into it, and children measured themselves against the flood "
    "of 1897. The teacher copied the notebook twice. One copy went to the library, where it was "
    "lent to nobody for forty years; the other she kept in her desk, with a list of those who had "
    "lost their houses. A student who wrote about rivers found the first copy in 1962 and noticed "
    "that every ninth year was missing. He travelled to the town, asked for the mayor's "
    "grandson, and was sent to the school. The desk was still there, and in its lowest drawer lay "
    "the second copy. It was complete. On the inside of the cover the teacher had written, in "
    "small and careful letters, why the years had been left out of the first one:"
)

PROMPTS = (
    "The lighthouse keeper climbed the stairs every evening, and on the night of the storm he",
    "def merge(left: list[int], right: list[int]) -> list[int]:\n"
    '    """Merge two sorted lists."""\n'
    "    result = []\n",
    "Весной мы каждое утро ходили в лес, и птицы пели так громко, что",
    _REPORT,
)
MAX_NEW_TOKENS = 48
"""Of each text, by default."""
