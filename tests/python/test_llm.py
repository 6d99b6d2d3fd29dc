"""The LLM class through its API: arguments, properties, chat, results, closing, progress."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onward
from closed_form import chain, write_generation_config, write_script, write_table
from onward import LLM
from onward.errors import (
    ArgumentTypeError,
    ClosedError,
    ConfigError,
    InvalidArgument,
    TemplateError,
    TokenizerError,
)
from onward.machine import progress

SCRIPT = ["<pad>", "<s>", "</s>", "one,", " two,", " three,", " four."]
SAID = "one, two, three, four.</s>"
TEMPLATE = (
    "{% for message in messages %}{{ message.content }}|{% endfor %}"
    "{{ '</s>|' if thinking else '' }}<s>"
)
OpenLLM = Callable[..., LLM]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_script(tmp_path / "script", SCRIPT)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return folder


@pytest.fixture
def llm(folder: Path, open_llm: OpenLLM) -> LLM:
    return open_llm(folder)


# Making one


@pytest.mark.parametrize(
    ("arguments", "error", "reported"),
    [
        ({"device": "gpu"}, InvalidArgument, 'device: is \'gpu\', expected "cpu", "cuda" or'),
        ({"device": None}, ArgumentTypeError, "device: is None"),
        (
            {"dtype": "fp16"},
            InvalidArgument,
            "dtype: is 'fp16', expected one of auto, f32, f16, bf",
        ),
        ({"dtype": None}, ArgumentTypeError, "dtype: is None, expected one of auto, f32, f16"),
        ({"head_dtype": "auto"}, InvalidArgument, "head_dtype: is 'auto', expected None or one of"),
        ({"head_dtype": 8}, ArgumentTypeError, "head_dtype: is 8, expected None or one of f32"),
        ({"dtype": ["f32"]}, ArgumentTypeError, "dtype: is "),
        ({"threads": 0}, InvalidArgument, "threads: is 0, expected an integer from 1 to 1024"),
        ({"threads": -1}, InvalidArgument, "threads: is -1"),
        ({"threads": 10000}, InvalidArgument, "threads: is 10000"),
        ({"threads": True}, ArgumentTypeError, "threads: is True"),
        ({"threads": 2.0}, ArgumentTypeError, "threads: is 2.0"),
        ({"prefill_chunk_tokens": 0}, InvalidArgument, "prefill_chunk_tokens: is 0"),
        ({"prefill_chunk_tokens": None}, ArgumentTypeError, "prefill_chunk_tokens: is None"),
    ],
)
def test_bad_arguments_are_refused_before_loading(
    arguments: dict[str, Any], error: type[Exception], reported: str
) -> None:
    with pytest.raises(error, match=f"^{reported}"):
        LLM("/does/not/exist", **arguments)


def test_the_properties_of_a_model(folder: Path, open_llm: OpenLLM) -> None:
    llm = open_llm(folder, dtype="bf16", threads=np.int64(3))
    assert (llm.name, llm.device, llm.dtype, llm.threads) == (folder.name, "cpu", "bf16", 3)
    assert (llm.context, llm.spec.vocab_size, llm.spec.architecture) == (64, 7, "llama")
    assert llm.weight_bytes > 0
    assert repr(llm) == "<onward.LLM script: llama, bf16, 3 threads>"
    assert open_llm(folder).threads >= 1


def test_a_bad_generation_config_is_an_error_at_load(folder: Path) -> None:
    write_generation_config(folder, top_p=7)
    with pytest.raises(ConfigError, match=r"^generation_config.json: top_p is 7, expected a num"):
        LLM(folder)


def test_fields_that_have_no_effect_yet_are_a_warning(folder: Path, open_llm: OpenLLM) -> None:
    write_generation_config(folder, guidance_scale=4, temperature=0.5)
    with pytest.warns(UserWarning, match=r"guidance_scale=4: not supported yet") as reported:
        open_llm(folder)
    assert len(reported) == 1
    write_generation_config(folder, guidance_scale=1, max_length=20, pad_token_id=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_llm(folder)


# Options and results


def test_the_values_in_effect_are_on_the_result(folder: Path, open_llm: OpenLLM) -> None:
    write_generation_config(
        folder, do_sample=True, temperature=0.6, top_k=1, max_new_tokens=3, eos_token_id=[2, 6]
    )
    llm = open_llm(folder)
    options = llm.generate("<s>").options
    assert (options.temperature, options.top_k, options.max_new_tokens) == (0.6, 1, 3)
    assert options.stop_token_ids == (2, 6)
    assert isinstance(options.seed, int) and 0 <= options.seed < 2**64
    options = llm.generate("<s>", temperature=0, max_new_tokens=9, seed=5).options
    assert (options.temperature, options.max_new_tokens, options.seed) == (0, 9, 5)


def test_a_result(llm: LLM) -> None:
    result = llm.generate("<s>")
    assert str(result) == result.text == SAID
    assert result.prompt_token_ids == (1,)
    assert result.token_ids == (3, 4, 5, 6, 2)
    assert (result.finish_reason, result.stop_reason) == ("stop", 2)
    assert result.usage.total_tokens == 6
    timings = result.timings
    assert timings.time_to_first_token_s and timings.time_per_output_token_s
    assert timings.prefill_tokens_per_s == pytest.approx(1 / timings.time_to_first_token_s)
    assert timings.decode_tokens_per_s == pytest.approx(1 / timings.time_per_output_token_s)
    assert timings.total_s == pytest.approx(
        timings.time_to_first_token_s + 4 * timings.time_per_output_token_s
    )
    reported = json.loads(json.dumps(result.to_dict()))
    assert reported["options"]["stop_token_ids"] == [2]
    assert reported["usage"]["total_tokens"] == 6


def test_rates_of_too_few_tokens_are_none(llm: LLM) -> None:
    none = llm.generate("<s>", max_new_tokens=0).timings
    assert none.time_to_first_token_s is None and none.decode_tokens_per_s is None
    one = llm.generate("<s>", max_new_tokens=1).timings
    assert one.time_to_first_token_s is not None and one.time_per_output_token_s is None


def test_a_stop_string_is_the_stop_reason(llm: LLM) -> None:
    result = llm.generate("<s>", stop=[" three"])
    assert (result.text, result.finish_reason, result.stop_reason) == (
        "one, two,",
        "stop",
        " three",
    )
    assert result.token_ids == (3, 4, 5)


@pytest.mark.parametrize("call", ["generate", "stream", "chat"])
def test_unknown_and_bad_options_are_refused_before_anything_is_computed(
    llm: LLM, call: str
) -> None:
    for options in ({"temprature": 1}, {"temperature": -1}, {"max_new_tokens": None}):
        with pytest.raises((ArgumentTypeError, InvalidArgument)):
            getattr(llm, call)("<s>", **options)
    assert llm.stats()["steps"] == 0


def test_streaming_a_list_is_refused(llm: LLM) -> None:
    with pytest.raises(InvalidArgument, match="expected one prompt"):
        llm.stream(["a", "b"])  # type: ignore[arg-type]


# Chat


def test_chat_uses_the_template_of_the_model(llm: LLM) -> None:
    messages = [{"role": "user", "content": "one,"}, {"role": "assistant", "content": " two,"}]
    result = llm.chat(messages)
    assert result.prompt_token_ids == (3, 4, 1)
    assert result.text == SAID
    assert llm.chat("one,").prompt_token_ids == (3, 1)


def test_chat_streams(llm: LLM) -> None:
    stream = llm.chat("one,", stream=True, max_new_tokens=2)
    assert list(stream) == ["one,", " two,"]
    assert stream.result.text == "one, two,"
    with pytest.raises(ArgumentTypeError, match=r"stream: is 1 \(int\), expected True or False"):
        llm.chat("one,", stream=1)  # type: ignore[call-overload]


def test_template_options_reach_the_template(llm: LLM) -> None:
    assert llm.chat_token_ids("one,", {"thinking": True}) == [3, 2, 1]
    assert llm.chat("one,", template_options={"thinking": True}).prompt_token_ids == (3, 2, 1)


@pytest.mark.parametrize("messages", [[], None, 3, [3], [{"content": "x"}], [{"role": 1}]])
def test_values_that_are_not_conversations_are_refused(llm: LLM, messages: Any) -> None:
    with pytest.raises((InvalidArgument, ArgumentTypeError), match=r"^messages"):
        llm.chat(messages)


def test_without_a_template_chat_is_an_error_and_generate_works(
    tmp_path: Path, open_llm: OpenLLM
) -> None:
    llm = open_llm(write_script(tmp_path / "plain", SCRIPT))
    with pytest.raises(TemplateError, match="no chat template"):
        llm.chat("hi")
    assert llm.generate("<s>").text == SAID


def test_a_conversational_model_that_ends_at_once_gives_a_warning(llm: LLM) -> None:
    """Instruct models end the turn after a question without the template. Without a warning, the
    empty answer would look like a fault."""
    with pytest.warns(UserWarning, match=r"prompt: the model ended at once.*chat\(\)"):
        assert llm.generate(" four.").token_ids == (2,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert llm.generate([6]).token_ids == (2,)  # ids are taken as they are meant
        assert llm.generate(" three,").token_ids == (6, 2)


# Text and ids


def test_tokenize_and_detokenize(llm: LLM) -> None:
    assert llm.tokenize("one,| two,") == [3, 4]
    assert llm.detokenize([3, 4]) == "one, two,"
    assert llm.detokenize(np.array([3, 4])) == "one, two,"


def test_a_model_without_tokenizer_takes_ids(tmp_path: Path, open_llm: OpenLLM) -> None:
    llm = open_llm(write_table(tmp_path, chain(8, {1: 3, 3: 4, 4: 2})))
    result = llm.generate([1])
    assert (result.token_ids, result.text) == ((3, 4, 2), "")
    assert list(llm.stream([1])) == []
    for use in (
        lambda: llm.generate("text"),
        lambda: llm.generate([1], stop="x"),
        lambda: llm.tokenize("x"),
        lambda: llm.chat("x"),
    ):
        with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
            use()


def test_logits(llm: LLM) -> None:
    rows = llm.logits([1, 3])
    assert (rows.shape, rows.dtype) == ((2, 7), np.float32)
    assert rows.argmax(axis=1).tolist() == [3, 4]
    with pytest.raises(InvalidArgument, match=r"token_ids: token id 7 at position 0"):
        llm.logits([7])
    with pytest.raises(InvalidArgument, match="token_ids: is empty"):
        llm.logits([])


# Closing, and the LLMs that are kept


def test_every_call_after_close_is_a_closed_error(folder: Path) -> None:
    with LLM(folder) as llm:
        stream = llm.stream("<s>")
        next(stream)
    llm.close()
    calls: list[Callable[[], object]] = [
        lambda: llm.generate("<s>"),
        lambda: llm.generate([]),
        lambda: llm.stream("<s>"),
        lambda: llm.chat("<s>"),
        lambda: llm.logits([1]),
        lambda: llm.tokenize("x"),
        lambda: llm.stats(),
        lambda: next(stream),
    ]
    for call in calls:
        with pytest.raises(ClosedError, match="was closed"):
            call()
    assert llm.spec.vocab_size == 7


def test_module_functions_load_a_model_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from onward import default_llm

    monkeypatch.setattr(default_llm, "_llms", {})
    assert onward.generate("<s>", str(folder)).text == SAID
    assert "".join(onward.stream("<s>", folder, max_new_tokens=1)) == "one,"
    assert onward.chat("one,", str(folder)).text == SAID
    assert [r.text for r in onward.generate(["<s>", "<s>"], str(folder))] == [SAID, SAID]
    [llm] = default_llm._llms.values()
    llm.close()


EXIT = """
import sys, threading, time
import onward
llm = onward.LLM(sys.argv[1])
stream = llm.stream("<s>")
next(stream)
def work():
    while True:
        llm.generate([1] * 60, ignore_eos=True)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
