"""``onward bench``: its counts, hashes, refusals and output. No test depends on time."""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onward import _core
from onward.cli import main
from onward.errors import Error, InvalidArgument
from onward.lab.bench import measuring, subject, synthetic
from onward.lab.bench.cases import Bench, Decode, Prefill
from onward.lab.bench.measuring import Report
from onward.lab.bench.plan import Case, Plan
from onward.lab.bench.subject import Subject
from onward.lab.bench.synthetic import random_model, synthetic_dtypes, synthetic_spec
from onward.lab.bench.tables import HEADER, SETTING
from onward.lab.counts.costs import (
    Cost,
    Slice,
    StepCosts,
    cache_bytes,
    packed_bytes,
    parameters,
)
from onward.lab.counts.shapes import SHAPES
from onward.load.weights.dtypes import HEAD_DTYPES

# Every number of the counts below is derived from these sizes by hand.
TINY = {
    "model_type": "mistral",
    "hidden_size": 16,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "vocab_size": 32,
    "max_position_embeddings": 640,
    "tie_word_embeddings": False,
    "sliding_window": None,
}
# A layer has q, k, v: 16 + 8 + 8 rows, o: 16, gate and up: 96, of 16 columns; down: 16 rows of 48.
LAYER_MULTIPLY_ADDS = 32 * 16 + 16 * 16 + 96 * 16 + 16 * 48
# Packed in bf16, the 8 rows of k and of v are padded to 16. There are two norms of 16 floats.
LAYER_BYTES = 2 * (48 * 16 + 16 * 16 + 96 * 16 + 16 * 48) + 2 * 16 * 4
HEAD_MULTIPLY_ADDS = 32 * 16
HEAD_BYTES = 2 * 32 * 16 + 16 * 4  # and the last norm
LAYERS = 2
KEY_MULTIPLY_ADDS = 2 * 2 * 8  # a layer's score and weighted value, two heads of 8
KEY_BYTES = 2 * 8 * 2  # a layer's key and value of one head


