"""``onward kv``: its output in every format, and its refusals."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

import onward.machine.memory
from builders.seeded_folder import write_seeded
from closed_form import base_config
from onward.cli import main
from onward.errors import InvalidArgument
from onward.lab.bench.synthetic import random_model, synthetic_dtypes, synthetic_spec
from onward.lab.counts.shapes import SHAPES
from onward.lab.kv.models import read_subject
from onward.lab.kv.report import calculate
from onward.load.hub import find_model
from onward.load.weights.gguf import GgufCheckpoint

KIB, MIB, GIB = 2**10, 2**20, 2**30
LLAMA = ("llama-3.1-8b", "--memory", "32GiB", "--weights-bytes", "16GiB")


class Printed:
    """Runs the command, which must succeed and write nothing to stderr."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> str:
        assert main(["kv", *arguments]) == 0
        out, err = self._capsys.readouterr()
        assert err == ""
        return out

    def json(self, *arguments: str) -> dict[str, Any]:
        reported: dict[str, Any] = json.loads(self(*arguments, "--json"))
        return reported


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    return Printed(capsys)


def squeezed(text: str) -> list[str]:
    """Lines without the spaces between columns."""
    return [" ".join(line.split()) for line in text.splitlines()]


class TestNumbers:
    """Figures that are calculated by hand from the formula."""

    def test_the_formula_in_steps(self, printed: Printed) -> None:
        out = printed(*LLAMA, "--context", "4096,128000")
        start = squeezed(out).index("the formula, with the model's own cache dtype (bf16):") + 1
        assert squeezed(out)[start : start + 8] == [
            "2 K and V",
            "x 128 head_dim = 256 numbers",
            "x 2 bytes of bf16 = 512 bytes: one token, one kv head, one layer",
            "x 8 kv heads = 4,096 bytes: one token, one layer",
            "x 32 layers = 131,072 bytes: one token, 128 KiB",
            "x 4,096 tokens = 536,870,912 bytes: one sequence, 512 MiB; 2,048 MiB as MHA",
            "x 128,000 tokens = 16,777,216,000 bytes: one sequence, 15.6 GiB; 62.5 GiB as MHA",
            "grouped queries (GQA): 32 query heads share 8 kv heads; as MHA, a kv head for each, "
            "it would be 4 times as large",
        ]

    def test_the_cache_of_a_batch_is_as_large_as_the_weights(self, printed: Printed) -> None:
        out = printed(*LLAMA, "--context", "4096", "--kv-dtype", "f16,int8")
        assert "4,096 x 1 512 MiB 270 MiB" in squeezed(out)
        assert "4,096 x 32 16 GiB 8.43 GiB" in squeezed(out)
        assert "*" not in out.split("tokens x sequences")[1].split("\n\n")[0]
        less = printed("llama-3.1-8b", *("--memory", "31GiB", "--weights-bytes", "16GiB"))
        assert "4,096 x 32 32 GiB* 16 GiB* 16 GiB* 8.43 GiB" in "\n".join(squeezed(less))

    def test_a_token_in_every_dtype(self, printed: Printed) -> None:
        lines = squeezed(printed(*LLAMA, "--context", "4096"))
        start = lines.index("kv dtype B a key B a value a token of bf16 longest of 4,096") + 1
        blocks = {name: 16 * kib for name, kib in (("int8", 65), ("turbo2", 17))}
        # Ten blocks are exact. A step needs memory for 17 more exact blocks and a coded one.
        longest = {
            name: 16 * (10 + (16 * GIB // KIB - 27 * 16 * 128 - size) // size)
            for name, size in blocks.items()
        }
        assert lines[start : start + 9] == [
            "f32 512 512 256 KiB 200.0% 65,536 16",
            "f16 256 256 128 KiB 100.0% 131,072 32",
            "bf16 256 256 128 KiB 100.0% 131,072 32",
            f"int8 130 130 65 KiB 50.8% {longest['int8']:,} 60",
            lines[start + 4],
            lines[start + 5],
            lines[start + 6],
            lines[start + 7],
            f"turbo2 34 34 17 KiB 13.3% {longest['turbo2']:,} 191",
        ]
        assert lines[start + 4].startswith("turbo8v4 130 66 49 KiB 38.3% ")
        assert lines[start + 5].startswith("q4_0 72 72 36 KiB 28.1% ")
        assert lines[start + 6].startswith("turbo4 66 66 33 KiB 25.8% ")
        assert lines[start + 7].startswith("turbo3 50 50 25 KiB 19.5% ")


class TestModels:
    def test_shapes_in_any_case(self, printed: Printed) -> None:
        out = printed("Qwen3-0.6B", "--memory", "8GiB")
        assert out.startswith(
            "qwen3-0.6b: 28 layers, 16 query heads on 8 kv heads of 128, context 40,960\n"
            "weights 1.11 GiB (bf16); memory 8 GiB; room for the cache 6.89 GiB\n"
        )
        # The usual lengths below the context, and the context.
        assert "of 1,024 of 4,096 of 8,192 of 32,768 of 40,960" in "\n".join(squeezed(out))

    def test_the_weights_are_those_of_the_core(self) -> None:
        spec = synthetic_spec("smollm2-135m")
        for dtype in ("auto", "int8"):
            model = random_model(spec, synthetic_dtypes(spec, dtype), 2)
            subject = read_subject("smollm2-135m", dtype)
            # Each weight begins on its own cache line.
            assert 0 <= model.weight_bytes - subject.weight_bytes < 64 * 1000
            assert model.cache_dtype == subject.weights.cache

    def test_only_the_header_of_the_default_model_is_read(
        self, printed: Printed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def never(*arguments: object) -> None:
            raise AssertionError("a tensor was read")

        monkeypatch.setattr(GgufCheckpoint, "tensor", never)
        reported = printed.json("--memory", "1GiB")
        assert (reported["num_layers"], reported["num_heads"], reported["num_kv_heads"]) == (
            30,
            9,
            3,
        )
        assert (reported["head_dim"], reported["context"], reported["weights"]) == (
            64,
            8192,
            "int4",
        )
        assert reported["textbook"]["steps"][-1]["bytes"] == 23_040
        path = str(find_model(None).path)
        assert printed.json(path, "--memory", "1GiB") == reported

    def test_a_folder_and_its_config_give_the_same_figures(
        self, printed: Printed, tmp_path: Path
    ) -> None:
        folder = write_seeded(tmp_path / "seeded", dtype="F16")
        reported = printed.json(str(folder), "--memory", "1GiB")
        assert (reported["model"], reported["head_dim"], reported["num_kv_heads"]) == (
            "seeded",
            16,
            2,
        )
        assert (reported["textbook"]["dtype"], reported["weights"]) == ("f16", "f16")
        # Without weights the dtype is the one in the config, else bf16.
        (folder / "model.safetensors").unlink()
        reported = printed.json(str(folder), "--memory", "1GiB")
        assert (reported["textbook"]["dtype"], reported["weights"]) == ("bf16", "bf16")
        config = json.loads((folder / "config.json").read_text()) | {"torch_dtype": "float32"}
        alone = tmp_path / "alone" / "config.json"
        alone.parent.mkdir()
        alone.write_text(json.dumps(config))
        reported = printed.json(str(alone), "--memory", "1GiB")
        assert (reported["model"], reported["textbook"]["dtype"], reported["weights"]) == (
            *("alone", "f32"),
            "f32",
        )

    def test_a_config_of_another_name(self, printed: Printed, tmp_path: Path) -> None:
        path = tmp_path / "mine.json"
        path.write_text(json.dumps(SHAPES["qwen3-0.6b"]))
        assert printed.json(str(path), "--memory", "1GiB")["model"] == "mine"

    def test_the_dtype_of_the_weights_decides_the_exact_blocks(self, printed: Printed) -> None:
        reported = printed.json("llama-3.2-1b", "--dtype", "int4", "--kv-dtype", "auto,turbo4")
        assert [codec["exact"] for codec in reported["codecs"]] == ["f16", "f16"]
        assert reported["weights"] == "int4" and 0.7 * GIB < reported["weight_bytes"] < 0.9 * GIB

    def test_windows_and_all_heads(self, printed: Printed, tmp_path: Path) -> None:
        config = base_config(
            model_type="mistral",
            sliding_window=64,
            num_hidden_layers=2,
            max_position_embeddings=4096,
        )
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        arguments = (str(path), "--context", "1000", "--kv-dtype", "bf16", "--memory", "1MB")
        out = printed(*arguments)
        assert "attention: 2 layers within 64 tokens" in out.splitlines()
        assert "every query head has keys and values of its own (MHA)" in out
        # Positions 937 and later: blocks 58 to 62; a head of 8 has values padded to 16.
        assert printed.json(*arguments)["codecs"][0]["figures"][0]["bytes"] == 2 * 5 * 16 * 48
        assert printed.json(*arguments)["codecs"][0]["longest"] is None
        assert "no end" in out

    def test_a_streaming_policy(self, printed: Printed) -> None:
        flags = ("--context", "16384", "--kv-dtype", "f16", "--attention-window", "1024")
        reported = printed.json(*LLAMA, *flags)
        assert reported["windows"] == [[1024, 32]]
        assert reported["codecs"][0]["figures"][0]["bytes"] == 65 * 16 * 128 * KIB
        assert "an approximation" in printed(*LLAMA, *flags)

    def test_window_and_sinks(self, printed: Printed) -> None:
        flags = ("--context", "4096", "--batch", "1", "--kv-dtype", "int8")
        (usual,) = printed.json(*LLAMA, *flags)["codecs"]
        assert usual["figures"][0]["bytes"] == 16 * KIB * (10 * 128 + 246 * 65)
        (other,) = printed.json(*LLAMA, *flags, "--window", "32", "--no-sinks")["codecs"]
        assert other["figures"][0]["bytes"] == 16 * KIB * (3 * 128 + 253 * 65)


class TestOutput:
    FLAGS = ("--context", "1024,4096", "--batch", "1,2", "--kv-dtype", "f16,int8/turbo4")

    def test_json(self, printed: Printed) -> None:
        reported = printed.json(*LLAMA, *self.FLAGS)
        assert (reported["memory_bytes"], reported["room_bytes"]) == (32 * GIB, 16 * GIB)
        assert reported["weights"] is None
        assert [codec["kv_dtype"] for codec in reported["codecs"]] == ["f16", "turbo8v4"]
        first = reported["codecs"][0]
        assert first["sequences"] == [[1024, 128], [4096, 32]]
        assert [tuple(figure.values()) for figure in first["figures"]] == [
            (1024, 1, 128 * MIB, True),
            (1024, 2, 256 * MIB, True),
            (4096, 1, 512 * MIB, True),
            (4096, 2, 1024 * MIB, True),
        ]
        assert reported["textbook"]["sequences"] == [
            [1024, 128 * MIB, 512 * MIB],
            [4096, 512 * MIB, 2048 * MIB],
        ]

    def test_csv(self, printed: Printed) -> None:
        rows = list(csv.DictReader(io.StringIO(printed(*LLAMA, *self.FLAGS, "--format", "csv"))))
        assert [(row["kv_dtype"], row["context"], row["batch"]) for row in rows] == [
            (name, context, batch)
            for name in ("f16", "turbo8v4")
            for context in ("1024", "4096")
            for batch in ("1", "2")
        ]
        last = rows[-1]
        assert int(last["bytes"]) == 2 * 256 * (10 * 512 + 246 * (130 + 66)) * 16
        assert (last["keys"], last["values"], last["exact"]) == ("int8", "turbo4", "bf16")
        assert (last["model"], last["fits"], last["token_bytes"]) == (
            *("llama-3.1-8b", "True"),
            str(196 * 256),
        )

    def test_markdown(self, printed: Printed) -> None:
        lines = printed(*LLAMA, *self.FLAGS, "--format", "md").splitlines()
        tables = [line.strip("|").split("|") for line in lines if line.startswith("|")]
        assert [len(row) for row in tables] == [8] * 4 + [3] * 6
        assert lines.count("```") == 2
        assert "| 4,096 x 2 | 1 GiB | 417 MiB |" in lines

    def test_tables_are_aligned(self, printed: Printed) -> None:
        parts = printed(*LLAMA, *self.FLAGS).split("\n\n")
        for part in parts[2:4]:
            assert len({len(line) for line in part.splitlines()}) == 1

    def test_several_names_of_one_kv_dtype_are_one_row(self, printed: Printed) -> None:
        reported = printed.json(
            *LLAMA, "--kv-dtype", "auto,bf16,turbo8v4", "--kv-dtype", "int8/turbo4"
        )
        assert [codec["kv_dtype"] for codec in reported["codecs"]] == ["bf16", "turbo8v4"]

    def test_the_default_memory_is_the_memory_of_the_machine(
        self, printed: Printed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(onward.machine.memory, "available_memory_bytes", lambda: 20 * GIB)
        assert printed.json("llama-3.1-8b")["memory_bytes"] == 20 * GIB
        # Weights larger than the memory leave nothing.
        reported = printed.json("llama-3.1-8b", "--memory", "8GiB", "--kv-dtype", "f16")
        assert reported["room_bytes"] == 0 and reported["codecs"][0]["longest"] == 0
        monkeypatch.setattr(onward.machine.memory, "available_memory_bytes", lambda: None)
        out = printed("llama-3.1-8b")
        assert "memory unknown" in out and "longest" not in out and "*" not in out
        assert printed.json("llama-3.1-8b")["codecs"][0]["figures"][0]["fits"] is None


class TestRefusals:
    @pytest.mark.parametrize(
        ("flags", "reported"),
        [
            (["--context", "0"], "context: is 0, expected an integer from 1"),
            (["--batch", "1,0"], "batch: is 0, expected an integer from 1"),
            (["--kv-dtype", "int9"], "kv_dtype: is 'int9', expected one of auto, f32"),
            (["--kv-dtype", "f16/f32"], "kv_dtype: names f16 for keys and f32 for values"),
            (["--window", "-1"], "kv_window_tokens: is -1, expected"),
            (["--attention-window", "0"], "attention_window: is 0, expected"),
            (["--memory", "much"], "--memory: is 'much', expected bytes"),
            (["--weights-bytes", "-1"], "--weights-bytes: is '-1', expected bytes"),
            (["--dtype", "f64"], "dtype: is 'f64', expected one of"),
            (["--plot", "x.pdf"], "plot: is x.pdf, expected a name ending in .svg or .png"),
        ],
    )
    def test_wrong_values(
        self, flags: list[str], reported: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["kv", "llama-3.1-8b", *flags]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert (
            err.startswith(("onward: " + reported, "onward kv: " + reported))
            and err.count("\n") == 1
        )

    @pytest.mark.parametrize("name", ["llama-9", "x" * 5000, "a\0b", ""])
    def test_an_unknown_model_is_an_error(
        self, name: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["kv", name]) == 1
        err = capsys.readouterr().err
        assert ": no such file or folder, expected a model folder" in err and len(err) < 600

    def test_an_empty_folder_is_an_error(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["kv", str(tmp_path)]) == 1
        assert "holds nothing, expected config.json or a .gguf file" in capsys.readouterr().err

    def test_an_impossible_config_is_an_error(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**SHAPES["llama-3.1-8b"], "num_hidden_layers": 0}))
        assert main(["kv", str(path)]) == 1
        assert "config.json" in capsys.readouterr().err

    def test_texts_that_are_not_numbers_are_refused(self) -> None:
        assert main(["kv", "llama-3.1-8b", "--context", "x"]) == 2

    def test_from_python(self) -> None:
        with pytest.raises(InvalidArgument, match="context: is 0"):
            calculate(read_subject("llama-3.1-8b", "auto"), contexts=[0])


def test_the_document_shows_the_printed_output(printed: Printed) -> None:
    text = (Path(__file__).parents[2] / "docs" / "kv.md").read_text(encoding="utf-8")
    shown = [part for part in text.split("```") if part.startswith("text\n")]
    command = "onward kv llama-3.1-8b --memory 24GiB --context 4096,128000 --batch 1,32"
    assert f"    {command}\n" in text
    assert shown[0].removeprefix("text\n") == printed(*command.split()[2:])
