"""``onward bench --cache on|off|both``: the computations with and without the cache, by the
engine's own counter; refusals, output and plots. No test depends on time.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import NDArray

from onward import _core
from onward.cli import main
from onward.errors import Error
from onward.lab.bench import curves, recompute, subject, synthetic
from onward.lab.bench.cases import Bench, Decode
from onward.lab.bench.plan import Case
from onward.lab.bench.recompute import Comparison, Count, Line
from onward.lab.bench.synthetic import random_model, synthetic_dtypes, synthetic_spec
from onward.lab.counts.costs import StepCosts
from onward.lab.counts.shapes import SHAPES
from onward.lab.report import svg

# Heads of 32 values are the smallest that can be coded.
TINY = {
    "model_type": "mistral",
    "hidden_size": 16,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 32,
    "max_position_embeddings": 640,
    "tie_word_embeddings": False,
    "sliding_window": None,
}
LAYERS = 2
# Of a layer: q, k, v 64 + 32 + 32 rows and gate and up 96 of 16 columns, o 16 rows of 64, down 16
# of 48.
LAYER_MULTIPLY_ADDS = 128 * 16 + 96 * 16 + 16 * 64 + 16 * 48
HEAD_MULTIPLY_ADDS = 32 * 16
KEY_MULTIPLY_ADDS = 2 * 2 * 32  # a layer's score and weighted value, two heads of 32
CHUNK = 256  # tokens of one step


@pytest.fixture(autouse=True)
def ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the probes, which take time and are not needed here."""
    monkeypatch.setattr(_core.kernels, "probe", lambda isa, kind, seconds, threads: 10.0)


@pytest.fixture(autouse=True)
def shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "tiny", TINY)
    monkeypatch.setitem(SHAPES, "short", {**TINY, "max_position_embeddings": 100})
    monkeypatch.setattr(synthetic, "_PERIOD", 10007)