@pytest.fixture(autouse=True)
def ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the probes, which take time and are not needed here."""
    monkeypatch.setattr(_core.kernels, "probe", lambda isa, kind, seconds, threads: 10.0)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(SHAPES, "tiny", TINY)
    monkeypatch.setattr(synthetic, "_PERIOD", 10007)
    return "tiny"


def tiny_bench(threads: int = 2, batch: int = 64, dtype: str = "bf16") -> Bench:
    spec = synthetic_spec("tiny")
    dtypes = synthetic_dtypes(spec, dtype)
    return Bench(random_model(spec, dtypes, 1), StepCosts(spec, dtypes), threads, batch)


def tiny_costs(name: str = "tiny") -> StepCosts:
    spec = synthetic_spec(name)
    return StepCosts(spec, synthetic_dtypes(spec, "bf16"))


class TestCounts:
    def test_bytes_of_the_weights_equal_the_count_of_the_core(self, tiny: str) -> None:
        spec = synthetic_spec(tiny)
        packed = packed_bytes(spec, synthetic_dtypes(spec, "bf16"))
        assert packed["layers.1.qkv"] == 2 * 48 * 16
        assert sum(packed.values()) == LAYERS * LAYER_BYTES + HEAD_BYTES + 2 * 32 * 16
        # Half a group of 32 takes the memory of a whole group.
        packed = packed_bytes(spec, synthetic_dtypes(spec, "int4"))
        assert packed["layers.0.down"] == 16 * 2 * 18
        assert packed["head"] == 32 * 34

    @pytest.mark.parametrize("head_dtype", [None, *HEAD_DTYPES])
    @pytest.mark.parametrize("dtype", HEAD_DTYPES)
    def test_bytes_in_every_dtype(self, tiny: str, dtype: str, head_dtype: str | None) -> None:
        spec = synthetic_spec(tiny)
        dtypes = synthetic_dtypes(spec, dtype, head_dtype)
        model = random_model(spec, dtypes, 1)
        lines = [-(-count // 64) for count in packed_bytes(spec, dtypes).values()]
        assert 64 * sum(lines) == model.weight_bytes  # each begins on its own cache line
        assert model.cache_dtype == dtypes.cache

    @pytest.mark.parametrize(
        ("slices", "expected"),
        [
            (
                [Slice(4, 1, 1), Slice(9, 1, 1)],
                Cost(
                    LAYERS * LAYER_BYTES + HEAD_BYTES + LAYERS * KEY_BYTES * 15,
                    2 * (LAYERS * LAYER_MULTIPLY_ADDS + HEAD_MULTIPLY_ADDS)
                    + LAYERS * KEY_MULTIPLY_ADDS * 15,
                ),
            ),
            (
                [Slice(0, 3, 1)],
                Cost(
                    LAYERS * LAYER_BYTES + HEAD_BYTES + LAYERS * KEY_BYTES * 3,
                    3 * LAYERS * LAYER_MULTIPLY_ADDS
                    + HEAD_MULTIPLY_ADDS
                    + LAYERS * KEY_MULTIPLY_ADDS * (1 + 2 + 3),
                ),
            ),
            (  # the middle of a prompt: no logits, no head
                [Slice(3, 2, 0)],
                Cost(
                    LAYERS * LAYER_BYTES + LAYERS * KEY_BYTES * 5,
                    2 * LAYERS * LAYER_MULTIPLY_ADDS + LAYERS * KEY_MULTIPLY_ADDS * (4 + 5),
                ),
            ),
        ],
    )
    def test_a_step_matches_a_hand_calculation(
        self, tiny: str, slices: list[Slice], expected: Cost
    ) -> None:
        assert tiny_costs()(slices) == expected

    def test_a_window_hides_keys(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(SHAPES, "windowed", {**TINY, "sliding_window": 4})
        costs = tiny_costs("windowed")
        # Positions 3, 4, 5 see 4 keys each; together they see the keys of 0 to 5.
        assert costs([Slice(3, 3, 0)]) == Cost(
            LAYERS * LAYER_BYTES + LAYERS * KEY_BYTES * 6,
            3 * LAYERS * LAYER_MULTIPLY_ADDS + LAYERS * KEY_MULTIPLY_ADDS * 12,
        )

    def test_a_chunk_hides_keys(self, tiny: str) -> None:
        spec = dataclasses.replace(synthetic_spec(tiny), chunks=(4,) * LAYERS)
        costs = StepCosts(spec, synthetic_dtypes(spec, "bf16"))
        # Position 3 sees 4 keys, 4 and 5 see 1 and 2; together they see the keys of 0 to 5.
        assert costs([Slice(3, 3, 0)]) == Cost(
            LAYERS * LAYER_BYTES + LAYERS * KEY_BYTES * 6,
            3 * LAYERS * LAYER_MULTIPLY_ADDS + LAYERS * KEY_MULTIPLY_ADDS * 7,
        )

    def test_bytes_of_two_dtypes_in_one_model(self, tiny: str) -> None:
        spec = synthetic_spec(tiny)
        vectors = 5 * 16 * 4
        dtypes = {dtype: synthetic_dtypes(spec, dtype) for dtype in HEAD_DTYPES}
        total = {dtype: sum(packed_bytes(spec, dtypes[dtype]).values()) for dtype in dtypes}
        assert total["f32"] - vectors == 2 * (total["bf16"] - vectors)
        assert total["f16"] == total["bf16"]
        assert cache_bytes(spec, dtypes["f32"], 3) == 2 * LAYERS * KEY_BYTES * 3
        for dtype in ("f16", "bf16", "int8", "int4"):
            assert cache_bytes(spec, dtypes[dtype], 3) == LAYERS * KEY_BYTES * 3

    def test_prefill_is_counted_in_chunks(self, tiny: str) -> None:
        """Three prompts of 200 tokens, one after the other: steps of 256, 256 and 88 tokens."""
        bench = tiny_bench()
        reading = Prefill(bench, Case("prefill", 3, 200)).run()
        assert reading.tokens == 600
        assert reading.cost.bytes_read == (
            3 * (LAYERS * LAYER_BYTES + HEAD_BYTES)
            + LAYERS * KEY_BYTES * (200 + 56 + 200 + 112 + 200)
        )
        assert reading.cost.multiply_adds == (
            600 * LAYERS * LAYER_MULTIPLY_ADDS
            + 3 * HEAD_MULTIPLY_ADDS
            + 3 * LAYERS * KEY_MULTIPLY_ADDS * (200 * 201 // 2)
        )
        assert bench.engine.stats()["steps"] == 3


class TestCases:
    @pytest.mark.parametrize(
        ("batch", "depth"),
        [(1, 0), (5, 0), (1, 1), (64, 1), (3, 7), (64, 9), (16, 40), (64, 65), (5, 300), (2, 600)],
    )
    def test_every_sequence_has_the_requested_depth(
        self, tiny: str, batch: int, depth: int
    ) -> None:
        bench = tiny_bench()
        decode = Decode(bench, Case("decode", batch, depth), 3)
        assert decode.cached == [depth] * batch
        steps = bench.engine.stats()["steps"]
        first, second = decode.run(), decode.run()
        assert bench.engine.stats()["steps"] == steps + 6
        assert first.tokens == second.tokens == 3 * batch
        assert decode.cached == [depth + 6] * batch
        attention = LAYERS * KEY_MULTIPLY_ADDS * (3 * depth + 1 + 2 + 3)
        fixed = 3 * (LAYERS * LAYER_MULTIPLY_ADDS + HEAD_MULTIPLY_ADDS)
        assert first.cost.multiply_adds == batch * (fixed + attention)
        decode.close()
        assert bench.engine.stats()["cache_blocks_in_use"] == 0

    @pytest.mark.parametrize("what", ["prefill", "decode"])
    def test_the_hash_is_of_the_last_logits(self, tiny: str, what: Any) -> None:
        bench = tiny_bench()
        case = Case(what, 1, 20)
        runs = (
            Prefill(bench, case, watched=True)
            if what == "prefill"
            else Decode(bench, case, 4, watched=True)
        )
        chosen = runs.run().chosen[0]
        runs.close()
        tokens = bench.prompt(0, 20)
        if what == "decode":
            (before,) = bench.engine.logits(tokens)[-1:].argmax(axis=1)
            tokens = np.array([*tokens, before, *chosen[:-1]], np.int32)
        last = bench.engine.logits(tokens)[-1]
        assert last.argmax() == chosen[-1]
        assert runs.logits_hash == hashlib.sha256(last.tobytes()).hexdigest()[:8]

    def test_different_tokens_in_two_runs_are_an_error(
        self, tiny: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        prompt, calls = Bench.prompt, []

        def other(self: Bench, index: int, tokens: int) -> Any:
            calls.append(index)
            return prompt(self, index + len(calls), tokens)

        monkeypatch.setattr(Bench, "prompt", other)
        with pytest.raises(Error, match="other tokens than in the run before"):
            measuring.bench(Plan([9], [], (4,)), synthetic="tiny")


class TestReport:
    PLAN = Plan([5, 300], [0, 20], (1, 3), decode_tokens=2, repetitions=2)

    def report(self, dtype: str, threads: int) -> Report:
        return measuring.bench(self.PLAN, synthetic="tiny", dtype=dtype, threads=threads)

    @pytest.mark.parametrize("dtype", HEAD_DTYPES)
    def test_hashes_are_stable_across_runs_and_threads(self, tiny: str, dtype: str) -> None:
        first, again, alone = (self.report(dtype, threads) for threads in (2, 2, 1))
        hashes = [line.logits_hash for line in first.lines]
        assert len(set(hashes)) == len(hashes) == 8
        assert [line.logits_hash for line in again.lines] == hashes
        assert [line.logits_hash for line in alone.lines] == hashes

    def test_figures_are_consistent(self, tiny: str) -> None:
        report = self.report("auto", 1)
        assert (report.dtype, report.threads, report.model) == ("bf16", 1, "synthetic tiny")
        assert [(line.what, line.batch, line.tokens) for line in report.lines] == [
            *(("prefill", 1, 5), ("prefill", 3, 5), ("prefill", 1, 300), ("prefill", 3, 300)),
            *(("decode", 1, 0), ("decode", 3, 0), ("decode", 1, 20), ("decode", 3, 20)),
        ]
        for line in report.lines:
            assert 0 < line.tokens_per_s_min <= line.tokens_per_s <= line.tokens_per_s_max
            assert line.read_share == pytest.approx(line.gigabytes_per_s / 10)
            assert line.read_share_min <= line.read_share <= line.read_share_max
            assert line.arithmetic_share == pytest.approx(line.gigaflops / 10)
            assert line.arithmetic_share_min <= line.arithmetic_share <= line.arithmetic_share_max
        deep = report.lines[6]
        keys = sum(range(21, 25)) / 4
        assert deep.bytes_per_token == LAYERS * (LAYER_BYTES + KEY_BYTES * keys) + HEAD_BYTES


class TestSynthetic:
    @pytest.mark.parametrize(
        ("name", "count"),
        [
            # Embedding, then a layer's attention, MLP and two norms, then the last norm and a head.
            (
                "smollm2-135m",
                49152 * 576 + 30 * (576 * (576 + 192 + 192 + 576) + 3 * 576 * 1536 + 2 * 576) + 576,
            ),
            ("smollm2-135m", 134_515_008),
            ("smollm2-1.7b", 1_711_376_384),
            (
                "llama-3.2-1b",
                128256 * 2048
                + 16 * (2048 * (2048 + 512 + 512 + 2048) + 3 * 2048 * 8192 + 2 * 2048)
                + 2048,
            ),
            ("llama-3.2-1b", 1_235_814_400),
            ("llama-3.2-3b", 3_212_749_824),
            ("llama-3.1-8b", 8_030_261_248),
            ("mistral-7b", 7_248_023_552),
            ("qwen2.5-0.5b", 494_032_768),
            ("qwen3-0.6b", 596_049_920),
            ("qwen3-8b", 8_190_735_360),
        ],
    )
    def test_parameters(self, name: str, count: int) -> None:
        assert parameters(synthetic_spec(name)) == count

    @pytest.mark.parametrize("name", SHAPES)
    def test_the_core_accepts_every_shape(self, name: str) -> None:
        from onward.load.loading import core_spec

        spec = synthetic_spec(name)
        assert core_spec(spec).vocab_size == spec.vocab_size
        assert spec.num_heads * spec.head_dim >= spec.hidden_size

    def test_weights_depend_on_the_seed_and_differ_between_layers(self, tiny: str) -> None:
        spec = synthetic_spec(tiny)

        def last_logits(model: _core.Model) -> bytes:
            engine = _core.Engine(model, threads=1, prefill_chunk_tokens=8)
            logits = engine.logits(np.arange(8, dtype=np.int32))
            assert np.isfinite(logits).all() and np.unique(logits[-1]).size == spec.vocab_size
            return bytes(logits.tobytes())

        dtypes = synthetic_dtypes(spec, "bf16")
        first = last_logits(random_model(spec, dtypes, 1))
        assert last_logits(random_model(spec, dtypes, 2)) == first
        assert last_logits(random_model(spec, dtypes, 1, seed=1)) != first

    def test_a_model_that_does_not_fit_is_refused_before_allocation(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def never(*arguments: object) -> None:
            raise AssertionError("memory was taken")

        monkeypatch.setattr(subject, "memory_bytes", lambda: {"available": 12 << 30})
        monkeypatch.setattr(subject, "random_model", never)
        assert main(["bench", "--synthetic", "llama-3.1-8b", "--dtype", "bf16"]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("onward: synthetic llama-3.1-8b in bf16: needs 16.")
        assert "weights 15.0 GiB" in err and "the 12.0 GiB of memory that are available" in err
        # 32 sequences of 100,000 tokens are 390 GiB of cache.
        long = ["--depth", "100000", "--batch", "32", "--synthetic", "llama-3.1-8b"]
        monkeypatch.setattr(subject, "memory_bytes", lambda: {"available": 64 << 30})
        assert main(["bench", *long]) == 2
        assert "cache 390." in capsys.readouterr().err

    def test_a_loaded_model_without_room_for_its_cache_is_refused(
        self, tiny: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        spec = synthetic_spec(tiny)
        dtypes = synthetic_dtypes(spec, "bf16")
        loaded = Subject("x", random_model(spec, dtypes, 1), spec, dtypes, 1)
        monkeypatch.setattr(subject, "memory_bytes", lambda: {"available": 1 << 20})
        with pytest.raises(InvalidArgument, match=r"^x: needs 0\.5 GiB \(cache 0\.0 GiB, "):
            measuring.measure(loaded, Plan())
        monkeypatch.setattr(subject, "memory_bytes", lambda: {"available": None})
        assert measuring.measure(loaded, Plan([3], [], repetitions=1)).lines


class TestPlan:
    def test_default_lengths_end_at_the_context(self) -> None:
        cases = Plan(repetitions=1, decode_tokens=2, batches=(1, 2)).cases(515)
        assert [(case.what, case.batch, case.tokens) for case in cases] == [
            *(("prefill", batch, tokens) for tokens in (128, 512) for batch in (1, 2)),
            *(("decode", batch, tokens) for tokens in (0, 512) for batch in (1, 2)),
        ]
        assert len(Plan(repetitions=1, decode_tokens=2).cases(514)) == 3

    @pytest.mark.parametrize(
        ("flags", "reported"),
        [
            (["--batch", "0"], "batch: is 0, expected an integer from 1 to 64"),
            (["--batch", "1,65"], "batch: is 65, expected"),
            (["--prefill", "0"], "prefill: is 0, expected"),
            (["--prefill", "640"], "prefill: is 640, expected at most 639"),
            (["--depth", "-1"], "depth: is -1, expected"),
            (["--depth", "600"], "depth: is 600, expected at most 559"),
            (["--decode-tokens", "0"], "decode_tokens: is 0, expected"),
            (["--repetitions", "0"], "repetitions: is 0, expected"),
            (["--threads", "0"], "threads: is 0, expected"),
            (["--dtype", "f64"], "dtype: is 'f64', expected one of auto, f32, f16, bf16"),
            (["--head-dtype", "auto"], "head_dtype: is 'auto', expected None or one of f32, f16"),
            (["--prefill", "none", "--depth", "none"], "bench: nothing to measure"),
            (["--model", "x"], "synthetic: is given together with a model"),
        ],
    )
    def test_impossible_plans_are_refused(
        self, tiny: str, capsys: pytest.CaptureFixture[str], flags: list[str], reported: str
    ) -> None:
        assert main(["bench", "--synthetic", tiny, *flags]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("onward: " + reported) and err.count("\n") == 1

    def test_unknown_names_are_refused(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["bench", "--synthetic", "llama-9"]) == 2
        assert "'llama-9', expected one of smollm2-135m, " in capsys.readouterr().err
        assert main(["bench", "--model", "/does/not/exist"]) == 1
        assert main(["bench", "--format", "xml"]) == 2


class TestOutput:
    FLAGS = ("--prefill", "8", "--depth", "4", "--repetitions", "1", "--decode-tokens", "2")

    def printed(self, capsys: pytest.CaptureFixture[str], *flags: str) -> str:
        assert main(["bench", "--synthetic", "tiny", *self.FLAGS, *flags]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    def test_json(self, tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
        reported = json.loads(self.printed(capsys, "--format", "json", "--threads", "1"))
        assert (reported["model"], reported["dtype"], reported["threads"]) == (
            "synthetic tiny",
            "bf16",
            1,
        )
        assert reported["isa"] in _core.kernels.available()
        matrices = LAYERS * LAYER_MULTIPLY_ADDS + 2 * HEAD_MULTIPLY_ADDS
        assert reported["parameters"] == matrices + 5 * 16
        assert [line["what"] for line in reported["lines"]] == ["prefill", "decode"]
        again = json.loads(self.printed(capsys, "--json"))
        assert [line["logits_hash"] for line in reported["lines"]] == [
            line["logits_hash"] for line in again["lines"]
        ]

    @pytest.mark.parametrize("head_dtype", [None, "f16", "int4"])
    def test_requested_dtypes_are_reported(
        self, tiny: str, head_dtype: str | None, capsys: pytest.CaptureFixture[str]
    ) -> None:
        flags = [] if head_dtype is None else ["--head-dtype", head_dtype]
        reported = json.loads(self.printed(capsys, "--json", "--dtype", "int4", *flags))
        spec = synthetic_spec(tiny)
        dtypes = synthetic_dtypes(spec, "int4", head_dtype)
        assert reported["dtype"] == "int4"
        assert reported["weight_bytes"] == random_model(spec, dtypes, 1).weight_bytes
        costs = StepCosts(spec, dtypes)
        decode = reported["lines"][1]
        read = sum(costs([Slice(position, 1, 1)]).bytes_read for position in (4, 5))
        assert decode["bytes_per_token"] == read / 2

    def test_csv(self, tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
        rows = list(csv.DictReader(io.StringIO(self.printed(capsys, "--format", "csv"))))
        assert [(row["what"], row["batch"], row["tokens"]) for row in rows] == [
            ("prefill", "1", "8"),
            ("decode", "1", "4"),
        ]
        assert [row["test"] for row in rows] == ["pp8", "tg2 @ d4"]
        reported = [(row["n_prompt"], row["n_gen"], row["n_depth"]) for row in rows]
        assert reported == [("8", "0", "0"), ("0", "2", "4")]
        for row in rows:
            assert row["model"] == "synthetic tiny" and None not in row
            assert float(row["avg_ts"]) == float(row["tokens_per_s"]) > 0  # of one repetition
            assert (row["stddev_ts"], row["backends"]) == ("0.0", "CPU")
            assert float(row["tokens_per_s"]) > 0 and len(row["logits_hash"]) == 8

    def test_markdown(self, tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
        lines = self.printed(capsys, "--format", "md").splitlines()
        table = [line for line in lines if line.startswith("|")]
        assert [len(line.strip("|").split("|")) for line in table] == [
            len(SETTING) + len(HEADER)
        ] * 4
        assert table[0].startswith("| model | size | params | backend | threads | test | batch |")
        cells = [cell.strip() for cell in table[2].strip("|").split("|")]
        assert cells[0] == "synthetic tiny" and cells[3:6] == ["CPU", cells[4], "pp8"]
        assert " ± " in cells[7]
        assert set(table[1]) == set("| -:")

    def test_text_is_aligned(self, tiny: str, capsys: pytest.CaptureFixture[str]) -> None:
        lines = self.printed(capsys).splitlines()
        assert lines[0].startswith("synthetic tiny, bf16, ")
        start = lines.index("") + 1
        table = lines[start : lines.index("", start)]
        assert table[0].split() == " ".join(HEADER).split()
        assert len(table) == 3 and len({len(line) for line in table}) == 1

    def test_a_model_in_a_folder_needs_no_tokenizer(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """No tokenizer is needed."""
        from closed_form import chain, write_table

        folder = tmp_path / "table"
        write_table(folder, chain(4, {1: 3}), max_position_embeddings=64)
        assert main(["bench", "--model", str(folder), *self.FLAGS, "--json"]) == 0
        reported = json.loads(capsys.readouterr().out)
        assert reported["model"] == "table"
        assert len(reported["lines"]) == 2
