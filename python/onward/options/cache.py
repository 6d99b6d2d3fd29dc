"""The cache arguments of ``LLM``: their checks, and their conversion for the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onward.machine.memory import memory_bytes
from onward.options.kv_dtypes import KvDtypes, parse_kv_dtype
from onward.options.values import check_flag, check_integer

_MOST_TOKENS = 2**31 - 1
_MOST_BYTES = 2**60
_FREE_SHARE = 0.8
"""The default limit of the cache, as a share of the memory that is free after loading."""
_LEAST_SHARE = 0.1
"""The smallest share that the cache gets when mapped weights would need the rest."""
_KEPT_SHARE = 0.25
"""The default share of the cache that may hold prefixes of finished requests."""


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
        """InvalidArgument or ArgumentTypeError names a wrong argument."""
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
        """The limit of prompt and output together; unlimited with ``attention_window``."""
        most = model_context if self.attention_window is None else _MOST_TOKENS
        return most if self.max_context is None else min(self.max_context, most)

    def engine_arguments(
        self, kv: KvDtypes, mapped_bytes: int = 0, device_free_bytes: int | None = None
    ) -> dict[str, Any]:
        """The keyword arguments of the core's Engine. Call it when the weights are in memory.

        ``mapped_bytes``: the part of the weights that is read from a mapped file when needed, and
        counts as free memory until then. ``device_free_bytes``: free memory of a device that has
        its own memory.
        """
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
