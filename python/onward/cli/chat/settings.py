"""Changes and shows the options of a chat's answers, for ``/set``.

Names and values are the same as in the flags of the command line, and the same parser reads them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NoReturn

from onward.cli import flags
from onward.cli.chat.sampling import CHAT_SAMPLING, chat_options
from onward.cli.parsing import Parser
from onward.errors import InvalidArgument
from onward.options.resolution import resolve
from onward.options.table import BY_NAME, OPTIONS

if TYPE_CHECKING:
    from onward.options.resolution import ModelDefaults

NAMES = tuple(
    option.name.replace("_", "-")
    for option in OPTIONS
    if option.kind not in ("callable", "callables")
)
_ALWAYS_SHOWN = ("max_new_tokens", "temperature", "top_p", "seed")
_SWITCH = {"on": "", "yes": "", "true": "", "off": "no-", "no": "no-", "false": "no-"}


def option_name(text: str) -> str:
    """The option of this name, with dashes or underscores. Raises InvalidArgument, with similar
    names, for an unknown one."""
    name = text.strip().removeprefix("--").replace("-", "_").lower()
    spelled = name.replace("_", "-")
    if spelled in NAMES:
        return name
    near = get_close_matches(spelled, NAMES, n=2)
    hint = f"did you mean {' or '.join(near)}?" if near else "/set alone shows the options"
    raise InvalidArgument(f"/set: {text}: no such option, {hint}")


def read_setting(name: str, text: str) -> dict[str, Any]:
    """The option and its value, read as the flag of the command line.

    A text in double quotes is read as JSON, so that ``"\\n"`` is a line break. Raises
    InvalidArgument.
    """
    option, spelled = BY_NAME[name], name.replace("_", "-")
    if option.kind == "flag":
        if text.lower() not in _SWITCH:
            raise InvalidArgument(f"/set: {spelled}: is {text!r}, expected on or off")
        words = [f"--{_SWITCH[text.lower()]}{spelled}"]
    else:
        if option.kind in ("texts", "constraint") and len(text) > 1 and text[0] == text[-1] == '"':
            try:
                text = str(json.loads(text))
            except ValueError as error:
                raise InvalidArgument(f"/set: {spelled}: {error}, expected a JSON string") from None
        words = [f"--{spelled}={text}"]
    return flags.generation_options(_parser().parse_args(words))


def settings_lines(
    given: Mapping[str, Any], model: ModelDefaults, only: str | None = None
) -> list[str]:
    """The options in effect that differ from the table, each with its origin; or one option with
    its meaning."""
    effective = resolve(chat_options(given, model), model)
    names = [only] if only else [option.name for option in OPTIONS]
    lines = []
    for name in names:
        option, value = BY_NAME[name], getattr(effective, name)
        if name == "stop_token_ids" and name not in given and not only:
            continue  # the model's own end, which is not a setting
        origin = _origin(name, given, model)
        if not only and name not in _ALWAYS_SHOWN and origin == "default":
            continue
        lines.append(f"{name.replace('_', '-')} {_written(value)}  ({origin})")
        if only:
            lines.append(f"  {option.help}")
    return lines


def _origin(name: str, given: Mapping[str, Any], model: ModelDefaults) -> str:
    if name in given:
        return "set"
    if name in CHAT_SAMPLING and name in chat_options(given, model):
        return "default of chat"
    return "generation_config.json" if name in model.values else "default"


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None or value in ((), {}):
        return "none"
    if isinstance(value, (tuple, list)):
        return ", ".join(_written(item) for item in value)
    return json.dumps(value) if isinstance(value, str) else str(value)


class _Parser(Parser):
    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise InvalidArgument((message or "").strip().replace("/set: --", "/set: ", 1))


@functools.cache
def _parser() -> _Parser:
    parser = _Parser(prog="/set", add_help=False)
    flags.add_generation_arguments(parser)
    return parser
