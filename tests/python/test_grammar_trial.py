"""Grammars that llguidance reads for too long are refused; the rest of the process continues."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

import pytest

pytest.importorskip("llguidance")

from tokenizers import Tokenizer, decoders, models

from builders.crowds import PIECES
from builders.tiny_tokenizers import wrapped
from onward.errors import InvalidArgument
from onward.options.grammar import Grammar
from onward.text import grammar_trial
from onward.text.constraints import Constraint


def with_patterns(count: int) -> dict[str, Any]:
    """Each pattern is compared with all others many times: 500 patterns take over a minute."""
    patterns = {f"^a{i}[a-z]*$": {"type": "string"} for i in range(count)}
    return {"type": "object", "patternProperties": patterns}


def constraint(schema: dict[str, Any]) -> Constraint:
    backend = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate([*PIECES, "{"])}, "a"))
    backend.decoder = decoders.Fuse()
    grammar = Grammar.of(json_schema=schema)
    assert grammar is not None
    return Constraint(grammar, wrapped(backend), len(PIECES) + 1)


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_trial, "_outcomes", {})


def test_a_slow_schema_is_refused_and_the_refusal_is_cached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grammar_trial, "LIMIT_S", 1)
    for most_seconds in (20.0, 0.5):
        began = time.monotonic()
        with pytest.raises(InvalidArgument, match=r"json_schema: .* s to read it, expected a"):
            constraint(with_patterns(500))
        assert time.monotonic() - began < most_seconds


def test_a_large_schema_within_the_time_limit_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    real = grammar_trial._tried
    monkeypatch.setattr(grammar_trial, "_tried", lambda text: tried.append(text) or real(text))
    properties = {f"p{i}": {"type": "integer"} for i in range(200)}
    for _ in range(2):
        constraint({"type": "object", "properties": properties})
    constraint({"type": "object", "properties": {"p": {"type": "integer"}}})
    assert len(tried) == 1  # once for the large one, never for the small one


def test_an_error_in_a_large_schema_is_llguidances_own() -> None:
    properties = {f"p{i}": {"type": "integer"} for i in range(200)}
    with pytest.raises(InvalidArgument, match=r"json_schema: llguidance cannot use it: .*not"):
        constraint({"type": "object", "properties": properties, "not": {"type": "null"}})


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_ends_the_trial_and_other_threads_run() -> None:
    ticks, done = 0, threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.wait(0.01):
            ticks += 1

    ticking = threading.Thread(target=tick)
    ticking.start()
    timer = threading.Timer(0.6, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            constraint(with_patterns(500))
    finally:
        done.set()
        ticking.join()
        timer.join()
    assert time.monotonic() - began < 2.5 and ticks > 10


def test_without_a_child_process_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_trial.sys, "executable", "/nowhere/python")
    assert grammar_trial.read_in_time("x" * 5000)
    monkeypatch.setattr(grammar_trial.sys, "executable", None)
    assert grammar_trial.read_in_time("y" * 5000)
