"""Finds stop strings in a growing text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from onward.errors import ArgumentTypeError, InvalidArgument

Symbol = str | int  # a character of the text, or the id of a token that is not shown


class StopStrings:
    """Finds the first of several strings that a growing text completes.

    An automaton (Aho and Corasick, 1975) that reads one symbol at a time. Its state is the longest
    end of the text with which a stop string begins. So the state also gives the number of
    characters that must be held back.
    """

    def __init__(self, stops: Sequence[tuple[str, Sequence[Symbol]]]) -> None:
        self._next: list[dict[Symbol, int]] = [{}]
        self._fallback = [0]
        self.shown_length = [0]  # characters of the text that the state spans
        self.completes: list[str | None] = [None]
        for name, symbols in stops:
            state = 0
            for symbol in symbols:
                following = self._next[state].get(symbol)
                if following is None:
                    following = len(self._next)
                    self._next[state][symbol] = following
                    self._next.append({})
                    self._fallback.append(0)
                    self.shown_length.append(self.shown_length[state] + isinstance(symbol, str))
                    self.completes.append(None)
                state = following
            self.completes[state] = name
        self.completed_length = list(self.shown_length)
        queue = list(self._next[0].values())
        for state in queue:
            for symbol, following in self._next[state].items():
                self._fallback[following] = self.step(self._fallback[state], symbol)
                queue.append(following)
            shorter = self._fallback[state]
            if self.completes[state] is None and self.completes[shorter] is not None:
                self.completes[state] = self.completes[shorter]
                self.completed_length[state] = self.completed_length[shorter]

    def step(self, state: int, symbol: Symbol) -> int:
        """The state after one more symbol."""
        while state and symbol not in self._next[state]:
            state = self._fallback[state]
        return self._next[state].get(symbol, 0)


def automata_of(stop: str | Sequence[str], hidden: Mapping[str, int]) -> list[StopStrings]:
    """One automaton over the shown text and, if needed, one that also sees hidden tokens.

    `hidden` maps the text of each token that is not shown to its id.

    Raises:
        InvalidArgument: a stop string is empty.
        ArgumentTypeError: a stop string is not a str.
    """
    stops = [stop] if isinstance(stop, str) else list(stop)
    for text in stops:
        if not isinstance(text, str):
            raise ArgumentTypeError(f"stop: found a {type(text).__name__}, expected a str")
        if not text:
            raise InvalidArgument("stop: found an empty string, expected at least one character")
    if not stops:
        return []
    automata = [StopStrings([(text, text) for text in stops])]
    mixed = []
    for text in stops:
        inside = sorted((name for name in hidden if name in text), key=len, reverse=True)
        if inside:
            symbols: list[Symbol] = []
            for part in re.split(f"({'|'.join(map(re.escape, inside))})", text):
                symbols += [hidden[part]] if part in hidden else part
            mixed.append((text, symbols))
    if mixed:
        automata.append(StopStrings(mixed))
    return automata
