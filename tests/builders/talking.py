"""Small chat models: random weights over bytes, heads of 32, a chat template.

Their output is rarely UTF-8, so the text of an answer does not give its ids.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from builders.seeded_folder import write_seeded
from closed_form import write_bytes_tokenizer

if TYPE_CHECKING:
    from onward import LLM
    from onward.sessions.session import Session

QUESTIONS = ["hello there", "and why is that, then?", "tell me more of the same " * 3]
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SHORTENING = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content if loop.last else m.content[:1] }}\n"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)
"""A template that renders earlier messages differently."""


def write_talking(
    folder: Path,
    template: str | None = TEMPLATE,
    *,
    config: dict[str, Any] | None = None,
    **of: Any,
) -> Path:
    """A model over bytes, ids 0 to 255, without an end token."""
    write_seeded(folder, **{"head_dim": 32, **of})
    write_bytes_tokenizer(folder)
    reported = dict(config or {})
    if template is not None:
        reported["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(reported))
    return folder


def talked(llm: LLM, tokens: int = 60) -> Session:
    """A conversation of three answers."""
    session = llm.session("be brief", max_new_tokens=tokens, logprobs=1)
    for question in QUESTIONS:
        session.send(question)
    return session
