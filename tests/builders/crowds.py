"""Crowds: requests of every kind that share an engine, and their expected outputs.

A ``Wish`` is one request, drawn by hypothesis. ``alone`` is its output in an engine of its own,
without guesses and without other requests. A ``Plan`` says when it is submitted and when it is
cancelled.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tokenizers
from hypothesis import strategies as st
from numpy.typing import NDArray
from tokenizers import decoders, models

from builders.core_engine import Shape, ids, random_prompt, seeded_model
from builders.tiny_tokenizers import wrapped
from onward import _core
from onward.options.grammar import Grammar
from onward.text.constraints import Constraint

# With a small vocabulary the output repeats itself, so some guesses are right.
SHAPE = Shape(
    vocab_size=40,
    hidden_size=48,
    intermediate_size=72,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=12,
    max_context=160,
    windows=(0, 23),
)
WIDEST = 6
STOP_TOKENS = (3, 11)
RAISED = "the rule has had enough"

# The texts of the tokens, for a grammar; two of them are also stop tokens.
PIECES = [*"abcdefghijklmnopqrstuvwxyz0123456789", "ab", "cd", "e1", "12"]
REGEXES = ["[a-m]{2,9}(1|2)*", "(ab|cd|e[0-9])+", "[0-9]{1,4}[a-z]*", "x?y?z?(12)*"]
HAS_GRAMMARS = importlib.util.find_spec("llguidance") is not None

Options = tuple[tuple[str, Any], ...]


@functools.cache
def constraint(regex: str) -> Constraint:
    """The expression, ready for the engine's rules."""
    backend = tokenizers.Tokenizer(models.WordLevel({p: i for i, p in enumerate(PIECES)}, "a"))
    backend.decoder = decoders.Fuse()
    grammar = Grammar.of(regex=regex)
    assert grammar is not None
    return Constraint(grammar, wrapped(backend), SHAPE.vocab_size)


@functools.cache
def model(dtype: str) -> _core.Model:
    return seeded_model(dtype, SHAPE)


@functools.cache
def draft(dtype: str, kind: str) -> _core.Model:
    """The model itself, whose guesses are right, or another one, whose guesses are hardly ever
    right."""
    return {"same": model(dtype), "other": seeded_model(dtype, SHAPE, seed=1)}[kind]


@dataclass(frozen=True)
class Wish:
    """One request. The last fields do not change its output."""

    prompt_tokens: int
    prompt_seed: int
    period: int | None = None
    """The prompt repeats itself after this many tokens."""
    max_new_tokens: int = 8
    sampling: Options = ()
    num_sequences: int = 1
    beams: Options | None = None
    score_rule: str | None = None
    end_rule: int | None = None
    regex: str | None = None
    prompt_logprobs: int = -1
    speculation: Options = ()
    priority: int = 0
    cache: bool = True

    @property
    def width(self) -> int:
        return self.num_sequences if self.beams is None else dict(self.beams)["num_beams"]

    @property
    def prompt(self) -> NDArray[np.int32]:
        prompt = random_prompt(self.prompt_tokens, SHAPE.vocab_size, self.prompt_seed)
        return np.resize(prompt[: self.period], self.prompt_tokens)

    def submit(self, engine: _core.Engine, *, plainly: bool = False) -> int:
        """``plainly``: without the options that must not change the output."""
        sampling, speculation = _core.SamplingOptions(), _core.SpeculationOptions()
        _set(sampling, self.sampling)
        sampling.stop_token_ids = STOP_TOKENS
        if self.score_rule is not None:
            sampling.set_logits_processor(_score_rule(self.score_rule, self.prompt_tokens))
        end_rules = [] if self.end_rule is None else [_end_rule(self.end_rule)]
        if self.regex is not None:
            prompt = self.prompt.tolist()
            rule = constraint(self.regex).rule(prompt, STOP_TOKENS, outputs=self.width)
            sampling.set_grammar(rule.process)
            end_rules.append(rule.ends)
        beams = None if self.beams is None else _core.BeamOptions()
        if beams is not None:
            _set(beams, self.beams or ())
        if not plainly:
            _set(speculation, self.speculation)
        return engine.submit(
            ids(self.prompt),
            max_new_tokens=self.max_new_tokens,
            sampling=sampling,
            num_sequences=self.num_sequences,
            beams=beams,
            speculation=speculation,
            end_rules=end_rules,
            prompt_logprobs=self.prompt_logprobs,
            priority=0 if plainly else self.priority,
            cache=plainly or self.cache,
        )


def _set(target: object, options: Options) -> None:
    for name, value in options:
        setattr(target, name, value)


