"""Compares predicted bytes of the cache with measured ones.

For each kv_dtype and length a child process loads the model, reads a prompt, and looks while the
sequence is alive: at the engine's own count, which must equal the prediction to the byte, and at
the growth of the process, which other things affect too. A model without weights is replaced by a
stand-in with the same attention.
"""

from __future__ import annotations

import multiprocessing
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from onward.errors import Error
from onward.lab.counts.policy import Policy
from onward.lab.counts.sequences import sequence_bytes
from onward.lab.kv.models import Subject
from onward.lab.kv.stand_in import write_stand_in
from onward.machine.memory import resident_bytes
from onward.machine.progress import ProgressBar
from onward.options.kv_dtypes import KvDtypes, parse_kv_dtype
from onward.options.values import check_integer
from onward.spec import DecoderSpec

USUAL_TOKENS = 2048
_SPARE_TOKENS = 64
"""Tokens of the model's context that are kept free for the output up to its first text."""
_WARM_UP_TOKENS = 256
"""Tokens of a whole step of an LLM: its working memory is allocated before the measurement."""


class Loaded(Protocol):
    """The part of ``onward.LLM`` that the check uses."""

    @property
    def spec(self) -> DecoderSpec: ...
    @property
    def generate(self) -> Callable[..., Any]: ...
    @property
    def stream(self) -> Callable[..., Iterator[str]]: ...
    def stats(self) -> dict[str, int]: ...


Opens = Callable[..., AbstractContextManager[Loaded]]
"""``onward.LLM``, or another callable that a child process can import."""


@dataclass(frozen=True)
class Measured:
    """The measurements of a child process."""

    tokens: int
    """Tokens in the cache at the time of the measurement."""
    cache_bytes: int
    """Bytes of the sequence by the engine's own count."""
    resident_bytes: int | None
    """Growth of the process in bytes; None: the system does not report it."""


@dataclass(frozen=True)
class Checked:
    """The result for one kv_dtype at one length."""

    kv_dtype: str
    tokens: int
    predicted: int
    engine: int
    resident: int | None

    @property
    def agrees(self) -> bool:
        return self.predicted == self.engine


def check(
    open_llm: Opens,
    subject: Subject,
    *,
    dtype: str,
    kv_dtypes: Sequence[str],
    contexts: Sequence[int] | None,
    policy: Policy,
) -> list[Checked]:
    """Check every kv_dtype at every length. Several names of one kv_dtype are checked once.

    ``contexts`` None: 2,048 tokens, or less if the model's context is shorter. Raises
    InvalidArgument for a length that leaves no room for output.
    """
    spec = subject.spec
    most = spec.max_context - _SPARE_TOKENS
    lengths = [min(USUAL_TOKENS, most)] if contexts is None else contexts
    for tokens in lengths:
        check_integer("context", tokens, 1, most)
    distinct: dict[KvDtypes, str] = {}
    for kv_dtype in kv_dtypes:
        distinct.setdefault(parse_kv_dtype(kv_dtype, subject.weights.cache), kv_dtype)
    checked: list[Checked] = []
    total = len(distinct) * len(lengths)
    with _runnable(subject) as path, ProgressBar("checking") as progress:
        for dtypes, kv_dtype in distinct.items():
            options = {"dtype": dtype, **_cache_options(kv_dtype, policy)}
            for tokens in lengths:
                seen = _in_child(measure, open_llm, path, options, tokens)
                predicted = sequence_bytes(spec, dtypes, seen.tokens, policy)
                checked.append(
                    Checked(
                        dtypes.name, seen.tokens, predicted, seen.cache_bytes, seen.resident_bytes
                    )
                )
                progress(len(checked), total)
    return checked


@contextmanager
def _runnable(subject: Subject) -> Iterator[str]:
    """The path of the model, or of a stand-in that is deleted at the end of the block."""
    if subject.files is not None:
        yield str(subject.files.path)
        return
    warnings.warn(
        f"{subject.name} has no weights here: its cache is measured in a small model with "
        "the same attention and random weights",
        stacklevel=4,
    )
    with tempfile.TemporaryDirectory() as folder:
        write_stand_in(Path(folder), subject.config, subject.spec, subject.stored)
        yield folder


def measure(open_llm: Opens, path: str, options: Mapping[str, Any], tokens: int) -> Measured:
    """Run a prompt of ``tokens`` tokens and measure the cache after the first text."""
    with open_llm(path, **options) as llm:
        vocab, generator = llm.spec.vocab_size, random.Random(1)
        warm_up = [generator.randrange(vocab) for _ in range(min(_WARM_UP_TOKENS, tokens))]
        llm.generate(warm_up, max_new_tokens=1, ignore_eos=True)
        # A different first token, so that no prefix of the warm-up can be reused.
        prompt = [(warm_up[0] + 1) % vocab, *(generator.randrange(vocab) for _ in range(1, tokens))]
        before, resident_before = llm.stats(), resident_bytes()
        stream = llm.stream(
            prompt, max_new_tokens=_SPARE_TOKENS, ignore_eos=True, skip_special_tokens=False
        )
        if next(stream, None) is None:
            raise Error(f"check: the first {_SPARE_TOKENS} tokens gave no text, expected some")
        after, resident_after = llm.stats(), resident_bytes()
        grown = None
        if resident_before is not None and resident_after is not None:
            grown = resident_after - resident_before
        return Measured(
            after["kv_computations"] - before["kv_computations"],
            _held(after) - _held(before),
            grown,
        )


def _held(stats: Mapping[str, int]) -> int:
    """Bytes of the blocks in use. Engines whose blocks have one size report only their number."""
    if "cache_bytes" in stats:
        return stats["cache_bytes"]
    return stats["cache_blocks_in_use"] * stats["cache_block_bytes"]


def _cache_options(kv_dtype: str, policy: Policy) -> dict[str, Any]:
    """The arguments of LLM besides the model that differ from the defaults."""
    usual = Policy()
    # Blocks kept for other requests would be counted too.
    options: dict[str, Any] = {"prefix_cache": False}
    if kv_dtype != "auto":
        options["kv_dtype"] = kv_dtype
    if policy.window_tokens != usual.window_tokens:
        options["kv_window_tokens"] = policy.window_tokens
    if policy.sinks != usual.sinks:
        options["kv_sinks"] = policy.sinks
    if policy.attention_window is not None:
        options["attention_window"] = policy.attention_window
    return options


def _in_child(work: Callable[..., Measured], *arguments: object) -> Measured:
    """Run ``work`` in a new process, so that only the work changes the memory of the process."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        try:
            return pool.submit(work, *arguments).result()
        except BrokenProcessPool:
            raise Error("check: the child process ended before it had measured") from None
