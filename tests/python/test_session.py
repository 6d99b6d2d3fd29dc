"""Sessions: their messages and token ids, and rewinding."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builders.talking import SHORTENING, write_talking
from closed_form import write_script
from onward import LLM, Error
from onward.calls.generation import Stream
from onward.errors import ArgumentTypeError, ClosedError, InvalidArgument, TemplateError

OpenLLM = Callable[..., LLM]
QUESTIONS = ["hello there", "and why is that, then?", "no", "tell me more of the same " * 3]
KV = ["auto", "int8", "turbo4", "turbo8v4"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_talking(tmp_path_factory.mktemp("talking") / "m")


@pytest.fixture
def llm(folder: Path, open_llm: OpenLLM) -> LLM:
    return open_llm(folder)


def text_of(llm: LLM, messages: list[dict[str, Any]]) -> str:
    return "".join(f"<{m['role']}>{m['content']}\n" for m in messages)


# Messages and ids


def test_the_next_prompt_begins_with_the_ids_of_the_last_one_and_its_answer(llm: LLM) -> None:
    session = llm.session("be brief", max_new_tokens=40)
    before: tuple[int, ...] = ()
    for question in QUESTIONS:
        result = session.send(question)
        assert result.prompt_token_ids[: len(before)] == before
        assert result.usage.cached_tokens == max(len(before) - 1, 0)  # the last one was not fed
        before = result.prompt_token_ids + result.token_ids
        assert session.token_ids == before
    said = text_of(llm, session.messages[:-1])
    assert llm.detokenize(result.prompt_token_ids) == said + "<assistant>"
    assert [m["role"] for m in session.messages] == ["system", *["user", "assistant"] * 4]
    # The text alone would give other ids, because the output is not UTF-8.
    assert "\ufffd" in said
    assert list(result.prompt_token_ids) != llm.chat_token_ids(session.messages[:-1])


@pytest.mark.parametrize("kv_dtype", KV)
def test_answers_equal_a_model_without_a_prefix_cache(
    folder: Path, open_llm: OpenLLM, kv_dtype: str
) -> None:
    options = {"kv_dtype": kv_dtype, "kv_window_tokens": 32}
    session = open_llm(folder, **options).session(max_new_tokens=60, logprobs=2)
    forgetful = open_llm(folder, **options, prefix_cache=False)
    for question in QUESTIONS:
        found = session.send(question)
        expected = forgetful.generate(found.prompt_token_ids, max_new_tokens=60, logprobs=2)
        assert expected.usage.cached_tokens == 0
        assert (found.token_ids, found.logprobs) == (expected.token_ids, expected.logprobs)


def test_a_template_that_renders_earlier_messages_differently(
    tmp_path: Path, open_llm: OpenLLM
) -> None:
    llm = open_llm(write_talking(tmp_path / "m", SHORTENING))
    session = llm.session(max_new_tokens=8)
    for question in QUESTIONS:
        messages = session.messages
        result = session.send(question)
        asked = [*messages, {"role": "user", "content": question}]
        assert list(result.prompt_token_ids) == llm.chat_token_ids(asked)


def test_stop_strings_and_stop_tokens_are_not_part_of_the_message(
    tmp_path: Path, open_llm: OpenLLM
) -> None:
    """The template continues at the end of the message, not at the end of the model's output."""
    pieces = ["<pad>", "<s>", "</s>", "one", " two", " three", "U", "A"]
    folder = write_script(tmp_path / "m", pieces)
    template = "{% for m in messages %}{{ m.content }}|U|{% endfor %}<s>"
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"chat_template": template, "eos_token": "</s>", "bos_token": "<s>"})
    )
    llm = open_llm(folder)
    session = llm.session()
    result = session.send("A", stop=" three")
    assert (result.text, session.messages[-1]["content"]) == ("one two", "one two")
    result = llm.session().send("A", skip_special_tokens=False)
    assert result.text.endswith("</s>")
    session = llm.session(skip_special_tokens=False)
    session.send("A")
    assert session.messages[-1]["content"] == result.text.removesuffix("</s>")


