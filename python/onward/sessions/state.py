"""The state of a session, and its JSON form in session files. The JSON is checked when it is
read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from onward.calls.result import Usage
from onward.errors import ArgumentTypeError, InvalidArgument
from onward.message_text import shown
from onward.sessions.messages import Message, read_message, read_template_options
from onward.sessions.transcript import Segment, ids_of

if TYPE_CHECKING:
    from collections.abc import Sequence

UNUSED = Usage(0, 0)
_USED = ("prompt_tokens", "completion_tokens", "cached_tokens")
_MOST = 2**53


@dataclass(frozen=True)
class SessionState:
    """The whole state of a session, except the options of its answers."""

    messages: tuple[Message, ...]
    template_options: Mapping[str, Any]
    segments: tuple[Segment, ...] = ()
    usage: Usage = UNUSED


def written_state(state: SessionState) -> dict[str, Any]:
    """The JSON form. The token ids are stored separately."""
    return {
        "messages": list(state.messages),
        "template_options": dict(state.template_options),
        "transcript": [
            {
                "text": segment.text,
                "tokens": len(segment.token_ids),
                "messages": segment.messages,
                "said": segment.said,
            }
            for segment in state.segments
        ],
        "usage": {name: getattr(state.usage, name) for name in _USED},
    }


def read_state(value: Mapping[str, Any], token_ids: Sequence[int]) -> SessionState:
    """The state from its JSON form.

    Raises:
        InvalidArgument, ArgumentTypeError: the JSON cannot be a state.
    """
    messages = [
        read_message(f"messages[{i}]", message)
        for i, message in enumerate(_list("messages", value.get("messages")))
    ]
    entries = [
        _segment(f"transcript[{i}]", entry)
        for i, entry in enumerate(_list("transcript", value.get("transcript")))
    ]
    ends = [0, *accumulate(count for _, count, _, _ in entries)]
    if ends[-1] != len(token_ids):
        raise InvalidArgument(f"transcript: has {ends[-1]} tokens, expected {len(token_ids)}")
    segments = tuple(
        Segment(text, tuple(token_ids[begin:end]), told, said)
        for (text, _, told, said), (begin, end) in zip(entries, pairwise(ends), strict=True)
    )
    assert len(ids_of(segments)) == len(token_ids)
    used = value.get("usage")
    if not isinstance(used, Mapping):
        raise ArgumentTypeError(f"usage: is {shown(used)}, expected an object")
    return SessionState(
        messages=tuple(messages),
        template_options=read_template_options(value.get("template_options")),
        segments=segments,
        usage=Usage(*(_count(f"usage.{name}", used.get(name), 0) for name in _USED)),
    )


def _segment(where: str, value: object) -> tuple[str, int, int, bool]:
    if not isinstance(value, Mapping):
        raise ArgumentTypeError(f"{where}: is {shown(value)}, expected an object")
    text, said = value.get("text"), value.get("said")
    if not isinstance(text, str):
        raise ArgumentTypeError(f"{where}.text: is {shown(text)}, expected text")
    if not isinstance(said, bool):
        raise ArgumentTypeError(f"{where}.said: is {shown(said)}, expected true or false")
    tokens = _count(f"{where}.tokens", value.get("tokens"), 1)
    return text, tokens, _count(f"{where}.messages", value.get("messages"), 0), said


def _list(where: str, value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ArgumentTypeError(f"{where}: is {shown(value)}, expected a list")
    return value


def _count(where: str, value: object, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ArgumentTypeError(f"{where}: is {shown(value)}, expected an integer")
    if not least <= value <= _MOST:
        raise InvalidArgument(f"{where}: is {shown(value)}, expected {least} to {_MOST}")
    return value
