"""Chat templates in the styles of published models give the text that transformers 5.24 gives.

The templates, the conversations and the texts are in fixtures/chat_templates.json, which
scripts/make_fixtures.py writes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onward.errors import InvalidArgument, TemplateError
from onward.text.template.template import ChatTemplate

FIXTURES = Path(__file__).parents[1] / "fixtures"
FIXTURE = json.loads((FIXTURES / "chat_templates.json").read_text("utf-8"))
TEMPLATES = {template["name"]: template for template in FIXTURE["templates"]}


def render(template: dict[str, Any], messages: list[Any], **options: Any) -> str | None:
    """The text; None if it is refused, as in the stored texts of transformers."""
    try:
        return ChatTemplate({"default": template["template"]}, FIXTURE["tokens"]).render(
            messages, **options
        )
    except (TemplateError, InvalidArgument):
        return None


def test_there_are_twenty_templates_of_all_kinds() -> None:
    assert len(TEMPLATES) >= 20
    refused = [row["text"] is None for t in TEMPLATES.values() for row in t["rendered"]]
    assert 0 < sum(refused) < len(refused) / 10


@pytest.mark.parametrize("name", TEMPLATES)
def test_conversations(name: str) -> None:
    template = TEMPLATES[name]
    for row in template["rendered"]:
        given = FIXTURE["conversations"][row["conversation"]]
        found = render(template, add_generation_prompt=row["prompt"], **given)
        assert found == row["text"], row["conversation"]


@pytest.mark.parametrize("name", TEMPLATES)
def test_continued_messages(name: str) -> None:
    """Also with prefixes that look like marks of the template. After a message of blanks alone
    transformers strips the header of the answer, too, where the template strips messages; here
    the prompt ends right after the header."""
    template = TEMPLATES[name]
    for row in template["continued"]:
        prefix, expected = row["prefix"], row["text"]
        final = {"role": "assistant", "content": prefix}
        found = render(template, [*FIXTURE["before"], final], continue_final_message=True)
        if prefix.strip() or expected is None:
            assert found == expected, prefix
        else:
            assert found is not None and found.startswith(expected), prefix
            assert found.rstrip() == expected.rstrip(), prefix
