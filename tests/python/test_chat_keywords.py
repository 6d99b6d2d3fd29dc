"""The keywords of chat, sessions and ``onward.chat``: the input of the template, refusals that name
the right place, and signatures and types.
"""

from __future__ import annotations

import copy
import inspect
import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import onward
from builders.talking import write_talking
from onward import LLM, default_llm
from onward.errors import ArgumentTypeError, InvalidArgument, TemplateError
from onward.options.chat import CHAT_KEYWORDS, SESSION_KEYWORDS, ChatKwargs, SessionKwargs
from onward.options.generation import GenerationKwargs
from onward.options.resolution import OF_LLM
from onward.options.table import OPTIONS

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if tools %}T{{ tools[0].name }}{% endif %}"
    "{% if documents %}D{{ documents[0].title }}{% endif %}"
    "{% if enable_thinking is defined %}E{{ enable_thinking }}{% endif %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_talking(tmp_path_factory.mktemp("keywords") / "m", TEMPLATE)


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return LLM(folder, dtype="f32")


def prompt_of(llm: LLM, **options: Any) -> str:
    result = llm.chat("hi", max_new_tokens=1, **options)
    variables = {n: v for n, v in options.items() if n in {*CHAT_KEYWORDS, "template_options"}}
    assert list(result.prompt_token_ids) == llm.chat_token_ids("hi", **variables)
    return llm.detokenize(result.prompt_token_ids)


# The input of the template


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "<user>hi\n<assistant>"),
        ({"system": "be brief"}, "<system>be brief\n<user>hi\n<assistant>"),
        ({"tools": [{"name": "f"}]}, "<user>hi\nTf<assistant>"),
        ({"documents": ({"title": "t"},)}, "<user>hi\nDt<assistant>"),
        ({"enable_thinking": False}, "<user>hi\nEFalse<assistant>"),
        ({"enable_thinking": True}, "<user>hi\nETrue<assistant>"),
        ({"enable_thinking": None, "tools": None}, "<user>hi\n<assistant>"),
        ({"chat_template": "default"}, "<user>hi\n<assistant>"),
        ({"add_generation_prompt": False}, "<user>hi\n"),
        ({"continue_final_message": True}, "<user>hi"),
    ],
)
def test_keywords_of_chat(llm: LLM, options: dict[str, Any], expected: str) -> None:
    assert prompt_of(llm, **options) == expected
    if None not in options.values():
        assert llm.chat_token_ids("hi", options) == llm.chat_token_ids("hi", **options)


def test_a_session_takes_the_same_keywords_for_all_its_answers(llm: LLM) -> None:
    session = llm.session(
        "s", tools=[{"name": "f"}], enable_thinking=False, documents=None, max_new_tokens=1
    )
    for _ in range(2):
        ids = session.send("hi").prompt_token_ids
        assert llm.detokenize(ids).endswith("<user>hi\nTfEFalse<assistant>")
        assert llm.detokenize(ids).startswith("<system>s\n")


def test_keywords_and_template_options_are_combined(llm: LLM) -> None:
    found = prompt_of(llm, tools=[{"name": "f"}], template_options={"enable_thinking": 0})
    assert found == "<user>hi\nTfE0<assistant>"
    for call in (llm.chat, lambda *a, **k: llm.session(**k)):
        with pytest.raises(InvalidArgument, match="tools: is given as a keyword and in template_o"):
            call("hi", tools=[], template_options={"tools": []})


def test_only_one_system_message_is_allowed_and_comes_first(llm: LLM) -> None:
    begun = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    for call in (
        lambda: llm.chat(begun, system="c"),
        lambda: llm.session("c", begun),
        lambda: onward.chat(begun, "nowhere/none", system="c"),
    ):
        with pytest.raises(InvalidArgument, match="system: is given beside messages that begin"):
            call()


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("tools", {"name": "f"}, "a list of dicts"),
        ("tools", "f", "a list of dicts"),
        ("documents", 1, "a list of dicts"),
        ("enable_thinking", "yes", "True or False"),
        ("enable_thinking", 1, "True or False"),
        ("system", 3, "text"),
        ("chat_template", b"x", "text"),
        ("add_generation_prompt", "no", "True or False"),
        ("continue_final_message", 0, "True or False"),
        ("template_options", [1], "a dict"),
    ],
)
def test_wrong_types_are_found_before_a_model_is_loaded(
    llm: LLM, name: str, value: object, expected: str
) -> None:
    given: dict[str, Any] = {name: value}
    calls: list[Callable[[], object]] = [
        lambda: llm.chat("hi", **given),
        lambda: onward.chat("hi", "nowhere/none", **given),
    ]
    if name in SESSION_KEYWORDS or name == "system":
        calls.append(lambda: llm.session(**given))
    for call in calls:
        with pytest.raises(ArgumentTypeError, match=rf"^{name}: is .*expected {expected}"):
            call()


