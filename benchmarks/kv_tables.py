"""Tables of the rows of kv_numerics.py, and the bounds that they must satisfy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engines import tables as tables_of

YARDSTICK = "q4_0"
RATIOS = {"turbo8v4": 0.1, "turbo4": 0.4, "turbo3": 2.5}
"""The largest allowed ratio to the mean KL of the reference codec, in the default setting."""
MEANS = {"int8": 0.0005}
"""The largest allowed mean KL in that setting."""


@dataclass(frozen=True)
class Row:
    """One kv_dtype in one setting on one text."""

    text: str
    kv_dtype: str
    setting: str
    window_tokens: int
    sinks: bool
    bits: float
    """Bits per coded value including scales; the mean of keys and values."""
    tokens: int
    kl_mean: float
    kl_error: float
    kl_p99: float
    kl_p99_9: float
    top1_agreement: float
    perplexity: float

    def ratio(self, rows: Sequence[Row]) -> float | None:
        """The ratio to the mean KL of the reference codec on the same text in the same setting, if
        measured."""
        for row in rows:
            if (row.kv_dtype, row.text, row.setting) == (YARDSTICK, self.text, self.setting):
                return self.kl_mean / row.kl_mean
        return None

    def as_dict(self, rows: Sequence[Row]) -> dict[str, Any]:
        return {**dataclasses.asdict(self), f"ratio_to_{YARDSTICK}": self.ratio(rows)}


@dataclass(frozen=True)
class Promise:
    words: str
    kept: bool


def promises(rows: Sequence[Row], setting: str) -> list[Promise]:
    """The texts that have rows in this setting."""
    found: list[Promise] = []
    for row in rows:
        if row.setting != setting:
            continue
        ratio, where = row.ratio(rows), f"{row.kv_dtype} on {row.text}"
        if ratio is not None and row.kv_dtype in RATIOS:
            most = RATIOS[row.kv_dtype]
            words = f"{where}: {ratio:.3f} of {YARDSTICK}'s mean KL, promised at most {most}"
            found.append(Promise(words, ratio <= most))
        if row.kv_dtype in MEANS:
            most = MEANS[row.kv_dtype]
            words = f"{where}: mean KL {row.kl_mean:.2g}, promised below {most}"
            found.append(Promise(words, row.kl_mean < most))
    return found


def tables(rows: Sequence[Row], markdown: bool) -> str:
    """Two tables for each setting: the mean KL with its ratio, and the other figures."""
    parts: list[str] = []
    for setting in dict.fromkeys(row.setting for row in rows):
        these = [row for row in rows if row.setting == setting]
        for what, show in _MEASURES.items():
            head, body = _table(these, rows, show)
            lay = tables_of.markdown if markdown else tables_of.aligned
            parts += [f"{_title(these[-1])}: {what}", "", lay([head, *body]), ""]
    return "\n".join(parts)


def _title(row: Row) -> str:
    window = f"the newest {row.window_tokens} tokens" if row.window_tokens else "no window"
    sinks = "the first block" if row.sinks else "no sinks"
    return f"{row.setting} ({window}, {sinks})"


def _mean(row: Row, rows: Sequence[Row]) -> str:
    ratio = row.ratio(rows)
    shown = f"{row.kl_mean:.3g}"
    return shown if ratio is None or row.kl_mean == 0 else f"{shown} ({_short(ratio)})"


def _others(row: Row, _rows: Sequence[Row]) -> str:
    return f"{row.kl_p99:.2g}, {row.top1_agreement:.2%}, {row.perplexity:.3f}"


_MEASURES: dict[str, Callable[[Row, Sequence[Row]], str]] = {
    f"mean KL (times {YARDSTICK}'s)": _mean,
    "KL 99 %, top-1 agreement, perplexity": _others,
}


def _short(ratio: float) -> str:
    return f"{ratio:.3f}" if ratio < 0.1 else f"{ratio:.2f}"


def _table(
    these: Sequence[Row], rows: Sequence[Row], show: Callable[[Row, Sequence[Row]], str]
) -> tuple[list[str], list[list[str]]]:
    texts = list(dict.fromkeys(row.text for row in these))
    cells = {(row.kv_dtype, row.text): show(row, rows) for row in these}
    bits = {row.kv_dtype: row.bits for row in these}
    body = [
        [kv_dtype, f"{bits[kv_dtype]:g}", *(cells.get((kv_dtype, text), "") for text in texts)]
        for kv_dtype in bits
    ]
    return ["kv_dtype", "bits a value", *texts], body
