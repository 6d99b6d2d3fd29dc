"""The chat templates of a model: conversations to prompts.

This file finds the template, renders it and defines the rules for BOS. messages.py prepares the
messages, and sandbox.py runs the template.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from onward.errors import InvalidArgument, TemplateError
from onward.text.template.continuation import Continuation
from onward.text.template.messages import (
    Message,
    plain,
    read_messages,
    text_parts,
    with_joined_parts,
)

if TYPE_CHECKING:
    import jinja2

    from onward.text.tokenizer.tokenizer import Tokenizer

_MAX_FILE_BYTES = 1 << 20
_GGUF_KEY = "tokenizer.chat_template"
_NAMED_FOLDERS = ("additional_chat_templates", "chat_templates")


class ChatTemplate:
    """The chat templates of one model: usually one, named "default".

    A template runs in a sandbox: it cannot open files or call Python, and it may use 2 seconds and
    64 MiB (for long conversations 64 more bytes per character).

    Attributes:
        names: the names of the templates; empty if the model has none.
    """

    def __init__(
        self,
        sources: Mapping[str, str],
        special_tokens: Mapping[str, str],
        absent: str = "the model has no chat template",
    ) -> None:
        """`sources` are the templates by name; `absent` is the message if there is none."""
        self._sources = dict(sources)
        self._special_tokens = dict(special_tokens)
        self._absent = absent
        self._compiled: dict[str, jinja2.Template] = {}
        self._lock = threading.Lock()

    @classmethod
    def from_folder(cls, path: str | Path, tokenizer: Tokenizer) -> ChatTemplate:
        """The templates of a model folder. A .jinja file has priority over tokenizer_config.json.

        A folder without a usable template causes no error until something is rendered.
        """
        folder = Path(path)
        sources = _configured(tokenizer.config.get("chat_template"))
        absent = f"{folder}: the model has no chat template (chat_template.jinja, or chat_template"
        absent += " in tokenizer_config.json); generate() works without one"
        files = {"default": folder / "chat_template.jinja"}
        for name in _NAMED_FOLDERS:
            files.update((file.stem, file) for file in sorted((folder / name).glob("*.jinja")))
        for name, file in files.items():
            if not file.is_file():
                continue
            sources.pop(name, None)
            try:
                if file.stat().st_size > _MAX_FILE_BYTES:
                    absent = f"{file}: it is larger than {_MAX_FILE_BYTES} bytes"
                    continue
                sources[name] = file.read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                absent = f"{file}: it cannot be read: {error}"
        return cls(sources, tokenizer.special_tokens, absent)

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any], tokenizer: Tokenizer) -> ChatTemplate:
        """The templates of a GGUF file's metadata."""
        absent = f"{_GGUF_KEY}: the GGUF file has no chat template; generate() works without one"
        return cls(gguf_templates(metadata), tokenizer.special_tokens, absent)

    @property
    def sources(self) -> Mapping[str, str]:
        """The templates by name."""
        return self._sources

    @property
    def names(self) -> list[str]:
        return list(self._sources)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool | None = None,
        *,
        continue_final_message: bool | str = False,
        chat_template: str | None = None,
        **extra: Any,
    ) -> str:
        """The prompt for a conversation.

        Args:
            messages: dicts with a `role` and a `content`: a str, or a list of parts such as
                `{"type": "text", "text": "hi"}`, which are joined by newlines for a template that
                takes text only. Reasoning is found under `reasoning_content`, `thinking` or
                `reasoning`, whichever of them the template reads.
            add_generation_prompt: whether the prompt ends where the answer begins; by default it
                does, unless the final message is to be continued.
            continue_final_message: end the prompt with the final message, left open, right after
                its text. A name, such as "reasoning_content", continues that field instead of
                "content".
            chat_template: name of the template; by default "tool_use" where there are tools and
                the model has it, and "default" otherwise.
            extra: further variables of the template, such as `tools` or `documents`, made of
                dicts, lists, strings, numbers, booleans and None.

        Raises:
            InvalidArgument: no messages, a message without role or content, contradictory options.
            ArgumentTypeError: a message or variable has the wrong type.
            TemplateError: there is no such template, it failed, it refused the conversation (the
                message says what it said) or it went over its budget.
        """
        if continue_final_message and add_generation_prompt:
            raise InvalidArgument(
                "chat: add_generation_prompt and continue_final_message are both set, expected one"
            )
        name = chat_template
        if name is None:
            name = "tool_use" if extra.get("tools") and "tool_use" in self._sources else "default"
        source = self._sources.get(name, "")
        conversation = read_messages(messages, source)
        variables = {
            **self._special_tokens,
            "tools": None,
            "documents": None,
            **{name: plain(value, name) for name, value in extra.items()},
            "add_generation_prompt": (
                not continue_final_message
                if add_generation_prompt is None
                else add_generation_prompt
            ),
        }
        run = partial(self._run, name, variables, perf_counter())
        if not continue_final_message:
            return _rendered(run, conversation)
        field = continue_final_message if isinstance(continue_final_message, str) else "content"
        continued = Continuation(conversation, field, source)
        return continued.cut(_rendered(run, continued.messages))

    def _run(
        self, name: str, variables: Mapping[str, Any], began: float, messages: list[Message]
    ) -> str:
        """One rendering. All renderings of one call have the same time, from ``began`` on."""
        from onward.text.template import sandbox as sandbox
        from onward.text.template.budget import Budget, BudgetExceeded
        from onward.text.template.filters import RaisedByTemplate

        source = self._sources.get(name)
        if source is None:
            if not self._sources or name == "default":
                raise TemplateError(self._absent)
            raise TemplateError(
                f"chat template: there is none named {name!r}, found {', '.join(self._sources)}"
            )
        every = {**variables, "messages": messages}
        try:
            budget = Budget(_size(every), began)
            with self._lock:
                if name not in self._compiled:
                    self._compiled[name] = sandbox.compile_template(source)
            template = self._compiled[name]
            return sandbox.render_template(template, every, budget)
        except RaisedByTemplate as error:
            raise _Refused(f"chat template: {error}") from None
        except BudgetExceeded as error:
            raise _Refused(f"chat template: over its budget: {error}") from None
        except Exception as error:
            line = _line_of(error)
            at = f", line {line}" if line else ""
            said = str(error)[:1000] or type(error).__name__
            raise TemplateError(f"chat template{at}: {said}") from error


