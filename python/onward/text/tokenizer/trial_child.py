"""The child process of trial.py: does what a tokenizer does with a text, within limits.

It holds the steps of a tokenizer around the vocabulary, reads requests from stdin and answers each
with a line on stdout. The kernel ends it when a request takes more processor time than it may.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

from tokenizers import AddedToken, Tokenizer

from onward.errors import Error
from onward.text.tokenizer import checked_calls
from onward.text.tokenizer.growth import TextGrowth, check_growth

_MEMORY_BYTES = 768 << 20  # of addresses; Python and the library have about 200 MiB
_MEMORY_FOR_A_BYTE = 128


class _Trial:
    """The steps of a tokenizer."""

    def __init__(self, request: dict[str, Any]) -> None:
        state, where = request["state"], request["where"]
        growth: TextGrowth | None = check_growth(state, where)
        if growth is not None:
            for entry in state["added_tokens"]:
                if entry.get("normalized") is not False:
                    growth.check(entry["content"])
        try:
            backend = Tokenizer.from_str(json.dumps(state))
            backend.add_tokens([AddedToken(**token) for token in request["more"]])
        except BaseException as error:
            what = f"{where}: it is not a usable tokenizer"
            raise checked_calls.failure(error, what) from None
        self._backend = backend
        self._growth = growth

    def encode(self, text: str) -> None:
        if self._growth is not None:
            self._growth.check(text)
        checked_calls.encode(self._backend, text, add_special_tokens=False)

    def decode(self, batch: list[list[str]]) -> None:
        decoder = self._backend.decoder
        try:
            for tokens in batch:
                decoder.decode(tokens)
        except BaseException as error:
            raise checked_calls.failure(error, checked_calls.DECODER_FAILED) from None


def main() -> None:
    """Answer the requests of stdin until it ends: a line of JSON (kind, bytes, seconds), and then
    the bytes, JSON too. The answer is a line of JSON: an error's text, or null."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent ends this process
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF})
    trial: _Trial | None = None
    while line := sys.stdin.buffer.readline():
        kind, size, seconds = json.loads(line)
        data = json.loads(sys.stdin.buffer.read(size))
        _limit_memory(size)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        answer = None
        try:
            if trial is None:
                trial = _Trial(data)
            elif kind == "encode":
                trial.encode(data)
            else:
                trial.decode(data)
        except Error as error:
            answer = str(error)
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(answer), flush=True)


def _limit_memory(request_bytes: int) -> None:
    try:
        import resource
    except ImportError:
        return
    wanted = _MEMORY_BYTES + _MEMORY_FOR_A_BYTE * request_bytes
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard == resource.RLIM_INFINITY or wanted < hard:
        resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
