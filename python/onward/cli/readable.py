"""Formats a result as text: numbered outputs, and a table of log-probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onward.calls.result import Result, TokenLogprobs
from onward.lab.report.tables import aligned

TokenText = Callable[[int], str]
_HEADER = ("token", "text", "logprob", "likeliest")


def readable(result: Result, token_text: TokenText) -> str:
    """The table of the prompt, and each output with its table, if they were requested."""
    parts = []
    if result.prompt_logprobs is not None:
        parts.append(
            "log-probabilities of the prompt\n" + _table(result.prompt_logprobs, token_text)
        )
    several = len(result.sequences) > 1
    for number, sequence in enumerate(result.sequences, 1):
        score = "" if sequence.score is None else f" (score {sequence.score:.4g})"
        head = f"[{number}]{score} " if several else ""
        parts.append(f"{head}{sequence.text}\n")
        if sequence.logprobs is not None:
            parts.append(_table(sequence.logprobs, token_text))
    return "".join(parts)


def _table(tokens: Sequence[TokenLogprobs], token_text: TokenText) -> str:
    """A row for each token: id, text, log-probability, and the most likely alternatives."""
    rows = [
        (
            str(token.token_id),
            repr(token_text(token.token_id)),
            f"{token.logprob:.4f}",
            "  ".join(f"{token_text(other)!r} {logprob:.4f}" for other, logprob in token.top),
        )
        for token in tokens
    ]
    head = _HEADER if any(token.top for token in tokens) else (*_HEADER[:-1], "")
    # The first column holds numbers and has the width of the widest one.
    width = max(len(row[0]) for row in (head, *rows))
    placed = [(row[0].rjust(width), *row[1:]) for row in (head, *rows)]
    return "\n".join(aligned(placed, left=("text", *head[-1:]))) + "\n"
