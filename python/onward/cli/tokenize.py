"""onward tokenize: turn text into token ids, a line each, for programs without a tokenizer.

A text argument gives one line of ids. Without it, each line of stdin gives a line of ids at once,
so that another program can keep this one running and send it texts. `onward detokenize` does the
reverse.
"""

from __future__ import annotations

import argparse
import json

from onward.cli import flags, piped, values
from onward.errors import InvalidArgument

EXAMPLES = """\
  onward tokenize "Once upon a time"
  onward tokenize --chat "What is gravity?" --json
  onward tokenize @story.txt
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "text",
        nargs="?",
        type=values.text,
        metavar="TEXT",
        help="a text, or @FILE; default: the lines of stdin. With a text, stdin must be empty",
    )
    parser.add_argument(
        "--chat",
        action="store_true",
        help="each text is a user message: apply the model's chat template",
    )
    parser.add_argument(
        "--json-lines",
        action="store_true",
        help="lines of stdin are JSON strings, for multi-line texts",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help='print a JSON object for each text: {"token_ids": [...]}',
    )
    flags.add_loading_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.text is not None:
        piped.refuse_text("TEXT")
    with flags.load_plain(arguments) as llm:
        texts = (_text(line, arguments.json_lines) for line in flags.stdin_lines())
        for text in texts if arguments.text is None else [arguments.text]:
            ids = llm.chat_token_ids(text) if arguments.chat else llm.tokenize(text)
            found = json.dumps({"token_ids": ids}) if arguments.json else " ".join(map(str, ids))
            flags.show(found + "\n")
    if arguments.text is not None:
        piped.note_late_text("TEXT")
    return 0


def _text(line: str, as_json: bool) -> str:
    if not as_json:
        return line
    try:
        text = json.loads(line)
    except (ValueError, RecursionError):
        text = None
    if not isinstance(text, str):
        raise InvalidArgument("stdin: a line is not a JSON string, expected one with --json-lines")
    return text
