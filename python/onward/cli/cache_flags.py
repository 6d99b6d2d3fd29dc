"""Flags for the KV cache, with the names of the arguments of ``LLM``."""

from __future__ import annotations

import argparse
from typing import Any

from onward.cli import values
from onward.options.kv_dtypes import KV_DTYPES


def add_cache_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --kv-dtype, --kv-window-tokens, --kv-sinks, --kv-cache-bytes, --max-context,
    --attention-window and --prefix-cache."""
    group = parser.add_argument_group("keys and values")
    group.add_argument(
        "--kv-dtype",
        metavar="NAME",
        help=f"{', '.join(KV_DTYPES)}, or two as keys/values; default: auto",
    )
    group.add_argument(
        "--kv-window-tokens",
        type=values.integer,
        metavar="N",
        help="newest tokens that stay exact in a coded cache; default: 128",
    )
    group.add_argument(
        "--kv-sinks",
        action=argparse.BooleanOptionalAction,
        help="whether the first 16 tokens stay exact in a coded cache; default: on",
    )
    group.add_argument(
        "--kv-cache-bytes",
        type=values.size,
        metavar="SIZE",
        help="most memory of the cache, such as 2G; default: most of the free memory",
    )
    group.add_argument(
        "--max-context",
        type=values.integer,
        metavar="N",
        help="most tokens of prompt and output together; default: the limit of the model",
    )
    group.add_argument(
        "--attention-window",
        type=values.integer,
        metavar="N",
        help="an approximation for endless texts (StreamingLLM): each token sees the first 4 and "
        "the newest N tokens only; default: all",
    )
    group.add_argument(
        "--prefix-cache",
        action=argparse.BooleanOptionalAction,
        help="whether prefixes are kept for later requests; default: on",
    )


def cache_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of ``LLM`` that were given."""
    names = (
        *("kv_dtype", "kv_window_tokens", "kv_sinks", "kv_cache_bytes", "max_context"),
        *("attention_window", "prefix_cache"),
    )
    given = {name: getattr(arguments, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}
