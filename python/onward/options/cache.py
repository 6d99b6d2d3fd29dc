"""How an LLM keeps keys and values: what a caller may ask for, checked, and as the engine takes it.

Knows names and limits; not how anything is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onward.machine.memory import memory_bytes
from onward.options.kv_dtypes import KvDtypes, parse_kv_dtype
from onward.options.values import check_flag, check_integer

_MOST_TOKENS = 2**31 - 1
_MOST_BYTES = 2**60
_FREE_SHARE = 0.8
"""Of the memory that is free when a model has been loaded, what its cache may take by default."""
_LEAST_SHARE = 0.1
"""Of it, what is the cache's even where weights that are mapped would need the rest."""
_KEPT_SHARE = 0.25
"""Of that, what may be kept of finished requests, by default."""


@dataclass(frozen=True)
class CacheOptions:
    """The cache arguments of ``LLM``, checked."""

    kv_dtype: object
    kv_window_tokens: int
    kv_sinks: bool
    kv_cache_bytes: int | None
    max_context: int | None
    attention_window: int | None
    prefix_cache: bool

    @classmethod
    def read(
        cls,
        kv_dtype: object,
        kv_window_tokens: object,
        kv_sinks: object,
        kv_cache_bytes: object,
        max_context: object,
        attention_window: object,
        prefix_cache: object,
    ) -> CacheOptions:
        """InvalidArgument or ArgumentTypeError for what cannot be."""
        parse_kv_dtype(kv_dtype, "f32")
        return cls(
            kv_dtype,
            check_integer("kv_window_tokens", kv_window_tokens, 0, _MOST_TOKENS),
            check_flag("kv_sinks", kv_sinks),
            _limit("kv_cache_bytes", kv_cache_bytes, _MOST_BYTES),
            _limit("max_context", max_context, _MOST_TOKENS),
            _limit("attention_window", attention_window, _MOST_TOKENS),
            check_flag("prefix_cache", prefix_cache),
        )

    def context(self, model_context: int) -> int:
        """Tokens of prompt and output together. Endless where only a window of them is seen."""
        most = model_context if self.attention_window is None else _MOST_TOKENS
        return most if self.max_context is None else min(self.max_context, most)

    def engine_arguments(
        self, kv: KvDtypes, mapped_bytes: int = 0, device_free_bytes: int | None = None
    ) -> dict[str, Any]:
        """Of the core's Engine; call it when the weights are in memory, but for ``mapped_bytes`` of
        them, which are read from a file as they are needed and count as free until then.
        ``device_free_bytes``: of a device whose memory is its own."""
        limit, kept = self.kv_cache_bytes, None
        free = memory_bytes()["available"] if device_free_bytes is None else device_free_bytes
        if limit is None and free is not None:
            free = max(free - mapped_bytes, int(free * _LEAST_SHARE))
            limit = max(int(free * _FREE_SHARE), 1)
            kept = int(limit * _KEPT_SHARE)
        keys, values = kv.codecs
        return {
            "kv_keys": keys,
            "kv_values": values,
            "kv_window_tokens": self.kv_window_tokens,
            "kv_sinks": self.kv_sinks,
            "kv_cache_bytes": limit,
            "max_context": self.max_context or 0,
            "attention_window": self.attention_window or 0,
            "prefix_cache": self.prefix_cache,
            "prefix_cache_bytes": kept,
        }


def _limit(name: str, value: object, most: int) -> int | None:
    return None if value is None else check_integer(name, value, 1, most)