def _score_rule(kind: str, prompt_tokens: int) -> Callable[..., None]:
    """Bans tokens depending on the output, or fails after a few tokens."""

    def change(tokens: NDArray[np.int32], scores: NDArray[np.float32]) -> None:
        written = len(tokens) - prompt_tokens
        if kind == "bans":
            scores[(int(tokens[-1]) + written) % 3 :: 3] = -np.inf
        elif written >= 2 and kind == "raises":
            raise ArithmeticError(RAISED)
        elif written >= 4 and kind == "bans all":
            scores[:] = -np.inf
        elif written >= 2 and kind == "not a number":
            scores[5] = np.nan

    return change


def _end_rule(divisor: int) -> Callable[[NDArray[np.int32]], bool]:
    return lambda tokens: bool(int(tokens[-3:].sum()) % divisor == 0)


@dataclass
class Heard:
    """The events of one request, with floats as bits."""

    sequences: dict[int, list[tuple[object, ...]]] = field(default_factory=dict)
    """Token, its log-probabilities, finish and score of each event."""
    prompt_logprobs: list[object] = field(default_factory=list)
    error: str | None = None
    ended: bool = False
    quiet: set[int | None] = field(default_factory=set)
    """Cancelled sequences; None is the whole request."""

    def give_up(self, sequence: int | None) -> None:
        self.quiet.add(sequence)

    def take(self, event: _core.Event) -> None:
        assert not self.ended, "an event after the one that ends the request"
        of = None if event.finish_reason == "error" else event.sequence
        assert not {None, of} & self.quiet, "an event of what was given up"
        assert 0 <= event.accepted <= 1
        if event.finish_reason == "error":
            try:
                event.raise_failure()
            except Exception as error:
                self.error = f"{type(error).__name__}: {error}"
        else:
            score = None if event.score is None else event.score.hex()
            reported = (event.token, _bits(event.logprobs), event.finish_reason, score)
            self.sequences.setdefault(event.sequence, []).append(reported)
        self.prompt_logprobs += map(_bits, event.prompt_logprobs)
        self.ended = event.ends_request


def _bits(found: _core.TokenLogprobs | None) -> object:
    if found is None:
        return None
    tops = [[(token, p.hex()) for token, p in top] for top in (found.raw_top, found.chain_top)]
    return found.token, found.raw.hex(), found.chain.hex(), tops


@functools.cache
def _alone(dtype: str, wish: Wish) -> Heard:
    engine = _core.Engine(model(dtype), threads=1, prefill_chunk_tokens=512)
    request = wish.submit(engine, plainly=True)
    heard = Heard()
    while not heard.ended:
        for event in engine.step():
            assert event.request == request
            heard.take(event)
    return heard


def alone(dtype: str, wish: Wish) -> Heard:
    """The output of the request in a new engine: one thread, its prompt in one step."""
    return _alone(dtype, wish)


# Strategies of hypothesis

_PENALTIES = (
    (),
    (("repetition_penalty", 1.3),),
    (("presence_penalty", 0.4), ("frequency_penalty", 0.3)),
    (("no_repeat_ngram_size", 3), ("min_new_tokens", 4)),
    (("dry_multiplier", 0.8), ("logit_bias", {4: 1.5, 7: -np.inf})),
    (("bad_words_ids", [[5], [6, 8]]), ("suppress_tokens", [2])),
)
_FILTERS = (
    (),
    (("top_k", 7),),
    (("top_p", 0.9), ("min_p", 0.02)),
    (("typical_p", 0.8),),
    (("xtc_probability", 0.5), ("xtc_threshold", 0.05)),
    (("top_n_sigma", 1.5), ("epsilon_cutoff", 0.01)),
)
_NOT_WITH_BEAMS = (
    (("mirostat", 2), ("mirostat_tau", 3.0)),
    (("dynatemp_range", 0.4),),
)


