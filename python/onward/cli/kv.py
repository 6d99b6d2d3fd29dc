"""onward kv: what the KV cache of a model costs, and what fits into the memory beside its weights.

The tables go to stdout as text, markdown, CSV or JSON. Knows nothing of how the figures are made.
"""

from __future__ import annotations

import argparse
from typing import TypeVar

from onward.cli import flags
from onward.errors import Error, InvalidArgument
from onward.kv.amounts import read_amount
from onward.kv.plan import BATCHES, CONTEXTS, Policy
from onward.kv_dtypes import KV_DTYPES

T = TypeVar("T")
FORMATS = ("table", "md", "csv", "json")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="folder, config.json, .gguf file, pack, or a published shape such as llama-3.1-8b; "
        "default: SmolLM2-135M",
    )
    group = parser.add_argument_group("what is counted")
    group.add_argument(
        "--context",
        type=_numbers,
        nargs="+",
        metavar="N",
        help="lengths of sequences; default: "
        f"{' '.join(map(str, CONTEXTS))} below the model's context, and that",
    )
    group.add_argument(
        "--batch",
        type=_numbers,
        nargs="+",
        default=[list(BATCHES)],
        metavar="N",
        help=f"how many of them; default: {' '.join(map(str, BATCHES))}",
    )
    group.add_argument(
        "--kv-dtype",
        type=_names,
        nargs="+",
        metavar="NAME",
        help=f"{', '.join(KV_DTYPES)}, or keys/values such as int8/turbo4; default: all",
    )
    group.add_argument(
        "--window",
        type=int,
        default=Policy.window_tokens,
        metavar="N",
        help="kv_window_tokens: newest tokens that stay exact beside codes; default: %(default)s",
    )
    group.add_argument(
        "--sinks",
        action=argparse.BooleanOptionalAction,
        default=Policy.sinks,
        help="kv_sinks: the first block stays exact too; default: yes",
    )
    group.add_argument(
        "--attention-window",
        type=int,
        metavar="N",
        help="keep the first block and the newest N tokens alone (an approximation)",
    )
    group = parser.add_argument_group("what it has to fit into")
    group.add_argument(
        "--memory",
        metavar="BYTES",
        help="such as 16GiB or 24GB; default: what this process may still take",
    )
    group.add_argument(
        "--weights-bytes", metavar="BYTES", help="of the weights; default: counted from the model"
    )
    group.add_argument(
        "--dtype", default="auto", help="of the weights, as LLM takes it; default: auto"
    )
    parser.add_argument("-o", "--output", choices=FORMATS, default="table", help="default: table")
    parser.add_argument(
        "--json", action="store_const", dest="output", const="json", help="the same as -o json"
    )
    parser.add_argument(
        "--plot", metavar="FILE", help="draw bytes against context into a .svg or .png"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="run the model, and print what was predicted beside what is measured",
    )


def run(arguments: argparse.Namespace) -> int:
    from onward import plotting
    from onward.kv import report, tables
    from onward.kv.curves import chart
    from onward.kv.models import read_subject
    from onward.machine import available_memory_bytes

    policy = Policy(arguments.window, arguments.sinks, arguments.attention_window)
    policy.check()
    if arguments.check:
        if arguments.plot is not None:
            raise InvalidArgument("plot: is given together with check, expected one of them")
        return _check(arguments, policy)
    if arguments.plot is not None:
        plotting.check_path(arguments.plot)
    memory = available_memory_bytes()
    if arguments.memory is not None:
        memory = read_amount("memory", arguments.memory)
    weight_bytes = None
    if arguments.weights_bytes is not None:
        weight_bytes = read_amount("weights_bytes", arguments.weights_bytes)
    subject = read_subject(arguments.model, arguments.dtype)
    kv_dtypes = KV_DTYPES[1:] if arguments.kv_dtype is None else _flat(arguments.kv_dtype)
    found = report.calculate(
        subject,
        contexts=None if arguments.context is None else _flat(arguments.context),
        batches=_flat(arguments.batch),
        kv_dtypes=kv_dtypes,
        policy=policy,
        memory=memory,
        weight_bytes=weight_bytes,
    )
    if arguments.plot is not None:
        plotting.write(chart(subject, found), arguments.plot)
    flags.show(tables.WRITERS[arguments.output](found))
    return 0


def _check(arguments: argparse.Namespace, policy: Policy) -> int:
    """The table of predicted and measured bytes; Error where the engine counts other ones."""
    from onward.kv import tables
    from onward.kv.check import check
    from onward.kv.models import read_subject
    from onward.llm import LLM

    checked = check(
        LLM,
        read_subject(arguments.model, arguments.dtype),
        dtype=arguments.dtype,
        kv_dtypes=KV_DTYPES if arguments.kv_dtype is None else _flat(arguments.kv_dtype),
        contexts=None if arguments.context is None else _flat(arguments.context),
        policy=policy,
    )
    flags.show(tables.CHECK_WRITERS[arguments.output](checked))
    if wrong := [line.kv_dtype for line in checked if not line.agrees]:
        raise Error(f"check: the engine does not hold the bytes predicted for {', '.join(wrong)}")
    return 0


def _numbers(text: str) -> list[int]:
    """Numbers with commas between them."""
    return [int(number) for number in text.split(",")]


def _names(text: str) -> list[str]:
    return text.split(",")


def _flat(lists: list[list[T]]) -> list[T]:
    return [item for inner in lists for item in inner]
