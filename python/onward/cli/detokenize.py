"""onward detokenize: turn token ids into text as they arrive, for programs without a tokenizer.

Reads ids from stdin, any number on a line, and writes the text that is certain so far. A character
with bytes in several tokens is written when it is complete. An empty line ends a text: the rest of
the text and a newline are written.
"""

from __future__ import annotations

import argparse
import json

from onward.cli import flags
from onward.errors import InvalidArgument

EXAMPLES = """\
  onward tokenize "Once upon a time" | onward detokenize
  onward detokenize -m MODEL --special < ids.txt
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--special", action="store_true", help="write special tokens too")
    parser.add_argument(
        "--json",
        action="store_true",
        help='print a JSON object at the end of each text: {"text": ...}',
    )
    flags.add_loading_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from onward.text.streaming import TextStream

    with flags.load_plain(arguments) as llm:
        text: TextStream | None = None
        pieces: list[str] = []

        def show(piece: str) -> None:
            if arguments.json:
                pieces.append(piece)
            else:
                flags.show(piece)

        def end(text: TextStream) -> None:
            show(text.finish())
            flags.show((json.dumps({"text": "".join(pieces)}) if arguments.json else "") + "\n")
            pieces.clear()

        for line in flags.stdin_lines():
            if text is None:
                text = TextStream(llm.tokenizer, [], skip_special_tokens=not arguments.special)
            for word in line.split():
                show(text.push(_id(word)))
            if not line.strip():
                end(text)
                text = None
        if text is not None:
            end(text)
    return 0


def _id(word: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise InvalidArgument(f"stdin: {word[:40]!r} is not a token id, expected whole numbers")
    return int(word)
