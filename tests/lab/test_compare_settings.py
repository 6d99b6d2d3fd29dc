"""``onward compare``: the syntax of settings and conditions, and refusals before a model is
loaded.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from onward.cli import main
from onward.errors import InvalidArgument
from onward.lab.compare.comparison import Question
from onward.lab.compare.fail_on import FIGURES, Condition, parse_conditions
from onward.lab.compare.remote import _spelled
from onward.lab.compare.setting import KEYS, parse_setting


class TestSettings:
    def test_device_and_dtype(self) -> None:
        setting = parse_setting("cpu:bf16")
        assert (setting.device, setting.dtype, setting.python) == ("cpu", "bf16", None)
        assert setting.cache and not setting.apart
        assert setting.llm_arguments("m") == {
            "model": "m",
            "device": "cpu",
            "dtype": "bf16",
            "prefix_cache": False,
        }

    def test_a_device_without_a_dtype_takes_the_dtype_of_the_file(self) -> None:
        assert parse_setting("cuda-host").dtype == "auto"
        assert parse_setting("cpu:cache=off").dtype == "auto"

    def test_a_device_with_an_index(self) -> None:
        setting = parse_setting("cuda:1:bf16:cache=off")
        assert (setting.device, setting.dtype, setting.cache) == ("cuda:1", "bf16", False)
        assert parse_setting("cuda:1").device == "cuda:1"

    def test_keys_become_arguments_of_the_llm(self) -> None:
        text = "cpu:int8:kv=int8/turbo4:window=64:threads=1:head=f16:model=a/b"
        found = parse_setting(text).llm_arguments("m")
        assert found == {
            "model": "a/b",
            "device": "cpu",
            "dtype": "int8",
            "head_dtype": "f16",
            "kv_dtype": "int8/turbo4",
            "kv_window_tokens": 64,
            "threads": 1,
            "prefix_cache": False,
        }

    def test_another_interpreter(self) -> None:
        setting = parse_setting("python=/venv,a/bin/python,cuda:bf16:cache=off")
        assert setting.python == "/venv,a/bin/python" and setting.apart
        assert _spelled(setting.here()) == "cuda:bf16:cache=off"
        assert parse_setting(_spelled(setting.here())).python is None

    def test_another_instruction_set_is_another_process(self) -> None:
        setting = parse_setting("cpu:f32:isa=avx2:threads=1")
        assert setting.apart and setting.isa == "avx2"
        assert _spelled(setting.here()) == "cpu:f32:threads=1"

    def test_a_saved_result(self) -> None:
        assert parse_setting("x/a.npz").file == "x/a.npz"

    @pytest.mark.parametrize(
        ("text", "reported"),
        [
            ("", "expected DEVICE:DTYPE"),
            (":bf16", "expected DEVICE:DTYPE"),
            ("cpu:", "expected DEVICE:DTYPE"),
            ("int4", "expected DEVICE:DTYPE, did you mean cpu:int4?"),
            ("bf16:cpu", "expected DEVICE:DTYPE, did you mean cpu:bf16?"),
            ("cpu:f32:quick", "has 'quick', expected key=value"),
            ("cpu:f32:cache=", "has 'cache=', expected key=value"),
            ("cpu:f32:fast=1", f"key is 'fast', expected one of {', '.join(KEYS)}"),
            ("cpu:f32:cache=no", "cache is 'no', expected on or off"),
            ("cpu:f32:cache=on:cache=off", "has cache twice"),
            ("cpu:f32:threads=two", "threads is 'two', expected a whole number"),
            ("cpu:f32:window=-1", "window is '-1', expected a whole number"),
            ("python=/bin/python", "expected python=PATH, then a comma"),
            ("python=,cpu:f32", "expected python=PATH, then a comma"),
        ],
    )
    def test_what_cannot_be(self, text: str, reported: str) -> None:
        with pytest.raises(InvalidArgument, match=r"^setting: ") as caught:
            parse_setting(text)
        assert reported in str(caught.value)


class TestConditions:
    def test_names_signs_and_numbers(self) -> None:
        assert parse_conditions("top1<0.99, kl > 2e-2,decode_ratio<=1,noise>=0") == (
            Condition("top1", "<", 0.99),
            Condition("kl", ">", 0.02),
            Condition("decode_ratio", "<=", 1.0),
            Condition("noise", ">=", 0.0),
        )

    @pytest.mark.parametrize(
        ("text", "reported"),
        [
            ("", "has '', expected NAME"),
            ("top1", "has 'top1', expected NAME"),
            ("top1=1", "has 'top1=1', expected NAME"),
            ("top1<0.9,", "has '', expected NAME"),
            ("speed<1", f"name is 'speed', expected one of {', '.join(FIGURES)}"),
            ("kl>much", "kl is compared with 'much'"),
            ("kl>nan", "kl is compared with 'nan'"),
        ],
    )
    def test_what_cannot_be(self, text: str, reported: str) -> None:
        with pytest.raises(InvalidArgument, match=r"^fail_on: ") as caught:
            parse_conditions(text)
        assert reported in str(caught.value)


class TestQuestion:
    def test_usual_depths_end_at_the_context(self) -> None:
        assert Question().depths_in(8192) == [0, 512, 2048]
        assert Question().depths_in(529) == [0, 512]
        assert Question().depths_in(528) == [0]

    def test_depths_beyond_the_context_are_refused(self) -> None:
        with pytest.raises(InvalidArgument, match="depths: is 512"):
            Question(depths=(512,)).depths_in(528)


@pytest.mark.parametrize(
    ("flags", "reported"),
    [
        (["cpu:f32"], "compare: B is missing"),
        (["cpu:f32", "--save-b", "x.npz"], "save_b: is given without B"),
        (["cpu:f32", "--fail-on", "kl>1", "--save-a", "x.npz"], "fail_on: is given without B"),
        (["cpu:f32", "--save-a", "x.json"], "x.json: expected a name ending in .npz"),
        (["cpu:f32", "--save-a", "/nowhere/at/all.npz"], "/nowhere/at/all.npz: cannot write"),
        (["cpu:f32", "cpu:bf16", "--html", "x.txt"], "html: is x.txt"),
        (["cpu:f32", "cpu:bf16:a=b"], "setting: 'cpu:bf16:a=b': key is 'a'"),
        (["cpu:f32", "cpu:bf16", "--max-new-tokens", "0"], "max_new_tokens: is 0"),
        (["cpu:f32", "cpu:bf16", "--prompt", ""], "prompts: there are none, or an empty one"),
        (["cpu:f32", "cpu:bf16", "--prompts", "/nowhere"], "prompts: cannot read"),
        (["cpu:f32", "cpu:bf16", "--no-speed", "--depths", "0"], "no_speed: is given with depths"),
        (
            ["cpu:f32", "cpu:bf16", "--no-speed", "--fail-on", "decode_ratio<1"],
            "fail_on: has a ratio of rates",
        ),
    ],
)
def test_wrong_arguments_are_refused_before_a_model_is_loaded(
    flags: list[str], reported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *flags]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("onward: " + reported) and err.count("\n") == 1


def test_an_existing_other_file_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.npz"
    path.write_bytes(b"not yours")
    assert main(["compare", "cpu:f32", "--save-a", str(path)]) == 2
    assert "exists and is not a saved result" in capsys.readouterr().err
    assert path.read_bytes() == b"not yours"
