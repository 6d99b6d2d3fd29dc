"""Whether a tokenizer deals with a text in time, tried in a child process before it is used.

`tokenizers` cannot be stopped in the middle of a text, and other Python threads wait for it. A
tokenizer.json that may take more time than in proportion to the text (linear_patterns.py) is
therefore tried first, when it is loaded and with each text. The child does the same work but for
the vocabulary's and is killed when it takes too long. What it does in time is then done here.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onward.errors import TokenizerError
from onward.message_text import labels
from onward.text.tokenizer.linear_patterns import unproven, unproven_model

if TYPE_CHECKING:
    import tokenizers

LIMIT_S = 0.8
"""Seconds of processor time for a text, and for reading the file."""
SECONDS_FOR_A_BYTE = 4e-6
"""The limit of a text above 200 kB. Real patterns take a tenth to a half of it."""
PATIENCE_S = 20.0
"""Seconds by the clock, where other processes keep the processors busy."""

_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
_EMPTY_MODEL = {"type": "BPE", "vocab": {}, "merges": []}
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.stdin.buffer.readline())
from onward.text.tokenizer.trial_child import main
main()
"""


class TextTrial:
    """Tries texts on the steps of one tokenizer, in a child process that is started when needed.

    It may be used by many threads, which wait for each other, and after a fork.
    """

    def __init__(
        self,
        state: Mapping[str, Any],
        more: Sequence[tokenizers.AddedToken],
        reasons: Sequence[str],
        where: str,
    ) -> None:
        """Try to read the steps of `state`, a tokenizer.json, with `more` tokens added.

        Raises:
            TokenizerError: they are not usable, or reading them takes too long.
        """
        # The vocabulary counts only where the model itself may be slow.
        model = state["model"] if unproven_model(state) else _EMPTY_MODEL
        kept = {key: state.get(key) for key in ("normalizer", "pre_tokenizer", "decoder")}
        added = [e for e in state.get("added_tokens") or [] if isinstance(e, dict)]
        kept |= {"version": "1.0", "added_tokens": added, "model": model}
        tokens = [{"content": t.content, **{f: getattr(t, f) for f in _FLAGS}} for t in more]
        request = {"state": kept, "more": tokens, "where": where}
        self._request = json.dumps(request).encode()
        self._reasons = labels(reasons)
        self._where = where
        self._tries_decoder = bool(unproven({"decoder": state.get("decoder")}))
        self._special: frozenset[str] | None = None  # of the backend, once it is there
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._children: list[_Child] = []  # one at most
        self._possible = bool(sys.executable) and not getattr(sys, "frozen", False)
        weakref.finalize(self, _end, self._children)
        self._ask(None, None)

    def encode(self, text: str) -> None:
        """TokenizerError where the tokenizer fails on `text` or takes too long for it."""
        self._ask("encode", text)

    def decode(
        self, backend: tokenizers.Tokenizer, batch: Sequence[Sequence[int]], skip_special: bool
    ) -> None:
        """TokenizerError where the decoder fails on lists of ids or takes too long for them."""
        if not self._tries_decoder:
            return
        if self._special is None:
            added = backend.get_added_tokens_decoder().values()
            self._special = frozenset(token.content for token in added if token.special)
        left_out = {None, *(self._special if skip_special else ())}
        spelled = (map(backend.id_to_token, ids) for ids in batch)
        self._ask("decode", [[t for t in tokens if t not in left_out] for tokens in spelled])

    def _ask(self, kind: str | None, data: object) -> None:
        """Ask a child, a new one where there is none. A second one is asked where the first was
        ended by something else than its limit."""
        if self._process != os.getpid():  # the lock and the child are the parent's
            self._lock, self._process = threading.Lock(), os.getpid()
            _end(self._children)
        error: str | None = None
        with self._lock:
            for attempt in range(2):
                if not self._possible:
                    return
                try:
                    if not self._children:
                        error = self._start()
                    if kind is not None and error is None:
                        payload = json.dumps(data, ensure_ascii=False).encode()
                        error = self._children[0].ask(kind, payload)
                    break
                except _TooLong:
                    _end(self._children)
                    error = self._too_long(data)
                    break
                except _Ended as ended:
                    _end(self._children)
                    if kind is None and ended.status > 0:  # there is no Python, or no package
                        self._possible = False
                    elif attempt:
                        what = f"{self._where}: it is not a usable tokenizer: the process that "
                        error = what + f"tried it ended with the status {ended.status}"
                except BaseException:
                    _end(self._children)
                    raise
        if error is not None:
            raise TokenizerError(error)

    def _start(self) -> str | None:
        self._children.append(_Child())
        return self._children[0].ask("load", self._request)

    def _too_long(self, data: object) -> str:
        what = f"on a text of {len(data)} characters" if isinstance(data, str) else "on token ids"
        return (
            f"{self._where}: it takes too long {'to be read' if data is None else what}, because "
            f"of {self._reasons}; expected time in proportion to the text. If you made the file, "
            "replace this part; otherwise do not use it"
        )


def trial_of(
    state: Mapping[str, Any], more: Sequence[tokenizers.AddedToken], where: str
) -> TextTrial | None:
    """What tries the texts of a tokenizer.json, with `more` tokens added; None where its time is
    known to grow in proportion to the text.

    Raises:
        TokenizerError: the file is not usable, or reading it takes too long.
    """
    reasons = unproven(state)
    return TextTrial(state, more, reasons, where) if reasons else None


class _TooLong(Exception):
    """The child was ended by its limit of time."""


class _Ended(Exception):
    """The child ended for another reason."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Child:
    """A child process that answers one request after the other."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM],
                bufsize=0,  # so that a forked process has nothing of its parent's to write
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # A trace of a panic costs more time than the panic.
                env={**os.environ, "RUST_BACKTRACE": "0", "TOKENIZERS_PARALLELISM": "false"},
            )
        except OSError as error:
            reason = error.strerror or str(error)
            raise TokenizerError(
                f"tokenizer: no child process can be started to try a text: {reason}"
            ) from None
        paths = [path for path in sys.path if isinstance(path, str)]
        self._preface = json.dumps(paths).encode() + b"\n"

    def ask(self, kind: str, payload: bytes) -> str | None:
        """The text of an error, or None where there is none."""
        seconds = LIMIT_S
        if kind != "load":
            seconds = max(seconds, SECONDS_FOR_A_BYTE * len(payload))
        header = json.dumps([kind, len(payload), seconds]).encode() + b"\n"
        self._write(self._preface + header + payload)
        self._preface = b""
        return self._answer(PATIENCE_S + seconds)

    def _write(self, data: bytes) -> None:
        pipe, left = self.process.stdin, memoryview(data)
        with contextlib.suppress(BrokenPipeError):  # it has ended; `_answer` finds out why
            while left and pipe is not None and self.process.poll() is None:
                left = left[pipe.write(left) :]

    def _answer(self, patience: float) -> str | None:
        pipe, line = self.process.stdout, b""
        assert pipe is not None
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(patience):
                    raise _TooLong
                part = pipe.read(1 << 16)
                if not part:
                    status = self.process.wait()
                    raise _TooLong if status == -signal.SIGPROF else _Ended(status)
                line += part
        answer = json.loads(line)
        return answer if isinstance(answer, str) else None


def _end(children: list[_Child]) -> None:
    """End the child; after a fork, only let go of the parent's."""
    while children:
        process = (child := children.pop()).process
        if child.owner == os.getpid():
            process.kill()
            process.wait()
        else:
            process.returncode = 0  # so that it is not waited for
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
