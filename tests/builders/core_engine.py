"""Drives the C++ engine without files, text or the Python package: seeded models and the loop.

It is for tests of the engine itself (bits, counts, concurrent requests) and uses only
``onward._core``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from onward import _core
from onward.errors import Error

ALL_CHUNK = 1 << 20
"""A chunk size that is larger than every prompt of these tests."""
PACKED = {
    **{"f32": "f32", "f16": "f16", "bf16": "bf16"},
    **{"int8": "q8_0", "int4": "q4_0", "int4-min": "q4_1"},
}
"""The dtypes of ``seeded_model``, and the resulting dtypes of the layers' matrices in the core."""
REQUEST_OPTIONS = {
    *("max_new_tokens", "num_sequences", "beams", "speculation", "end_rules"),
    *("prompt_logprobs", "priority", "cache", "progress", "gather"),
}
"""The arguments of ``Engine.submit`` except the options of the sampler."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a seeded model. The defaults are odd on purpose: no size is a multiple of 64, and
    head_dim is not hidden_size / num_heads."""

    vocab_size: int = 300
    hidden_size: int = 96
    intermediate_size: int = 136
    num_layers: int = 3
    num_heads: int = 6
    num_kv_heads: int = 2
    head_dim: int = 24
    max_context: int = 4096
    windows: tuple[int, ...] = ()
    qkv_bias: bool = True
    qk_norm: bool = True
    tied_head: bool = False


