"""Calculates all figures for one model: bytes of a token, of sequences and of batches, and how many
fit into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onward._core import kv_cache_bytes
from onward.lab.counts.policy import BATCHES, MOST_SEQUENCES, MOST_TOKENS, Policy, usual_contexts
from onward.lab.counts.sequences import (
    group_windows,
    longest_sequence,
    sequence_bytes,
    sequences_that_fit,
    step_bytes,
)
from onward.lab.counts.vectors import (
    FLOAT_BYTES,
    exact_token_bytes,
    token_bytes,
    vector_bytes,
)
from onward.lab.kv.models import Subject
from onward.options.kv_dtypes import KV_DTYPES, KvDtypes, parse_kv_dtype
from onward.options.values import check_integer
from onward.spec import DecoderSpec


@dataclass(frozen=True)
class Step:
    """One line of the formula: a factor, and the product so far."""

    factor: int
    what: str
    bytes: int
    makes: str


@dataclass(frozen=True)
class Textbook:
    """2 x layers x kv heads x head_dim x tokens x bytes of a number, in the model's own dtype."""

    dtype: str
    steps: tuple[Step, ...]
    """The last step is one token of the whole model."""
    sequences: tuple[tuple[int, int, int], ...]
    """(tokens, bytes, bytes if every query head had its own keys and values (MHA))."""


@dataclass(frozen=True)
class Figure:
    """The size of ``batch`` sequences of ``context`` tokens."""

    context: int
    batch: int
    bytes: int
    fits: bool | None
    """Whether they fit into memory beside the weights; None: the memory is unknown."""


@dataclass(frozen=True)
class Codec:
    """The figures of one kv_dtype."""

    kv_dtype: str
    keys: str
    values: str
    exact: str
    key_bytes: int
    """Bytes of one key in a block that is not exact."""
    value_bytes: int
    """Bytes of one value in a block that is not exact."""
    token_bytes: int
    """Bytes of one token in all layers and kv heads, in a block that is not exact."""
    exact_token_bytes: int
    """Bytes of one token in all layers and kv heads, in an exact block."""
    share: float
    """token_bytes over the token_bytes of the model's own cache dtype."""
    step_bytes: int
    """Bytes that a step needs beside all sequences for blocks that become codes or leave a window.
    """
    longest: int | None
    """Tokens of the longest single sequence that fits, without the model's limit of positions;
    None: unlimited, or the memory is unknown."""
    sequences: tuple[tuple[int, int | None], ...]
    """(context, number of sequences of this length that fit); None: the memory is unknown."""
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Report:
    model: str
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context: int
    windows: tuple[tuple[int, int], ...]
    """(window of attention under the policy, 0: all tokens; number of layers)."""
    window_tokens: int
    sinks: bool
    attention_window: int | None
    weights: str | None
    """The dtype of the weights; None if their bytes were given."""
    weight_bytes: int
    memory_bytes: int | None
    room_bytes: int | None
    """The memory without the weights."""
    textbook: Textbook
    codecs: tuple[Codec, ...]


def calculate(
    subject: Subject,
    *,
    contexts: Sequence[int] | None = None,
    batches: Sequence[int] = BATCHES,
    kv_dtypes: Sequence[str] = KV_DTYPES[1:],
    policy: Policy | None = None,
    memory: int | None = None,
    weight_bytes: int | None = None,
) -> Report:
    """The report. ``contexts`` None: the usual lengths below the model's context, and the context;
    ``memory`` None: unknown; ``weight_bytes`` None: the bytes of the subject."""
    spec, policy = subject.spec, policy or Policy()
    policy.check()
    asked_lengths = usual_contexts(spec.max_context) if contexts is None else contexts
    lengths = list(dict.fromkeys(asked_lengths))
    for tokens in lengths:
        check_integer("context", tokens, 1, MOST_TOKENS)
    for batch in batches:
        check_integer("batch", batch, 1, MOST_SEQUENCES)
    taken = subject.weight_bytes if weight_bytes is None else weight_bytes
    room = None if memory is None else max(0, memory - taken)
    own = subject.weights.cache
    codecs: dict[str, Codec] = {}
    for asked in kv_dtypes:
        dtypes = parse_kv_dtype(asked, own)
        if dtypes.name not in codecs:
            codecs[dtypes.name] = _codec(subject, dtypes, lengths, batches, policy, room)
    return Report(
        model=subject.name,
        num_layers=spec.num_layers,
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_dim=spec.head_dim,
        context=spec.max_context,
        windows=tuple(sorted(group_windows(spec, policy).items())),
        window_tokens=policy.window_tokens,
        sinks=policy.sinks,
        attention_window=policy.attention_window,
        weights=subject.weights.name if weight_bytes is None else None,
        weight_bytes=taken,
        memory_bytes=memory,
        room_bytes=room,
        textbook=_textbook(subject, own, lengths),
        codecs=tuple(codecs.values()),
    )


