"""Draws many tokens of a known distribution with the real sampler, and tests them with
chi-square.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from builders.core_engine import Shape, complete, drain, new_engine, spec_of, submit
from onward import _core

DRAWS = 20_000
# The chi-square value that a correct sampler exceeds once in a million, by degrees of freedom.
ONE_IN_A_MILLION = {1: 23.93, 2: 27.63, 3: 30.66, 4: 33.38, 15: 57.0}
SEEDS_IN_FLIGHT = 500


def table_engine(rows: ArrayLike, chunk: int = 512) -> _core.Engine:
    """An engine of one thread on ``table_model``."""
    return new_engine(table_model(rows), threads=1, chunk=chunk)


def table_model(rows: ArrayLike) -> _core.Model:
    """M-TABLE in the core: logits after token i are exactly rows[i] (rows[0] past the last row).

    With hidden size 64, the RMSNorm of a one-hot is 8 times the one-hot. 1/8 undoes this without
    rounding, so the sampler sees exactly the floats of the table.
    """
    table = np.atleast_2d(np.asarray(rows, np.float32))
    vocab = table.shape[1]
    shape = Shape(
        vocab_size=vocab,
        hidden_size=64,
        intermediate_size=16,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=16,
        max_context=1 << 20,
        windows=(16,),
        qkv_bias=False,
        qk_norm=False,
    )
    embed = np.zeros((vocab, 64), np.float32)
    embed[range(vocab), [token if token < len(table) else 0 for token in range(vocab)]] = 1
    head = np.zeros((64, vocab), np.float32)
    head[: len(table)] = table
    zeros = {
        "qkv": [(16, 64)] * 3,
        "o": [(64, 16)],
        "gate_up": [(16, 64)] * 2,
        "down": [(64, 16)],
    }
    weights: dict[str, list[NDArray[np.float32]]] = {
        "embed": [embed],
        "head": [np.ascontiguousarray(head.T)],
        "norm": [np.full(64, 1 / 8, np.float32)],
        "layers.0.attention_norm": [np.ones(64, np.float32)],
        "layers.0.mlp_norm": [np.ones(64, np.float32)],
    }
    for name, shapes in zeros.items():
        weights[f"layers.0.{name}"] = [np.zeros(part, np.float32) for part in shapes]
    builder = _core.ModelBuilder(spec_of(shape, norm_eps=0.0), "f32", 1)
    for name, parts in weights.items():
        builder.add(name, [(part, "F32", part.shape, None) for part in parts], dtype="f32")
    return builder.finish()


def log_probabilities(probabilities: Sequence[float]) -> NDArray[np.float32]:
    """Logits of a distribution; a probability of 0 becomes -100."""
    p = np.asarray(probabilities, np.float64)
    return np.where(p > 0, np.log(np.maximum(p, 1e-300)), -100).astype(np.float32)


def draws_along_steps(logits: ArrayLike, **options: Any) -> NDArray[np.int64]:
    """20,000 tokens of one request: every row of the table is the same."""
    options = {"temperature": 1.0, "seed": 1, **options}
    [tokens] = complete(table_engine(logits), [[0]], max_new_tokens=DRAWS, **options)
    return np.asarray(tokens)


def draws_over_seeds(logits: ArrayLike, **options: Any) -> NDArray[np.int64]:
    """The first token of 20,000 requests that differ only in the seed."""
    engine = table_engine(logits, chunk=SEEDS_IN_FLIGHT)
    options = {"temperature": 1.0, "max_new_tokens": 1, **options}
    tokens: list[int] = []
    for first in range(0, DRAWS, SEEDS_IN_FLIGHT):
        seeds = range(first, first + SEEDS_IN_FLIGHT)
        outputs = drain(engine, [submit(engine, [0], seed=seed, **options) for seed in seeds])
        tokens += [output.tokens[0] for output in outputs.values()]
    return np.asarray(tokens)


def assert_distribution(tokens: NDArray[np.int64], expected: Mapping[int, float]) -> None:
    """Assert chi-square against ``expected`` (token -> probability), and that no other token
    occurs."""
    assert abs(sum(expected.values()) - 1) < 1e-4
    found = Counter(tokens.tolist())
    assert set(found) <= set(expected), f"drew {found}, expected only {expected}"
    if len(expected) == 1:
        return
    statistic = sum(
        (found[token] - len(tokens) * p) ** 2 / (len(tokens) * p) for token, p in expected.items()
    )
    assert statistic < ONE_IN_A_MILLION[len(expected) - 1], f"drew {found}, expected {expected}"


def possible(logits: ArrayLike, **options: Any) -> set[int]:
    """The tokens that the filters keep, found with 400 draws. For at most 5 equally likely
    tokens."""
    engine = table_engine(logits)
    options = {"temperature": 1.0, **options}
    [tokens] = complete(engine, [[0]], max_new_tokens=400, **options)
    return set(tokens)
