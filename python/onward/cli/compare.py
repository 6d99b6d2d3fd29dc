"""onward compare: compare two settings, builds or saved results.

The report is a table, markdown, JSON or HTML.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from onward.cli import flags, output, values
from onward.errors import InvalidArgument

if TYPE_CHECKING:
    from onward.lab.compare.comparison import Question

FORMATS = ("table", "md", "json", "html")
FAULT, FAILED_ON = 1, 3
EXAMPLES = """\
  onward compare cpu:f32 cpu:bf16
  onward compare cpu:bf16 cpu:int8 --no-speed --format html -o page.html
  onward compare cpu:f32 --save-a f32.npz
  onward compare f32.npz cpu:int8 --fail-on "top1<0.9,kl>0.02"
"""
EXIT_CODES = (
    "exit codes: 0 done, 1 a fault is suspected, or the model or engine failed, 2 wrong usage, "
    "3 a condition of --fail-on is true, 130 interrupted by Ctrl-C, 143 and 129 ended by SIGTERM "
    "and SIGHUP"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compare two settings, builds or saved results: speed, memory, agreement on the same "
        "tokens, and the reason for differences."
    )
    parser.add_argument(
        "a",
        metavar="A",
        help="[python=PATH,]DEVICE[:DTYPE][:key=value]..., such as cpu:bf16 or cpu:bf16:cache=off; "
        "keys: cache, head, isa, kv, model, threads, window; or a saved result, FILE.npz",
    )
    parser.add_argument(
        "b",
        nargs="?",
        metavar="B",
        help="the second side, in the same form; without it A is only saved",
    )
    parser.add_argument(
        "-m", "--model", metavar="MODEL", help="the model of both sides; default: SmolLM2-135M"
    )
    flags.add_revision_argument(parser)
    group = parser.add_argument_group("what is compared")
    group.add_argument(
        "--prompt",
        action="append",
        type=values.text,
        metavar="TEXT",
        help="a prompt, or @FILE; may be repeated; default: four built-in texts",
    )
    group.add_argument(
        "--prompts",
        metavar="FILE",
        help="take each line of this file that is not empty as a prompt; default: none",
    )
    group.add_argument(
        "-n",
        "--max-new-tokens",
        type=values.integer,
        metavar="N",
        help="tokens that A generates after each prompt, to compare both on; default: 48",
    )
    group.add_argument(
        "--depths",
        action=values.Extend,
        type=values.list_of(values.integer),
        metavar="N,N",
        help="time prompts of N tokens and decode after them; default: 0,512,2048, up to the "
        "context",
    )
    group.add_argument(
        "--repetitions",
        type=values.integer,
        metavar="N",
        help="timed runs of each depth; default: 3",
    )
    group.add_argument("--no-speed", action="store_true", help="time nothing")
    group.add_argument(
        "--fail-on",
        metavar="CONDITIONS",
        help='exit with 3 if one is true, such as "top1<0.99,kl>0.02,decode_ratio<1"; '
        "default: none",
    )
    output.add_output_arguments(parser, FORMATS)
    parser.add_argument("--html", metavar="FILE", help="write an HTML page too; default: none")
    parser.add_argument(
        "--save-a", metavar="FILE.npz", help="save side A for later comparisons; default: none"
    )
    parser.add_argument(
        "--save-b", metavar="FILE.npz", help="save side B for later comparisons; default: none"
    )


def run(arguments: argparse.Namespace) -> int:
    from onward.lab.compare import comparison, page, result_file, tables
    from onward.lab.compare.fail_on import TIMED, failures, parse_conditions
    from onward.lab.compare.setting import parse_setting

    output.check(arguments.output)
    question = _question(arguments)
    question.check()
    a = parse_setting(arguments.a)
    conditions = () if arguments.fail_on is None else parse_conditions(arguments.fail_on)
    if arguments.no_speed and any(condition.name in TIMED for condition in conditions):
        raise InvalidArgument("fail_on: has a ratio of rates, expected none with no_speed")
    for path in (arguments.save_a, arguments.save_b):
        if path is not None:
            result_file.check_path(path)
    if arguments.html is not None:
        page.check_path(arguments.html)
    if arguments.b is None:
        for name in ("save_b", "fail_on", "html"):
            if getattr(arguments, name) is not None:
                raise InvalidArgument(f"{name}: is given without B, expected A and B")
        if arguments.save_a is None:
            raise InvalidArgument("compare: B is missing, expected A and B, or A and --save-a FILE")
        result_file.save(comparison.measure(a, arguments.model, question), arguments.save_a)
        return 0
    found = comparison.compare(a, parse_setting(arguments.b), arguments.model, question)
    failed = failures(conditions, found.comparison)
    writer = page.html if arguments.format == "html" else tables.WRITERS[arguments.format]
    # The report comes first, so that a failure to write a file does not lose the results.
    output.write(arguments.output, writer(found.comparison, failed))
    if arguments.html is not None:
        page.write(found.comparison, failed, arguments.html)
    for path, saved in ((arguments.save_a, found.a), (arguments.save_b, found.b)):
        if path is not None:
            result_file.save(saved, path)
    if found.comparison.judgement.fault:
        return FAULT
    return FAILED_ON if failed else 0


def _question(arguments: argparse.Namespace) -> Question:
    from onward.lab.compare.comparison import Question

    if arguments.no_speed and (arguments.depths is not None or arguments.repetitions is not None):
        raise InvalidArgument("no_speed: is given with depths or repetitions, expected one of them")
    given = {
        name: getattr(arguments, name)
        for name in ("max_new_tokens", "depths", "repetitions")
        if getattr(arguments, name) is not None
    }
    if arguments.no_speed:
        given["depths"] = ()
    prompts = list(arguments.prompt or ())
    if arguments.prompts is not None:
        prompts += _lines(arguments.prompts)
    if arguments.prompt is not None or arguments.prompts is not None:
        given["prompts"] = tuple(prompts)
    return Question(**given)


def _lines(path: str) -> list[str]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as failure:
        raise InvalidArgument(f"prompts: cannot read: {failure.strerror or failure}") from None
    except UnicodeDecodeError as failure:
        raise InvalidArgument(f"prompts: byte {failure.start} is not UTF-8") from None
    return [line for line in text.splitlines() if line.strip()]
