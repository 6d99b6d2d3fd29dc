"""Files of onward.quantize, loaded again, and the command that writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import onward
from builders.seeded_folder import write_seeded
from closed_form import write_bytes_tokenizer
from onward.cli import main
from onward.cli import quantize as command
from onward.errors import ConfigError, WeightError
from onward.quantization.block_formats import FORMATS
from onward.quantization.quantizer import HEADS, METHODS

Q_PROJ = "model.layers.0.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of bytes: a text has as many tokens as bytes."""
    path = write_seeded(tmp_path_factory.mktemp("seeded") / "model", num_layers=2)
    write_bytes_tokenizer(path)
    return path


class TestLoading:
    """Folders with an impossible quantization_config."""

    @pytest.fixture
    def written(self, folder: Path, tmp_path: Path) -> Path:
        onward.quantize(folder, tmp_path / "out", method="round")
        return tmp_path / "out"

    @pytest.mark.parametrize(
        ("change", "error", "problem"),
        [
            ({"tensors": []}, ConfigError, r"quantization_config.tensors is \[\], expected an obj"),
            ({"tensors": {Q_PROJ: "IQ1_S"}}, ConfigError, "has 'IQ1_S' for .*expected one of"),
            ({"tensors": {"gone": "Q4_0"}}, WeightError, "tensor gone is missing, though quantiz"),
            ({"tensors": {Q_PROJ: "Q8_0"}}, WeightError, "rows of a multiple of 34 bytes for Q8_0"),
            ({"tensors": {"model.norm.weight": "Q4_0"}}, WeightError, "is F32 .*expected U8"),
            ({"tensors": {}}, WeightError, "has shape"),
            ({"quant_method": "gptq"}, ConfigError, "quantization_config is present"),
        ],
    )
    def test_refused(
        self, written: Path, change: dict[str, Any], error: type[Exception], problem: str
    ) -> None:
        path = written / "config.json"
        config = json.loads(path.read_text())
        config["quantization_config"] |= change
        path.write_text(json.dumps(config))
        with pytest.raises(error, match=problem):
            onward.LLM(written, threads=1)


class TestCommand:
    def test_the_choices_equal_the_package(self) -> None:
        assert tuple(FORMATS) == command.FORMATS
        assert (HEADS, METHODS) == (command.HEADS, command.METHODS)

    def test_summary(
        self, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "out"
        text = tmp_path / "text.txt"
        text.write_text("Ordinary text. " * 40)
        arguments = ["--calibration", str(text), "--calibration-tokens", "512", "--threads", "1"]
        assert main(["quantize", str(folder), "-o", str(out), *arguments]) == 0
        printed, errors = capsys.readouterr()
        assert errors == ""
        lines = printed.splitlines()
        assert lines[0] == f"{out}: int4, head int8, method gptq"
        assert any(line.startswith(Q_PROJ) and line.count("%") == 2 for line in lines)
        assert lines[-1] == f'run it with: onward generate "Once upon a time" --model {out}'

    def test_json(self, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        out = tmp_path / "out"
        arguments = ["--method", "round", "--dtype", "int8", "--head-dtype", "keep", "--json"]
        assert main(["quantize", str(folder), "-o", str(out), *arguments]) == 0
        reported = json.loads(capsys.readouterr().out)
        assert (reported["format"], reported["head"], reported["method"]) == (
            "int8",
            "keep",
            "round",
        )
        assert reported["bytes_after"] < reported["bytes_before"]
        assert reported["output"] == str(out)

    def test_wrong_usage(
        self, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["quantize", str(folder), "-o", str(tmp_path)]) == 2
        assert capsys.readouterr().err.startswith("onward: output: ")
