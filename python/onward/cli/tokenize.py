"""onward tokenize: text to token ids, a line each, for programs without a tokenizer.

A text that is an argument gives one line of ids. Without one each line of stdin gives one, at once,
so that another program can keep this one beside itself and ask. Opens the model as all commands do:
a pack is there in no time. Generates nothing; `onward detokenize` is the way back.
"""

from __future__ import annotations

import argparse
import json

from onward.cli import flags
from onward.errors import InvalidArgument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", nargs="?", metavar="TEXT", help="none: the lines of stdin")
    parser.add_argument(
        "--chat",
        action="store_true",
        help="each text is a question: put it into the form that the model was trained on",
    )
    parser.add_argument(
        "--json", action="store_true", help="lines of stdin are JSON strings, for texts of lines"
    )
    flags.add_loading_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    with flags.load_plain(arguments) as llm:
        texts = (_text(line, arguments.json) for line in flags.stdin_lines())
        for text in texts if arguments.text is None else [arguments.text]:
            ids = llm.chat_token_ids(text) if arguments.chat else llm.tokenize(text)
            flags.show(" ".join(map(str, ids)) + "\n")
    return 0


def _text(line: str, as_json: bool) -> str:
    if not as_json:
        return line
    try:
        text = json.loads(line)
    except ValueError:
        text = None
    if not isinstance(text, str):
        raise InvalidArgument("stdin: a line is no JSON string, expected one with --json")
    return text
