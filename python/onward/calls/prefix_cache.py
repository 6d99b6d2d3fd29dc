"""``llm.cache``: the keys and values that an LLM keeps of earlier requests.

A request that begins like an earlier one does not compute the common beginning again
(``usage.cached_tokens``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onward.machine.memory import trim_heap

if TYPE_CHECKING:
    from onward._core import Engine


@dataclass(frozen=True)
class CacheStats:
    """Figures of the cache: sizes now, and counts since the model was loaded."""

    bytes: int
    """Keys and values of running requests and of kept beginnings; shared blocks count once."""
    limit_bytes: int
    """The most bytes that they may take."""
    kept_tokens: int
    """Tokens of earlier requests, which later ones can begin with."""
    kept_bytes: int
    """Their keys and values."""
    lookups: int
    """Sequences that looked for their beginning."""
    hits: int
    """Sequences that found some of it."""
    hit_tokens: int
    """Tokens that were found, and not computed again."""
    lookup_tokens: int
    """Tokens that were looked for."""
    evictions: int
    """Kept blocks that were dropped because the memory was needed."""
    preemptions: int
    """Requests that lost their place to others and were computed again."""

    @property
    def hit_rate(self) -> float:
        """The share of the tokens looked for that were found; 0 before the first lookup."""
        return self.hit_tokens / self.lookup_tokens if self.lookup_tokens else 0.0


class PrefixCache:
    """What ``llm.cache`` offers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def clear(self) -> None:
        """Drop everything that is kept of finished requests, and give the memory back."""
        self._engine.forget_prefixes()
        trim_heap()

    def stats(self) -> CacheStats:
        """Its figures."""
        found = self._engine.stats()
        return CacheStats(
            bytes=found["cache_bytes"],
            limit_bytes=found["cache_bytes_limit"],
            kept_tokens=found["prefix_tokens"],
            kept_bytes=found["prefix_bytes"],
            lookups=found["prefix_lookups"],
            hits=found["prefix_hits"],
            hit_tokens=found["prefix_hit_tokens"],
            lookup_tokens=found["prefix_lookup_tokens"],
            evictions=found["prefix_evictions"],
            preemptions=found["preempted"],
        )
