"""Input on a terminal with ``prompt_toolkit``: multi-line messages, a paste as one message,
history, and completion of commands.
"""

from __future__ import annotations

from collections.abc import Iterable

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History as EditorHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from onward.cli.chat.commands import completions
from onward.cli.chat.history import History
from onward.cli.chat.typed import PROMPT, Typed, fence_is_open, typed


class EditingReader:
    """Enter sends; Alt-Enter, or Enter after a backslash or in an open fence, begins a new line."""

    def __init__(self, history: History) -> None:
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation="  ",
            key_bindings=_bindings(),
            history=_KeptHistory(history),
            completer=_Commands(),
            complete_while_typing=False,
            enable_suspend=True,
        )

    def read(self, prefill: str = "") -> Typed:
        return typed(self._session.prompt(default=prefill))


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor(1)
            buffer.insert_text("\n")
        elif fence_is_open(buffer.text):
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


class _KeptHistory(EditorHistory):
    """The history of earlier chats, as the class that prompt_toolkit requires."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self._kept = history

    def load_history_strings(self) -> Iterable[str]:
        return reversed(self._kept.entries)

    def store_string(self, string: str) -> None:
        self._kept.add(string)


class _Commands(Completer):
    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        for word, start, meaning in completions(document.text_before_cursor):
            yield Completion(word, start_position=start, display_meta=meaning)
