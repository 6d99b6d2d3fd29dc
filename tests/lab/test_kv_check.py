"""``onward kv --check``: predictions compared with a running model."""

from __future__ import annotations

import csv
import inspect
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import onward
from builders.resources import needs_proc
from builders.seeded_folder import write_seeded
from onward.cli import main
from onward.errors import Error, InvalidArgument
from onward.lab.counts.policy import Policy
from onward.lab.counts.shapes import SHAPES
from onward.lab.kv import check as checking
from onward.lab.kv.check import Checked, Measured, check, measure
from onward.lab.kv.models import read_subject
from onward.lab.kv.stand_in import write_stand_in
from onward.lab.kv.tables import CHECK_WRITERS
from onward.options.kv_dtypes import KV_DTYPES

MIB = 2**20
# Codes for keys and values, and floats with codes. The other pairs are slow tests.
QUICK_KV_DTYPES = ("int8", "f16/turbo4")
needs_kv_dtype = pytest.mark.skipif(
    "kv_dtype" not in inspect.signature(onward.LLM).parameters,
    reason="this LLM has no kv_dtype yet",
)


def checked(model: str | None, *kv_dtypes: str, policy: Policy | None = None) -> list[Checked]:
    return check(
        onward.LLM,
        read_subject(model, "auto"),
        dtype="auto",
        kv_dtypes=kv_dtypes,
        contexts=[1500],
        policy=policy or Policy(),
    )