# Refusals, with the right place of a name


@pytest.mark.parametrize(
    ("call", "options", "reported"),
    [
        ("generate", {"tools": []}, "it is an argument of chat() and session()"),
        ("generate", {"continue_final_message": True}, "it is an argument of chat()"),
        ("generate", {"stream": True}, "call stream() instead, or chat() with stream=True"),
        ("generate", {"threads": 2}, "it is an argument of LLM()"),
        ("stream", {"template_options": {}}, "it is an argument of chat() and session()"),
        ("generate", {"Max-Tokens": 2}, "did you mean max_new_tokens?"),
        ("chat", {"system_prompt": "x"}, "did you mean system?"),
        ("chat", {"functions": []}, "did you mean tools?"),
        ("chat", {"enable_thinkin": True}, "did you mean enable_thinking?"),
        ("chat", {"dtype": "f16"}, "it is an argument of LLM()"),
        ("chat", {"quite_unknown_thing": 1}, "help(onward.LLM.generate) lists all options"),
        ("session", {"max_tokens": 4}, "did you mean max_new_tokens?"),
        ("session", {"continue_final_message": True}, "it is an argument of chat()"),
        ("session", {"temprature": 1}, "did you mean temperature?"),
        ("send", {"tools": []}, "it is an argument of chat() and session()"),
        ("send", {"max_tokens": 4}, "did you mean max_new_tokens?"),
    ],
)
def test_an_unknown_name_is_an_error_of_one_line(
    llm: LLM, call: str, options: dict[str, Any], reported: str
) -> None:
    def ask(on: Any, *model: str) -> None:
        with pytest.raises(ArgumentTypeError) as caught:
            getattr(on, call)(*([] if call == "session" else ["hi"]), *model, **options)
        name = next(iter(options))
        assert str(caught.value).startswith(f"{name}: no such option, {reported.split(' or ')[0]}")
        assert len(str(caught.value)) < 120

    ask(llm.session() if call == "send" else llm)
    if hasattr(default_llm, call):
        ask(onward, "nowhere/none")  # before the model is searched


@pytest.mark.parametrize(
    ("options", "error", "reported"),
    [
        ({"max_new_tokens": -1}, InvalidArgument, "max_new_tokens: is -1"),
        ({"temperature": "hot"}, ArgumentTypeError, "temperature: is 'hot'"),
        ({"num_return_sequences": 2}, InvalidArgument, "num_return_sequences: is 2"),
        ({"stop_token_ids": [999]}, InvalidArgument, "stop_token_ids: is 999"),
        ({"best_of": 300, "temperature": 1}, InvalidArgument, "best_of: is 300, expected at most"),
        ({"regex": "("}, InvalidArgument, "regex: "),
        ({"chat_template": "other"}, TemplateError, "none named 'other'"),
        ({"messages": [{"role": "user"}]}, InvalidArgument, r"messages\[0\]: it has neither"),
        ({"messages": "hello"}, ArgumentTypeError, "messages: "),
        ({"messages": [3]}, ArgumentTypeError, r"messages\[0\]: "),
    ],
)
def test_a_session_reports_errors_at_once(
    llm: LLM, options: dict[str, Any], error: type[Exception], reported: str
) -> None:
    if "regex" in options:
        pytest.importorskip("llguidance")
    with pytest.raises(error, match=reported):
        llm.session(**options)


@pytest.mark.parametrize(
    ("call", "options"),
    [
        ("generate", {"max_new_tokens": -1}),
        ("stream", {"temperature": "hot"}),
        ("chat", {"top_p": 2}),
        ("chat", {"messages": 3}),
    ],
)
def test_values_are_checked_before_a_model_is_loaded(call: str, options: dict[str, Any]) -> None:
    prompt = {} if "messages" in options else {"prompt" if call != "chat" else "messages": "hi"}
    with pytest.raises((InvalidArgument, ArgumentTypeError), match=next(iter(options))):
        getattr(onward, call)(model="nowhere/none", **prompt, **options)


