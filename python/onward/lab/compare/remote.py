"""A side in its own process: another interpreter's build, or another instruction set.

The child is ``PYTHON -m onward.lab.compare.serve`` and shares the stderr of this process. An error
of the child is raised here as the same class, with the setting in front. Every message of the child
is checked.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from onward import errors
from onward.errors import Error, LoadError
from onward.lab.compare.messages import PROTOCOL, receive, send
from onward.lab.compare.plain_data import read_as
from onward.lab.compare.setting import Setting
from onward.lab.compare.side import Description, Footprint, Logits, Round, Text
from onward.message_text import label, sentence

_PATIENCE_S = 10


class RemoteSide:
    """Starts the child and loads the model there at once."""

    def __init__(self, setting: Setting, model: str | None) -> None:
        self._setting, self._where = setting, f"compare: {setting.text}"
        self._greeted = False
        python = setting.python or sys.executable
        environment = dict(os.environ)
        if setting.isa is not None:
            environment["ONWARD_CPU_ISA"] = setting.isa
        try:
            self._child = subprocess.Popen(
                [python, "-m", "onward.lab.compare.serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
            )
        except OSError as failure:
            raise Error(
                f"{self._where}: cannot start {label(python)}: {failure.strerror or failure}"
            ) from None
        try:
            hello = self._receive()[0]
            if not isinstance(hello, dict) or hello.get("protocol") != PROTOCOL:
                raise LoadError(
                    f"{self._where}: has protocol {label(str(hello))}, expected {PROTOCOL}"
                )
            self._greeted = True
            self._ask("open", setting=_spelled(setting.here()), model=model)
        except BaseException:
            self.close()
            raise

    def describe(self) -> Description:
        found = {**self._body("describe"), "setting": self._setting.text}
        return read_as(Description, found, self._where)

    def tokenize(self, prompts: Sequence[str]) -> list[tuple[int, ...]]:
        found = self._ask("tokenize", prompts=list(prompts))[0]
        if not isinstance(found, list) or len(found) != len(prompts):
            raise LoadError(
                f"{self._where}: sent a wrong answer to tokenize, expected a list for each prompt"
            )
        return [read_as(Text, {"prompt": ids, "written": []}, self._where).prompt for ids in found]

    def write(self, prompt: Sequence[int], tokens: int) -> tuple[Text, Logits]:
        body, arrays = self._ask("write", prompt=list(prompt), tokens=tokens)
        text = read_as(Text, body, self._where)
        return text, self._logits(arrays, len(text.written))

    def follow(self, text: Text) -> Logits:
        return self._logits(self._ask("follow", text=asdict(text))[1], len(text.written))

    def spell(self, tokens: Sequence[int]) -> list[str]:
        found = self._ask("spell", tokens=list(tokens))[0]
        if not isinstance(found, list) or len(found) != len(tokens):
            raise LoadError(
                f"{self._where}: sent a wrong answer to spell, expected a text for each token"
            )
        return [str(text) for text in found]

    def footprint(self) -> Footprint:
        return read_as(Footprint, self._body("footprint"), self._where)

    def run(self, depth: int) -> Round:
        return read_as(Round, self._body("run", depth=depth), self._where)

    def close(self) -> None:
        """End the child by closing its stdin. A child that does not end is killed."""
        for stream in (self._child.stdin, self._child.stdout):
            try:
                if stream is not None:
                    stream.close()
            except OSError:
                pass  # unsent data is not needed any more
        try:
            self._child.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _body(self, ask: str, **more: object) -> dict[str, Any]:
        body = self._ask(ask, **more)[0]
        if not isinstance(body, dict):
            raise LoadError(f"{self._where}: the answer to {ask} is not an object, expected one")
        return body

    def _ask(self, ask: str, **more: object) -> tuple[Any, list[Any]]:
        assert self._child.stdin is not None
        try:
            send(self._child.stdin, {"ask": ask, **more})
        except OSError:
            raise self._gone() from None
        body, arrays = self._receive()
        if isinstance(body, dict) and "error" in body:
            kind = getattr(errors, str(body["error"]), Error)
            text = f"{self._where}: {sentence(body.get('text'))}"
            raise (kind if isinstance(kind, type) and issubclass(kind, Error) else Error)(text)
        return body, arrays

    def _receive(self) -> tuple[Any, list[Any]]:
        assert self._child.stdout is not None
        message = receive(self._child.stdout, self._where)
        if message is None:
            raise self._gone()
        return message

    def _gone(self) -> Error:
        try:
            code: object = self._child.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            code = "none"
        expected = "an answer" if self._greeted else "an interpreter whose onward has compare"
        return Error(
            f"{self._where}: the process ended with exit code {code} before it answered, "
            f"expected {expected}"
        )

    def _logits(self, arrays: Sequence[Any], tokens: int) -> Logits:
        if len(arrays) != 1 or arrays[0].dtype != np.float32 or arrays[0].ndim != 2:
            raise LoadError(f"{self._where}: sent no logits, expected float32 of (tokens, vocab)")
        if len(arrays[0]) != tokens:
            raise LoadError(
                f"{self._where}: sent {len(arrays[0])} rows of logits, expected {tokens}"
            )
        logits: Logits = arrays[0]
        return logits


def _spelled(setting: Setting) -> str:
    """The spelling of a setting on the command line."""
    return ":".join(
        [setting.device, setting.dtype, *(f"{key}={value}" for key, value in setting.keys.items())]
    )
