"""A side that is an ``onward.LLM`` of this process.

Tokens are generated on the same path as for any caller: the prompt in chunks, then one token per
step, with or without the cache. A rule in the place of a logits processor copies the raw logits.
Where the tokens are given, the rule also bans all others.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onward.errors import Error
from onward.lab.compare.environment import describe
from onward.lab.compare.side import Description, Footprint, Logits, Round, Text
from onward.lab.compare.speed import Runner
from onward.machine.memory import resident_bytes
from onward.options.table import OPTIONS

if TYPE_CHECKING:
    from onward.lab.compare.setting import Setting
    from onward.llm import LLM

# Every option at its own default, so that no generation_config.json changes the logits.
_PLAIN: dict[str, Any] = {
    **{option.name: option.default for option in OPTIONS},
    "temperature": 0.0,
    "ignore_eos": True,
    "skip_special_tokens": False,
}


class LocalSide:
    """Loads the model at once, and keeps it until ``close``."""

    def __init__(self, setting: Setting, model: str | None) -> None:
        from onward.llm import LLM

        self._setting = setting
        before = resident_bytes()
        started = time.perf_counter()
        self._llm: LLM = LLM(**setting.llm_arguments(model))
        load_s = time.perf_counter() - started
        # Measured now, before another side is loaded into the same process.
        now = resident_bytes()
        grown = None if now is None or before is None else now - before
        self._footprint = Footprint(load_s, self._llm.weight_bytes, grown)
        self._runner: Runner | None = None

    def describe(self) -> Description:
        return describe(self._llm, self._setting)

    def tokenize(self, prompts: Sequence[str]) -> list[tuple[int, ...]]:
        return [tuple(self._llm.tokenize(prompt)) for prompt in prompts]

    def write(self, prompt: Sequence[int], tokens: int) -> tuple[Text, Logits]:
        return self._generate(tuple(prompt), tokens, None)

    def follow(self, text: Text) -> Logits:
        found, logits = self._generate(text.prompt, len(text.written), text.written)
        if found.written != text.written:
            raise Error(
                f"compare: {self._setting.text}: was given {len(text.written)} tokens and wrote "
                "others, expected the same"
            )
        return logits

    def spell(self, tokens: Sequence[int]) -> list[str]:
        return [self._llm.detokenize([token], skip_special_tokens=False) for token in tokens]

    def footprint(self) -> Footprint:
        return self._footprint

    def run(self, depth: int) -> Round:
        if self._runner is None:
            self._runner = Runner(self._llm, _PLAIN, self._setting)
        return self._runner.run(depth)

    def close(self) -> None:
        self._llm.close()

    def _generate(
        self, prompt: tuple[int, ...], tokens: int, given: Sequence[int] | None
    ) -> tuple[Text, Logits]:
        rows: list[Logits] = []

        def keep(token_ids: Any, scores: Logits) -> None:
            rows.append(scores.copy())
            if given is not None:
                scores.fill(-np.inf)
                scores[given[len(rows) - 1]] = 0

        options = {
            **_PLAIN,
            "max_new_tokens": tokens,
            "cache": self._setting.cache,
            "logits_processor": keep,
        }
        result = self._llm.generate(list(prompt), **options)
        return Text(prompt, tuple(result.token_ids)), np.stack(rows)