try:
    onward.LLM("/nonexistent")
except onward.errors.ModelNotFound:
    print("refused")
"""


def test_exit_with_a_live_stream_and_daemon_threads_is_quiet(
    folder: Path, run_python: Callable[..., Any]
) -> None:
    for _ in range(5):
        done = run_python(EXIT, folder)
        assert (done.returncode, done.stdout, done.stderr) == (0, "refused\n", "")


def test_at_exit_handlers_can_still_generate(folder: Path, run_python: Callable[..., Any]) -> None:
    source = (
        "import atexit, sys, onward\n"
        "llm = onward.LLM(sys.argv[1])\n"
        "atexit.register(lambda: print(llm.generate('<s>')))\n"
    )
    done = run_python(source, folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, SAID + "\n", "")


# Progress


class Screen(io.StringIO):
    watched = True

    def isatty(self) -> bool:
        return self.watched


@pytest.mark.parametrize("watched", [True, False])
def test_progress_is_shown_only_on_a_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, watched: bool
) -> None:
    screen = Screen()
    screen.watched = watched
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    LLM(folder).close()
    if watched:
        assert "loading script [" in screen.getvalue()
        assert screen.getvalue().endswith("\r\x1b[K"), "the bar is taken away again"
    else:
        assert screen.getvalue() == ""
    assert capsys.readouterr().out == ""


def test_no_progress_before_a_second_has_passed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    LLM(folder).close()
    assert screen.getvalue() == ""


def test_progress_with_stderr_closed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    LLM(folder).close()