class _Frozen(dict):
    """A bias that can be part of a cache's key."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))


def _frozen(value: object) -> object:
    if isinstance(value, dict):
        return _Frozen(value)
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return value


@st.composite
def sampling(draw: st.DrawFn, sampled: bool, beams: bool) -> Options:
    options = list(draw(st.sampled_from(_PENALTIES)))
    if sampled:
        options += draw(st.sampled_from(_FILTERS if beams else (*_FILTERS, *_NOT_WITH_BEAMS)))
        options += [
            ("temperature", draw(st.sampled_from([0.6, 1.0, 1.7]))),
            ("seed", draw(st.integers(0, 5))),
        ]
    options.append(("logprobs", draw(st.sampled_from([-1, -1, 0, 3]))))
    return tuple((name, _frozen(value)) for name, value in options)


@st.composite
def beam_options(draw: st.DrawFn) -> Options:
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    beams = groups * draw(st.integers(2 if groups == 1 else 1, WIDEST // groups))
    return (
        ("num_beams", beams),
        ("num_beam_groups", groups),
        ("diversity_penalty", 0.0 if groups == 1 else draw(st.sampled_from([0.0, 0.7]))),
        ("length_penalty", draw(st.sampled_from([0.0, 1.0, 2.0]))),
        ("early_stopping", draw(st.sampled_from([False, True, "never"]))),
        ("num_return_sequences", draw(st.integers(1, beams))),
    )


@st.composite
def wishes(draw: st.DrawFn) -> Wish:
    kind = draw(st.sampled_from(["guesses", "sampled", "samples", "beams", "greedy"]))
    sampled = kind in ("sampled", "samples") or (kind != "greedy" and draw(st.booleans()))
    speculation: Options = ()
    if kind == "guesses" or (kind == "samples" and draw(st.booleans())):
        speculation = (
            ("lookup_tokens", draw(st.sampled_from([0, 3, 1, 5]))),
            ("lookup_ngram", draw(st.integers(1, 3))),
            ("draft_tokens", draw(st.sampled_from([3, 0, 1]))),
        )
    few: Options = ()
    if speculation and draw(st.booleans()):
        few = (("allowed_token_ids", (6, 7, 8)),)
    lengths = [st.integers(1, 40), st.integers(15, 90), st.integers(1, 100), st.integers(158, 160)]
    rules = ["bans", "raises", "bans", "bans all", "bans", "not a number"]
    return Wish(
        prompt_tokens=draw(draw(st.sampled_from(lengths))),
        prompt_seed=draw(st.integers(0, 3)),
        period=draw(st.sampled_from([4, 7])) if speculation or draw(st.booleans()) else None,
        max_new_tokens=draw(st.sampled_from([17, 9, 16, 6, 20, 1, 12, 0])),
        sampling=draw(sampling(sampled, kind == "beams")) + few,
        num_sequences=draw(st.integers(2, WIDEST)) if kind == "samples" else 1,
        beams=draw(beam_options()) if kind == "beams" else None,
        score_rule=draw(st.sampled_from(rules)) if draw(st.integers(0, 3)) == 0 else None,
        end_rule=draw(st.sampled_from([None, None, None, None, 13])),
        regex=draw(st.sampled_from(REGEXES))
        if HAS_GRAMMARS and draw(st.integers(0, 3)) == 0
        else None,
        prompt_logprobs=draw(st.sampled_from([-1, -1, -1, 0, 2])),
        speculation=speculation,
        priority=draw(st.integers(-2, 2)),
        cache=bool(speculation) or draw(st.integers(0, 5)) > 0,
    )


@dataclass(frozen=True)
class Plan:
    """When a request is submitted, and when it or one of its sequences is cancelled."""

    wish: Wish
    comes: int
    given_up: int | None = None
    sequence: int | None = None


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    wish = draw(wishes())
    given_up = draw(st.one_of(st.none(), st.none(), st.integers(0, 20)))
    one = given_up is not None and wish.num_sequences > 1 and draw(st.sampled_from([True, False]))
    return Plan(
        wish,
        comes=draw(st.sampled_from([0, 0, 0, 1, 2, 3, 5, 8, 13])),
        given_up=given_up,
        sequence=draw(st.integers(0, wish.num_sequences - 1)) if one else None,
    )


@dataclass(frozen=True)
class Crowd:
    plans: tuple[Plan, ...]
    dtype: str = "f32"
    chunk: int = 16
    threads: int = 1
    max_sequences: int = WIDEST
    draft: str = "same"

    def engine(self) -> _core.Engine:
        return _core.Engine(
            model(self.dtype),
            threads=self.threads,
            prefill_chunk_tokens=self.chunk,
            max_sequences=self.max_sequences,
            draft=draft(self.dtype, self.draft),
        )


@st.composite
def crowds(draw: st.DrawFn) -> Crowd:
    return Crowd(
        plans=tuple(draw(st.lists(plans(), min_size=2, max_size=12))),
        dtype=draw(st.sampled_from(["f32", "bf16", "int8"])),
        draft=draw(st.sampled_from(["same", "other"])),
        chunk=draw(st.one_of(st.sampled_from([16, 64, 32, 1, 48]), st.integers(1, 64))),
        threads=draw(st.integers(1, 2)),
        max_sequences=draw(st.integers(WIDEST, 3 * WIDEST)),
    )
