"""Gives the same tokens to one side, or to two sides in turns, and times them.

A writes the tokens, unless only B is a saved result: then B's tokens are used. Both sides are given
these tokens, whichever tokens they would have chosen.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields

from onward.errors import InvalidArgument, TokenizerError
from onward.lab.compare import agreement, divergence, noise
from onward.lab.compare.agreement import Agreement, Positions
from onward.lab.compare.divergence import Divergence, Judgement
from onward.lab.compare.local import LocalSide
from onward.lab.compare.prompts import MAX_NEW_TOKENS, PROMPTS
from onward.lab.compare.remote import RemoteSide
from onward.lab.compare.result_file import Saved, SavedSide
from onward.lab.compare.setting import Setting
from onward.lab.compare.side import Description, Footprint, Logits, Round, Side, Text
from onward.lab.compare.speed import TOKENS_WITH
from onward.machine.progress import ProgressBar
from onward.options.values import check_integer

Words = tuple[tuple[str, str], ...]
DEPTHS = (0, 512, 2048)
REPETITIONS = 3
_LOGITS_BYTES = 2 << 30
"""The most bytes of logits of one side, which are kept in memory and saved."""
_APART = ("setting", "parameters")
"""Fields of a description that are not listed as differences."""


@dataclass(frozen=True)
class Question:
    """The request. ``depths`` None: the usual depths that fit into the context; empty: nothing is
    timed."""

    prompts: Sequence[str] = PROMPTS
    max_new_tokens: int = MAX_NEW_TOKENS
    depths: Sequence[int] | None = None
    repetitions: int = REPETITIONS

    def check(self) -> None:
        check_integer("max_new_tokens", self.max_new_tokens, 1)
        check_integer("repetitions", self.repetitions, 1, 1000)
        for depth in self.depths or ():
            check_integer("depths", depth, 0)
        if not self.prompts or not all(self.prompts):
            raise InvalidArgument("prompts: there are none, or an empty one, expected texts")

    def depths_in(self, context: int) -> Sequence[int]:
        """The depths to time. Raises InvalidArgument for a requested depth above the context."""
        most = context - TOKENS_WITH - 1
        if self.depths is None:
            return [depth for depth in DEPTHS if depth <= most]
        for depth in self.depths:
            check_integer("depths", depth, 0, most)
        return self.depths


@dataclass(frozen=True)
class Spread:
    """Median, least and most of some runs."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, numbers: Sequence[float | None]) -> Spread | None:
        """The spread of the known numbers; None if there is none."""
        known = [number for number in numbers if number is not None]
        return cls(statistics.median(known), min(known), max(known)) if known else None


@dataclass(frozen=True)
class SpeedLine:
    """The speed of one side at one depth."""

    depth: int
    prefill_tokens_per_s: Spread | None
    decode_tokens_per_s: Spread
    bytes_per_token: float
    gigabytes_per_s: float
    read_share: float | None
    arithmetic_share: float | None


@dataclass(frozen=True)
class SideReport:
    description: Description
    footprint: Footprint
    speed: tuple[SpeedLine, ...]


@dataclass(frozen=True)
class Ratios:
    """Medians of B over medians of A: above 1, B is faster."""

    depth: int
    prefill: float | None
    decode: float


@dataclass(frozen=True)
class Comparison:
    a: SideReport
    b: SideReport
    writer: str
    """The side that chose the tokens for both: A or B."""
    texts: tuple[Text, ...]
    differences: tuple[tuple[str, str, str], ...]
    """Differences of the environments: (name, value of A, value of B)."""
    ratios: tuple[Ratios, ...]
    agreement: Agreement
    judgement: Judgement
    positions: tuple[Positions, ...]
    """The positions of each text, for plots."""
    words: Words
    """The tokens of A and B as text at each divergence; empty if no side has a tokenizer."""


@dataclass(frozen=True)
class Found:
    """A comparison, and its sides as results to save."""

    comparison: Comparison
    a: Saved
    b: Saved


def measure(setting: Setting, model: str | None, question: Question) -> Saved:
    """Measure one side alone, to save it."""
    question.check()
    if setting.file is not None:
        raise InvalidArgument(f"compare: {setting.text} is a saved result already")
    side = open_side(setting, model)
    try:
        description = side.describe()
        texts, logits = _written(side, description, question)
        rounds = _rounds({"A": side}, question.depths_in(description.context), question)["A"]
        return Saved(description, side.footprint(), texts, rounds, logits)
    finally:
        side.close()


def compare(a: Setting, b: Setting, model: str | None, question: Question) -> Found:
    """Measure and compare both sides. Raises InvalidArgument if they cannot be compared."""
    question.check()
    with ExitStack() as stack:
        sides: list[Side] = []
        for setting in (a, b):
            side = open_side(setting, model)
            stack.callback(side.close)
            sides.append(side)
        of_a, of_b = (side.describe() for side in sides)
        if of_a.vocab_size != of_b.vocab_size:
            raise InvalidArgument(
                f"compare: B has {of_b.vocab_size} tokens in its vocabulary, expected A's "
                f"{of_a.vocab_size}"
            )
        writer = "B" if b.file is not None and a.file is None else "A"
        first, second = (sides[1], sides[0]) if writer == "B" else (sides[0], sides[1])
        texts, logits = _written(first, of_a if writer == "A" else of_b, question)
        followed = _followed(second, texts)
        logits_a, logits_b = (followed, logits) if writer == "B" else (logits, followed)
        live = {
            name: side
            for name, side in zip("AB", sides, strict=True)
            if not isinstance(side, SavedSide)
        }
        depths = question.depths_in(min(of_a.context, of_b.context))
        rounds = _rounds(live, depths, question)

        def spelled(divergences: Sequence[Divergence]) -> Words:
            return _spelled(list(live.values()), divergences)

        saved = []
        for name, side, found in zip("AB", sides, (logits_a, logits_b), strict=True):
            timed = side.saved.rounds if isinstance(side, SavedSide) else rounds[name]
            saved.append(Saved(side.describe(), side.footprint(), texts, timed, found))
        return Found(_judged(saved[0], saved[1], writer, spelled), saved[0], saved[1])