class _Refused(TemplateError):
    """The template refused the conversation, or was stopped: another form of it does not help."""


def _rendered(run: Callable[[list[Message]], str], messages: list[Message]) -> str:
    """The text of a conversation. The template receives contents of parts unchanged. If it
    cannot use them, because it fails, drops a text, or prints the list, they are joined to one
    text each."""
    parts = [message["content"] for message in messages if isinstance(message.get("content"), list)]
    if not parts:
        return run(messages)
    try:
        text = run(messages)
        shown = all(part.strip() in text for message in messages for part in text_parts(message))
        if shown and not any(content and str(content) in text for content in parts):
            return text
    except _Refused:
        raise
    except TemplateError:
        pass  # for example a template that adds the content to a text
    return run(with_joined_parts(messages))


def chat_prompt_ids(
    template: ChatTemplate,
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, Any]],
    **options: Any,
) -> list[int]:
    """Token ids of a conversation, with one BOS if the files of the model ask for one.

    `options` are the options of `ChatTemplate.render`.

    A BOS that the template writes stays, and no second one is added. If the template writes none
    and the tokenizer adds BOS to prompts, it is added. If neither does, the model was trained
    without (Qwen, Phi-3), and there is none.

    Raises:
        InvalidArgument, ArgumentTypeError, TemplateError: see `ChatTemplate.render`.
        TokenizerError: the files of the tokenizer make it fail.
    """
    text = template.render(messages, **options)
    ids = tokenizer.encode(text, add_special_tokens=False)
    bos = tokenizer.bos_token_id
    if bos is not None and tokenizer.adds_bos and ids[:1] != [bos]:
        ids.insert(0, bos)
    if not ids:
        raise InvalidArgument(
            "messages: the chat template renders them to nothing, and the model has no token that "
            "begins a text, expected messages that give a prompt"
        )
    return ids


def gguf_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    """The chat templates of a GGUF file by name; the usual one is "default"."""
    sources = _configured(metadata.get(_GGUF_KEY))
    for name, value in metadata.items():
        if name.startswith(_GGUF_KEY + ".") and isinstance(value, str):
            sources[name[len(_GGUF_KEY) + 1 :]] = value
    return sources


def _configured(value: object) -> dict[str, str]:
    """The templates of a configuration: one text, or a list of named ones."""
    if isinstance(value, str):
        return {"default": value}
    sources = {}
    for entry in value if isinstance(value, list) else []:
        if isinstance(entry, Mapping):
            name, source = entry.get("name"), entry.get("template")
            if isinstance(name, str) and isinstance(source, str):
                sources[name] = source
    return sources


def _size(value: Any) -> int:
    """Characters and items in a plain value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return 16 + sum(_size(key) + _size(item) for key, item in value.items())
    if isinstance(value, list):
        return 16 + sum(map(_size, value))
    return 16


def _line_of(error: BaseException) -> int | None:
    """The line of the template where the error happened."""
    line = getattr(error, "lineno", None)
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<chat template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line if isinstance(line, int) else None
