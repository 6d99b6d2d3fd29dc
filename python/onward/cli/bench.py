"""onward bench: measure prefill and decode, and compare them with the limits of this machine.

The result is a table, markdown, CSV or JSON.
"""

from __future__ import annotations

import argparse
from typing import Any

from onward.cli import flags, output, values
from onward.errors import InvalidArgument
from onward.lab.bench.plan import (
    COMPARED_LENGTHS,
    COUNTED_TOKENS,
    DECODE_DEPTHS,
    PREFILL_TOKENS,
    UNCACHED_DEPTHS,
    Plan,
)
from onward.lab.counts.policy import Policy
from onward.lab.counts.shapes import SHAPES
from onward.options.kv_dtypes import KV_DTYPES

FORMATS = ("table", "md", "csv", "json")
EXAMPLES = """\
  onward bench
  onward bench -m MODEL --batch 1,4,16 --prefill 512 --depth 0,512
  onward bench --synthetic llama-3.2-1b --dtype f32
  onward bench --prefill none --depth 2048 --format md -o decode.md
"""

_LIST: dict[str, Any] = {
    "action": values.Extend,
    "type": values.list_of(values.integer),
    "metavar": "N,N",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = flags.add_loading_arguments(parser)
    flags.add_device_argument(group)
    group.add_argument(
        "--synthetic",
        metavar="NAME",
        help=f"random weights of a published shape in place of a model: {', '.join(SHAPES)}; "
        "default: none",
    )
    group = parser.add_argument_group("what is measured")
    group.add_argument(
        "--prefill",
        **_LIST,
        help=f"lengths of prompts, or none; default: {values.listed(PREFILL_TOKENS)}, up to the "
        "context",
    )
    group.add_argument(
        "--depth",
        **_LIST,
        help="decode with this many tokens in the cache, or none; "
        f"default: {values.listed(DECODE_DEPTHS)}, up to the context; without the cache "
        f"{values.listed(UNCACHED_DEPTHS)}, with both {values.listed(COMPARED_LENGTHS)}",
    )
    group.add_argument(
        "--cache",
        type=values.one_of("on", "off", "both"),
        default="on",
        metavar="NAME",
        help="off: decode computes the whole sequence again for every token; both: compare on and "
        "off, and count the keys and values that each computes; default: on",
    )
    group.add_argument(
        "--count",
        **_LIST,
        help="with --cache both: numbers of tokens whose computations are counted; default: "
        f"{values.listed(COUNTED_TOKENS)}",
    )
    group.add_argument(
        "--kv-dtype",
        default="auto",
        metavar="NAME",
        help=f"dtype of keys and values: {', '.join(KV_DTYPES)}, or two as keys/values; default: "
        "auto",
    )
    group.add_argument(
        "--kv-window-tokens",
        type=values.integer,
        default=Policy.window_tokens,
        metavar="N",
        help="newest tokens that stay exact in a coded cache; default: %(default)s",
    )
    group.add_argument("--batch", **_LIST, help="sequences at a time; default: 1")
    group.add_argument(
        "--decode-tokens",
        type=values.integer,
        metavar="N",
        help=f"tokens of each sequence in one repetition of decode; default: {Plan.decode_tokens}",
    )
    group.add_argument(
        "--repetitions",
        type=values.integer,
        metavar="N",
        help="timed runs of each line, after a run that warms up; default: "
        f"{Plan.repetitions}, with --cache both 3",
    )
    output.add_output_arguments(parser, FORMATS)
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="with --cache both: draw time to a token against length into a .svg or .png; "
        "default: none",
    )


def run(arguments: argparse.Namespace) -> int:
    from onward.lab.bench import measuring, tables

    output.check(arguments.output)
    batches = [1] if arguments.batch is None else arguments.batch
    subject = {
        name: getattr(arguments, name)
        for name in (
            *("model", "synthetic", "dtype", "head_dtype", "threads", "packed_cache"),
            *("kv_dtype", "kv_window_tokens", "device"),
        )
    }
    given = {
        name: getattr(arguments, name)
        for name in ("repetitions", "decode_tokens")
        if getattr(arguments, name) is not None
    }
    if arguments.cache == "both":
        return _compare(arguments, subject, given)
    for name in ("count", "plot"):
        if getattr(arguments, name) is not None:
            raise InvalidArgument(
                f"{name}: is given with cache {arguments.cache}, expected it with both"
            )
    plan = Plan(
        prefill=arguments.prefill,
        depths=arguments.depth,
        batches=batches,
        cache=arguments.cache == "on",
        **given,
    )
    report = measuring.bench(plan, **subject)
    output.write(arguments.output, tables.WRITERS[arguments.format](report))
    return 0


def _compare(arguments: argparse.Namespace, subject: dict[str, Any], given: dict[str, int]) -> int:
    from onward.lab import report as pictures
    from onward.lab.bench import comparison_tables, curves, recompute

    if arguments.prefill or arguments.batch not in (None, [1]):
        raise InvalidArgument(
            "cache: is both, which compares decode of one sequence, expected no prefill "
            "and a batch of 1"
        )
    if arguments.decode_tokens is not None:
        raise InvalidArgument(
            "decode_tokens: is given with cache both, which times "
            f"{recompute.TOKENS_WITH} with the cache and {recompute.TOKENS_WITHOUT} without, "
            "expected none"
        )
    if arguments.plot is not None:
        pictures.check_path(arguments.plot)
        if arguments.depth == []:
            raise InvalidArgument("plot: no length is measured, expected a depth")
    question = recompute.Question(arguments.depth, arguments.count, **given)
    comparison = recompute.bench(question, **subject)
    # The table comes first, so that a failure to write the picture does not lose the results.
    output.write(arguments.output, comparison_tables.WRITERS[arguments.format](comparison))
    if arguments.plot is not None:
        pictures.write(curves.chart(comparison), arguments.plot)
    return 0
