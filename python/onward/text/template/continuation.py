"""Prompts that end with the unfinished final message, so that the model continues it.

The end of the message cannot be searched for in the rendered text: the message may be empty, look
like the markers of the template, or occur twice. So a unique mark is added to the end of the
message before the template renders it, and the text is cut at the mark, as transformers 5.24 does.
"""

from __future__ import annotations

from typing import Any

from onward.errors import InvalidArgument, TemplateError
from onward.text.template.messages import REASONING, Message

_MARK = "CONTINUED_FINAL_MESSAGE"
_TAIL = " "
"""Follows the mark. If the template removes it, the template strips the ends of messages."""


class Continuation:
    """The final message that is to be continued."""

    def __init__(self, messages: list[Message], field: str, source: str) -> None:
        """``field`` is "content", or a name of the reasoning. ``source`` is the template.

        Raises:
            InvalidArgument: the final message has no text in this field.
        """
        final = messages[-1]
        self._mark = _absent_mark(messages, source)
        value = final.get(field)
        if isinstance(value, list):
            at = next((i for i in reversed(range(len(value))) if _is_text(value[i])), None)
            if at is not None:
                self._text: str = value[at]["text"]
                marked = [*value[:at], {**value[at], "text": self._marked()}, *value[at + 1 :]]
                self.messages = [*messages[:-1], {**final, field: marked}]
                return
        if not isinstance(value, str):
            place = "" if field == "content" else f" in {field}"
            raise InvalidArgument(
                f"continue_final_message: the final message has no text{place}, expected some"
            )
        self._text = value
        names = [field]
        if field in REASONING:  # copies under other names, of which the template reads one
            names = [name for name in REASONING if final.get(name) == value]
        self.messages = [*messages[:-1], {**final, **dict.fromkeys(names, self._marked())}]

    def _marked(self) -> str:
        return self._text + self._mark + _TAIL

    def cut(self, rendered: str) -> str:
        """The prompt up to the end of the message.

        Raises:
            TemplateError: the template does not show the message unchanged.
        """
        at = rendered.rfind(self._mark)
        before = rendered[: max(at, 0)]
        expected, blanks = self._text.lstrip(), 0
        if not rendered.startswith(self._mark + _TAIL, max(at, 0)):
            # The template strips messages. A message of blanks alone becomes empty.
            content = self._text.strip()
            expected, blanks = (expected, len(expected) - len(content)) if content else ("", 0)
        if at < 0 or not before.endswith(expected):
            raise TemplateError(
                "continue_final_message: the chat template does not show the final message as it "
                "is, expected a template that ends with its text"
            )
        before = before[: len(before) - blanks]
        return before.replace(self._mark + _TAIL, "").replace(self._mark, "")


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def _absent_mark(messages: list[Message], source: str) -> str:
    """A mark that occurs neither in the conversation nor in the template."""
    everything, mark = f"{messages}{source}", _MARK
    while mark in everything:
        mark += "_"
    return mark
