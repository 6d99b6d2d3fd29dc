"""One small engine for several callers: its model, its prompts, their outputs alone, and a rule
that blocks a step.
"""

from __future__ import annotations

import threading
from typing import Any

from builders.c_interface import SCORE_RULE
from builders.core_engine import Shape, drain, new_engine, random_prompt, seeded_model, submit

PROMPTS = [random_prompt(5 + 7 * i, seed=i) for i in range(4)]
TOKENS = 30


def small_model():
    return seeded_model("f32", Shape(num_layers=2))


def tokens_alone(model):
    """Greedy tokens of each prompt, from an engine without other requests."""
    engine = new_engine(model, threads=1)
    found = []
    for prompt in PROMPTS:
        request = submit(engine, prompt, max_new_tokens=TOKENS)
        found.append(drain(engine, [request])[request].tokens)
    return found


def holding_rule() -> tuple[Any, threading.Event, threading.Event]:
    """A rule of the C interface, an event that it sets inside, and an event that it waits for."""
    inside, go_on = threading.Event(), threading.Event()

    @SCORE_RULE
    def rule(context, tokens, num_tokens, scores, vocab_size):
        inside.set()
        assert go_on.wait(30)
        return 0

    return rule, inside, go_on
