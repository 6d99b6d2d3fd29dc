"""The conversation of one chat: its session, the options of its answers, and its file."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from onward.cli import flags
from onward.cli.chat.sampling import RepetitionGuard, chat_options, uses_defaults
from onward.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onward.calls.result import Result
    from onward.cli.chat.screen import Screen
    from onward.llm import LLM
    from onward.options.resolution import ModelDefaults
    from onward.sessions.session import Session
    from onward.sessions.stream import SessionStream


class Conversation:
    """The state of a chat, which its commands change. An error leaves it unchanged.

    Attributes:
        session: the messages and their token ids.
        options: those that were set, by flags or by ``/set``.
        over: whether the chat is to end.
        can_prefill: whether the next input can begin with a text.
        prefill: this text.
    """

    def __init__(
        self,
        llm: LLM,
        options: Mapping[str, Any],
        screen: Screen,
        *,
        system: str | None = None,
        file: str | None = None,
        watched: bool = False,
    ) -> None:
        self._llm = llm
        self._screen = screen
        self._watched = watched
        self._system = system
        self._file = file
        self._saves_itself = file is not None
        self._changed = False  # since the last save
        self._whole = True  # whether the file has keys and values too
        self._retries = 0
        self._guard = RepetitionGuard()
        self.over = False
        self.prefill = ""
        self.can_prefill = False
        self.options: dict[str, Any] = {}
        self.choose(options)
        self.session: Session = llm.session(system)
        if file is not None:
            self._begin_with(os.path.expanduser(file))

    def _begin_with(self, path: str) -> None:
        """Continue from the file if it exists; else check now that it can be written."""
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            raise InvalidArgument(
                f"--session: {folder} is not a folder, expected a folder for the file"
            )
        if os.path.lexists(path):
            if self._system is not None:
                raise InvalidArgument(
                    f"--system: is given with {path}, a conversation that has begun, "
                    "expected one of them"
                )
            self.load(path)

    @property
    def watched(self) -> bool:
        """Whether the messages come from a terminal."""
        return self._watched

    @property
    def defaults(self) -> ModelDefaults:
        """The generation options in the model's files."""
        return self._llm.generation_defaults

    @property
    def system(self) -> str | None:
        """The text of the system message."""
        messages = self.session.messages
        if messages and messages[0]["role"] == "system":
            return str(messages[0]["content"])
        return None

    @property
    def questions(self) -> list[int]:
        """The indices of the user's messages."""
        return [i for i, said in enumerate(self.session.messages) if said["role"] == "user"]

    def choose(self, options: Mapping[str, Any]) -> None:
        """Set the options of the next answers. Raises InvalidArgument or ArgumentTypeError for
        wrong options."""
        effective = chat_options(options, self.defaults)
        self._llm.session(**effective)
        for name in ("best_of", "num_return_sequences"):
            if effective.get("num_beams", 1) == 1 and (effective.get(name) or 1) > 1:
                raise InvalidArgument(
                    f"{name}: is {effective[name]}, expected 1 in a chat, which shows one answer "
                    "while it is written"
                )
        self.options = dict(options)

    def instruct(self, system: str | None) -> None:
        """Replace the system message, or remove it."""
        self.session.instruct(system)
        self._system = system
        self._change()

    def reset(self) -> None:
        """Remove all messages except the system message."""
        self.session = self._llm.session(self._system)
        self._changed = False

    def rewind(self, count: int) -> None:
        """Remove the last questions and their answers."""
        self.session.rewind(count)
        self._change()

    def answer(self, message: str) -> None:
        """Stream the answer to a message."""
        self._retries = 0
        self._show(self.session.stream(message, **self._effective()))

    def retry(self) -> None:
        """Stream another answer to the last question. If a seed is set, the next seed is used."""
        if not self.questions:
            raise InvalidArgument("/retry: there is no question yet, expected one")
        options = self._effective()
        self._retries += 1
        if options.get("seed") is not None:
            options["seed"] = (options["seed"] + self._retries) % 2**64
        self._show(self.session.restream(**options))

    def more(self) -> None:
        """Stream a continuation of the last answer."""
        if not self.session.messages or self.session.messages[-1]["role"] != "assistant":
            raise InvalidArgument("/more: there is no answer to continue, expected one")
        self._show(self.session.stream_more(**self._effective(guarded=False)))

    def edit(self, message: str) -> None:
        """Stream the answer to a text that replaces the last question."""
        if not self.questions:
            raise InvalidArgument("/edit: there is no question yet, expected one to replace")
        other = self.session.fork()  # an error, and an answer that never began, change nothing
        other.edit(self.questions[-1], message)
        stream = other.restream(**self._effective())
        before, self.session = self.session, other
        try:
            self._show(stream)
        finally:
            if other.messages[-1]["role"] != "assistant":
                self.session = before

    def save(self, file: str | None = None) -> None:
        """Save to a file, which becomes the file of the conversation."""
        if file is None and self._file is None:
            raise InvalidArgument("/save: has no file, expected one: /save FILE")
        file = file or self._file
        assert file is not None
        self.session.save(file)
        self._file, self._changed, self._whole = file, False, True
        print(f"(saved {self._told()}: {file})", file=sys.stderr)

    def load(self, file: str) -> None:
        """Continue from a file, which becomes the file of the conversation."""
        self.session.load(file)
        self._file, self._changed, self._whole = file, False, True
        self._system = self.system
        print(f"(loaded {self._told()}: {file})", file=sys.stderr)

    def keep(self) -> None:
        """Save the messages, without keys and values, if --session names a file. This runs after
        each answer, so it has to be fast."""
        if self._saves_itself and self._changed and self._file is not None:
            self.session.save(self._file, cache=False)
            self._changed, self._whole = False, False

    def end(self) -> None:
        """Save with keys and values if --session names a file and the conversation has changed."""
        if self._saves_itself and (self._changed or not self._whole):
            self.save()

    def _effective(self, guarded: bool = True) -> dict[str, Any]:
        """The options of an answer. A guarded answer ends if it repeats itself."""
        options = chat_options(self.options, self.defaults)
        self._guard = RepetitionGuard()
        if guarded and uses_defaults(self.options, self.defaults):
            options["stopping_criteria"] = [self._guard]
        return flags.with_prefill_bar(options) if self._watched else options

    def _told(self) -> str:
        return f"{len(self.session.messages)} messages, {len(self.session.token_ids)} tokens"

    def _change(self) -> None:
        self._changed = True
        self.keep()

    def _show(self, stream: SessionStream) -> None:
        before = self.session.messages
        try:
            result = self._screen.show(stream)
        finally:
            self._changed = self._changed or self.session.messages != before
        if self._guard.fired or not self._screen.json:
            self._remark(result)
        self.keep()

    def _remark(self, result: Result) -> None:
        """Write to stderr why an answer ended early, or that it is empty."""
        remark = None
        tokens = len(result.token_ids)
        if self._guard.fired:
            remark = "stopped: the answer repeats itself"
            if self._watched:
                remark += "; /retry asks again, /more continues"
        elif result.finish_reason == "length":
            if tokens < result.options.max_new_tokens:
                remark = f"the context of {self._llm.context} tokens is full"
                if self._watched:
                    remark += "; /rewind removes questions, /reset removes all"
            elif self._watched:
                remark = (
                    f"cut at {tokens} tokens; /more continues, /set max-new-tokens N allows more"
                )
            else:
                remark = f"cut at {tokens} tokens; --max-new-tokens N allows more"
        elif self._watched and not result.text.strip():
            remark = "the answer is empty; /retry asks again"
        if remark is not None:
            print(f"({remark})", file=sys.stderr)
