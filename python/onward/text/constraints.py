"""Output that obeys a grammar: before each token, a rule bans all tokens that may not follow.

The engine calls the ConstraintRule of a request, which sets the scores of the banned tokens to
-inf. llguidance (the extra ``grammar``) decides what may follow; token_table.py gives it the bytes
of each token.

A request may have several outputs at once: samples, forking beams, drafted tokens that are
withdrawn. The engine does not say which output it asks about. The rule receives the tokens of an
output and looks for the kept state that shares the longest beginning with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onward.errors import Error, InvalidArgument
from onward.options.grammar import Grammar
from onward.text.distinct_texts import DistinctTexts
from onward.text.grammar_trial import LIMIT_S, read_in_time
from onward.text.tokenizer.token_table import TokenTable, table_of

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from onward.text.tokenizer.tokenizer import Tokenizer

STATES = 32  # largest number of states of a request; each takes up to some hundred kilobytes
_SPACING = 16  # a state is kept after this many tokens, for outputs that fork or are withdrawn
_MESSAGE_LENGTH = 200
_BYTES = 4  # of a token id in a key


class Constraint:
    """A grammar compiled for one model. Any number of requests may use it at the same time."""

    def __init__(self, grammar: Grammar, tokenizer: Tokenizer, vocab_size: int) -> None:
        """`vocab_size`: number of rows of the logits.

        Raises:
            InvalidArgument: llguidance cannot use the grammar or takes too long to read it, or no
                token of the model can begin it.
            MissingExtra: llguidance is not installed.
            Error: the tokenizer decodes in a way that cannot be constrained.
        """
        self.grammar = grammar
        self._table = table_of(tokenizer, vocab_size)
        self._tokenizer = tokenizer
        if not read_in_time(grammar.text):
            raise InvalidArgument(
                f"{grammar.option}: llguidance needs more than {LIMIT_S} s to read it, expected a "
                "smaller one: fewer properties, patterns and alternatives, or shorter repetitions"
            )
        matcher = self._table.matcher(grammar.text)
        if matcher.is_error() and _dead_end(matcher):
            raise InvalidArgument(
                f"{grammar.option}: no token of this model can begin such an output, "
                "expected a grammar that it can spell"
            )
        if matcher.is_error():
            text = _short(grammar.option, matcher.get_error())
            raise InvalidArgument(f"{grammar.option}: llguidance cannot use it: {text}")

    def rule(
        self,
        prompt_token_ids: Sequence[int],
        stop_token_ids: Sequence[int],
        *,
        skip_special_tokens: bool = True,
        outputs: int = 1,
        distinct: bool = False,
    ) -> ConstraintRule:
        """The rule for one request, whose outputs all follow the same prompt. `outputs` is the
        number of beams or samples that run at the same time. With `distinct` they are beams, and
        no two of them shall spell the same text."""
        table, at_start = self._table, False
        if table.start_ids.size + table.silent_ids.size:
            skipped = self._tokenizer.special_ids if skip_special_tokens else frozenset()
            at_start = all(
                i in skipped or self._tokenizer.id_to_token(i) is None for i in prompt_token_ids
            )
        states = STATES + 2 * (outputs - 1)
        prompt_tokens = len(prompt_token_ids)
        texts = None
        if distinct:

            def piece(token: int, first: bool) -> bytes:
                return table.piece(token, at_start and first)

            texts = DistinctTexts(piece, outputs)
        return ConstraintRule(
            table, self.grammar, prompt_tokens, stop_token_ids, at_start, states, texts
        )


class _State:
    """A matcher and the output that it has read."""

    def __init__(self, key: bytes, matcher: LLMatcher) -> None:
        self.key = key
        self.matcher = matcher
        self.mask: NDArray[np.bool_] | None = None  # of what may follow `key`, once computed
        self.open: bool | None = None  # whether more text may follow; known after the first mask


class ConstraintRule:
    """The tokens that may follow, for the outputs of one request. Use it in one thread at a time.

    It keeps the most recently used states. An output whose state is gone gets it again from the
    nearest kept state on its path, or from the start.
    """

    def __init__(
        self,
        table: TokenTable,
        grammar: Grammar,
        prompt_tokens: int,
        stop_token_ids: Sequence[int],
        at_start: bool,
        states: int,
        texts: DistinctTexts | None = None,
    ) -> None:
        """`at_start`: the prompt has no text, so the output begins one. `states`: largest number
        of kept states. `texts`: set if no text shall be spelled twice."""
        self._table = table
        self._grammar = grammar
        self._prompt_tokens = prompt_tokens
        inside = [i for i in stop_token_ids if 0 <= i < table.vocab_size]
        self._stop_ids = np.array(inside, dtype=np.int64)
        self._stops = frozenset(inside)
        self._at_start = at_start
        self._most_states = states
        self._texts = texts
        self._states: dict[bytes, _State] = {}  # the most recently used one comes last

    def process(self, token_ids: NDArray[np.int32], scores: NDArray[np.float32]) -> None:
        """Set to -inf the scores of all tokens that may not follow `token_ids`, the prompt and
        the output so far. Stop tokens may follow exactly where the output is complete."""
        key = self._key(token_ids)
        state = self._state(key)
        mask = self._mask(state) if state.mask is None else state.mask
        np.copyto(scores, -np.inf, where=~mask)
        if self._texts is not None:
            self._texts.lower(key, mask, scores)
        state.mask = None

    def ends(self, token_ids: NDArray[np.int32]) -> bool:
        """Whether the output, including its newest token, is complete and can only end."""
        key = self._key(token_ids)
        if key and int(token_ids[-1]) in self._stops:
            if self._texts is not None:
                self._texts.stops(key)
            return True
        complete = self._complete(key)
        return complete if self._texts is None else self._texts.ends(key, complete)

    def _complete(self, key: bytes) -> bool:
        """Whether nothing may follow an output."""
        state = self._state(key)
        if not state.matcher.is_accepting():
            return False
        if state.matcher.is_stopped():
            return True
        if state.open is None:
            state.mask = self._mask(state)  # process, which is called next, finds it computed
        return not state.open

    def _key(self, token_ids: NDArray[np.int32]) -> bytes:
        return np.asarray(token_ids[self._prompt_tokens :], dtype=np.int32).tobytes()

    def _state(self, key: bytes) -> _State:
        """The state of an output: its own one, the state before its last token advanced by that
        token, or a copy of the nearest state before it."""
        found = self._states.pop(key, None)
        if found is None:
            before = key[:-_BYTES]
            if len(before) % (_SPACING * _BYTES):
                found = self._states.pop(before, None)
            found = found or self._nearest(key)
            self._read(found, key)
        self._states[key] = found
        if len(self._states) > self._most_states:
            del self._states[next(iter(self._states))]
        return found

    def _nearest(self, key: bytes) -> _State:
        """A copy of the last state on the path to `key`.

        A state that took another path is not rolled back: after some dozens of rollbacks a matcher
        of llguidance 1.9.1 was seen to give a wrong mask.
        """
        on_the_way = [known for known in self._states if key.startswith(known)]
        known = max(on_the_way, key=len, default=b"")
        if not known:
            return _State(b"", self._table.matcher(self._grammar.text).deep_copy())
        state = self._states[known] = self._states.pop(known)
        return _State(known, state.matcher.deep_copy())

    def _read(self, state: _State, key: bytes) -> None:
        """Advance a state to `key`, which begins with what the state has read."""
        new: list[int] = np.frombuffer(key[len(state.key) :], dtype=np.int32).tolist()
        if new and not state.key and self._at_start:
            new[:1] = self._table.at_start(new[0])
        if not state.matcher.consume_tokens(new):
            raise Error(
                f"{self._grammar.option}: the output has a token that may not be there, or "
                f"llguidance gave up: {_short(self._grammar.option, state.matcher.get_error())}"
            )
        state.key, state.mask, state.open = key, None, None

    def _mask(self, state: _State) -> NDArray[np.bool_]:
        """Whether the token of each row of the logits may follow."""
        table, matcher = self._table, state.matcher
        found = table.mask(matcher)
        mask = found[: table.vocab_size]
        complete = matcher.is_accepting()
        if self._at_start and not state.key:
            mask[table.start_ids] = found[table.start_entries]
            mask[table.silent_ids] = False
            # If the text has to begin with something that the decoder drops, the output begins with
            # it twice.
            mask[table.silent_ids] = not (complete or mask.any())
        if matcher.is_error():
            # Nothing may follow, or llguidance gave up. It recovers from neither.
            self._states.pop(state.key, None)
            if not _dead_end(matcher):
                text = _short(self._grammar.option, matcher.get_error())
                raise Error(f"{self._grammar.option}: llguidance gave up: {text}")
            complete = False
            mask[:] = False
        mask[self._stop_ids] = False
        state.open = bool(mask.any())
        mask[self._stop_ids] = complete
        return mask


def _dead_end(matcher: LLMatcher) -> bool:
    """Whether the error of a matcher only means that nothing may follow."""
    return matcher.get_error().startswith("NoExtension")


def _short(option: str, message: str) -> str:
    """The message of llguidance, in one line."""
    reason = re.search(r"^error: (.+)", message, re.MULTILINE)
    line = reason[1] if reason else next(iter(message.splitlines()), "no reason given")
    place = re.match(r"at \d+\(\d+\)|\d+\(\d+\)", message)
    if reason and place and option == "grammar":
        line = f"{place[0]}: {line}"
    elif option != "grammar":  # the position refers to the grammar that was made from the option
        line = re.sub(r"^(at )?\d+\(\d+\): ", "", line)
    return line if len(line) <= _MESSAGE_LENGTH else line[: _MESSAGE_LENGTH - 3] + "..."
