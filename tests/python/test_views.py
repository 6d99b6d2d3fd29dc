"""The display of results in a shell and in a notebook."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from builders.talking import write_talking
from onward import LLM
from onward.calls.result import GeneratedSequence, Result, Timings, Usage
from onward.calls.scoring import Score
from onward.calls.views import MOST_CHARACTERS, shortened
from onward.cli.flags import timings_line
from onward.options.resolution import ModelDefaults, resolve

FIGURES = (
    "12 + 5 tokens, 8 reused, first token after 0.250 s, prefill 16 tokens/s, "
    "decode 20.0 tokens/s, finish: stop"
)


def result_of(text: str, ids: tuple[int, ...] = (1, 2, 3, 4, 5), outputs: int = 1) -> Result:
    sequence = GeneratedSequence(text, ids, "stop", None, score=-1.5)
    return Result(
        text=text,
        token_ids=ids,
        finish_reason="stop",
        stop_reason=None,
        usage=Usage(12, len(ids), 8),
        timings=Timings(0.25, 0.05, 16.0, 20.0, 0.45),
        options=resolve({}, ModelDefaults(8)),
        prompt_token_ids=tuple(range(12)),
        sequences=(sequence,) * outputs,
    )


def test_a_result_shows_its_text_and_a_line_of_figures() -> None:
    assert repr(result_of("Two\nlines.")) == f"Two\nlines.\n({FIGURES})"
    assert repr([result_of("a")]) == f"[a\n({FIGURES})]"
    assert repr(result_of("", ())).splitlines() == ["(" + FIGURES.replace("+ 5", "+ 0") + ")"]
    assert "8 reused, the first of 3 outputs, first token" in repr(result_of("a", outputs=3))
    assert timings_line(result_of("a")) == f"onward: {FIGURES}"


def test_ids_are_shown_if_there_is_no_text() -> None:
    assert repr(result_of("")).startswith("[token ids 1, 2, 3, 4, 5]\n(12 + 5")
    assert repr(result_of("", tuple(range(100)))).startswith("[token ids 0, 1, 2,")
    assert "14, 15, ...]\n" in repr(result_of("", tuple(range(100))))


def test_absent_figures_are_left_out() -> None:
    result = result_of("a")
    bare = {**vars(result), "timings": Timings(None, None, None, None, 0.1), "usage": Usage(1, 0)}
    assert repr(Result(**bare)) == "a\n(1 + 0 tokens, finish: stop)"


def test_a_long_text_is_shortened_in_the_middle() -> None:
    whole = "".join(f"{n:5d}" for n in range(1000))
    text = repr(result_of(whole))
    assert len(text) < MOST_CHARACTERS + len(FIGURES)
    assert text.startswith(whole[:1200] + "\n[... 3,200 characters left out;")
    assert text.endswith(whole[-600:] + f"\n({FIGURES})")
    assert str(result_of(whole)) == whole
    assert shortened("x" * MOST_CHARACTERS) == "x" * MOST_CHARACTERS


def test_control_characters_of_a_text_are_escaped() -> None:
    assert (
        shortened("a\x1b[2J\tb\x07\r\nc\u202e\ud800é日")
        == "a\\x1b[2J\tb\\x07\\r\nc\\u202e\\ud800é日"
    )


def test_one_of_several_outputs() -> None:
    sequence = result_of("one", outputs=2).sequences[1]
    assert repr(sequence) == "one\n(5 tokens, score -1.5, finish: stop)"
    assert repr(GeneratedSequence("x", (1,), "length", None)) == "x\n(1 token, finish: length)"


def test_html_shows_the_text_as_it_is() -> None:
    html = result_of("<b>1 & 2</b>\n  x" * 500)._repr_html_()
    assert html.count("&lt;b&gt;1 &amp; 2&lt;/b&gt;\n  x") == 500  # notebooks fold it themselves
    assert "<b>" not in html and "pre-wrap" in html
    assert re.search(rf"font-size: 80%[^>]*>{re.escape(FIGURES)}</div></div>$", html)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**bold** and `x<y`", "**bold** and `x<y`"),
        ("<think>a && b</think>", "&lt;think>a &amp;&amp; b&lt;/think>"),
        ("```html\n<b>\n```\n<b>", "```html\n<b>\n```\n&lt;b>"),
        ("cut:\n```python\nif a < b:", "cut:\n```python\nif a < b:\n```"),
        ("a ` b < c", "a ` b &lt; c"),
    ],
)
def test_markdown_keeps_the_marks_and_loses_no_text(text: str, expected: str) -> None:
    assert result_of(text)._repr_markdown_() == f"{expected}\n\n<small>{FIGURES}</small>"


def test_a_score() -> None:
    score = Score((1, 2, 3), (-1.0, -2.0))
    line = "score of 3 tokens: log-probability -3, perplexity 4.482"  # e^1.5
    assert repr(score) == f"({line})"
    assert score._repr_markdown_() == f"<small>{line}</small>"
    assert line in score._repr_html_()


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM(write_talking(tmp_path_factory.mktemp("views") / "m"), dtype="f32")


@pytest.mark.parametrize("of", ["llm", "session"])
def test_a_stream_shows_its_text_so_far(llm: LLM, of: str) -> None:
    begin: Callable[..., Any] = llm.stream if of == "llm" else llm.session().stream
    stream = begin("hello", max_new_tokens=40, seed=1)
    assert repr(stream) == "(stream, 0 tokens so far, not ended yet)"
    text = next(stream) + next(stream)
    assert repr(stream).startswith(shortened(text) + "\n(stream, ")
    assert repr(stream).endswith(" tokens so far, not ended yet)")
    stream.close()
    assert repr(stream).endswith(" tokens so far, closed before its end)")
    whole = begin("hello", max_new_tokens=40, seed=1)
    for _ in whole:
        pass
    assert repr(whole) == repr(whole.result)
    assert whole._repr_html_() == whole.result._repr_html_()
    assert whole._repr_markdown_() == whole.result._repr_markdown_()


def test_a_session_is_a_line_in_a_shell_and_its_messages_in_a_notebook(llm: LLM) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    called = {"role": "assistant", "content": None, "tool_calls": [{"name": "f"}]}
    session = llm.session("be <brief>", [{"role": "user", "content": parts}, called])
    line = f"3 messages, 0 tokens of {llm.context}"
    assert repr(session) == f"<onward.Session: {line}>"
    assert session._repr_markdown_() == (
        "**system**\n\nbe &lt;brief>\n\n**user**\n\nab\n\n"
        '**assistant**\n\n{"tool_calls": [{"name": "f"}]}\n\n'
        f"<small>{line}</small>"
    )
    html = session._repr_html_()
    assert html.index("<b>system</b>") < html.index("be &lt;brief&gt;") < html.index("<b>user</b>")
