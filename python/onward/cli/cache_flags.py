"""Flags for how keys and values are kept: what ``LLM`` takes under the same names.

Knows names; not what they do.
"""

from __future__ import annotations

import argparse
from typing import Any

from onward.kv.amounts import read_amount
from onward.kv_dtypes import KV_DTYPES


def add_cache_arguments(parser: argparse.ArgumentParser) -> None:
    """--kv-dtype, --kv-window-tokens, --kv-sinks, --kv-cache-bytes, --max-context,
    --attention-window, --prefix-cache."""
    group = parser.add_argument_group("keys and values")
    group.add_argument(
        "--kv-dtype",
        metavar="NAME",
        help=f"{', '.join(KV_DTYPES)}, or two as keys/values; default: auto",
    )
    group.add_argument(
        "--kv-window-tokens",
        type=int,
        metavar="N",
        help="newest tokens that stay exact beside codes; default: 128",
    )
    group.add_argument(
        "--kv-sinks",
        action=argparse.BooleanOptionalAction,
        help="whether the first 16 tokens stay exact beside codes; default: yes",
    )
    group.add_argument(
        "--kv-cache-bytes",
        metavar="BYTES",
        help="what they may take, such as 2GiB; default: most of the free memory",
    )
    group.add_argument(
        "--max-context",
        type=int,
        metavar="N",
        help="tokens of prompt and output together; default: what the model allows",
    )
    group.add_argument(
        "--attention-window",
        type=int,
        metavar="N",
        help="an approximation for endless texts (StreamingLLM): each token sees the first 4 and "
        "the newest N tokens only; default: all",
    )
    group.add_argument(
        "--prefix-cache",
        action=argparse.BooleanOptionalAction,
        help="whether beginnings are kept for later requests; default: yes",
    )


def cache_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of ``LLM`` that were given."""
    names = (
        *("kv_dtype", "kv_window_tokens", "kv_sinks", "kv_cache_bytes", "max_context"),
        *("attention_window", "prefix_cache"),
    )
    given = {name: getattr(arguments, name) for name in names}
    given = {name: value for name, value in given.items() if value is not None}
    if "kv_cache_bytes" in given:
        given["kv_cache_bytes"] = read_amount("--kv-cache-bytes", given["kv_cache_bytes"])
    return given
