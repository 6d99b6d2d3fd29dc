"""onward detokenize: token ids to text, as they come, for programs without a tokenizer.

Reads ids from stdin, as many on a line as one likes, and writes what they make certain; a
character whose bytes are spread over tokens is written when it is complete. An empty line ends a
text: what is left of it is written, and a line's end. Opens the model as all commands do, and
generates nothing.
"""

from __future__ import annotations

import argparse

from onward.cli import flags
from onward.errors import InvalidArgument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--special", action="store_true", help="write special tokens as they are spelled, too"
    )
    flags.add_loading_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from onward.streaming import TextStream

    with flags.load_plain(arguments) as llm:
        text: TextStream | None = None
        for line in flags.stdin_lines():
            if text is None:
                text = TextStream(llm.tokenizer, [], skip_special_tokens=not arguments.special)
            for word in line.split():
                flags.show(text.push(_id(word)))
            if not line.strip():
                flags.show(text.finish() + "\n")
                text = None
        if text is not None:
            flags.show(text.finish() + "\n")
    return 0


def _id(word: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise InvalidArgument(f"stdin: {word[:40]!r} is no token id, expected whole numbers")
    return int(word)
