"""onward quantize: write a copy of a model in 4 or 8 bits, calibrated on text.

The summary goes to stdout, progress to stderr.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
from typing import TYPE_CHECKING

from onward.cli import flags, values

if TYPE_CHECKING:
    from onward.quantization import MatrixError, Quantization

FORMATS = ("int4", "int4-min", "int8")
HEADS = (*FORMATS, "keep")
METHODS = ("gptq", "round")
EXAMPLES = """\
  onward quantize model.gguf -o model-int4.gguf
  onward quantize MODEL -o small --dtype int8 --method round
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="folder, .gguf file or a model of the hub")
    flags.add_revision_argument(parser)
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="OUT",
        help="a new path: ending in .gguf for a GGUF file, else a folder",
    )
    parser.add_argument(
        "--dtype",
        dest="format",
        default="int4",
        type=values.one_of(*FORMATS),
        metavar="NAME",
        help="format of the layers' matrices: int4 is GGUF's Q4_0, int4-min Q4_1, int8 Q8_0; "
        "default: int4",
    )
    parser.add_argument(
        "--head-dtype",
        dest="head",
        default="int8",
        type=values.one_of(*HEADS),
        metavar="NAME",
        help="format of the embedding and the output head: one of these, or keep; default: int8",
    )
    parser.add_argument(
        "--method",
        default="gptq",
        type=values.one_of(*METHODS),
        metavar="NAME",
        help="gptq calibrates on text, round needs no text; default: gptq",
    )
    parser.add_argument(
        "--calibration",
        metavar="FILE.txt",
        help="text to calibrate on; default: a built-in text and topics of Python's help",
    )
    parser.add_argument(
        "--calibration-tokens",
        type=values.integer,
        metavar="N",
        help="tokens of the text to use; default: 16384",
    )
    flags.add_threads_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the summary as one JSON object")


def run(arguments: argparse.Namespace) -> int:
    from onward.quantization import quantize

    tokens = arguments.calibration_tokens
    done = quantize(
        arguments.model,
        arguments.output,
        format=arguments.format,
        head=arguments.head,
        method=arguments.method,
        calibration=arguments.calibration,
        threads=arguments.threads,
        **({} if tokens is None else {"calibration_tokens": tokens}),
    )
    flags.show(json.dumps(dataclasses.asdict(done)) + "\n" if arguments.json else summary(done))
    return 0


def summary(done: Quantization) -> str:
    """The summary as text."""
    share = done.bytes_after / done.bytes_before
    lines = [
        f"{done.output}: {done.format}, head {done.head}, method {done.method}",
        f"weights {done.bytes_before:,} bytes -> {done.bytes_after:,} bytes ({share:.1%})",
    ]
    if done.matrices:
        lines += _errors(done.matrices)
        lines.append(f"calibrated on {done.calibration_tokens} tokens")
    lines += [
        f"took {done.seconds:.0f} s",
        f'run it with: onward generate "Once upon a time" --model {shlex.quote(done.output)}',
    ]
    return "\n".join(lines) + "\n"


def _errors(matrices: tuple[MatrixError, ...]) -> list[str]:
    """A line for each matrix, and the means."""
    width = max(len(matrix.name) for matrix in matrices)
    lines = ["", f"{'error of the outputs':{width}}   plain  calibrated"]
    lines += [f"{m.name:{width}}  {m.plain:6.2%}      {m.calibrated:6.2%}" for m in matrices]
    plain = sum(matrix.plain for matrix in matrices) / len(matrices)
    calibrated = sum(matrix.calibrated for matrix in matrices) / len(matrices)
    return [*lines, f"{'mean':{width}}  {plain:6.2%}      {calibrated:6.2%}", ""]