def spec_of(shape: Shape, **changes: Any) -> _core.DecoderSpec:
    frequencies = [10000.0 ** (-2 * i / shape.head_dim) for i in range(shape.head_dim // 2)]
    fields = {"architecture": "llama", "norm_eps": 1e-5, **shape.__dict__, **changes}
    rope = {name[5:]: fields.pop(name) for name in changes if name.startswith("rope_")}
    return _core.DecoderSpec({**fields, "rope": {"inv_freq": frequencies, **rope}})


def weight_shapes(shape: Shape) -> dict[str, list[tuple[int, ...]]]:
    """Canonical name -> shapes of the parts (rows are outputs)."""
    hidden, inner = shape.hidden_size, shape.intermediate_size
    q, kv = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    shapes: dict[str, list[tuple[int, ...]]] = {"embed": [(shape.vocab_size, hidden)]}
    if not shape.tied_head:
        shapes["head"] = [(shape.vocab_size, hidden)]
    shapes["norm"] = [(hidden,)]
    for layer in range(shape.num_layers):
        parts = {
            "attention_norm": [(hidden,)],
            "qkv": [(q, hidden), (kv, hidden), (kv, hidden)],
            "o": [(hidden, q)],
            "mlp_norm": [(hidden,)],
            "gate_up": [(inner, hidden), (inner, hidden)],
            "down": [(hidden, inner)],
        }
        if shape.qkv_bias:
            parts["qkv_bias"] = [(q,), (kv,), (kv,)]
        if shape.qk_norm:
            parts |= {"q_norm": [(shape.head_dim,)], "k_norm": [(shape.head_dim,)]}
        shapes |= {f"layers.{layer}.{name}": value for name, value in parts.items()}
    return shapes


def seeded_model(
    dtype: str, shape: Shape | None = None, seed: int = 0, device: str = "cpu", **spec: Any
) -> _core.Model:
    """Random weights that are large enough for sharp attention and well spread logits.

    ``dtype`` is one of PACKED; with "int4" the embedding and the head have 8 bits. ``spec``:
    further fields of the spec."""
    shape = shape or Shape()
    generator = np.random.default_rng(seed)
    cache = dtype if dtype in ("f32", "bf16") else "f16"
    builder = _core.ModelBuilder(spec_of(shape, **spec), cache, 2, device)
    for name, shapes in weight_shapes(shape).items():
        parts = []
        for part in shapes:
            noise = generator.standard_normal(part, dtype=np.float32)
            if len(part) == 1:  # a norm is around 1, a bias around 0
                noise = noise * 0.1 if name.endswith("bias") else 1 + 0.3 * noise
            elif name != "embed":
                noise *= 1.5 / np.sqrt(part[1])
            parts.append((np.ascontiguousarray(noise, np.float32), "F32", part, None))
        in_eight_bits = dtype == "int4" and name in ("embed", "head")
        builder.add(name, parts, dtype="q8_0" if in_eight_bits else PACKED[dtype])
    return builder.finish()


def new_engine(
    model: _core.Model, threads: int = 2, chunk: int = 512, draft: _core.Model | None = None
) -> _core.Engine:
    return _core.Engine(model, threads=threads, prefill_chunk_tokens=chunk, draft=draft)


def guessing(lookup: int = 0, draft: int = 0, ngram: int = 2) -> _core.SpeculationOptions:
    """Guesses in each step, from lookup or from the draft model."""
    options = _core.SpeculationOptions()
    options.lookup_tokens, options.draft_tokens, options.lookup_ngram = lookup, draft, ngram
    return options


@contextmanager
def instruction_set(name: str) -> Iterator[None]:
    """Engines that are made inside use this instruction set; skips the test if the CPU lacks it.

    The kernels are chosen when an engine is made, so this needs no child process.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONWARD_CPU_ISA", name)
        try:
            new_engine(seeded_model("f32", Shape(num_layers=1)))
        except ValueError:
            pytest.skip(f"this processor does not run {name}")
        yield


def ids(prompt: ArrayLike) -> NDArray[np.int32]:
    return np.asarray(prompt, np.int32)


def random_prompt(length: int, vocab_size: int = 300, seed: int = 0) -> NDArray[np.int32]:
    return np.random.default_rng(seed).integers(0, vocab_size, length).astype(np.int32)


@dataclass
class Output:
    """The events of one request."""

    tokens: list[int] = field(default_factory=list)
    finish: str | None = None
    error: str = ""
    logprobs: list[_core.TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[_core.TokenLogprobs] = field(default_factory=list)
    guessed: int = 0
    accepted: int = 0

    def push(self, event: _core.Event) -> None:
        if event.gathered is not None:
            self.tokens += event.gathered[0]
            self.logprobs += event.gathered[1]
        if event.token >= 0:
            self.tokens.append(event.token)
        if event.logprobs is not None:
            self.logprobs.append(event.logprobs)
        self.prompt_logprobs += event.prompt_logprobs
        self.guessed += event.guessed
        self.accepted += event.accepted
        self.finish = event.finish_reason
        try:
            event.raise_failure()
        except Error as error:
            self.error = str(error)


def submit(engine: _core.Engine, prompt: ArrayLike, **options: Any) -> int:
    """Submit a request with options of the request and of the sampler."""
    sampling = _core.SamplingOptions()
    for name in set(options) - REQUEST_OPTIONS:
        setattr(sampling, name, options.pop(name))
    return engine.submit(ids(prompt), sampling=sampling, **{"max_new_tokens": 16, **options})


def drain(engine: _core.Engine, requests: Iterable[int]) -> dict[int, Output]:
    """Run steps until every request has ended."""
    return {request: outputs[0] for request, outputs in drain_all(engine, requests).items()}


def drain_all(engine: _core.Engine, requests: Iterable[int]) -> dict[int, list[Output]]:
    """The same with all sequences of each request, in their order."""
    outputs: dict[int, dict[int, Output]] = {request: {} for request in requests}
    unfinished = set(outputs)
    while unfinished:
        for event in engine.step():
            assert event.request in unfinished, "an event after the end"
            outputs[event.request].setdefault(event.sequence, Output()).push(event)
            if event.ends_request:
                unfinished.remove(event.request)
    return {
        request: [sequences[index] for index in sorted(sequences)]
        for request, sequences in outputs.items()
    }


def complete(engine: _core.Engine, prompts: Sequence[ArrayLike], **options: Any) -> list[list[int]]:
    """The tokens of each prompt; all requests run together."""
    requests = [submit(engine, prompt, **options) for prompt in prompts]
    outputs = drain(engine, requests)
    assert not any(output.error for output in outputs.values()), outputs
    return [outputs[request].tokens for request in requests]
