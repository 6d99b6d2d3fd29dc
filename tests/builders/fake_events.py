"""Events and a text sink for tests of what the package makes of them, without an engine."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class FakeEvent:
    request: int
    token: int = -1
    finish_reason: str | None = None
    sequence: int = 0
    score: float | None = None
    gathered: None = None
    logprobs: Any = None
    prompt_logprobs: tuple[Any, ...] = ()
    cached_tokens: int = -1
    prompt_computed: int = -1
    guessed: int = 0
    accepted: int = 0
    time: float = field(default_factory=time.perf_counter)

    @property
    def ends_request(self) -> bool:
        return self.finish_reason is not None


class Spelled:
    """Tokens as numbers."""

    stopped: str | None = None

    def __init__(self) -> None:
        self.text = ""

    def push(self, token_id: int) -> str:
        self.text += f"{token_id} "
        return f"{token_id} "

    def finish(self) -> str:
        return ""
