"""onward kv: show the size of a model's KV cache, and how much fits into memory with its weights.

The result is tables, markdown, CSV or JSON.
"""

from __future__ import annotations

import argparse

from onward.cli import flags, output, values
from onward.errors import Error, InvalidArgument
from onward.lab.counts.policy import BATCHES, CONTEXTS, Policy
from onward.options.kv_dtypes import KV_DTYPES

FORMATS = ("table", "md", "csv", "json")
EXAMPLES = """\
  onward kv llama-3.1-8b --memory 24G --context 4096,128000 --batch 1,32
  onward kv MODEL --kv-dtype int8,turbo4 --format csv -o kv.csv
  onward kv --check --context 2048,4096
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="folder, config.json, .gguf file, pack, a model of the hub, or a published shape such "
        "as llama-3.1-8b; default: SmolLM2-135M",
    )
    flags.add_revision_argument(parser)
    group = parser.add_argument_group("what is counted")
    group.add_argument(
        "--context",
        action=values.Extend,
        type=values.list_of(values.integer),
        metavar="N,N",
        help="lengths of sequences; default: "
        f"{values.listed(CONTEXTS)} below the model's context, and the context",
    )
    group.add_argument(
        "--batch",
        action=values.Extend,
        type=values.list_of(values.integer),
        metavar="N,N",
        help=f"numbers of sequences; default: {values.listed(BATCHES)}",
    )
    group.add_argument(
        "--kv-dtype",
        action=values.Extend,
        type=values.names,
        metavar="NAME,NAME",
        help=f"{', '.join(KV_DTYPES)}, or keys/values such as int8/turbo4; default: all",
    )
    group.add_argument(
        "--window",
        type=values.integer,
        default=Policy.window_tokens,
        metavar="N",
        help="kv_window_tokens: newest tokens that stay exact in a coded cache; default: "
        "%(default)s",
    )
    group.add_argument(
        "--sinks",
        action=argparse.BooleanOptionalAction,
        help="kv_sinks: the first block stays exact too; default: on",
    )
    group.add_argument(
        "--attention-window",
        type=values.integer,
        metavar="N",
        help="keep only the first block and the newest N tokens (an approximation); default: all",
    )
    group = parser.add_argument_group("the available memory")
    group.add_argument(
        "--memory",
        type=values.size,
        metavar="SIZE",
        help="such as 16G (the same as 16GiB) or 24GB; default: the memory that this process may "
        "use",
    )
    group.add_argument(
        "--weights-bytes",
        type=values.size,
        metavar="SIZE",
        help="bytes of the weights; default: counted from the model",
    )
    group.add_argument(
        "--dtype",
        default="auto",
        metavar="NAME",
        help="dtype of the weights: auto, f32, f16, bf16, int8 or int4; default: auto",
    )
    output.add_output_arguments(parser, FORMATS)
    parser.add_argument(
        "--plot",
        metavar="FILE",
        help="draw bytes against context into a .svg or .png; default: none",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="run the model, and print the predicted and the measured bytes",
    )


def run(arguments: argparse.Namespace) -> int:
    from onward.lab import report as pictures
    from onward.lab.kv import report, tables
    from onward.lab.kv.curves import chart
    from onward.lab.kv.models import read_subject
    from onward.machine.memory import available_memory_bytes

    output.check(arguments.output)
    sinks = Policy.sinks if arguments.sinks is None else arguments.sinks
    policy = Policy(arguments.window, sinks, arguments.attention_window)
    policy.check()
    if arguments.check:
        if arguments.plot is not None:
            raise InvalidArgument("plot: is given together with check, expected one of them")
        return _check(arguments, policy)
    if arguments.plot is not None:
        pictures.check_path(arguments.plot)
    memory = available_memory_bytes() if arguments.memory is None else arguments.memory
    subject = read_subject(arguments.model, arguments.dtype)
    found = report.calculate(
        subject,
        contexts=arguments.context,
        batches=BATCHES if arguments.batch is None else arguments.batch,
        kv_dtypes=arguments.kv_dtype or KV_DTYPES[1:],
        policy=policy,
        memory=memory,
        weight_bytes=arguments.weights_bytes,
    )
    if arguments.plot is not None:
        pictures.write(chart(subject, found), arguments.plot)
    output.write(arguments.output, tables.WRITERS[arguments.format](found))
    return 0


def _check(arguments: argparse.Namespace, policy: Policy) -> int:
    """The table of predicted and measured bytes. Raises Error if the engine's count differs."""
    from onward.lab.kv import tables
    from onward.lab.kv.check import check
    from onward.lab.kv.models import read_subject
    from onward.llm import LLM

    checked = check(
        LLM,
        read_subject(arguments.model, arguments.dtype),
        dtype=arguments.dtype,
        kv_dtypes=arguments.kv_dtype or KV_DTYPES,
        contexts=arguments.context,
        policy=policy,
    )
    output.write(arguments.output, tables.CHECK_WRITERS[arguments.format](checked))
    if wrong := [line.kv_dtype for line in checked if not line.agrees]:
        raise Error(f"check: the engine's bytes differ from the prediction for {', '.join(wrong)}")
    return 0
