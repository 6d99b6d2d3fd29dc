"""onward bench: measure prefill and decode beside what this machine can read and multiply.

The table goes to stdout as text, markdown, CSV or JSON. Knows nothing of how the figures are made.
"""

from __future__ import annotations

import argparse

from onward.bench.plan import DECODE_DEPTHS, PREFILL_TOKENS, Plan
from onward.bench.shapes import SHAPES
from onward.cli import flags

FORMATS = ("text", "md", "csv", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = flags.add_loading_arguments(parser)
    group.add_argument(
        "--synthetic",
        metavar="NAME",
        help=f"random weights of a published shape in place of a model: {', '.join(SHAPES)}",
    )
    group = parser.add_argument_group("what is measured")
    group.add_argument(
        "--prefill",
        type=int,
        nargs="*",
        metavar="N",
        help=f"lengths of prompts; default: {_listed(PREFILL_TOKENS)}, as the context allows",
    )
    group.add_argument(
        "--depth",
        type=int,
        nargs="*",
        metavar="N",
        help="decode with so many tokens in the cache; "
        f"default: {_listed(DECODE_DEPTHS)}, as the context allows",
    )
    group.add_argument(
        "--batch", type=int, nargs="+", default=[1], metavar="N", help="batch sizes; default: 1"
    )
    group.add_argument(
        "--decode-tokens",
        type=int,
        default=Plan.decode_tokens,
        metavar="N",
        help="tokens of each sequence in one repetition of decode; default: %(default)s",
    )
    group.add_argument(
        "--repetitions",
        type=int,
        default=Plan.repetitions,
        metavar="N",
        help="timed runs of each line, after one that warms up; default: %(default)s",
    )
    parser.add_argument("-o", "--output", choices=FORMATS, default="text", help="default: text")
    parser.add_argument(
        "--json", action="store_const", dest="output", const="json", help="the same as -o json"
    )


def run(arguments: argparse.Namespace) -> int:
    from onward.bench import measuring, tables

    plan = Plan(
        prefill=arguments.prefill,
        depths=arguments.depth,
        batches=arguments.batch,
        decode_tokens=arguments.decode_tokens,
        repetitions=arguments.repetitions,
    )
    report = measuring.bench(
        plan,
        model=arguments.model,
        synthetic=arguments.synthetic,
        dtype=arguments.dtype,
        head_dtype=arguments.head_dtype,
        threads=arguments.threads,
        packed_cache=arguments.packed_cache,
    )
    flags.show(tables.WRITERS[arguments.output](report))
    return 0


def _listed(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))
