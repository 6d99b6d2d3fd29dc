"""The child process of a ``remote`` side: ``python -m onward.lab.compare.serve``.

It answers on its original stdout. Other output to stdout goes to stderr instead, so that messages
stay intact. The first message names the side.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import Any, BinaryIO

from onward.errors import Error, InvalidArgument
from onward.lab.compare.local import LocalSide
from onward.lab.compare.messages import PROTOCOL, receive, send
from onward.lab.compare.plain_data import read_as
from onward.lab.compare.setting import parse_setting
from onward.lab.compare.side import Text


def main() -> int:
    """Answer until the other process ends or sends the last message."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    send(answers, {"protocol": PROTOCOL})
    side: LocalSide | None = None
    try:
        while (message := receive(sys.stdin.buffer, "compare")) is not None:
            question = message[0]
            try:
                if question["ask"] == "open":
                    side = LocalSide(parse_setting(question["setting"]), question["model"])
                    send(answers, {})
                elif side is None:
                    raise InvalidArgument("compare: the first message is not open, expected open")
                else:
                    _answer(side, question, answers)
            except Error as error:
                send(answers, {"error": type(error).__name__, "text": str(error)})
            except MemoryError:
                send(answers, {"error": "Error", "text": "out of memory"})
    except (BrokenPipeError, KeyboardInterrupt):
        return 0
    finally:
        if side is not None:
            side.close()
    return 0


def _answer(side: LocalSide, question: dict[str, Any], answers: BinaryIO) -> None:
    match question["ask"]:
        case "describe":
            send(answers, asdict(side.describe()))
        case "tokenize":
            send(answers, side.tokenize(question["prompts"]))
        case "write":
            text, logits = side.write(question["prompt"], question["tokens"])
            send(answers, asdict(text), [logits])
        case "follow":
            send(answers, {}, [side.follow(read_as(Text, question["text"], "compare: text"))])
        case "spell":
            send(answers, side.spell(question["tokens"]))
        case "footprint":
            send(answers, asdict(side.footprint()))
        case "run":
            send(answers, asdict(side.run(question["depth"])))
        case other:
            raise InvalidArgument(
                f"compare: has the message {other!r}, which this version does not have"
            )


if __name__ == "__main__":
    sys.exit(main())
