"""Stories: sequences of actions on one engine with many conversations, and the expected outputs.

An ``Ask`` is one request. It continues the whole, the beginning or a changed copy of an earlier
conversation. A ``Story`` is the options of an engine and its actions, drawn by hypothesis.
``alone`` is the output of a request in a new engine that keeps no prefixes and has no memory limit.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from builders.core_engine import Shape, ids, random_prompt, seeded_model
from builders.crowds import Heard
from onward import _core
from onward.errors import NotCached

CODECS = ("exact", "int8", "q4_0", "turbo4", "turbo3", "turbo2")
VOCAB, MOST_TOKENS = 40, 420
SLAB_BYTES = 1 << 20
LONG = 1500
"""A prompt of this many tokens takes long enough for a signal to arrive during the step."""
WINDOWS = {"one": (), "one window": (23,), "three": (), "three windows": (0, 23, 0)}


@functools.cache
def model(layers: str, head_dim: int, dtype: str, seed: int = 0) -> _core.Model:
    shape = Shape(
        vocab_size=VOCAB,
        hidden_size=48,
        intermediate_size=72,
        num_layers=3 if layers.startswith("three") else 1,
        num_heads=4,
        num_kv_heads=2,
        head_dim=head_dim,
        max_context=2 * LONG,
        windows=WINDOWS[layers],
    )
    return seeded_model(dtype, shape, seed)


@dataclass(frozen=True)
class Cache:
    """A model and the dtype of its keys and values: the settings that change bits."""

    layers: str = "three windows"
    head_dim: int = 32
    dtype: str = "f32"
    keys: str = "exact"
    values: str = "exact"
    window_tokens: int = 16
    sinks: bool = True
    attention_window: int = 0

    @property
    def model(self) -> _core.Model:
        return model(self.layers, self.head_dim, self.dtype)

    def engine(self, threads: int = 1, chunk: int = 64, **options: Any) -> _core.Engine:
        return _core.Engine(
            self.model,
            threads=threads,
            prefill_chunk_tokens=chunk,
            kv_keys=self.keys,
            kv_values=self.values,
            kv_window_tokens=self.window_tokens,
            kv_sinks=self.sinks,
            attention_window=self.attention_window,
            **options,
        )

    @property
    def block_bytes(self) -> int:
        """Bytes of an exact block in all layers."""
        return int(self.engine().stats()["cache_block_bytes"])


@dataclass(frozen=True)
class Ask:
    """One request. The last fields do not change its output."""

    prompt: tuple[int, ...]
    max_new_tokens: int = 8
    temperature: float = 0.0
    seed: int = 0
    num_sequences: int = 1
    num_beams: int = 0
    prompt_logprobs: int = -1
    allowed: tuple[int, ...] = ()
    lookup_tokens: int = 0
    draft_tokens: int = 0
    priority: int = 0
    cache: bool = True

    def submit(self, engine: _core.Engine, *, plainly: bool = False) -> int:
        """``plainly``: without the options that must not change the output."""
        sampling, speculation = _core.SamplingOptions(), _core.SpeculationOptions()
        sampling.temperature, sampling.seed = self.temperature, self.seed
        sampling.logprobs = 3
        if self.allowed:
            sampling.allowed_token_ids = self.allowed
        beams = _core.BeamOptions() if self.num_beams else None
        if beams is not None:
            beams.num_beams = beams.num_return_sequences = self.num_beams
        if not plainly:
            speculation.lookup_tokens = self.lookup_tokens
            speculation.draft_tokens = self.draft_tokens
        return engine.submit(
            ids(self.prompt),
            max_new_tokens=self.max_new_tokens,
            sampling=sampling,
            num_sequences=self.num_sequences,
            beams=beams,
            speculation=speculation,
            prompt_logprobs=self.prompt_logprobs,
            priority=0 if plainly else self.priority,
            cache=plainly or self.cache,
        )


@functools.cache
def alone(cache: Cache, ask: Ask) -> Heard:
    """The output of its own engine: one thread, the prompt in one step, no kept prefixes."""
    engine = cache.engine(chunk=4096, prefix_cache=False)
    ask.submit(engine, plainly=True)
    heard = Heard()
    while not heard.ended:
        for event in engine.step():
            heard.take(event)
    return heard


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """A signal handler raises InterruptedError after this time."""

    def raise_(number: int, frame: object) -> None:
        raise InterruptedError("given up")

    previous = signal.signal(signal.SIGALRM, raise_)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@dataclass(frozen=True)
class Act:
    """An action: ``ask``, ``cancel``, ``steps``, ``give up``, ``store``, ``restore`` or ``forget``.
    Numbers are taken modulo the number of objects."""

    kind: str
    ask: Ask | None = None
    """The prompt follows the conversation that the request continues."""
    conversation: int = 0
    cut: float = 1.0
    """The position where the earlier conversation is cut."""
    edit: bool = False
    count: int = 1
    sequence: int | None = None


@dataclass(frozen=True)
class Story:
    cache: Cache
    acts: tuple[Act, ...]
    chunk: int = 64
    threads: int = 1
    max_sequences: int = 16
    budget_blocks: int | None = None
    prefix_blocks: int | None = None
    draft: int | None = None
    """Seed of the draft model; the seed of the model itself gives right guesses."""

    def engine(self) -> _core.Engine:
        block = self.cache.block_bytes
        options: dict[str, Any] = {"max_sequences": self.max_sequences}
        if self.budget_blocks is not None:
            options["kv_cache_bytes"] = self.budget_blocks * block
        if self.prefix_blocks is not None:
            options["prefix_cache_bytes"] = self.prefix_blocks * block
        if self.draft is not None:
            cache = self.cache
            options["draft"] = model(cache.layers, cache.head_dim, cache.dtype, self.draft)
        return self.cache.engine(self.threads, self.chunk, **options)


@dataclass
class Asked:
    ask: Ask
    heard: Heard = field(default_factory=Heard)
    cancelled: bool = False
    sequence: int | None = None


class Telling:
    """A running story: the engine, and the output of every request so far."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.engine = story.engine()
        self.asked: list[Asked] = []
        self.running: dict[int, Asked] = {}
        self.conversations: list[tuple[int, ...]] = []
        self.stored: list[tuple[tuple[int, ...], Any]] = []
        self.refused = self.given_up = self.steps = self.preempted = 0
        self.most_steps = 1000

    def tell(self) -> None:
        for act in self.story.acts:
            getattr(self, "_" + act.kind.replace(" ", "_"))(act)
        self._drain()

    def _drain(self) -> None:
        while self.running:
            self._step()
            assert self.steps < self.most_steps, "somebody waits for ever"

    def _ask(self, act: Act) -> None:
        assert act.ask is not None
        before: tuple[int, ...] = ()
        if self.conversations:
            before = self.conversations[act.conversation % len(self.conversations)]
        before = before[: round(act.cut * len(before))]
        if act.edit and before:
            middle = len(before) // 2
            before = (*before[:middle], (before[middle] + 1) % VOCAB, *before[middle + 1 :])
        prompt = (*before, *act.ask.prompt)[:MOST_TOKENS]
        ask = Ask(**{**act.ask.__dict__, "prompt": prompt})
        try:
            request = ask.submit(self.engine)
        except ValueError as error:
            assert "kv_cache_bytes" in str(error)
            assert self.story.budget_blocks is not None
            self.refused += 1
            return
        # One token a step; without a cache everything again for each, and again after preemptions.
        often = ask.max_new_tokens + 1 if not ask.cache else 1
        tokens = max(ask.num_sequences, ask.num_beams) * (len(prompt) + ask.max_new_tokens)
        self.most_steps += 20 * often * tokens + sum(act.count for act in self.story.acts)
        self.running[request] = Asked(ask)
        self.asked.append(self.running[request])
        self.conversations.append(prompt)  # until it has an output

    def _steps(self, act: Act) -> None:
        for _ in range(act.count):
            self._step()

    def _step(self) -> None:
        self.steps += 1
        for event in self.engine.step():
            asked = self.running[event.request]
            asked.heard.take(event)
            if event.ends_request:
                del self.running[event.request]
                self._remember(asked)
        self.check_memory()

    def _remember(self, asked: Asked) -> None:
        for reported in asked.heard.sequences.values():
            tokens = (token for token, *_ in reported)
            written = tuple(t for t in tokens if isinstance(t, int) and t >= 0)
            self.conversations.append((*asked.ask.prompt, *written))

    def check_memory(self) -> None:
        stats = self.engine.stats()
        self.preempted = stats["preempted"]
        assert 0 <= stats["prefix_bytes"] <= stats["cache_bytes"] <= stats["cache_bytes_limit"]
        limit = stats["cache_bytes_limit"]
        assert stats["cache_bytes"] <= stats["cache_bytes_reserved"] <= limit + SLAB_BYTES
        if self.story.prefix_blocks is not None and not self.running:
            assert stats["prefix_bytes"] <= self.story.prefix_blocks * self.story.cache.block_bytes

    def _cancel(self, act: Act) -> None:
        if not self.running:
            return
        request = sorted(self.running)[act.conversation % len(self.running)]
        asked = self.running[request]
        sequence = act.sequence if asked.ask.num_sequences > 1 else None
        if sequence is not None:
            sequence %= asked.ask.num_sequences
        self.engine.cancel(request, sequence)
        asked.cancelled = True
        asked.heard.give_up(sequence)
        alive = set(range(asked.ask.num_sequences)) - asked.heard.quiet - _ended(asked.heard)
        if sequence is None or not alive:
            del self.running[request]
            self._remember(asked)
        self.check_memory()

    def _give_up(self, act: Act) -> None:
        """Run a step that a signal interrupts if it takes long enough; the chunk must be large."""
        prompt = random_prompt(LONG, VOCAB, act.count)
        try:
            request = Ask(tuple(map(int, prompt))).submit(self.engine)
        except ValueError:
            return
        before = self.engine.stats()["steps"]
        try:
            with alarm(0.02):
                self._step_of_many(request)
        except InterruptedError:
            self.given_up += 1
            if self.engine.stats()["steps"] > before:
                self._lose_all()
        self.engine.cancel(request)
        self.check_memory()

    def _lose_all(self) -> None:
        """The signal came when the step returned: the step was done, but its events were lost."""
        for request, asked in list(self.running.items()):
            self.engine.cancel(request)
            asked.cancelled = True
            asked.heard.give_up(None)
            del self.running[request]
            self._remember(asked)

    def _step_of_many(self, extra: int) -> None:
        for event in self.engine.step():
            if event.request == extra:
                continue
            asked = self.running[event.request]
            asked.heard.take(event)
            if event.ends_request:
                del self.running[event.request]
                self._remember(asked)

    def _store(self, act: Act) -> None:
        if not self.conversations:
            return
        tokens = self.conversations[act.conversation % len(self.conversations)]
        tokens = tokens[: max(1, round(act.cut * len(tokens)))]
        try:
            self.stored.append((tokens, self.engine.store_prefix(ids(tokens))))
        except ValueError as error:
            assert "kv_cache_bytes" in str(error)
        self.check_memory()

    def _restore(self, act: Act) -> None:
        if not self.stored:
            return
        tokens, blocks = self.stored[act.conversation % len(self.stored)]
        if act.edit and not self.running:
            self.engine = self.story.engine()  # a new engine, as after a restart
        try:
            self.engine.restore_prefix(ids(tokens), blocks)
        except NotCached as error:
            assert "cache_bytes" in str(error), error
        self.check_memory()

    def _forget(self, act: Act) -> None:
        self.engine.forget_prefixes()
        stats = self.engine.stats()
        assert stats["prefix_bytes"] == stats["prefix_tokens"] == 0

    def check(self) -> None:
        """Every request has the output that it gets alone, and nothing remains in the engine."""
        for asked in self.asked:
            expected = alone(self.story.cache, asked.ask)
            assert asked.heard.error is None
            for index, reported in expected.sequences.items():
                found = asked.heard.sequences.get(index, [])
                cut = asked.cancelled and asked.heard.quiet & {None, index}
                assert found == (reported[: len(found)] if cut else reported)
            assert asked.heard.ended or asked.cancelled
            logprobs = asked.heard.prompt_logprobs
            # A signal may come while the events are read.
            heard = len(logprobs) if asked.cancelled else None
            assert logprobs == expected.prompt_logprobs[:heard]
        self.engine.forget_prefixes()
        stats = self.engine.stats()
        names = ("running", "waiting", "cache_blocks_in_use", "cache_bytes", "prefix_bytes")
        assert {name: stats[name] for name in names} == dict.fromkeys(names, 0)
        assert stats["prefix_tokens"] == stats["cache_bytes_reserved"] == 0


