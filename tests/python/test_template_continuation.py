"""``continue_final_message``: the prompt ends exactly after the final message, for any message."""

from __future__ import annotations

from typing import Any

import pytest

from builders.tiny_tokenizers import smollm2, smollm2_metadata
from onward.errors import InvalidArgument, TemplateError
from onward.text.template.template import ChatTemplate

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TRIMMED = CHATML.replace("m.content", "m.content|trim")
ASK = {"role": "user", "content": "n < i"}
HEADER = "<|im_start|>user\nn < i<|im_end|>\n<|im_start|>assistant\n"
PREFIXES = ["", "n", "<", "<|im_end|>", "assistant", "\n", " ", "The answer", "two\nlines", "é🦙"]


def continued(source: str, text: Any, *before: dict[str, Any], **options: Any) -> str:
    messages = [*(before or (ASK,)), {"role": "assistant", "content": text}]
    options = {"continue_final_message": True, **options}
    return ChatTemplate({"default": source}, {}).render(messages, **options)


@pytest.mark.parametrize("text", [*PREFIXES, "trailing ", " leading", " both \n"])
def test_a_template_that_keeps_blanks(text: str) -> None:
    assert continued(CHATML, text) == HEADER + text


@pytest.mark.parametrize("text", [*PREFIXES, "trailing ", " leading", " both \n"])
def test_a_template_that_strips_messages(text: str) -> None:
    assert continued(TRIMMED, text) == HEADER + text.strip()


@pytest.mark.parametrize("text", PREFIXES)
def test_the_default_model(text: str) -> None:
    metadata = smollm2_metadata()
    assert metadata is not None
    template = ChatTemplate.from_gguf(metadata, smollm2())
    messages = [{"role": "system", "content": "s"}, ASK]
    whole = template.render(messages)
    final = {"role": "assistant", "content": text}
    assert template.render([*messages, final], continue_final_message=True) == whole + text


def test_a_final_text_that_an_earlier_message_contains_too() -> None:
    """The prompt ends after the last message, not after the first place of its text."""
    before = [ASK, {"role": "assistant", "content": "yes"}, {"role": "user", "content": "yes"}]
    assert continued(CHATML, "yes", *before) == (
        HEADER + "yes<|im_end|>\n<|im_start|>user\nyes<|im_end|>\n<|im_start|>assistant\nyes"
    )


def test_a_final_message_of_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    own = "{% for m in messages %}[{% for p in m.content %}({{ p.text }}){% endfor %}]{% endfor %}"
    assert continued(own, parts, {"role": "user", "content": parts}) == "[(a)(b)][(a)(b"
    assert continued(CHATML, parts) == HEADER + "a\nb"


def test_a_template_that_shows_the_message_twice() -> None:
    assert continued("{{ messages[-1].content }}|{{ messages[-1].content }}.", "x") == "x|x"


def test_a_template_that_tests_the_content() -> None:
    source = CHATML.replace("{{ m.content }}", "{% if m.content %}{{ m.content }}{% endif %}")
    assert continued(source, "") == HEADER


@pytest.mark.parametrize(
    "source",
    ["x", "{{ messages[-1].content|upper }}", "{{ messages[-1].content.split('b')[-1] }}"],
    ids=["dropped", "changed", "cut"],
)
def test_a_template_that_changes_the_final_message_is_an_error(source: str) -> None:
    with pytest.raises(TemplateError, match="does not show the final message as it is"):
        continued(source, "abc")


def test_the_reasoning_is_continued_under_the_name_that_the_template_reads() -> None:
    """The value of ``continue_final_message`` may be the name of a field, as in transformers."""
    source = "{% for m in messages %}<think>{{ m.thinking }}</think>{{ m.content }}{% endfor %}"
    final = {"role": "assistant", "content": "", "reasoning_content": "because "}
    template = ChatTemplate({"default": source}, {})
    found = template.render([final], continue_final_message="reasoning_content")
    assert found == "<think>because "
    with pytest.raises(InvalidArgument, match="has no text in thinking"):
        template.render([ASK], continue_final_message="thinking")


def test_a_conversation_that_contains_the_mark() -> None:
    text = "CONTINUED_FINAL_MESSAGE and CONTINUED_FINAL_MESSAGE_ "
    assert continued(CHATML, text) == HEADER + text
    source = CHATML + "{# CONTINUED_FINAL_MESSAGE #}"
    assert continued(source, "x") == HEADER + "x"
