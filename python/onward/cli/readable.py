"""A result as a person reads it: numbered outputs, and a table of log-probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onward.calls.result import Result, TokenLogprobs

TokenText = Callable[[int], str]
_HEADER = ("token", "text", "logprob", "likeliest")


def readable(result: Result, token_text: TokenText) -> str:
    """All that was asked for: the prompt's table, each output and its table."""
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
    """A row for each token: its id, text and log-probability, and the likeliest in its place."""
    rows = [
        (
            str(token.token_id),
            repr(token_text(token.token_id)),
            f"{token.logprob:.4f}",
            "  ".join(f"{token_text(other)!r} {logprob:.4f}" for other, logprob in token.top),
        )
        for token in tokens
    ]
    rows.insert(0, _HEADER if any(token.top for token in tokens) else (*_HEADER[:-1], ""))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"{row[0]:>{widths[0]}}  {row[1]:{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}".rstrip()
        for row in rows
    ]
    return "\n".join(lines) + "\n"
