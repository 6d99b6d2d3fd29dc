"""The figures of ``benchmarks/peers.py``: ratios within a round, groups, tables and bars.

No engine is needed, and no test depends on time.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from engines.chart import chart
from engines.contest import Timed
from engines.figures import Line, Spread, summarise, table
from engines.lineup import ENGINE_BYTES, SLACK, WEIGHTS, Entry, heats, lineup
from engines.rounds import Case, Reading

OWN = Entry("onward", "f32", "f32", "")
PEER = Entry("CTranslate2", "f32", "float32", "ctranslate2")
LATER = Entry("transformers", "f32", "float32", "transformers")


def reading(
    entry: Entry, rate: float, round_: int = 0, heat: int = 0, tokens: tuple[int, ...] = (1, 2)
) -> Reading:
    return Reading(entry, "decode", heat, round_, rate, 0.25, tokens)


def by_engine(readings: list[Reading]) -> dict[str, Line]:
    return {line.engine: line for line in summarise("model", readings)}


def test_ratios_are_taken_within_a_round() -> None:
    """The machine is half as fast in the second round, and the ratio stays the same."""
    lines = by_engine(
        [
            *(reading(OWN, 100), reading(PEER, 50)),
            *(reading(PEER, 25, 1), reading(OWN, 50, 1)),
            *(reading(OWN, 100, 2), reading(PEER, 100, 2)),
        ]
    )
    assert lines[PEER.name].ratio == Spread(2, 1, 2)
    assert lines[PEER.name].tokens_per_s == Spread(50, 25, 100)
    assert lines[OWN.name].ratio is None


def test_ratios_are_taken_within_a_group_of_engines() -> None:
    lines = by_engine(
        [reading(OWN, 100), reading(PEER, 50), reading(OWN, 10, heat=1), reading(LATER, 5, heat=1)]
    )
    assert list(lines) == [OWN.name, PEER.name, LATER.name]
    assert lines[LATER.name].ratio == Spread(2, 2, 2)
    assert lines[OWN.name].tokens_per_s == Spread(55, 10, 100)


def test_a_round_that_onward_missed_has_no_ratio() -> None:
    lines = by_engine([reading(OWN, 100), reading(PEER, 50), reading(PEER, 1, 1)])
    assert lines[PEER.name].ratio == Spread(2, 2, 2)
    (alone,) = summarise("model", [reading(PEER, 50)])
    assert (alone.ratio, alone.same_tokens) == (None, None)


def test_the_number_of_equal_tokens_ends_at_the_first_difference() -> None:
    lines = by_engine(
        [
            *(reading(OWN, 1, tokens=(1, 2, 3, 4)), reading(PEER, 1, tokens=(1, 2, 9, 4))),
            *(reading(OWN, 1, 1, tokens=(5, 6)), reading(PEER, 1, 1, tokens=(5, 6))),
        ]
    )
    assert (lines[PEER.name].same_tokens, lines[PEER.name].tokens) == (4, 6)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (Case(prompt=512, new=1), {"prefill 512": 256.0}),
        (Case(prompt=16, new=5), {"decode": 1.0}),
        (Case(prompt=8192, new=5), {"prefill 8192": 4096.0, "decode at 8192": 1.0}),
    ],
    ids=str,
)
def test_rates_follow_from_the_times_of_a_request(case: Case, expected: dict[str, float]) -> None:
    """The first token comes after 2 seconds, the others in 4 more seconds."""
    timed = Timed([0] * case.new, 2.0, 2.0 if case.new == 1 else 6.0)
    assert case.rates(timed) == expected


def test_peers_share_memory_with_onward_in_heats() -> None:
    own, peers = lineup("f32", list(WEIGHTS), "native")
    parameters = 1_000_000_000
    each = SLACK * 4 * parameters + ENGINE_BYTES
    names = [[peer.engine for peer in heat] for heat in heats(own, peers, parameters, 3 * each)]
    assert names == [["llama.cpp", "CTranslate2"], ["transformers", "OpenVINO"]]
    assert [len(heat) for heat in heats(own, peers, parameters, 0)] == [1, 1, 1, 1]


def test_only_engines_with_the_weights_and_instructions_are_listed() -> None:
    own, peers = lineup("int4", list(WEIGHTS), "native")
    assert own.variables == {}
    assert [peer.name for peer in peers] == ["llama.cpp Q4_0", "OpenVINO int4"]
    own, peers = lineup("f32", list(WEIGHTS), "avx2")
    assert own.variables == {"ONWARD_CPU_ISA": "avx2"}
    assert [peer.environment for peer in peers] == ["llama.cpp-avx2"]


def test_table_and_bars() -> None:
    lines = summarise("a<b", [reading(OWN, 100), reading(PEER, 50)])
    rows = table(lines, "md").splitlines()
    assert [cell.strip() for cell in rows[-1].split("|")[1:-1]] == [
        *("a<b", "decode", "f32", PEER.name, "50.0 (50.0 to 50.0)"),
        *("2.00 (2.00 to 2.00)", "2/2", "25%"),
    ]
    picture = ElementTree.fromstring(chart(lines))
    bars = [rect.get("width") for rect in picture.iter("{http://www.w3.org/2000/svg}rect")]
    assert bars == ["100%", "300.0", "150.0"]
    ElementTree.fromstring(chart([]))