def open_side(setting: Setting, model: str | None) -> Side:
    """The side of a setting."""
    if setting.file is not None:
        return SavedSide(setting.file)
    return RemoteSide(setting, model) if setting.apart else LocalSide(setting, model)


def _written(
    side: Side, description: Description, question: Question
) -> tuple[tuple[Text, ...], tuple[Logits, ...]]:
    if isinstance(side, SavedSide):
        return side.saved.texts, side.saved.logits
    needed = 4 * len(question.prompts) * question.max_new_tokens * description.vocab_size
    if needed > _LOGITS_BYTES:
        raise InvalidArgument(
            f"max_new_tokens: {question.max_new_tokens} after each of {len(question.prompts)} "
            f"prompts take {needed} bytes of logits, expected at most {_LOGITS_BYTES}"
        )
    texts, logits = [], []
    with ProgressBar("writing") as progress:
        for prompt in side.tokenize(question.prompts):
            text, rows = side.write(prompt, question.max_new_tokens)
            texts.append(text)
            logits.append(rows)
            progress(len(texts), len(question.prompts))
    return tuple(texts), tuple(logits)


def _followed(side: Side, texts: Sequence[Text]) -> tuple[Logits, ...]:
    logits = []
    with ProgressBar("following") as progress:
        for text in texts:
            logits.append(side.follow(text))
            progress(len(logits), len(texts))
    return tuple(logits)


def _rounds(
    sides: dict[str, Side], depths: Sequence[int], question: Question
) -> dict[str, tuple[Round, ...]]:
    """The timed runs of all sides, in turns. The first run at each depth warms up and is
    dropped."""
    found: dict[str, list[Round]] = {name: [] for name in sides}
    total = len(depths) * (question.repetitions + 1)
    with ProgressBar("measuring") as progress:
        for index, depth in enumerate(depths):
            for repetition in range(question.repetitions + 1):
                for name, side in sides.items():
                    run = side.run(depth)
                    if repetition > 0:
                        found[name].append(run)
                progress(index * (question.repetitions + 1) + repetition + 1, total)
    return {name: tuple(runs) for name, runs in found.items()}


def _judged(
    a: Saved, b: Saved, writer: str, words: Callable[[Sequence[Divergence]], Words]
) -> Comparison:
    found = tuple(
        agreement.positions(x, y, text.written)
        for x, y, text in zip(a.logits, b.logits, a.texts, strict=True)
    )
    judgement = divergence.judge(
        a.texts, a.logits, b.logits, found, noise.expected(a.description, b.description)
    )
    reports = [SideReport(side.description, side.footprint, _speed(side.rounds)) for side in (a, b)]
    return Comparison(
        a=reports[0],
        b=reports[1],
        writer=writer,
        texts=a.texts,
        differences=_differences(a.description, b.description),
        ratios=_ratios(reports[0].speed, reports[1].speed),
        agreement=agreement.summary(agreement.joined(found)),
        judgement=judgement,
        positions=found,
        words=words(judgement.divergences),
    )


def _spelled(sides: Sequence[Side], divergences: Sequence[Divergence]) -> Words:
    pairs = [(divergence.token_a, divergence.token_b) for divergence in divergences]
    if not sides or not pairs:
        return ()
    try:
        texts = sides[0].spell([token for pair in pairs for token in pair])
    except TokenizerError:
        return ()
    return tuple(zip(texts[::2], texts[1::2], strict=True))


def _differences(a: Description, b: Description) -> tuple[tuple[str, str, str], ...]:
    return tuple(
        (field.name, _told(getattr(a, field.name)), _told(getattr(b, field.name)))
        for field in fields(Description)
        if field.name not in _APART and getattr(a, field.name) != getattr(b, field.name)
    )


def _told(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _speed(rounds: Sequence[Round]) -> tuple[SpeedLine, ...]:
    lines = []
    for depth in dict.fromkeys(run.depth for run in rounds):
        runs = [run for run in rounds if run.depth == depth]

        def spread(of: Callable[[Round], float | None], runs: list[Round] = runs) -> Spread | None:
            return Spread.of([of(run) for run in runs])

        decode = spread(lambda run: run.decode_tokens_per_s)
        assert decode is not None
        read, arithmetic = spread(lambda r: r.read_share), spread(lambda r: r.arithmetic_share)
        lines.append(
            SpeedLine(
                depth,
                spread(lambda run: run.prefill_tokens_per_s),
                decode,
                runs[0].bytes_per_token,
                statistics.median(run.gigabytes_per_s for run in runs),
                None if read is None else read.median,
                None if arithmetic is None else arithmetic.median,
            )
        )
    return tuple(lines)


def _ratios(a: Sequence[SpeedLine], b: Sequence[SpeedLine]) -> tuple[Ratios, ...]:
    others = {line.depth: line for line in b}
    found = []
    for line in a:
        other = others.get(line.depth)
        if other is None:
            continue
        prefill = None
        if line.prefill_tokens_per_s is not None and other.prefill_tokens_per_s is not None:
            prefill = other.prefill_tokens_per_s.median / line.prefill_tokens_per_s.median
        decode = other.decode_tokens_per_s.median / line.decode_tokens_per_s.median
        found.append(Ratios(line.depth, prefill, decode))
    return tuple(found)
