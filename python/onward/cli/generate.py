"""onward generate: continue a prompt and stream the text to stdout.

The prompt is an argument, or stdin where that is "-" or piped. Knows nothing of conversations.
"""

from __future__ import annotations

import argparse
import json
import sys

from onward.cli import flags
from onward.errors import InvalidArgument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help='text; "-" or none: stdin')
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the result, with all its outputs, as one JSON object at the end",
    )
    flags.add_model_arguments(parser)
    flags.add_generation_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    prompt = _prompt(arguments.prompt)
    options = flags.with_prefill_bar(flags.generation_options(arguments))
    with flags.load(arguments) as llm:
        if arguments.json:
            result = llm.generate(prompt, **options)
            flags.show(json.dumps(result.to_dict()) + "\n")
        else:
            with llm.stream(prompt, **options) as stream:
                for piece in stream:
                    flags.show(piece)
            result = stream.result
            flags.show("\n")
    if arguments.verbose:
        print(flags.timings_line(result), file=sys.stderr)
    return 0


def _prompt(argument: str | None) -> str:
    if argument is not None and argument != "-":
        return argument
    if argument is None and sys.stdin.isatty():
        raise InvalidArgument("prompt: is missing, expected an argument or text on stdin")
    return flags.read_stdin()