def _textbook(subject: Subject, dtype: str, lengths: Sequence[int]) -> Textbook:
    spec, size = subject.spec, FLOAT_BYTES[dtype]
    sizes = [spec.head_dim_of(i) + spec.value_dim_of(i) for i in range(spec.num_layers)]
    numbers = sum(spec.kv_heads_of(i) * pair for i, pair in enumerate(sizes))
    query_numbers = sum(spec.heads_of(i) * pair for i, pair in enumerate(sizes))
    return Textbook(
        dtype=dtype,
        steps=_steps(spec, dtype, size, numbers),
        sequences=tuple(
            (tokens, numbers * size * tokens, query_numbers * size * tokens) for tokens in lengths
        ),
    )


def _steps(spec: DecoderSpec, dtype: str, size: int, numbers: int) -> tuple[Step, ...]:
    """The steps from one number to one token in all layers, which has ``numbers`` numbers."""
    layers, heads, dim = spec.num_layers, spec.num_kv_heads, spec.head_dim
    if numbers != 2 * layers * heads * dim:
        return (
            Step(numbers, "keys and values of all layers", numbers, "numbers"),
            Step(size, f"bytes of {dtype}", numbers * size, "one token"),
        )
    return (
        Step(2, "K and V", 2, ""),
        Step(dim, "head_dim", 2 * dim, "numbers"),
        Step(size, f"bytes of {dtype}", 2 * dim * size, "one token, one kv head, one layer"),
        Step(heads, "kv heads", kv_cache_bytes(1, heads, dim, 1, size), "one token, one layer"),
        Step(layers, "layers", kv_cache_bytes(layers, heads, dim, 1, size), "one token"),
    )


def _codec(
    subject: Subject,
    dtypes: KvDtypes,
    lengths: Sequence[int],
    batches: Sequence[int],
    policy: Policy,
    room: int | None,
) -> Codec:
    spec = subject.spec
    own = parse_kv_dtype("auto", subject.weights.cache)
    step = step_bytes(spec, dtypes, policy)
    if room is not None:
        room -= step
    sizes = {tokens: sequence_bytes(spec, dtypes, tokens, policy) for tokens in lengths}
    return Codec(
        kv_dtype=dtypes.name,
        keys=dtypes.keys,
        values=dtypes.values,
        exact=dtypes.exact,
        key_bytes=vector_bytes(dtypes.keys, spec.head_dim, "keys"),
        value_bytes=vector_bytes(dtypes.values, spec.value_dim_of(0), "values"),
        token_bytes=token_bytes(spec, dtypes),
        exact_token_bytes=exact_token_bytes(spec, dtypes),
        share=token_bytes(spec, dtypes) / token_bytes(spec, own),
        step_bytes=step,
        longest=None if room is None else longest_sequence(spec, dtypes, max(0, room), policy),
        sequences=tuple(
            (tokens, None if room is None else sequences_that_fit(size, room))
            for tokens, size in sizes.items()
        ),
        figures=tuple(
            Figure(tokens, batch, batch * size, None if room is None else batch * size <= room)
            for tokens, size in sizes.items()
            for batch in dict.fromkeys(batches)
        ),
    )
