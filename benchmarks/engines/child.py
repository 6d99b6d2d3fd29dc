"""Starts an engine in a process of its own and sends requests to it; serve.py runs in that process.

If the process fails or does not answer in time, Absent is raised with the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engines.contest import Absent, Request, Timed
from engines.environments import tail

FOLDER = Path(__file__).parent.parent
PATIENCE_S = 3600.0  # for one answer; a conversion is one answer


class Child:
    """An engine in a child process, which sleeps between requests. Leaving ``with`` ends it."""

    def __init__(
        self, python: Path, order: dict[str, Any], variables: dict[str, str], log: Path
    ) -> None:
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as err:
            self._process = subprocess.Popen(
                [str(python), "-m", "engines.serve", json.dumps(order)],
                cwd=FOLDER,
                env={**os.environ, **variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
            )
        self.said = self._read()

    @property
    def process(self) -> int:
        return self._process.pid

    def follow(self, request: Request) -> Timed:
        found = Timed(**self._ask("follow", [request]))
        self._check(len(found.tokens), request)
        return found

    def prepare(self, requests: Sequence[Request]) -> str:
        """Warm up with many requests at once; returns the name of the fastest way."""
        return str(self._ask("prepare", requests)["way"])

    def run(self, requests: Sequence[Request]) -> float:
        """The seconds that all requests take at once."""
        found = self._ask("run", requests)
        for count, request in zip(found["counts"], requests, strict=True):
            self._check(count, request)
        return float(found["seconds"])

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def _check(self, count: int, request: Request) -> None:
        if count != request.new_tokens:
            raise Absent(f"gave {count} tokens, expected {request.new_tokens}")

    def _ask(self, what: str, requests: Sequence[Request]) -> dict[str, Any]:
        asked = {"do": what, "requests": [[r.prompt, r.new_tokens] for r in requests]}
        assert self._process.stdin is not None
        try:
            print(json.dumps(asked), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise Absent(f"has ended: {tail(self._log)}") from None
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        timer = threading.Timer(PATIENCE_S, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if not line:
            status = self._process.wait()
            raise Absent(f"ended with {status}, expected an answer: {tail(self._log)}")
        found: dict[str, Any] = json.loads(line)
        if "failed" in found:
            self._process.wait()
            raise Absent(found["failed"])
        return found
