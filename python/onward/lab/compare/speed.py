"""Times runs of a loaded model: a prompt and output after it, with the limits of the device.

Bytes read and multiply-adds are counted as in ``onward bench``. Times come from the timings of each
result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from onward.errors import Error
from onward.lab.bench.cases import CHUNK_TOKENS, chunk_slices
from onward.lab.bench.ceilings import ceilings
from onward.lab.compare.side import Round
from onward.lab.counts.costs import Cost, Slice, StepCosts
from onward.lab.counts.policy import Policy
from onward.options.kv_dtypes import parse_kv_dtype

if TYPE_CHECKING:
    from onward.lab.compare.setting import Setting
    from onward.llm import LLM

PROBE_S = 0.1
TOKENS_WITH, TOKENS_WITHOUT = 16, 1
"""Timed tokens of decode, with the cache and without it."""


class Runner:
    """Runs of one model. ``plain``: options of ``generate`` that override all defaults of the
    model."""

    def __init__(self, llm: LLM, plain: Mapping[str, Any], setting: Setting) -> None:
        kv = parse_kv_dtype(llm.kv_dtype, llm.weight_dtypes.cache)
        self._costs = StepCosts(llm.spec, llm.weight_dtypes, kv, Policy(setting.window_tokens))
        self._llm, self._plain, self._cache = llm, plain, setting.cache
        self._timed = TOKENS_WITH if self._cache else TOKENS_WITHOUT

    def run(self, depth: int) -> Round:
        """One run, between two probes."""
        tokens = max(depth, 1)
        prompt = np.random.default_rng((1, depth)).integers(0, self._llm.spec.vocab_size, tokens)
        before = self._probe()
        timings = self._llm.generate(
            prompt.tolist(),
            **{**self._plain, "max_new_tokens": self._timed + 1, "cache": self._cache},
        ).timings
        after = self._probe()
        decode_rate = timings.decode_tokens_per_s
        if decode_rate is None:
            raise Error(f"compare: nothing was generated after {tokens} tokens, expected tokens")
        written = self._decode_cost(tokens)
        bytes_per_token = written.bytes_read / self._timed
        gigabytes_per_s = 1e-9 * bytes_per_token * decode_rate
        read_share = gigabytes_per_s / ((before[0] + after[0]) / 2)
        prefill_rate = arithmetic_share = None
        if depth > 1 and timings.prefill_tokens_per_s is not None:
            prefill_rate = timings.prefill_tokens_per_s
            flops = 2e-9 * self._read_cost(tokens).multiply_adds / tokens * prefill_rate
            arithmetic_share = flops / ((before[1] + after[1]) / 2)
        return Round(
            depth,
            prefill_rate,
            decode_rate,
            bytes_per_token,
            gigabytes_per_s,
            read_share,
            arithmetic_share,
        )

    def _read_cost(self, tokens: int) -> Cost:
        """The cost of a prompt, or of a sequence that is computed again."""
        cost = Cost()
        for begin in range(0, tokens, CHUNK_TOKENS):
            end = min(begin + CHUNK_TOKENS, tokens)
            cost += self._costs(chunk_slices(begin, end, tokens))
        return cost

    def _decode_cost(self, cached: int) -> Cost:
        cost = Cost()
        for length in range(cached, cached + self._timed):
            cost += (
                self._costs([Slice(length, 1, 1)]) if self._cache else self._read_cost(length + 1)
            )
        return cost

    def _probe(self) -> tuple[float, float]:
        return ceilings(self._llm.device, self._llm.dtype, self._llm.threads, PROBE_S)
