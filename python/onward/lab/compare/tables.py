"""Writes the report of ``onward compare``: first the result, then the tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from onward.lab.compare.comparison import Comparison, SpeedLine, Spread
from onward.lab.compare.cost import fault_sentence, headline
from onward.lab.compare.divergence import Divergence
from onward.lab.counts.amounts import amount
from onward.lab.report.numbers import counted, figures
from onward.lab.report.tables import Rows, Section, as_json, markdown, text

NOTHING = "-"
_WORD_CHARACTERS = 24


def sections(comparison: Comparison, failed: Sequence[str] = ()) -> list[Section]:
    """All parts of the report, in order. ``failed``: the messages of conditions that are true."""
    c = comparison
    a, b = c.a.description, c.b.description
    found: list[Section] = [
        Section("result", notes=summary_lines(c, failed)),
        Section(
            "sides",
            [
                ["", "A", "B"],
                ["setting", a.setting, b.setting],
                *([name.replace("_", " "), x, y] for name, x, y in c.differences),
            ],
            () if c.differences else ("No difference in the environment.",),
        ),
        Section("load and memory", _load_rows(c)),
    ]
    if c.a.speed or c.b.speed:
        found.append(Section("speed", _speed_rows(c), _SPEED_MEANING))
    found.append(Section(f"agreement on the tokens of {c.writer}", _agreement_rows(c)))
    if c.judgement.divergences:
        found.append(
            Section("first diverging token of each text", _divergence_rows(c), _FLIP_MEANING)
        )
    return found


def summary_lines(comparison: Comparison, failed: Sequence[str] = ()) -> tuple[str, ...]:
    """The costs of the difference, whether a fault is suspected with all reasons, and the
    conditions that are true."""
    further = comparison.judgement.reasons[1:] if comparison.judgement.fault else ()
    return (
        headline(comparison),
        fault_sentence(comparison),
        *further,
        *(f"failed on {text}" for text in failed),
    )


def content(comparison: Comparison, failed: Sequence[str] = ()) -> dict[str, Any]:
    """Everything as plain data, except for the single positions."""
    c = comparison
    found: dict[str, Any] = {
        "headline": headline(c),
        "fault": fault_sentence(c),
        "a": asdict(c.a),
        "b": asdict(c.b),
        "writer": c.writer,
        "texts": [asdict(text) for text in c.texts],
        "differences": [dict(zip(("what", "a", "b"), row, strict=True)) for row in c.differences],
        "ratios": [asdict(line) for line in c.ratios],
        "agreement": asdict(c.agreement),
        "judgement": asdict(c.judgement),
        "words": c.words,
        "failed": list(failed),
    }
    for listed, divergence in zip(
        found["judgement"]["divergences"], c.judgement.divergences, strict=True
    ):
        listed["coin_flip"] = divergence.coin_flip
    return found


WRITERS: dict[str, Callable[[Comparison, Sequence[str]], str]] = {
    "table": lambda comparison, failed: text(sections(comparison, failed)),
    "md": lambda comparison, failed: markdown(sections(comparison, failed)),
    "json": lambda comparison, failed: as_json(content(comparison, failed)),
}


def _load_rows(c: Comparison) -> Rows:
    a, b = c.a.footprint, c.b.footprint

    def resident(count: int | None) -> str:
        return NOTHING if count is None else amount(max(count, 0))

    def ratio(x: float, y: float) -> str:
        return figures(y / x) if x > 0 else NOTHING

    grown = NOTHING
    if a.resident_bytes is not None and b.resident_bytes is not None:
        grown = ratio(a.resident_bytes, b.resident_bytes)
    return [
        ["", "A", "B", "B / A"],
        ["load, s", figures(a.load_s), figures(b.load_s), ratio(a.load_s, b.load_s)],
        [
            *("weights", amount(a.weight_bytes), amount(b.weight_bytes)),
            ratio(a.weight_bytes, b.weight_bytes),
        ],
        ["process grew by", resident(a.resident_bytes), resident(b.resident_bytes), grown],
    ]


_SPEED_MEANING = (
    "t/s: median (least to most); of peak, of read: shares of the limits of each side's own "
    "device, probed around the runs.",
)


def _speed_rows(c: Comparison) -> Rows:
    head = ["test", "A t/s", "B t/s", "B / A", "A of peak", "B of peak", "A of read", "B of read"]
    rows = [head]
    of_a = {line.depth: line for line in c.a.speed}
    of_b = {line.depth: line for line in c.b.speed}
    ratios = {line.depth: line for line in c.ratios}
    for depth in dict.fromkeys([*of_a, *of_b]):
        a, b, ratio = of_a.get(depth), of_b.get(depth), ratios.get(depth)
        if depth > 1:
            prefill = None if ratio is None else ratio.prefill
            rows.append(
                [
                    f"prefill {depth:,}",
                    *(_rate(line and line.prefill_tokens_per_s) for line in (a, b)),
                    NOTHING if prefill is None else figures(prefill),
                    *(_share(line and line.arithmetic_share) for line in (a, b)),
                    *(NOTHING, NOTHING),
                ]
            )
        rows.append(
            [
                f"decode after {depth:,}",
                *(_rate(line and line.decode_tokens_per_s) for line in (a, b)),
                NOTHING if ratio is None else figures(ratio.decode),
                *(NOTHING, NOTHING),
                *(_share(line and line.read_share) for line in (a, b)),
            ]
        )
    return rows


def _rate(spread: SpeedLine | Spread | None) -> str:
    if not isinstance(spread, Spread):
        return NOTHING
    return f"{figures(spread.median)} ({figures(spread.least)} to {figures(spread.most)})"


def _share(share: SpeedLine | float | None) -> str:
    return f"{share:.0%}" if isinstance(share, float) else NOTHING


def _agreement_rows(c: Comparison) -> Rows:
    found, judgement = c.agreement, c.judgement
    return [
        ["figure", "value"],
        [
            "tokens compared",
            f"{found.tokens} after {counted(len(c.texts), 'prompt')}",
        ],
        ["largest logit difference", f"{found.max_difference:.3g}"],
        ["RMS logit difference", f"{found.rms_difference:.3g}"],
        [
            "relative noise (expected)",
            f"{found.noise:.2g} ({judgement.expected_noise:.2g})",
        ],
        [
            "noise, worst text and position",
            f"{judgement.worst_text_noise:.2g}, {judgement.worst_position_noise:.2g}",
        ],
        ["KL mean, nats", f"{found.kl_mean:.3g} ± {found.kl_error:.1g}"],
        ["KL 99.9 %", f"{found.kl_p99_9:.3g}"],
        ["KL largest", f"{found.kl_max:.3g}"],
        ["top-1 agreement", f"{found.top1:.2%} ± {found.top1_error:.2%}"],
        ["perplexity, A and B", f"{found.perplexity_a:.4f}, {found.perplexity_b:.4f}"],
        ["perplexity, B / A", f"{found.perplexity_ratio:.5f}"],
    ]


_FLIP_MEANING = (
    "margin: A's logit of its own token minus its logit of B's token; times: margin over noise; "
    "noise: of a difference of two logits.",
)


def _divergence_rows(c: Comparison) -> Rows:
    head = ["text", "token", "after", "A's", "B's", "margin", "noise", "times", "verdict"]
    words = [(word_shown(a), word_shown(b)) for a, b in c.words] or [
        (f"id {d.token_a}", f"id {d.token_b}") for d in c.judgement.divergences
    ]
    return [
        head,
        *(
            _divergence_row(divergence, pair)
            for divergence, pair in zip(c.judgement.divergences, words, strict=True)
        ),
    ]


def _divergence_row(d: Divergence, words: tuple[str, str]) -> list[str]:
    return [
        str(d.text + 1),
        str(d.written + 1),
        f"{d.position:,}",
        *words,
        *(f"{d.margin_a:.3g}", f"{d.noise:.2g}", f"{d.times:.2g}"),
        "coin flip" if d.coin_flip else "far above the noise",
    ]


def word_shown(word: str) -> str:
    """A token's text on one line."""
    return repr(word[:_WORD_CHARACTERS])