def test_an_answer_that_is_only_the_stop_token_is_an_answer(
    tmp_path: Path, open_llm: OpenLLM
) -> None:
    folder = write_script(tmp_path / "m", ["<pad>", "<s>", "</s>", "one", " two"])
    template = "{% for m in messages %}{{ m.content }}|<s>|{% endfor %} two"
    names = {"chat_template": template, "eos_token": "</s>", "bos_token": "<s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    session = open_llm(folder).session()
    result = session.send("one")
    assert (result.text, result.token_ids, result.finish_reason) == ("", (2,), "stop")
    assert session.messages == [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": ""},
    ]
    with session.stream("one") as stream:
        assert "".join(stream) == ""
    assert len(session.messages) == 4


def test_text_after_a_stop_string_is_not_in_the_next_prompt(llm: LLM) -> None:
    session = llm.session(max_new_tokens=40)
    whole = session.send("hello there")
    at = next(i for i in range(8, 30) if chr(whole.token_ids[i]).isascii())
    stop = chr(whole.token_ids[at])
    again = llm.session(max_new_tokens=40)
    cut = again.send("hello there", stop=stop)
    assert cut.finish_reason == "stop" and len(cut.token_ids) >= 1
    following = again.send("x", max_new_tokens=1)
    kept = len(cut.prompt_token_ids) + len(cut.token_ids) - 1
    assert following.prompt_token_ids[:kept] == (cut.prompt_token_ids + cut.token_ids)[:kept]
    assert llm.detokenize(following.prompt_token_ids[kept:]) == "\n<user>x\n<assistant>"


def test_options_and_template_options(tmp_path: Path, open_llm: OpenLLM) -> None:
    template = "{% for m in messages %}{{ m.content }}{{ mark }}{% endfor %}>"
    llm = open_llm(write_talking(tmp_path / "m", template))
    session = llm.session(template_options={"mark": "#"}, max_new_tokens=3, seed=5)
    result = session.send("hi")
    assert llm.detokenize(result.prompt_token_ids) == "hi#>"
    assert (len(result.token_ids), result.options.seed) == (3, 5)
    assert len(session.send("hi", max_new_tokens=2).token_ids) == 2
    assert session.fork().send("hi").options.seed == 5


def test_initial_messages_and_messages_of_other_roles(llm: LLM) -> None:
    begun = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    session = llm.session("s", begun, max_new_tokens=4)
    result = session.send({"role": "tool", "content": "42"})
    assert llm.detokenize(result.prompt_token_ids) == (
        "<system>s\n<user>a\n<assistant>b\n<tool>42\n<assistant>"
    )
    begun[0]["content"] = "changed"
    session.messages[0]["content"] = "changed"
    assert [m["content"] for m in session.messages[:4]] == ["s", "a", "b", "42"]


class Answered:
    """A message object like in the OpenAI client."""

    def model_dump(self) -> dict[str, object]:
        return {"role": "tool", "content": "42", "name": None}


def test_parts_and_objects_of_clients_are_messages(llm: LLM) -> None:
    session = llm.session(None, [Answered()], max_new_tokens=4)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    result = session.send(parts)
    assert llm.detokenize(result.prompt_token_ids) == "<tool>42\n<user>a\nb\n<assistant>"
    for wrong in ([], [{"role": "user", "content": "a"}], ["a"], 3):
        with pytest.raises(ArgumentTypeError, match=r"^message: found a .*, expected text"):
            session.send(wrong)


def test_usage_counts_all_answers(llm: LLM) -> None:
    session = llm.session(max_new_tokens=5)
    results = [session.send(question) for question in QUESTIONS]
    session.rewind(2)
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
        assert getattr(session.usage, name) == sum(getattr(r.usage, name) for r in results)
    assert session.fork().usage.total_tokens == 0


# Streams


def test_a_stream_is_the_answer_of_send(llm: LLM) -> None:
    sent, streamed = llm.session(max_new_tokens=30), llm.session(max_new_tokens=30)
    for question in QUESTIONS:
        expected = sent.send(question)
        stream = streamed.stream(question)
        assert isinstance(stream, Stream)
        assert "".join(stream) == expected.text == stream.result.text
        assert stream.result.token_ids == expected.token_ids
        assert not stream.open
    assert streamed.messages == sent.messages
    assert streamed.token_ids == sent.token_ids
    assert streamed.usage.completion_tokens == sent.usage.completion_tokens


@pytest.mark.parametrize("how", ["close", "with", "drop"])
def test_an_abandoned_stream_keeps_its_text(llm: LLM, how: str) -> None:
    session = llm.session(max_new_tokens=1000)
    stream: Any = session.stream("hello")
    pieces = [next(stream) for _ in range(12)]
    if how == "close":
        stream.close()
    elif how == "with":
        with stream:
            pass
    else:
        del stream
        gc.collect()
    assert session.messages[-1] == {"role": "assistant", "content": "".join(pieces)}
    ids = session.token_ids
    assert session.usage.completion_tokens >= 12
    following = session.send("go on", max_new_tokens=4)
    # An unfinished character of the last tokens was never shown.
    assert following.prompt_token_ids[: len(ids) - 4] == ids[: len(ids) - 4]
    assert following.usage.cached_tokens >= len(ids) - 20


def test_an_abandoned_stream_without_text_changes_nothing(llm: LLM) -> None:
    session = llm.session(max_new_tokens=50)
    session.send("hello")
    before = (session.messages, session.token_ids)
    session.stream("never mind").close()
    assert (session.messages, session.token_ids) == before
    session.restream().close()
    assert (session.messages, session.token_ids) == before


def test_ctrl_c_keeps_the_text_and_an_error_does_not(llm: LLM) -> None:
    def interrupt(after: int, error: type[BaseException]) -> Callable[[Any, Any], None]:
        calls = [0]

        def rule(ids: Any, scores: Any) -> None:
            calls[0] += 1
            if calls[0] > after:
                raise error("stop")

        return rule

    session = llm.session(max_new_tokens=50)
    session.send("hello")
    before = (session.messages, session.token_ids)
    for call in (session.send, lambda *a, **o: list(session.stream(*a, **o))):
        with pytest.raises(RuntimeError, match="stop"):
            call("why?", logits_processor=interrupt(5, RuntimeError))
        assert (session.messages, session.token_ids) == before
    assert session.send("why?", max_new_tokens=2).usage.completion_tokens == 2


def test_an_open_stream_blocks_other_calls_of_the_session(llm: LLM, tmp_path: Path) -> None:
    session = llm.session(max_new_tokens=50)
    stream = session.stream("hello")
    calls: list[Callable[[], object]] = [
        *(lambda: session.send("a"), lambda: session.stream("a"), lambda: session.rewind()),
        *(session.fork, session.resend, lambda: session.edit(0, "a")),
        *(lambda: session.save(tmp_path / "s"), lambda: session.load(tmp_path / "s")),
    ]
    for call in calls:
        with pytest.raises(Error, match="session: an answer is still being streamed, expected"):
            call()
    list(stream)
    assert len(session.messages) == 2


# Rewinding and forks


def test_rewind_removes_exchanges(llm: LLM) -> None:
    session = llm.session("s", max_new_tokens=20)
    states = [(session.messages, session.token_ids)]
    for question in QUESTIONS:
        session.send(question)
        states.append((session.messages, session.token_ids))
    session.rewind()
    assert (session.messages, session.token_ids) == states[3]
    again = session.send(QUESTIONS[3])
    assert (session.messages, session.token_ids) == states[4]
    assert again.usage.cached_tokens >= len(states[3][1]) - 1
    session.rewind(3)
    assert (session.messages, session.token_ids) == states[1]
    session.rewind()
    assert (session.messages, session.token_ids) == states[0]
    with pytest.raises(InvalidArgument, match="rewind: the conversation has no exchange"):
        session.rewind()


@pytest.mark.parametrize("n", [0, -1, 3, True, 1.5, "1"])
def test_rewind_refuses_impossible_numbers(llm: LLM, n: Any) -> None:
    session = llm.session(max_new_tokens=2)
    session.send("a")
    session.send("b")
    with pytest.raises((InvalidArgument, ArgumentTypeError), match=r"n: is .*expected"):
        session.rewind(n)
    assert len(session.messages) == 4


def test_edit_a_question_and_resend(llm: LLM) -> None:
    session = llm.session(max_new_tokens=20, logprobs=0)
    for question in QUESTIONS[:3]:
        session.send(question)
    first = session.token_ids[: len(llm.chat_token_ids(session.messages[:1])) + 20]
    session.edit(2, "something else")
    assert [m["content"] for m in session.messages][2:] == ["something else"]
    assert session.token_ids == first
    with pytest.raises(InvalidArgument, match=r"last message has no answer, expected resend\(\)"):
        session.send("more")
    result = session.resend()
    assert result.prompt_token_ids[: len(first)] == first
    other = llm.session(max_new_tokens=20, logprobs=0)
    other.send(QUESTIONS[0])
    expected = other.send("something else")
    assert (result.token_ids, result.logprobs) == (expected.token_ids, expected.logprobs)
    assert session.messages == other.messages


def test_edit_an_answer_and_continue(llm: LLM) -> None:
    session = llm.session(max_new_tokens=20)
    for question in QUESTIONS[:3]:
        session.send(question)
    session.edit(-3, "I said so.")
    assert [m["content"] for m in session.messages][3:] == ["I said so."]
    result = session.send("Did you?")
    text = llm.detokenize(result.prompt_token_ids)
    assert text.endswith("<assistant>I said so.\n<user>Did you?\n<assistant>")


def test_resend_gives_another_answer_to_the_question(llm: LLM) -> None:
    session = llm.session(max_new_tokens=20, temperature=2.0)
    first = session.send("hello", seed=1)
    second = session.resend(seed=2)
    assert second.prompt_token_ids == first.prompt_token_ids
    assert second.token_ids != first.token_ids
    assert session.resend(seed=1).token_ids == first.token_ids
    assert session.messages[-1]["content"] == first.text
    with pytest.raises(InvalidArgument, match="resend: the conversation has no question"):
        llm.session("s").resend()


def test_forks_do_not_affect_each_other(llm: LLM) -> None:
    session = llm.session(max_new_tokens=30, logprobs=0)
    session.send(QUESTIONS[0])
    fork = session.fork()
    assert (fork.messages, fork.token_ids) == (session.messages, session.token_ids)
    streams = [session.stream("this way"), fork.stream("that way")]
    texts = ["", ""]
    for _ in range(3):
        for i, stream in enumerate(streams):
            texts[i] += next(stream)
    texts = [text + "".join(stream) for text, stream in zip(texts, streams, strict=True)]
    for found, question in ((session, "this way"), (fork, "that way")):
        alone = llm.session(max_new_tokens=30, logprobs=0)
        alone.send(QUESTIONS[0])
        alone.send(question)
        assert (found.messages, found.token_ids) == (alone.messages, alone.token_ids)
    fork.rewind(2)
    assert len(session.messages) == 4 and fork.messages == []


# Refusals


@pytest.mark.parametrize(
    ("given", "error", "reported"),
    [
        ({"system": 3}, ArgumentTypeError, "system: is 3, expected text"),
        ({"messages": "hi"}, ArgumentTypeError, "messages: found a str, expected a list"),
        ({"messages": [3]}, ArgumentTypeError, r"messages\[0\]: found a int"),
        ({"messages": [{"content": "x"}]}, ArgumentTypeError, r"messages\[0\]: its role is None"),
        ({"messages": [{"role": "user"}]}, InvalidArgument, "neither content nor tool_calls"),
        (
            {"messages": [{"role": "user", "content": 3}]},
            ArgumentTypeError,
            "its content is 3, expected text or a list",
        ),
        (
            {"messages": [{"role": "user", "content": "x", "extra": {1, 2}}]},
            ArgumentTypeError,
            r"messages\[0\].extra: found a set, expected dicts, lists",
        ),
        (
            {"system": "a", "messages": [{"role": "system", "content": "b"}]},
            InvalidArgument,
            "system: is given beside",
        ),
        ({"template_options": 3}, ArgumentTypeError, "template_options: is 3"),
        (
            {"template_options": {"add_generation_prompt": False}},
            InvalidArgument,
            "a session sets itself",
        ),
        ({"template_options": {"x": float("nan")}}, InvalidArgument, "what JSON can hold"),
    ],
)
def test_impossible_initial_messages_are_refused(
    llm: LLM, given: dict[str, Any], error: type[Exception], reported: str
) -> None:
    with pytest.raises(error, match=reported):
        llm.session(**given)


def test_a_refused_message_does_not_change_the_session(llm: LLM) -> None:
    session = llm.session(max_new_tokens=4)
    session.send("a")
    before = session.messages
    bad: list[tuple[Any, dict[str, Any]]] = [
        *((3, {}), ({"role": "user"}, {}), ("x" * 200_000, {}), ("\ud800", {})),
        *(("x", {"temperature": -1}), ("x", {"no_such": 1})),
    ]
    for message, options in bad:
        with pytest.raises((InvalidArgument, ArgumentTypeError)):
            session.send(message, **options)
        with pytest.raises((InvalidArgument, ArgumentTypeError)):
            session.stream(message, **options)
        assert session.messages == before
    for index, content in ((2, "x"), (-3, "x"), ("0", "x"), (0, 3), (0, None)):
        with pytest.raises((InvalidArgument, ArgumentTypeError)):
            session.edit(index, content)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="edit: the conversation has no message"):
        llm.session().edit(0, "x")
    assert session.messages == before


def test_a_model_without_a_template(tmp_path: Path, open_llm: OpenLLM) -> None:
    llm = open_llm(write_talking(tmp_path / "m", None))
    with pytest.raises(TemplateError, match="the model has no chat template"):
        llm.session()


def test_a_closed_model(folder: Path) -> None:
    llm = LLM(folder)
    session = llm.session(max_new_tokens=2)
    session.send("a")
    llm.close()
    for call in (lambda: session.send("b"), session.resend, lambda: session.save("x"), llm.session):
        with pytest.raises(ClosedError):
            call()
    assert len(session.messages) == 2
