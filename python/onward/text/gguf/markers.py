"""Finds the control tokens of a GGUF vocabulary, and the ones that end an answer.

A file gives each piece a type and names one end of a sequence. Many files have missing or wrong
types, and many chat templates end a turn with another token. This module decides from the types,
the named ids, well-known spellings and the chat template.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from onward.errors import Error
from onward.machine.caller import warn_caller
from onward.message_text import labels
from onward.text.template.template import ChatTemplate

# Values of tokenizer.ggml.token_type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

_TURN_ENDS = (
    *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<|end|>", "<|return|>"),
    *("<|call|>", "<|calls|>", "<|flush|>", "<|endofturn|>", "<|end_of_turn|>"),
    *("<|END_OF_TURN_TOKEN|>", "<end_of_turn>", "<turn|>", "<end_of_utterance>", "<EOT>"),
    *("_<EOT>", "[EOT]", "[EOS]", "[e~["),
)
_TEXT_ENDS = ("<|endoftext|>", "<|end_of_text|>", "<\uff5cend\u2581of\u2581sentence\uff5c>")
_TURN_START = "<start_of_turn>"
# If a vocabulary has these, <|end|> ends a part of an answer: its reasoning, for example.
_PARTS_OF_ANSWERS = ({"<|return|>", "<|call|>"}, {"<|flush|>", "<|calls|>"})

# <|name|>, also with full-width bars, is always a marker. The others are markers only if a chat
# template writes them.
_BARRED = re.compile("<[|\uff5c][^<>|\uff5c\\s]{1,64}[|\uff5c]>")
_IN_TEMPLATE = re.compile(
    "<[|\uff5c][^<>|\uff5c\\s]{1,64}[|\uff5c]>|</?[A-Za-z_][A-Za-z0-9_]{0,40}>|\\[/?[A-Z_]{2,40}\\]"
)
_BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")


def token_types(
    tokens: Sequence[str],
    types: Sequence[int] | None,
    named: Iterable[int],
    templates: Iterable[str],
    merges: Sequence[str],
) -> list[int]:
    """The type of each token. Markers that the file calls ordinary become control tokens.

    `types` is None if the file has none. `named` are the ids with a meaning in the file, such as
    BOS and EOS. A marker is such a token, one of the well-known ends of a turn, or a piece with the
    shape of a marker that a template writes. An end of a turn is a control token even if the file
    has it as user-defined, the type of added tokens that are not special. Ordinary pieces of that
    shape that no template writes stay ordinary, and a warning names them. A piece that the `merges`
    (two pieces and a space each) make from text is no marker.
    """
    if types is None:
        found = [BYTE if _BYTE_PIECE.fullmatch(token) else NORMAL for token in tokens]
    else:
        found = list(types)
    for i in named:
        if found[i] in (NORMAL, UNUSED):
            found[i] = CONTROL
    for i, token in enumerate(tokens):
        if found[i] == USER_DEFINED and token in _TURN_ENDS:
            found[i] = CONTROL
    written = {match for text in templates for match in _IN_TEMPLATE.findall(text)}
    written.update(_TURN_ENDS)
    looks = {
        i
        for i, token in enumerate(tokens)
        if found[i] == NORMAL and (token in written or _is_barred(token))
    }
    made = {merge.replace(" ", "", 1) for merge in merges} if looks else set()
    left = []
    for i in sorted(looks):
        token = tokens[i]
        if token in made:
            continue
        if token not in written:
            left.append(token)
        elif _is_barred(token) or token in _TURN_ENDS or token == _TURN_START:
            found[i] = CONTROL
        else:
            found[i] = USER_DEFINED  # a mark inside an answer: <tool_call>, for example
    if left:
        warn_caller(
            f"tokenizer.ggml.token_type: {labels(left)}: looks like a control token, but the file "
            "says that it is an ordinary piece; in a prompt it is spelled in letters"
        )
    return found


def _is_barred(token: str) -> bool:
    return token[:2] in ("<|", "<\uff5c") and _BARRED.fullmatch(token) is not None


def ends_of_answers(
    tokens: Sequence[str],
    types: Sequence[int],
    *,
    named: Iterable[int],
    unknown: int | None,
    templates: Mapping[str, str],
    special_tokens: Mapping[str, str],
) -> list[int]:
    """The ids that end an answer: the ends that the file names, control tokens with the well-known
    name of an end, and the token that the chat template writes after an answer.

    An end of text that also stands for unknown text (`unknown`) is excluded.
    """
    control = {tokens[i]: i for i, kind in enumerate(types) if kind == CONTROL}
    ends = [i for i in named]
    known = [control[name] for name in (*_TURN_ENDS, *_TEXT_ENDS) if name in control]
    ends += [i for i in known if i != unknown]
    template = templates.get("default", "")
    # Otherwise the usual end is found without rendering.
    if not any(tokens[i] in template for i in ends):
        ends += _after_an_answer(templates, control, special_tokens)
    inner = any(names <= control.keys() for names in _PARTS_OF_ANSWERS)
    no_end = {"<|end|>"} if inner else set()
    return [i for i in dict.fromkeys(ends) if tokens[i] not in no_end]


def _after_an_answer(
    templates: Mapping[str, str], control: Mapping[str, int], special_tokens: Mapping[str, str]
) -> list[int]:
    """The control token that the chat template writes right after an answer, if there is one."""
    if not any(marker in control for marker in _IN_TEMPLATE.findall(templates.get("default", ""))):
        return []
    answer = "onward-answer"
    conversation: list[Mapping[str, Any]] = [
        {"role": "user", "content": "a question"},
        {"role": "assistant", "content": answer},
    ]
    try:
        text = ChatTemplate(templates, special_tokens).render(
            conversation, add_generation_prompt=False
        )
    except Error:  # the error of a template is raised when the template is used
        return []
    _, _, rest = text.rpartition(answer)
    rest = rest.lstrip()
    found = [marker for marker in control if marker and rest.startswith(marker)]
    return [control[max(found, key=len)]] if found else []