def _ended(heard: Heard) -> set[int]:
    return {index for index, reported in heard.sequences.items() if reported[-1][2] is not None}


# Strategies of hypothesis


@st.composite
def caches(draw: st.DrawFn) -> Cache:
    sinks = draw(st.sampled_from([True, False]))
    return Cache(
        layers=draw(st.sampled_from(["three windows", "one", "one window", "three"])),
        head_dim=draw(st.sampled_from([32, 40])),
        dtype=draw(st.sampled_from(["f32", "bf16"])),
        keys=draw(st.sampled_from(CODECS)),
        values=draw(st.sampled_from(CODECS)),
        window_tokens=draw(st.sampled_from([16, 0, 40, 128])),
        sinks=sinks,
        attention_window=draw(st.sampled_from([0, 0, 0, 19, 64])) if sinks else 0,
    )


@st.composite
def asks(draw: st.DrawFn, draft: bool) -> Ask:
    kind = draw(st.sampled_from(["greedy", "samples", "beams", "guesses", "greedy"]))
    lengths = draw(st.sampled_from([st.integers(1, 20), st.integers(1, 130)]))
    length = draw(lengths)
    prompt = random_prompt(length, VOCAB, draw(st.integers(0, 2)))
    sampled = kind in ("samples", "guesses") and draw(st.booleans())
    guesses = kind == "guesses"
    return Ask(
        tuple(int(token) for token in prompt),
        max_new_tokens=draw(st.sampled_from([8, 1, 20, 37, 60])),
        temperature=1.0 if sampled or kind == "samples" else 0.0,
        seed=draw(st.integers(0, 2)),
        num_sequences=draw(st.integers(2, 4)) if kind == "samples" else 1,
        num_beams=draw(st.integers(2, 4)) if kind == "beams" else 0,
        prompt_logprobs=draw(st.sampled_from([-1, -1, -1, -1, 2])),
        allowed=(6, 7, 8) if guesses and draw(st.booleans()) else (),
        lookup_tokens=draw(st.sampled_from([3, 0, 20, 40])) if guesses else 0,
        draft_tokens=draw(st.sampled_from([3, 0, 18])) if guesses and draft else 0,
        priority=draw(st.sampled_from([0, 0, 0, 1, -1])),
        cache=kind == "guesses" or draw(st.integers(0, 7)) > 0,
    )


