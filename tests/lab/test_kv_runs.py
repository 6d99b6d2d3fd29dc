"""The measurements of ``benchmarks/kv_cache.py`` on tiny models: figures, tables, and a filled
cache.

No test depends on time; times in tables are invented.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import kv_cache
from kv_runs import chats, crowd, depth, prefix, printing, reading
from kv_runs.depth import Deep
from kv_runs.filling import fill
from kv_runs.subjects import make_subjects

from builders.talking import write_talking
from onward import _core
from onward.lab.bench import synthetic
from onward.lab.bench.subject import Subject
from onward.lab.counts.shapes import SHAPES

TINY = {
    "model_type": "mistral",
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 64,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "sliding_window": None,
}
CODES = ("bf16", "int8", "turbo8v4", "turbo4")


@pytest.fixture(autouse=True)
def shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "tiny", TINY)
    monkeypatch.setattr(synthetic, "_PERIOD", 10007)


@pytest.fixture
def subjects() -> Callable[..., list[Subject]]:
    def make(*kv_dtypes: str) -> list[Subject]:
        flags = ["depth", "--synthetic", "tiny", "--dtype", "bf16", "--kv-dtype", *kv_dtypes]
        return make_subjects(kv_cache.parser().parse_args(flags))

    return make


@pytest.fixture
def reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, Any]]:
    """Exit code and JSON of a subcommand."""

    def run(*flags: str) -> tuple[int, Any]:
        monkeypatch.setattr(sys, "argv", ["kv_cache.py", *flags, "--json"])
        code = kv_cache.main()
        return code, json.loads(capsys.readouterr().out)

    return run


def new_engine(subject: Subject) -> _core.Engine:
    return _core.Engine(subject.core, threads=1, prefill_chunk_tokens=256, **subject.kv_arguments)


def tokens_of(count: int) -> Any:
    return np.random.default_rng(3).integers(0, 64, count).astype(np.int32)


def written(engine: _core.Engine, prompt: Any, count: int) -> tuple[list[int], int]:
    """The tokens after a prompt, and the number of its tokens that came from the cache."""
    request = engine.submit(prompt, max_new_tokens=count, sampling=_core.SamplingOptions())
    events: list[_core.Event] = []
    while len(events) < count:
        events += engine.step()
    engine.cancel(request)
    return [event.token for event in events], events[0].cached_tokens


class TestFilling:
    @pytest.mark.parametrize("kv_dtype", CODES)
    @pytest.mark.parametrize("length", [528, 1024, 2000])
    def test_a_filled_cache_is_kept_completely(
        self, subjects: Any, kv_dtype: str, length: int
    ) -> None:
        (subject,) = subjects(kv_dtype)
        engine, tokens = new_engine(subject), tokens_of(length + 1)
        fill(engine, tokens[:length])
        assert written(engine, tokens, 3)[1] == length

    @pytest.mark.parametrize("kv_dtype", CODES)
    def test_a_filled_cache_takes_the_bytes_of_a_prompt(self, subjects: Any, kv_dtype: str) -> None:
        sizes = []
        for how in ("filled", "read"):
            (subject,) = subjects(kv_dtype)
            engine, tokens = new_engine(subject), tokens_of(1025)
            if how == "filled":
                fill(engine, tokens[:1024])
            request = engine.submit(tokens, max_new_tokens=9, sampling=_core.SamplingOptions())
            while not engine.step():
                pass
            engine.forget_prefixes()
            sizes.append(engine.stats()["cache_bytes"])
            engine.cancel(request)
        assert sizes[0] == sizes[1] > 0

    def test_a_short_filled_cache_equals_a_prompt(self, subjects: Any) -> None:
        (subject,) = subjects("bf16")
        filled, fresh, tokens = new_engine(subject), new_engine(subject), tokens_of(257)
        fill(filled, tokens[:256])
        found, kept = written(filled, tokens, 8)
        assert kept == 256
        assert written(fresh, tokens, 8) == (found, 0)

    def test_a_length_that_is_not_whole_blocks_is_refused(self, subjects: Any) -> None:
        (subject,) = subjects("bf16")
        with pytest.raises(ValueError, match=r"^token_ids: are 1000, expected a multiple of 16$"):
            fill(new_engine(subject), tokens_of(1000))


class TestDepth:
    FLAGS = ("depth", "--synthetic", "tiny", "--dtype", "bf16", "--rounds", "2", "--steps", "1")

    @pytest.mark.parametrize("read", [False, True])
    def test_a_row_for_each_depth_and_kv_dtype(self, reported: Any, read: bool) -> None:
        flags = ["--depth", "128", "1024", "--kv-dtype", "bf16", "int8/turbo3"]
        code, found = reported(*self.FLAGS, *flags, *(["--read"] if read else []))
        assert code == 0
        assert (found["model"], found["rounds"]) == ("synthetic tiny", 2)
        assert found["cache"] == ("read" if read else "filled")
        rows = [(line["depth"], line["kv_dtype"]) for line in found["lines"]]
        assert rows == [
            (tokens, name) for tokens in (128, 1024) for name in ("bf16", "int8/turbo3")
        ]
        assert all(line["step_ms"] > 0 for line in found["lines"])
        assert [line["step_ratio"] for line in found["lines"]][::2] == [1, 1]

    def test_a_lost_cache_is_an_error(self, subjects: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(depth, "fill", lambda engine, tokens: None)
        with pytest.raises(RuntimeError, match=r"^bf16: 0 of 512 kept$"):
            Deep(subjects("bf16")[0], [512], read=False).steps(512, 1)

    def test_ratios_are_taken_within_a_round(self) -> None:
        """The machine is half as fast in the second round, and the ratios stay the same."""
        deep, near = [[4.0, 8.0], [3.0, 6.0]], [[2.0, 4.0], [2.0, 4.0]]
        line = depth._line("x", 512, 1, deep, near[1:] * 2)
        assert (line.step_ms, line.attention_ms) == (4500, 1500)
        assert line.step_ratio == pytest.approx(4 / 3)
        assert (line.attention_ratio, line.attention_ratio_min) == (2, 2)

    def test_attention_below_the_noise_has_no_ratio(self) -> None:
        line = depth._line("x", 16, 1, [[4.0, 4.0], [3.0, 1.9]], [[2.0, 2.0], [2.0, 2.0]])
        assert line.attention_ratio is line.attention_ratio_max is None
        assert depth._rows([line])[1][-3:] == ("", "", "")


class TestReading:
    FLAGS = ("reading", "--synthetic", "tiny", "--dtype", "bf16", "--rounds", "2")

    def test_a_row_for_each_depth_and_kv_dtype(self, reported: Any) -> None:
        code, found = reported(*self.FLAGS, "--depth", "256", "1024", "--kv-dtype", "f32", "turbo4")
        assert code == 0
        assert (found["model"], found["chunk_tokens"]) == ("synthetic tiny", 256)
        rows = [(line["depth"], line["kv_dtype"]) for line in found["lines"]]
        assert rows == [(tokens, name) for tokens in (256, 1024) for name in ("f32", "turbo4")]
        for line in found["lines"]:
            assert line["times_min"] <= line["times"] <= line["times_max"]

    @pytest.mark.parametrize("kv_dtype", CODES)
    def test_only_the_chunk_is_computed(self, subjects: Any, kv_dtype: str) -> None:
        reader = reading.Reader(subjects(kv_dtype)[0])
        reader.fill(1024)
        for index in range(3):
            for deep in (True, False):
                before = reader._engine.stats()
                reader.seconds(index, deep=deep)
                after = reader._engine.stats()
                assert after["steps"] - before["steps"] == 1
                computed = after["kv_computations"] - before["kv_computations"]
                assert 254 <= computed <= 256

    def test_a_lost_prefix_is_an_error(self, subjects: Any) -> None:
        reader = reading.Reader(subjects("bf16")[0])
        reader.fill(1024)
        reader._engine.forget_prefixes()
        with pytest.raises(RuntimeError, match=r"^bf16: -1 of 1024 kept, or several steps$"):
            reader.seconds(0, deep=True)

    def test_figures_compare_runs_of_one_round(self) -> None:
        line = reading._line("x", 512, [2.0, 4.0, 8.0], [1.0, 2.0, 4.0], [0.5, 0.5, 1.0])
        assert line == reading.Line("x", 512, 2000 / 256, 4, 2, 4, 2)
        assert reading._rows([line])[1] == ("512", "x", "7.81", "4.00", "2.00", "4.00", "2.00")


@pytest.fixture(scope="module")
def talking(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_talking(tmp_path_factory.mktemp("kv_runs") / "m"))


class TestPrefix:
    def test_all_tokens_except_the_new_ones_are_reused(self, reported: Any, talking: str) -> None:
        flags = ("--model", talking, "--dtype", "bf16", "--kv-dtype", "f32", "turbo4")
        code, found = reported("prefix", *flags, "--tokens", "400", "--new", "7", "--rounds", "2")
        assert code == 0
        assert [line["kv_dtype"] for line in found["lines"]] == ["f32", "turbo4"]
        exact, coded = found["lines"]
        assert exact["prompt_tokens"] == coded["prompt_tokens"] == 400
        # A new token may equal the old one by chance. Codes are reused up to the difference.
        assert 393 <= exact["kept_tokens"] <= 395
        assert 0 < coded["kept_tokens"] <= exact["kept_tokens"]
        for line in found["lines"]:
            assert 0 < line["share_min"] <= line["share"] <= line["share_max"]


class TestChats:
    FLAGS = (
        "--chats",
        "6",
        "--system-tokens",
        "100",
        "--new",
        "3",
        "--alone",
        "6",
        "--memory",
        "8",
    )

    def run(self, reported: Any, talking: str) -> tuple[int, Any]:
        flags = ("--model", talking, "--dtype", "bf16", "--kv-dtype", "f32")
        code, found = reported("chats", *flags, *self.FLAGS)
        (line,) = found["lines"]
        return code, line

    def test_many_chats_compute_their_system_prompt_once(self, reported: Any, talking: str) -> None:
        code, line = self.run(reported, talking)
        assert (code, line["lost"], line["differing"], line["compared"]) == (0, 0, 0, 6)
        assert line["system_tokens"] >= 100
        asked = line["prompt_tokens"] - 5 * line["system_tokens"]
        # Each generates three tokens; the last one is not computed.
        assert line["computed_tokens"] <= asked + 6 * 2
        assert line["limit_bytes"] == 8 << 20 >= line["peak_bytes"]

    def test_an_answer_that_differs_from_a_run_alone_is_an_error(
        self, reported: Any, talking: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Forgetful(chats.onward.LLM):  # type: ignore[misc]
            def generate(self, prompt: Any, **options: Any) -> Any:
                crowd = prompt and isinstance(prompt[0], list)
                return super().generate(prompt if crowd else [prompt[0], *prompt[2:]], **options)

        monkeypatch.setattr(chats.onward, "LLM", Forgetful)
        code, line = self.run(reported, talking)
        assert (code, line["lost"]) == (1, 0)
        assert line["differing"] > 0

    def test_the_common_prefix_of_all_chats(self) -> None:
        assert chats.shared_length([[1, 2, 3], [1, 2, 4], [1, 2, 3, 5]]) == 2


class TestPrinting:
    LINES = (depth._line("x", 8192, 0, [[4.0]], [[2.0]]),)

    def test_tables(self, capsys: pytest.CaptureFixture[str]) -> None:
        rows = depth._rows(list(self.LINES))
        printing.show({"chunk_tokens": 3}, self.LINES, rows, "md")
        printed = capsys.readouterr().out.splitlines()
        assert printed[0] == "chunk tokens: 3"
        cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed[2:]]
        assert cells[0] == [*rows[0]] and cells[2] == [*rows[1]]
        printing.show({}, self.LINES, rows, "text")
        assert capsys.readouterr().out.splitlines()[-1].split() == [
            *("8,192", "x", "4000.00", "2000.00", "1.00", "1.00", "1.00", "1.00")
        ]

    def test_progress_is_not_part_of_the_output(self, capsys: pytest.CaptureFixture[str]) -> None:
        printing.say("round 1")
        assert capsys.readouterr() == ("", "round 1\n")


class TestCrowd:
    """Sequences in a cache of exactly the predicted bytes."""

    @pytest.mark.parametrize("kv_dtype", CODES)
    def test_the_predicted_number_of_sequences_fits_and_one_more_does_not(
        self, kv_dtype: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        flags = [*("--synthetic", "tiny", "--dtype", "bf16", "--kv-dtype", kv_dtype)]
        flags += [*("--sequences", "20", "--tokens", "768", "--threads", "1", "--json")]
        code = kv_cache.RUNS["crowd"].run(kv_cache.parser().parse_args(["crowd", *flags]))
        ((line),) = json.loads(capsys.readouterr().out)["lines"]
        assert code == 0
        assert (line["together"], line["preempted"], line["together_with_less"]) == (20, 0, 19)
        assert line["predicted"] <= line["engine"] <= line["budget"]
        codes = kv_dtype != "bf16"
        assert (line["budget"] > line["predicted"]) == codes

    def test_a_wrong_figure_fails_the_check_of_a_crowd(self) -> None:
        good = crowd.Line("int8", 4, 1024, 1000, 1100, 1050, 1000, 4, 0, 3)
        assert crowd.fits(good)
        for field, value in [
            *(("together", 3), ("preempted", 1), ("engine", 1101), ("together_with_less", 4))
        ]:
            assert not crowd.fits(replace(good, **{field: value})), field

    def test_tokens_are_whole_blocks(self) -> None:
        arguments = kv_cache.parser().parse_args(["crowd", "--tokens", "1000"])
        with pytest.raises(SystemExit, match="tokens: is 1000, expected a multiple of 16"):
            kv_cache.RUNS["crowd"].run(arguments)


def test_every_run_is_a_subcommand_with_its_defaults() -> None:
    assert set(kv_cache.RUNS) == {"prefix", "chats", "crowd", "depth", "reading"}
    assert kv_cache.RUNS["prefix"] is prefix
    for name, module in kv_cache.RUNS.items():
        arguments = kv_cache.parser().parse_args([name])
        assert (arguments.command, arguments.output) == (name, "text")
        assert {"kv_dtype", "threads"} <= set(vars(arguments)), module


@pytest.mark.parametrize("flags", [[], ["nothing"], ["depth", "-o", "csv"], ["chats", "--depth"]])
def test_unknown_arguments_are_refused(flags: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        kv_cache.parser().parse_args(flags)
    assert stop.value.code == 2