def test_a_template_that_renders_to_nothing_is_an_error_everywhere(tmp_path: Path) -> None:
    with LLM(write_talking(tmp_path / "m", "{# nothing #}"), dtype="f32") as llm:
        calls: list[Callable[[], object]] = [
            lambda: llm.chat("hi"),
            lambda: llm.chat("hi", stream=True),
            lambda: llm.chat_token_ids("hi"),
            lambda: llm.session().send("hi"),
            lambda: llm.session().stream("hi"),
        ]
        for call in calls:
            with pytest.raises(InvalidArgument, match="messages: the chat template renders them"):
                call()


def test_the_check_of_options_has_all_arguments_of_llm() -> None:
    assert {*OF_LLM} <= {*inspect.signature(LLM).parameters}


# Signatures and types


def test_signatures_show_every_keyword(llm: LLM) -> None:
    options = [option.name for option in OPTIONS]
    for chat in (LLM.chat, onward.chat):
        names = list(inspect.signature(chat).parameters)
        assert names[-len(options) :] == options
        assert {"messages", "stream", "template_options", *CHAT_KEYWORDS} <= {*names}
        assert inspect.signature(chat).parameters["stream"].default is False
        for name in CHAT_KEYWORDS:
            assert f"    {name}: " in (chat.__doc__ or "")
    assert {*SESSION_KEYWORDS, "system"} <= {*inspect.signature(LLM.session).parameters}
    assert not {*CHAT_KEYWORDS} & {*inspect.signature(LLM.generate).parameters}


def test_the_types_and_the_table_have_the_same_names() -> None:
    generation = {*GenerationKwargs.__annotations__}
    assert {*ChatKwargs.__annotations__} == generation | {*CHAT_KEYWORDS}
    assert {*SessionKwargs.__annotations__} == generation | {*SESSION_KEYWORDS}


SNIPPET = """\
import onward
from onward import LLM, Result, Stream

def check(llm: LLM, streamed: bool) -> None:
    a: Result = onward.chat("hi", system="s", tools=[{"name": "f"}], enable_thinking=False)
    b: Stream = onward.chat("hi", stream=True, max_new_tokens=3)
    c: Stream = llm.chat("hi", stream=True, continue_final_message=True)
    d: Result | Stream = llm.chat([{"role": "user", "content": "x"}], stream=streamed)
    e = llm.session("s", tools=None, chat_template="default", temperature=1.0)
    f: Result = onward.chat("hi", stream=True)  # error: Incompatible types
    llm.chat("hi", enable_thinking="yes")  # error: No overload
    llm.session(system=3)  # error: Argument
    llm.generate("hi", tools=[])  # error: Unexpected keyword
"""


def test_a_type_checker_finds_only_the_wrong_calls(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    file = tmp_path / "snippet.py"
    file.write_text(SNIPPET)
    cache = f"--cache-dir={Path(__file__).parents[2] / '.mypy_cache'}"
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", cache, str(file)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300).stdout
    errors = [line for line in found.splitlines() if ": error: " in line]
    expected = {n: line for n, line in enumerate(SNIPPET.splitlines(), 1) if "# error: " in line}
    assert {int(line.split(":")[1]) for line in errors} == {*expected}, found
    for number, reported in expected.items():
        assert any(f":{number}: error: {reported.split('# error: ')[1]}" in line for line in errors)


# Copies


WAYS: dict[str, Callable[[Any], object]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "old pickle": lambda made: pickle.dumps(made, protocol=0),
    "within": lambda made: pickle.dumps({"a": [made]}),
    "process": lambda made: multiprocessing.get_context("spawn").Process(args=(made,)).start(),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_error_of_a_copy_explains_worker_processes(llm: LLM, way: str) -> None:
    made: list[tuple[Any, str]] = [
        (llm, "LLM: .*make the LLM in each of them.*pack.* share its pages"),
        (llm.session(), "Session: .*the file that save.. writes.*fork.. copies"),
        (llm.stream("hi", max_new_tokens=2), "Stream: .*send its pieces, or its result"),
        (llm.session().stream("hi"), "Stream: "),
        (llm.generate, "LLM: "),
    ]
    for each, reported in made:
        if way == "copy" and each == llm.generate:
            continue  # the same method of the same LLM
        with pytest.raises(ArgumentTypeError, match=reported):
            WAYS[way](each)
    assert len(llm.generate("hi", max_new_tokens=2).token_ids) == 2


def test_a_result_can_be_pickled(llm: LLM) -> None:
    result = llm.generate("hi", max_new_tokens=2, logprobs=1)
    assert pickle.loads(pickle.dumps(result)) == result