@st.composite
def acts(draw: st.DrawFn, draft: bool, long_steps: bool) -> Act:
    kinds = ["ask", "steps", "ask", "ask", "steps", "cancel", "store", "restore", "forget"]
    if long_steps:
        kinds.append("give up")
    kind = draw(st.sampled_from(kinds))
    if kind == "steps":
        return Act(kind, count=draw(st.sampled_from([1, 2, 5, 12, 40])))
    return Act(
        kind,
        ask=draw(asks(draft)) if kind == "ask" else None,
        conversation=draw(st.integers(0, 7)),
        cut=draw(st.sampled_from([1.0, 1.0, 0.0, 0.9, 0.5, 0.77, 0.3])),
        edit=draw(st.sampled_from([False, False, True])),
        count=draw(st.integers(0, 3)),
        sequence=draw(st.one_of(st.none(), st.integers(0, 3))),
    )


@st.composite
def stories(draw: st.DrawFn) -> Story:
    draft = draw(st.sampled_from([None, None, None, 0, 1]))
    chunk = draw(st.sampled_from([64, 16, 1, 7, 256, 4096]))
    return Story(
        cache=draw(caches()),
        acts=tuple(draw(st.lists(acts(draft is not None, chunk == 4096), min_size=4, max_size=16))),
        chunk=chunk,
        threads=draw(st.sampled_from([1, 2])),
        max_sequences=draw(st.integers(4, 16)),
        budget_blocks=draw(st.one_of(st.none(), st.integers(4, 48))),
        prefix_blocks=draw(st.one_of(st.none(), st.none(), st.integers(0, 12))),
        draft=draft,
    )
