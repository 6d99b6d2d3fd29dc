"""What an LLM keeps of earlier requests, as its user sees it: figures, and a way to let it go.

A request that begins like an earlier one does not compute the common beginning again
(``usage.cached_tokens``). Knows the engine's counters, not what is behind them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onward.machine.memory import trim_heap

if TYPE_CHECKING:
    from onward.calls.driver import Driver


@dataclass(frozen=True)
class CacheStats:
    """Of the cache, now and since the model was loaded."""

    bytes: int
    """Of keys and values: of running requests and of what is kept, each block once."""
    limit_bytes: int
    """What they may take."""
    kept_tokens: int
    """Of earlier requests, which later ones can begin with."""
    kept_bytes: int
    lookups: int
    """Sequences that looked for their beginning."""
    hits: int
    """Of these, those that found some of it."""
    hit_tokens: int
    """That were not computed again."""
    lookup_tokens: int
    """That could have been hit, had all been there."""
    evictions: int
    """Kept blocks that were let go because the memory was needed."""
    preemptions: int
    """Requests that lost their place to others and were computed again."""

    @property
    def hit_rate(self) -> float:
        """Of the tokens looked for, those found; 0 where nothing was looked for."""
        return self.hit_tokens / self.lookup_tokens if self.lookup_tokens else 0.0


class PrefixCache:
    """``llm.cache``."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def clear(self) -> None:
        """Let go of everything that is kept of finished requests, and give the memory back."""
        self._driver.run(lambda engine: engine.forget_prefixes())
        trim_heap()

    def stats(self) -> CacheStats:
        """Its figures."""
        found = self._driver.run(lambda engine: engine.stats())
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
