"""The input of a chat template: reasoning under every name, parts of a content, plain values."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from onward.errors import ArgumentTypeError, InvalidArgument, TemplateError
from onward.text.template.template import ChatTemplate

TEXT_ONLY = "{% for m in messages %}[{{ m.role + ':' + m.content }}]{% endfor %}"
PRINTS = "{% for m in messages %}[{{ m.content|trim }}]{% endfor %}"
TESTS_TYPE = (
    "{% for m in messages %}{% if m.content is string %}[{{ m.content }}]{% endif %}{% endfor %}"
)
OF_PARTS = (
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'image' %}<image>{% else %}{{ p.text }}{% endif %}"
    "{% endfor %}{% endif %}{% endfor %}"
)


def rendered(source: str, *messages: Any, **options: Any) -> str:
    return ChatTemplate({"default": source}, {}).render(list(messages), **options)


@pytest.mark.parametrize("given", ["reasoning_content", "thinking", "reasoning"])
@pytest.mark.parametrize("read", ["reasoning_content", "thinking", "reasoning"])
def test_reasoning_is_found_under_the_name_that_the_template_reads(given: str, read: str) -> None:
    message = {"role": "assistant", "content": "4", given: "2 + 2"}
    assert rendered(f"{{{{ messages[0].{read} }}}}={{{{ messages[0].content }}}}", message) == (
        "2 + 2=4"
    )
    assert message.keys() == {"role", "content", given}


def test_reasoning_that_is_absent_stays_absent() -> None:
    source = "{{ messages[0].thinking is defined }}{{ messages[0].reasoning_content is defined }}"
    assert rendered(source, {"role": "user", "content": "x"}) == "FalseFalse"
    assert rendered(source, {"role": "user", "content": "x", "thinking": None}) == "TrueFalse"


def text(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize(
    ("source", "expected"),
    [(TEXT_ONLY, "[user:a\nb]"), (PRINTS, "[a\nb]"), (TESTS_TYPE, "[a\nb]"), (OF_PARTS, "ab")],
    ids=["adds", "prints", "tests the type", "reads parts"],
)
def test_parts_are_joined_for_a_template_that_takes_text(source: str, expected: str) -> None:
    assert rendered(source, {"role": "user", "content": text("a", "b")}) == expected


def test_an_image_for_a_text_template_is_an_error() -> None:
    parts = [*text("what is this?"), {"type": "image", "url": "x.png"}]
    with pytest.raises(InvalidArgument, match=r"content\[1\]: is a part of type 'image', but this"):
        rendered(TEXT_ONLY, {"role": "user", "content": parts})
    assert rendered(OF_PARTS, {"role": "user", "content": parts}) == "what is this?<image>"


def test_a_refusal_of_the_template_is_not_hidden_by_parts() -> None:
    source = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(TemplateError, match="roles must alternate"):
        rendered(source, {"role": "user", "content": [{"type": "image"}]})


@dataclasses.dataclass
class Part:
    type: str
    text: str


class Dumped:
    """Gives its fields like the objects of the OpenAI client."""

    def model_dump(self) -> dict[str, Any]:
        return {"role": "user", "content": "hi"}


def test_objects_with_plain_values_are_accepted() -> None:
    assert rendered(PRINTS, Dumped()) == "[hi]"
    assert rendered(OF_PARTS, {"role": "user", "content": [Part("text", "hi")]}) == "hi"
    message = {"role": np.str_("user"), "content": "x", "n": np.int64(3), "b": np.bool_(False)}
    assert rendered("{{ messages[0].n + 1 }}{{ messages[0].b }}", message) == "4False"


@pytest.mark.parametrize(
    ("message", "options", "said"),
    [
        ({"role": "user", "content": "x", ("a", 1): 2}, {}, "a key is a tuple, expected text"),
        ({"role": "user", "content": "x", "a": {1, 2}}, {}, "found a set"),
        ({"role": "user", "content": "x", "a": np.zeros(3)}, {}, "found a ndarray"),
        ({"role": "user", "content": "x"}, {"tools": [len]}, "Python function, expected its desc"),
        ({"role": "user", "content": "x"}, {"documents": [{b"k": 1}]}, "a key is a bytes"),
    ],
)
def test_other_values_are_errors_that_name_the_place(
    message: dict[Any, Any], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ArgumentTypeError, match=said):
        rendered(PRINTS, message, **options)


@pytest.mark.parametrize(
    "value",
    [
        *("''.join", "[''.join]", "{'a': ''.split}", "cycler(1)", "joiner()", "namespace(a=1)"),
        *("range", "dict", "raise_exception", "cycler(1).next", "messages[0].items", "self.b"),
        *("''.join ~ ''", "''.join|string", "[''.join]|join", "'%s' % ''.join", "''.join|upper"),
        *("'{}'.format(''.join)", "''.join|trim", "''.join|e", "messages.index", "loop.cycle"),
        *("''.nothing", "m", "self", "loop", "cycler"),
    ],
)
def test_no_value_prints_an_address(value: str) -> None:
    """The same template gives the same prompt in every process."""
    source = "{% block b %}{% endblock %}{% macro m() %}{% endmacro %}"
    source += "{% for i in [1] %}{{ " + value + " }}{% endfor %}"
    assert "0x" not in rendered(source, {"role": "user", "content": "x"}).lower()


def test_a_macro_that_is_called_many_times_in_sequence_is_not_deep() -> None:
    source = "{% macro m() %}x{% endmacro %}" + "{{ m() }}" * 150
    assert rendered(source, {"role": "user", "content": "x"}) == "x" * 150