@pytest.fixture
def reported(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The output of ``onward bench --json`` for the tiny model."""

    def run(*flags: str, name: str = "tiny") -> Any:
        assert main(["bench", "--synthetic", name, "--json", *flags]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return json.loads(out)

    return run


def compare(lengths: list[int], counted: list[int], repetitions: int = 1) -> Comparison:
    return recompute.bench(
        recompute.Question(lengths, counted, repetitions), synthetic="tiny", threads=1
    )


class TestWithAndWithout:
    def rows(self, report: Any) -> list[tuple[str, int, int]]:
        return [(line["what"], line["batch"], line["tokens"]) for line in report["lines"]]

    def test_logits_without_the_cache_have_the_same_bits(
        self, reported: Callable[..., Any]
    ) -> None:
        flags = ("--prefill", "8", "--depth", "0,20,300", "--repetitions", "2")
        on, off = (reported("--cache", cache, *flags) for cache in ("on", "off"))
        assert (on["cache"], off["cache"]) == (True, False)
        expected = [("prefill", 1, 8), *(("decode", 1, depth) for depth in (0, 20, 300))]
        assert self.rows(on) == self.rows(off) == expected
        hashes = [[line["logits_hash"] for line in report["lines"]] for report in (on, off)]
        assert hashes[0] == hashes[1]
        assert len(set(hashes[0])) == 4

    def test_default_rows(self, reported: Callable[..., Any]) -> None:
        flags = ("--repetitions", "1", "--decode-tokens", "1")
        assert self.rows(reported("--cache", "on", *flags)) == [
            *(("prefill", 1, 128), ("prefill", 1, 512)),
            *(("decode", 1, 0), ("decode", 1, 512)),
        ]
        assert self.rows(reported("--cache", "off", *flags)) == [
            ("decode", 1, depth) for depth in (0, 128, 512)
        ]

    @pytest.mark.parametrize("depth", [0, 1, 5, 254, 255, 300, 520])
    def test_every_token_computes_all_earlier_tokens_again(self, depth: int) -> None:
        lengths = range(depth + 1, depth + 5)
        found = {}
        for cache in (True, False):
            spec = synthetic_spec("tiny")
            dtypes = synthetic_dtypes(spec, "bf16")
            model = random_model(spec, dtypes, 1)
            bench = Bench(model, StepCosts(spec, dtypes), 1, 1, cache=cache)
            decode = Decode(bench, Case("decode", 1, depth), 4)
            before = bench.engine.stats()
            reading = decode.run()
            after = bench.engine.stats()
            found[cache] = tuple(after[key] - before[key] for key in ("kv_computations", "steps"))
            assert (reading.tokens, decode.cached) == (4, [depth + 4])
            computed = lengths if not cache else [1] * 4
            attended = [sum(range(n + 1)) if not cache else n for n in lengths]
            assert reading.cost.multiply_adds == (
                sum(computed) * LAYERS * LAYER_MULTIPLY_ADDS
                + 4 * HEAD_MULTIPLY_ADDS
                + sum(attended) * LAYERS * KEY_MULTIPLY_ADDS
            )
            decode.close()
        assert found[True] == (4, 4)
        assert found[False] == (sum(lengths), sum(math.ceil(n / CHUNK) for n in lengths))


class TestBoth:
    @pytest.mark.parametrize("tokens", [1, 2, 16, 257, 639])
    def test_counts(self, tokens: int) -> None:
        (count,) = compare([], [tokens]).counts
        assert count == Count(tokens, tokens, tokens * (tokens + 1) // 2)

    def test_default_lengths_and_counts_fit_the_context(self, reported: Callable[..., Any]) -> None:
        report = reported("--cache", "both")
        assert [line["tokens"] for line in report["lines"]] == [16, 64, 256]
        assert [count["tokens"] for count in report["counts"]] == [16, 64, 128]
        assert report["repetitions"] == 3
        report = reported("--cache", "both", name="short")
        assert [line["tokens"] for line in report["lines"]] == [16]
        assert [count["tokens"] for count in report["counts"]] == [16, 64]

    def test_times_are_consistent(self) -> None:
        for line in compare([5, 300], [], 3).lines:
            assert line.with_cache_s > 0 and line.without_cache_s > 0
            assert line.ratio_min <= line.ratio <= line.ratio_max

    def test_rounds_alternate_after_a_warm_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = []
        took = {True: [100.0, 16.0, 32.0], False: [900.0, 4.0, 4.0]}

        class Watched(Decode):
            def run(self) -> Any:
                seen.append((self._bench.cache, self._steps))
                return replace(super().run(), seconds=took[self._bench.cache].pop(0))

        monkeypatch.setattr(recompute, "Decode", Watched)
        (line,) = compare([20], [], 2).lines
        assert seen == 3 * [(True, 16), (False, 1)]
        # Seconds for a token: 1 and 2 with the cache, 4 and 4 without.
        assert line == Line(20, 1.5, 4.0, 3.0, 2.0, 4.0)

    @pytest.mark.parametrize("wrong", [True, False], ids=["with", "without"])
    def test_a_count_that_differs_from_the_formula_is_an_error(
        self, wrong: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Miscounting:
            """An engine that sometimes computes one token more."""

            def __init__(self, engine: _core.Engine) -> None:
                self._engine, self._extra = engine, 0

            def __getattr__(self, name: str) -> Any:
                return getattr(self._engine, name)

            def stats(self) -> dict[str, Any]:
                found = dict(self._engine.stats())
                found["kv_computations"] += self._extra
                self._extra += 1
                return found

        class Planted(Bench):
            def __init__(self, *arguments: Any, cache: bool, **more: Any) -> None:
                super().__init__(*arguments, cache=cache, **more)
                if cache == wrong:
                    self.engine = Miscounting(self.engine)  # type: ignore[assignment]

        monkeypatch.setattr(recompute, "Bench", Planted)
        found = (9, 36) if wrong else (8, 37)
        with pytest.raises(Error) as failure:
            compare([], [8])
        assert str(failure.value) == (
            f"bench: 8 tokens took {found[0]} computations of keys and values with the cache and "
            f"{found[1]} without, expected 8 and 36"
        )

    @pytest.mark.parametrize(
        ("lengths", "counted", "where"), [([20], [], "at length 20"), ([], [16], "of 16")]
    )
    def test_different_tokens_without_the_cache_are_an_error(
        self,
        lengths: list[int],
        counted: list[int],
        where: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        class Planted(Bench):
            def prompt(self, index: int, tokens: int) -> NDArray[np.int32]:
                return super().prompt(index if self.cache else index + 1, tokens)

        monkeypatch.setattr(recompute, "Bench", Planted)
        with pytest.raises(Error, match=f"^bench: {where}: other tokens with the cache than"):
            compare(lengths, counted, 6)

    def test_a_model_without_room_for_two_caches_is_refused(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spec = synthetic_spec("tiny")
        dtypes = synthetic_dtypes(spec, "bf16")
        loaded = subject.Subject("x", random_model(spec, dtypes, 1), spec, dtypes, 1)
        asked: list[int] = []
        monkeypatch.setattr(
            recompute, "require_memory", lambda where, **parts: asked.append(parts["cache"])
        )
        recompute.compare(loaded, recompute.Question([50], [3], 1))
        assert asked == [2 * loaded.cache_bytes(50 + 2 * 16 + 1)]


class TestCodes:
    @pytest.mark.parametrize("kv_dtype", ["int8", "turbo4", "int8/turbo3", "q4_0"])
    def test_tokens_with_and_without_the_cache_are_the_same(
        self, kv_dtype: str, reported: Callable[..., Any]
    ) -> None:
        """At 300 tokens most of the cache is coded. Different tokens would raise an Error."""
        flags = ("--depth", "300", "--count", "300", "--repetitions", "1")
        report = reported("--cache", "both", "--kv-dtype", kv_dtype, *flags)
        assert report["kv_dtype"] == kv_dtype
        assert report["counts"] == [{"tokens": 300, "with_cache": 300, "without_cache": 45150}]

    def test_logits_in_a_coded_and_an_exact_cache(self, reported: Callable[..., Any]) -> None:
        """Up to 128 tokens the cache is exact. Beyond that the logits differ by the codes, but not
        by the use of the cache."""
        flags = (
            "--prefill",
            "none",
            "--depth",
            "20,300",
            "--repetitions",
            "1",
            "--decode-tokens",
            "2",
        )
        hashes = {
            (kv_dtype, cache): [
                line["logits_hash"]
                for line in reported("--kv-dtype", kv_dtype, "--cache", cache, *flags)["lines"]
            ]
            for kv_dtype in ("bf16", "turbo4")
            for cache in ("on", "off")
        }
        assert hashes["turbo4", "on"] == hashes["turbo4", "off"]
        exact, coded = hashes["bf16", "on"], hashes["turbo4", "on"]
        assert exact[0] == coded[0] and exact[1] != coded[1]

    def test_the_exact_window_has_an_effect(self, reported: Callable[..., Any]) -> None:
        flags = (
            "--prefill",
            "none",
            "--depth",
            "300",
            "--repetitions",
            "1",
            "--kv-dtype",
            "turbo4",
        )
        near = reported(*flags, "--kv-window-tokens", "16")["lines"][0]
        far = reported(*flags, "--kv-window-tokens", "480")["lines"][0]
        exact = reported(*flags[:-1], "bf16")["lines"][0]
        assert near["bytes_per_token"] < far["bytes_per_token"] == exact["bytes_per_token"]
        assert near["logits_hash"] != far["logits_hash"] == exact["logits_hash"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("flags", "reported"),
        [
            ("on --count 3", "count: is given with cache on, expected it with both"),
            ("off --count 4", "count: is given with cache off, expected it with both"),
            ("on --plot x.svg", "plot: is given with cache on, expected it with both"),
            ("off --plot x.svg", "plot: is given with cache off, expected it with both"),
            ("off --batch 2", "batch: is 2, expected 1 without the cache"),
            ("both --batch 2", "cache: is both, which compares decode of one sequence, expe"),
            ("both --batch 1,4", "cache: is both, which compares decode of one sequence, exp"),
            ("both --prefill 8", "cache: is both, which compares decode of one sequence, exp"),
            ("both --decode-tokens 4", "decode_tokens: is given with cache both, which times 16"),
            ("both --depth 0", "depth: is 0, expected"),
            ("both --count 0", "count: is 0, expected"),
            ("both --repetitions 0", "repetitions: is 0, expected"),
            # 4 rounds of 16 tokens, and one more, follow a length.
            ("both --depth 16,576", "depth: is 576, expected at most 575: what is written has to"),
            ("both --depth 608 --repetitions 1", "depth: is 608, expected at most 607: what is"),
            ("both --count 640", "count: is 640, expected at most 639: what is written has to"),
            (
                "both --depth none --count 8,640",
                "count: is 640, expected at most 639: what is written",
            ),
            ("off --depth 560", "depth: is 560, expected at most 559: what is written has to"),
            ("both --plot x.pdf", "plot: is x.pdf, expected a name ending in .svg or .png"),
            ("both --plot x.svg --depth none", "plot: no length is measured, expected a depth"),
            ("both --kv-dtype turbo9", "kv_dtype: is 'turbo9', expected"),
        ],
    )
    def test_wrong_arguments_are_refused_before_a_model_is_made(
        self,
        flags: str,
        reported: str,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        def never(*arguments: object) -> None:
            raise AssertionError("a model was made")

        monkeypatch.setattr(subject, "random_model", never)
        assert main(["bench", "--synthetic", "tiny", "--cache", *flags.split()]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("onward: " + reported) and err.count("\n") == 1

    def test_the_longest_depth_that_fits_is_measured(self) -> None:
        found = recompute.bench(recompute.Question([607], [639], 1), synthetic="tiny", threads=2)
        assert ([line.tokens for line in found.lines], found.counts[0].tokens) == ([607], 639)


MADE = Comparison(
    *("made", "int4", "f16", "avx2"),
    *(2, 3),
    lines=(Line(16, 0.002, 0.004, 2.0, 1.5, 2.5), Line(1024, 0.0025, 0.5, 200.0, 150.0, 1250.5)),
    counts=(Count(16, 16, 136), Count(1000, 1000, 500500)),
)


class TestOutput:
    @pytest.fixture(autouse=True)
    def made(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(recompute, "bench", lambda question, **subject: MADE)

    def printed(self, capsys: pytest.CaptureFixture[str], *flags: str) -> str:
        assert main(["bench", "--cache", "both", *flags]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    def test_text(self, capsys: pytest.CaptureFixture[str]) -> None:
        lines = self.printed(capsys).splitlines()
        assert lines[0] == "made, int4, keys and values in f16, avx2, threads: 2, rounds: 3"
        assert lines[2:9] == [
            "length  ms with  ms without  ratio    min    max",
            "16        2.000       4.000  2.000  1.500  2.500",
            "1,024     2.500       500.0  200.0  150.0   1250",
            "",
            "tokens written  K/V with  K/V without  ratio",
            "16                    16          136  8.500",
            "1,000              1,000      500,500  500.5",
        ]
        assert "n with the cache, n (n + 1) / 2 without." in lines[-1]

    def test_markdown(self, capsys: pytest.CaptureFixture[str]) -> None:
        lines = self.printed(capsys, "--format", "md").splitlines()
        assert [line for line in lines if line.startswith("|")] == [
            "| length | ms with | ms without | ratio | min | max |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
            "| 16 | 2.000 | 4.000 | 2.000 | 1.500 | 2.500 |",
            "| 1,024 | 2.500 | 500.0 | 200.0 | 150.0 | 1250 |",
            "| tokens written | K/V with | K/V without | ratio |",
            "| --- | ---: | ---: | ---: |",
            "| 16 | 16 | 136 | 8.500 |",
            "| 1,000 | 1,000 | 500,500 | 500.5 |",
        ]

    def test_csv(self, capsys: pytest.CaptureFixture[str]) -> None:
        rows = list(csv.DictReader(io.StringIO(self.printed(capsys, "--format", "csv"))))
        setting = {"model": "made", "dtype": "int4", "kv_dtype": "f16", "isa": "avx2"}
        setting |= {"threads": "2", "repetitions": "3"}
        names = ("tokens", "with_cache_s", "without_cache_s", "ratio", "ratio_min", "ratio_max")
        figures = (
            ("16", "0.002", "0.004", "2.0", "1.5", "2.5"),
            ("1024", "0.0025", "0.5", "200.0", "150.0", "1250.5"),
        )
        assert rows == [{**setting, **dict(zip(names, row, strict=True))} for row in figures]

    @pytest.mark.parametrize("flags", [("--format", "json"), ("--json",)])
    def test_json(self, flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
        reported = json.loads(self.printed(capsys, *flags))
        assert reported["lines"][1] == {
            **{"tokens": 1024, "with_cache_s": 0.0025, "without_cache_s": 0.5},
            **{"ratio": 200.0, "ratio_min": 150.0, "ratio_max": 1250.5},
        }
        assert reported["counts"][1] == {
            "tokens": 1000,
            "with_cache": 1000,
            "without_cache": 500500,
        }
        assert [*reported][:6] == ["model", "dtype", "kv_dtype", "isa", "threads", "repetitions"]

    def test_a_part_without_measurements_has_no_table(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.undo()
        monkeypatch.setitem(SHAPES, "tiny", TINY)
        flags = ("--synthetic", "tiny", "--repetitions", "1")
        assert "tokens written" not in self.printed(
            capsys, *flags, "--depth", "4", "--count", "none"
        )
        assert "ms without" not in self.printed(capsys, *flags, "--depth", "none", "--count", "4")


class TestPlot:
    def test_two_lines_in_milliseconds(self) -> None:
        chart = curves.chart(MADE)
        assert {curve.name: curve.points for curve in chart.curves} == {
            "without the cache": ((16, 4.0), (1024, 500.0)),
            "with the cache": ((16, 2.0), (1024, 2.5)),
        }
        root = ElementTree.fromstring(svg(chart))
        texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
        assert texts[0] == "made, int4, cache f16: time to one token, threads: 2"
        assert {"2 ms", "512 ms", "16", "1,024", "tokens before it"} <= set(texts)
        assert texts[-2:] == ["without the cache", "with the cache"]
        assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) == 4

    def test_the_command_draws_the_measured_points(
        self, tmp_path: Path, reported: Callable[..., Any]
    ) -> None:
        path = tmp_path / "both.svg"
        flags = ("--depth", "40,4", "--count", "4", "--repetitions", "1", "--plot", str(path))
        report = reported("--cache", "both", *flags)
        report["lines"] = tuple(Line(**line) for line in report["lines"])
        report["counts"] = tuple(Count(**count) for count in report["counts"])
        assert path.read_text(encoding="utf-8") == svg(curves.chart(Comparison(**report)))

    def test_the_table_is_printed_if_the_picture_cannot_be_written(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "nowhere" / "both.svg"
        flags = ["--depth", "4", "--count", "4", "--repetitions", "1", "--plot", str(path)]
        assert main(["bench", "--synthetic", "tiny", "--cache", "both", *flags]) == 1
        out, err = capsys.readouterr()
        assert "K/V without" in out
        assert "cannot write: No such file or directory" in err

    def test_a_context_without_room_for_any_length(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(SHAPES, "tiny", {**TINY, "max_position_embeddings": 64})
        path = tmp_path / "both.svg"
        assert main(["bench", "--synthetic", "tiny", "--cache", "both", "--plot", str(path)]) == 2
        out, err = capsys.readouterr()
        assert "K/V without" in out and not path.exists()
        assert err == "onward: plot: no length was measured, expected a depth\n"
