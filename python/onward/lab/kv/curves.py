"""The chart of ``onward kv --plot``: bytes of one sequence by its length."""

from __future__ import annotations

from onward.lab.counts.amounts import amount
from onward.lab.counts.policy import Policy
from onward.lab.counts.sequences import sequence_bytes
from onward.lab.kv.models import Subject
from onward.lab.kv.report import Report
from onward.lab.report import Chart, Curve
from onward.options.kv_dtypes import KvDtypes

_SPAN = 16  # of the axis, if only one length was requested


def chart(subject: Subject, report: Report) -> Chart:
    """A line for each kv_dtype, from the shortest length of the report to the longest."""
    lengths = sorted(tokens for tokens, _ in report.codecs[0].sequences)
    tokens = _doublings(min(lengths[0], max(1, lengths[-1] // _SPAN)), lengths)
    policy = Policy(report.window_tokens, report.sinks, report.attention_window)
    curves = []
    for codec in report.codecs:
        dtypes = KvDtypes(codec.keys, codec.values, codec.exact)
        sizes = (max(1, sequence_bytes(subject.spec, dtypes, each, policy)) for each in tokens)
        curves.append(Curve(codec.kv_dtype, tuple(zip(tokens, sizes, strict=True))))
    levels: list[tuple[str, int]] = []
    if report.memory_bytes:
        levels.append(("memory", report.memory_bytes))
    if report.room_bytes:
        levels.append(("beside the weights", report.room_bytes))
    return Chart(
        f"{report.model}: KV cache of one sequence",
        "tokens of one sequence",
        tuple(curves),
        lambda size: amount(round(size)),
        tuple(levels),
    )


def _doublings(first: int, lengths: list[int]) -> list[int]:
    """The shortest length and its doublings up to the longest, and all lengths."""
    found = set(lengths)
    while first < lengths[-1]:
        found.add(first)
        first *= 2
    return sorted(found)
