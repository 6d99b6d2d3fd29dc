"""Half of a surrogate pair, which UTF-8 text cannot contain, is an error of onward in every
argument.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.talking import write_talking
from onward import LLM, Error

OpenLLM = Callable[..., LLM]
LONE = "a\ud800"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_talking(tmp_path_factory.mktemp("talking") / "m")


CALLS: dict[str, Callable[[LLM], Any]] = {
    "prompt": lambda llm: llm.generate(LONE),
    "one prompt of two": lambda llm: llm.generate(["a", LONE]),
    "stream": lambda llm: llm.stream(LONE),
    "chat": lambda llm: llm.chat(LONE),
    "role": lambda llm: llm.chat([{"role": LONE, "content": "a"}]),
    "tokenize": lambda llm: llm.tokenize(LONE),
    "score": lambda llm: llm.score(LONE),
    "system": lambda llm: llm.session(LONE).send("a"),
    "send": lambda llm: llm.session().send(LONE),
    "save": lambda llm: llm.session().save(LONE),
    "load": lambda llm: llm.session().load(LONE),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_lone_surrogates_in_calls_are_refused(
    folder: Path, open_llm: OpenLLM, call: Callable[[LLM], Any]
) -> None:
    llm = open_llm(folder)
    with pytest.raises(Error) as error:
        call(llm)
    str(error.value).encode()  # the message can be printed
    assert llm.generate("a", max_new_tokens=1).usage.completion_tokens == 1


@pytest.mark.parametrize(
    "options",
    [
        {"packed_cache": LONE},
        {"device": LONE},
        {"dtype": LONE},
        {"head_dtype": LONE},
        {"kv_dtype": LONE},
        {"draft_model": LONE},
    ],
)
def test_lone_surrogates_in_options_of_a_model_are_refused(
    folder: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(Error):
        LLM(folder, **options)


@pytest.mark.parametrize("name", [LONE, LONE + "/b", "/tmp/" + LONE, LONE + ".gguf"])
def test_lone_surrogates_in_paths_are_refused(name: str) -> None:
    with pytest.raises(Error) as error:
        LLM(name)
    str(error.value).encode()


def test_a_lone_surrogate_in_a_stop_string_never_matches(folder: Path, open_llm: OpenLLM) -> None:
    assert open_llm(folder).generate("a", stop=[LONE], max_new_tokens=2).finish_reason == "length"


def test_a_text_with_lone_surrogates_has_no_logits(folder: Path, open_llm: OpenLLM) -> None:
    with pytest.raises(TypeError, match="token_ids: is 'a'"):
        open_llm(folder).logits("a")  # type: ignore[arg-type]
