"""The reports of ``onward kv``: the formula in steps, two tables, and the table of --check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields

from onward.lab.counts.amounts import amount, unit_of
from onward.lab.counts.vectors import BLOCK_TOKENS
from onward.lab.kv.check import Checked
from onward.lab.kv.report import Codec, Report
from onward.lab.report.numbers import counted
from onward.lab.report.tables import Rows, Section, writers

_TOO_MUCH = "*"
_NAMES = (
    *("model", "kv_dtype", "keys", "values", "exact", "token_bytes", "context", "batch"),
    *("bytes", "fits", "sequences_that_fit", "memory_bytes", "weight_bytes"),
)


def sections(report: Report) -> list[Section]:
    """The model, the formula, the codecs, the batches, and their meaning."""
    return [
        Section(notes=list(_setting(report))),
        Section(notes=list(_formula(report)), fixed=True),
        Section(rows=_codec_rows(report)),
        Section(rows=_batch_rows(report)),
        Section(notes=list(_meaning(report, report.memory_bytes is not None))),
    ]


def records(report: Report) -> list[dict[str, object]]:
    """A row for each kv_dtype, context and batch, with the model and the memory."""
    found = []
    for codec in report.codecs:
        fitting = dict(codec.sequences)
        for figure in codec.figures:
            row = {
                **asdict(codec),
                **asdict(figure),
                "model": report.model,
                "sequences_that_fit": fitting[figure.context],
                "memory_bytes": report.memory_bytes,
                "weight_bytes": report.weight_bytes,
            }
            found.append({name: row[name] for name in _NAMES})
    return found


def _setting(report: Report) -> Iterator[str]:
    yield (
        f"{report.model}: {counted(report.num_layers, 'layer')}, "
        f"{counted(report.num_heads, 'query head')} on {counted(report.num_kv_heads, 'kv head')} "
        f"of {report.head_dim}, context {report.context:,}"
    )
    if any(window for window, _ in report.windows):
        listed = (
            f"{counted(layers, 'layer')} {_seen(window)}" for window, layers in report.windows
        )
        yield "attention: " + ", ".join(listed)
    weights = f"weights {amount(report.weight_bytes)}"
    if report.weights is not None:
        weights += f" ({report.weights})"
    if report.memory_bytes is None or report.room_bytes is None:
        yield f"{weights}; memory unknown, give it with --memory"
    else:
        yield (
            f"{weights}; memory {amount(report.memory_bytes)}; "
            f"room for the cache {amount(report.room_bytes)}"
        )


def _seen(window: int) -> str:
    return f"within {counted(window, 'token')}" if window else "over everything"


def _formula(report: Report) -> Iterator[str]:
    """Each factor with the product so far, then the sequences."""
    book, own_heads = report.textbook, report.num_heads == report.num_kv_heads
    lines: list[tuple[str, str, str, str]] = []
    for index, step in enumerate(book.steps):
        factor = f"x {step.factor:,}" if index else f"{step.factor:,}"
        if not step.makes:
            lines.append((factor, step.what, "", ""))
        elif step.makes == "numbers":
            lines.append((factor, step.what, f"{step.bytes:,}", step.makes))
        else:
            lines.append((factor, step.what, f"{step.bytes:,}", f"bytes: {step.makes}"))
    lines[-1] = (*lines[-1][:3], f"{lines[-1][3]}, {amount(book.steps[-1].bytes)}")
    for tokens, size, with_all_heads in book.sequences:
        made_of = f"bytes: one sequence, {amount(size)}"
        if not own_heads:
            made_of += f"; {amount(with_all_heads, unit_of(size))} as MHA"
        lines.append((f"x {tokens:,}", "tokens", f"{size:,}", made_of))
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    yield f"the formula, with the model's own cache dtype ({book.dtype}):"
    for factor, what, made, made_of in lines:
        equals = "=" if made else " "
        line = f"  {factor:>{widths[0]}} {what:{widths[1]}}  {equals} {made:>{widths[2]}} {made_of}"
        yield line.rstrip()
    if own_heads:
        yield "every query head has keys and values of its own (MHA)"
    else:
        times = report.num_heads / report.num_kv_heads
        yield (
            f"grouped queries (GQA): {report.num_heads} query heads share {report.num_kv_heads} "
            f"kv heads; as MHA, a kv head for each, it would be {times:.3g} times as large"
        )


def _codec_rows(report: Report) -> Rows:
    contexts = [tokens for tokens, _ in report.codecs[0].sequences]
    head = ["kv dtype", "B a key", "B a value", "a token", f"of {report.textbook.dtype}"]
    if report.memory_bytes is not None:
        head += ["longest", *(f"of {tokens:,}" for tokens in contexts)]
    return [head, *(_codec_row(codec, report) for codec in report.codecs)]


def _codec_row(codec: Codec, report: Report) -> list[str]:
    row = [
        codec.kv_dtype,
        f"{codec.key_bytes:,}",
        f"{codec.value_bytes:,}",
        amount(codec.token_bytes),
        f"{codec.share:.1%}",
    ]
    if report.memory_bytes is not None:
        row.append("no end" if codec.longest is None else f"{codec.longest:,}")
        row += [f"{fitting or 0:,}" for _, fitting in codec.sequences]
    return row


def _batch_rows(report: Report) -> Rows:
    rows = [["tokens x sequences", *(codec.kv_dtype for codec in report.codecs)]]
    for figures in zip(*(codec.figures for codec in report.codecs), strict=True):
        cells = [
            amount(figure.bytes) + (_TOO_MUCH if figure.fits is False else "") for figure in figures
        ]
        rows.append([f"{figures[0].context:,} x {figures[0].batch:,}", *cells])
    return rows


def _meaning(report: Report, known: bool) -> Iterator[str]:
    yield (
        "B a key, B a value: bytes at one kv head of one layer; a token: keys and values of all "
        "layers."
    )
    if known:
        yield (
            "longest: tokens of the longest sequence that fits beside the weights; of N: number of "
            "sequences of N tokens that fit."
        )
        yield f"{_TOO_MUCH} more than the room beside the weights."
        step = max(codec.step_bytes for codec in report.codecs)
        if step:
            yield (
                f"Up to {amount(step)} of the room is kept free for blocks that become codes or "
                "leave a window in a step."
            )
    sinks = " and the first block" if report.sinks else ""
    yield (
        f"Sequences are counted in blocks of {BLOCK_TOKENS} tokens. Codes: the newest "
        f"{report.window_tokens:,} tokens, a block more{sinks} stay exact."
    )
    if report.attention_window is not None:
        yield (
            f"An attention window of {report.attention_window:,} tokens and the first block is an "
            "approximation: later tokens do not see the tokens between."
        )


def _check_rows(checked: Sequence[Checked]) -> Rows:
    rows = [["kv dtype", "tokens", "predicted", "engine", "difference", "resident", "of predicted"]]
    for line in checked:
        resident = line.resident
        rows.append(
            [
                line.kv_dtype,
                f"{line.tokens:,}",
                f"{line.predicted:,}",
                f"{line.engine:,}",
                f"{line.engine - line.predicted:+,}" if line.engine != line.predicted else "0",
                "unknown" if resident is None else f"{resident:,}",
                "unknown" if resident is None else f"{resident / line.predicted:.1%}",
            ]
        )
    return rows


def _check_sections(checked: Sequence[Checked]) -> list[Section]:
    return [Section(rows=_check_rows(checked)), Section(notes=[_CHECK_MEANING])]


def _check_records(checked: Sequence[Checked]) -> list[dict[str, object]]:
    return list(map(asdict, checked))


_CHECK_MEANING = (
    "engine: the bytes that the engine counts itself; resident: the growth of the process."
)
WRITERS = writers(sections, _NAMES, records, asdict)
CHECK_WRITERS = writers(
    _check_sections, [field.name for field in fields(Checked)], _check_records, _check_records
)
