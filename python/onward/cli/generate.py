"""onward generate: continue a prompt, or each prompt of a file, and print the text.

The text of a single output is shown while it is generated. Several outputs are numbered, and
log-probabilities are a table after the text. The prompt is an argument, @FILE, or stdin ("-" or a
pipe).
"""

from __future__ import annotations

import argparse
import json
import sys

from onward.cli import flags, output, piped, values
from onward.errors import InvalidArgument

EXAMPLES = """\
  onward generate "Once upon a time"
  onward generate @prompt.txt -n 64 --temperature 0.8 --top-p 0.9
  onward generate "A person, as JSON:" --json-schema schema.json
  onward generate "Once" -n 8 --temperature 1 --num-return-sequences 2
  onward generate --jsonl in.jsonl -o out.jsonl -n 64
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "prompt",
        nargs="?",
        type=values.text,
        metavar="PROMPT",
        help='text, or @FILE; "-": stdin; default: stdin. With a text, stdin must be empty',
    )
    group = parser.add_argument_group("output")
    output.add_output_file(group)
    group.add_argument(
        "--json",
        action="store_true",
        help="print the result with all its outputs as one JSON object at the end",
    )
    group = parser.add_argument_group("batches of rows (onward doctor --docs command-line)")
    group.add_argument(
        "--jsonl",
        metavar="FILE",
        help='continue each row of this file (- is stdin): {"prompt": "..."}, "messages" or '
        '"token_ids", with options and an id of its own; default: none',
    )
    group.add_argument(
        "--resume",
        action="store_true",
        help="with --jsonl and -o: keep the rows in the output file, and add the others",
    )
    flags.add_model_arguments(parser)
    flags.add_generation_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    output.check(arguments.output)
    given = _given(arguments)
    if given is not None:
        piped.refuse_text(given)
    code = _run(arguments)
    if given is not None:
        piped.note_late_text(given)
    return code


def _given(arguments: argparse.Namespace) -> str | None:
    """The argument that replaces stdin, if it is given."""
    for name, value in (("PROMPT", arguments.prompt), ("--jsonl", arguments.jsonl)):
        if value not in (None, "-"):
            return name
    return None


def _run(arguments: argparse.Namespace) -> int:
    if arguments.jsonl is not None:
        return _batch(arguments)
    if arguments.resume:
        raise InvalidArgument("resume: is given without jsonl, expected --jsonl FILE and -o FILE")
    prompt = _prompt(arguments.prompt)
    options = flags.with_prefill_bar(flags.generation_options(arguments))
    with flags.load(arguments) as llm:
        if arguments.json or arguments.output is not None or _needs_the_end(options):
            from onward.cli.readable import readable

            result = llm.generate(prompt, **options)
            shown = (
                json.dumps(result.to_dict()) + "\n"
                if arguments.json
                else readable(
                    result, lambda token: llm.detokenize([token], skip_special_tokens=False)
                )
            )
            output.write(arguments.output, shown)
        else:
            with llm.stream(prompt, **options) as stream:
                for piece in stream:
                    flags.show(piece)
            result = stream.result
            flags.show("\n")
    if arguments.verbose:
        print(flags.timings_line(result), file=sys.stderr)
    return 0


def _batch(arguments: argparse.Namespace) -> int:
    """Run --jsonl over a whole file. Returns the exit code."""
    from onward.cli import batches

    target = arguments.output
    if arguments.prompt is not None:
        raise InvalidArgument("prompt: is given together with jsonl, expected one of them")
    if arguments.resume and target is None:
        raise InvalidArgument("resume: is given without an output, expected -o FILE")
    if target is not None and not arguments.resume:
        output.check_new(target)
    options = flags.generation_options(arguments)
    with flags.load(arguments) as llm:
        return batches.run(
            llm,
            arguments.jsonl,
            target,
            options,
            resume=arguments.resume,
            whole=arguments.json,
            verbose=arguments.verbose,
        )


def _needs_the_end(options: dict[str, object]) -> bool:
    """Whether the text can be shown only at the end of the generation."""
    several = any(
        options.get(name) not in (None, 1) for name in ("num_return_sequences", "best_of")
    )
    tables = any(options.get(name) is not None for name in ("logprobs", "prompt_logprobs"))
    return several or tables


def _prompt(argument: str | None) -> str:
    if argument is not None and argument != "-":
        return argument
    if argument is None and sys.stdin.isatty():
        raise InvalidArgument(
            'prompt: is missing, expected text (onward generate "Once upon a time"), @FILE, '
            "or text on stdin"
        )
    return flags.read_stdin()