@needs_proc
@pytest.mark.parametrize("context", [300, 700])
def test_the_default_model_takes_the_predicted_bytes(
    context: int, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--check", "--kv-dtype", "auto", "--context", str(context), "--json"]
    assert main(["kv", *flags]) == 0
    ((line),) = json.loads(capsys.readouterr().out)
    assert line["kv_dtype"] == "f16"
    assert context <= line["tokens"] < context + 16
    assert line["engine"] == line["predicted"] == -(-line["tokens"] // 16) * 16 * 23_040
    assert abs(line["resident"] - line["predicted"]) < 4 * MIB


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*has no weights here")
def test_a_stand_in_is_measured_for_a_model_without_weights() -> None:
    (line,) = checked("qwen3-0.6b", "auto")
    assert line.kv_dtype == "bf16" and line.agrees
    assert line.predicted == 94 * 16 * 2 * 28 * 8 * 128 * 2
    assert line.resident is None or abs(line.resident / line.predicted - 1) < 0.02


@needs_kv_dtype
@pytest.mark.filterwarnings("ignore:.*has no weights here")
@pytest.mark.parametrize(
    "kv_dtype",
    [
        *QUICK_KV_DTYPES,
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in [*KV_DTYPES, "turbo2/int8"]
            if name not in QUICK_KV_DTYPES
        ),
    ],
)
def test_every_kv_dtype(kv_dtype: str) -> None:
    (line,) = checked("smollm2-135m", kv_dtype)
    assert line.agrees, line


@needs_kv_dtype
@pytest.mark.filterwarnings("ignore:.*has no weights here")
@pytest.mark.parametrize(
    "policy",
    [
        Policy(window_tokens=0),
        Policy(window_tokens=300, sinks=False),
        Policy(attention_window=200),
        Policy(window_tokens=32, attention_window=200),
    ],
)
@pytest.mark.parametrize("kv_dtype", [pytest.param("auto", marks=pytest.mark.slow), "turbo4"])
def test_every_policy(policy: Policy, kv_dtype: str) -> None:
    (line,) = checked("smollm2-135m", kv_dtype, policy=policy)
    assert line.agrees, line


@needs_kv_dtype
@pytest.mark.filterwarnings("ignore:.*has no weights here")
def test_windows_of_a_model(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    shape = {**SHAPES["mistral-7b"], "num_hidden_layers": 3, "sliding_window": 500}
    path.write_text(json.dumps(shape))
    for line in checked(str(path), "auto", "int8"):
        assert line.agrees, line


@pytest.mark.parametrize("stored", ["F32", "F16", "BF16"])
def test_a_stand_in_has_the_attention_of_its_model(tmp_path: Path, stored: str) -> None:
    config = {**SHAPES["qwen2.5-0.5b"], "eos_token_id": 151643}
    spec = read_subject("qwen2.5-0.5b", "auto").spec
    write_stand_in(tmp_path, config, spec, stored)
    found = read_subject(str(tmp_path), "auto")
    assert found.weights.name == stored.lower()
    for name in ("num_layers", "num_heads", "num_kv_heads", "head_dim", "windows", "max_context"):
        assert getattr(found.spec, name) == getattr(spec, name)
    with onward.LLM(tmp_path) as llm:
        assert re.fullmatch(r"( \d+){5}", llm.generate([1, 2, 3], max_new_tokens=5).text)


class Scripted:
    """An LLM with given counters before and after the prompt."""

    spec = read_subject("smollm2-135m", "auto").spec

    def __init__(self, path: str, **options: object) -> None:
        self.stats = iter(options["stats"]).__next__  # type: ignore[call-overload]
        self.prompts: list[list[int]] = []

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def generate(self, prompt: list[int], **options: object) -> None:
        self.prompts.append(prompt)

    def stream(self, prompt: list[int], **options: object) -> Iterator[str]:
        assert (len(self.prompts[0]), len(prompt)) == (256, 400)
        assert prompt[0] != self.prompts[0][0]
        return iter(["a"])


def test_earlier_blocks_are_not_counted_for_the_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of prefixes keeps 1,000 bytes of the warm-up."""
    monkeypatch.setattr(checking, "resident_bytes", iter([10_000, 13_000]).__next__)
    stats = [
        {"kv_computations": 256, "cache_bytes": 1000, "cache_bytes_reserved": 1500},
        {"kv_computations": 656, "cache_bytes": 4600, "cache_bytes_reserved": 5000},
    ]
    found = measure(Scripted, "", {"stats": stats}, 400)
    assert found == Measured(400, 3600, 3000)
    monkeypatch.setattr(checking, "resident_bytes", lambda: None)
    assert measure(Scripted, "", {"stats": stats}, 400) == Measured(400, 3600, None)


def test_a_difference_is_reported_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        checking, "_in_child", lambda *arguments: Measured(2049, 129 * 16 * 23_040 - 96, None)
    )
    assert main(["kv", "--check", "--kv-dtype", "auto"]) == 1
    out, err = capsys.readouterr()
    assert "f16 2,049 47,554,560 47,554,464 -96 unknown unknown" in " ".join(out.split())
    assert err == "onward: check: the engine's bytes differ from the prediction for f16\n"


def test_only_options_that_differ_from_the_defaults_are_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def in_child(work: object, opens: object, path: str, options: object, *rest: int) -> Measured:
        calls.append((options, *rest))
        return Measured(1500, 0, None)

    monkeypatch.setattr(checking, "_in_child", in_child)
    checked(None, "auto")
    checked(None, "auto", "f16")  # the same as auto: once
    checked(None, "f32", policy=Policy(64, False, 512))
    assert calls == [
        ({"dtype": "auto", "prefix_cache": False}, 1500),
        ({"dtype": "auto", "prefix_cache": False}, 1500),
        (
            {
                "dtype": "auto",
                "prefix_cache": False,
                "kv_dtype": "f32",
                "kv_window_tokens": 64,
                "kv_sinks": False,
                "attention_window": 512,
            },
            1500,
        ),
    ]


def test_lengths_must_leave_room_for_output() -> None:
    with pytest.raises(InvalidArgument, match="context: is 9000, expected an integer from 1 to 81"):
        check(
            onward.LLM,
            read_subject(None, "auto"),
            dtype="auto",
            kv_dtypes=["auto"],
            contexts=[9000],
            policy=Policy(),
        )


def test_check_with_plot_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kv", "--check", "--plot", "x.svg"]) == 2
    assert "plot: is given together with check" in capsys.readouterr().err


def test_a_model_without_a_tokenizer_is_an_error(tmp_path: Path) -> None:
    folder = write_seeded(tmp_path / "mute")  # no tokenizer
    with pytest.raises(Error, match="64 tokens gave no text"):
        measure(onward.LLM, str(folder), {}, 100)


def test_a_child_that_dies_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(Error, match="the child process ended before it had measured"):
        checking._in_child(killed)


def killed() -> Measured:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_formats() -> None:
    lines = [Checked("f16", 100, 2000, 2000, 2100), Checked("int8", 100, 1000, 1010, None)]
    assert [row.split() for row in CHECK_WRITERS["table"](lines).splitlines()[:3]] == [
        [
            "kv",
            "dtype",
            "tokens",
            *("predicted", "engine", "difference", "resident"),
            "of",
            "predicted",
        ],
        ["f16", "100", "2,000", "2,000", "0", "2,100", "105.0%"],
        ["int8", "100", "1,000", "1,010", "+10", "unknown", "unknown"],
    ]
    assert "| int8 | 100 | 1,000 | 1,010 | +10 | unknown | unknown |" in CHECK_WRITERS["md"](lines)
    rows = list(csv.DictReader(io.StringIO(CHECK_WRITERS["csv"](lines))))
    assert rows[1] == {
        **{"kv_dtype": "int8", "tokens": "100", "predicted": "1000", "engine": "1010"},
        "resident": "",
    }
    assert json.loads(CHECK_WRITERS["json"](lines))[0]["resident"] == 2100
