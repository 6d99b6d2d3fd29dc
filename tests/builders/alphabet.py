"""A chat model over bytes with known answers.

It answers with the alphabet. A question with "dice" gets one digit, all equally likely; a question
with "run" gets the word "UVW " without end.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer

from closed_form import IMPOSSIBLE, byte_alphabet, chain, write_bytes_tokenizer, write_table

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_END, _LETTERS, _DICE, _RUN = 0, 1, 2, 3
# The first byte of an answer decides the rest of it.
_CHOICE = "'\\x02' if 'dice' in {0} else '\\x03' if 'run' in {0} else '\\x01'"
_BEGIN = "<assistant>{{{{ " + _CHOICE + " }}}}"
_TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'assistant' %}"
    + _BEGIN.format("messages[loop.index0 - 1].content")
    + "{% else %}<{{ m.role }}>{% endif %}{{ m.content }}"
    "{% if not (loop.last and continue_final_message) %}{{ '\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}" + _BEGIN.format("messages[-1].content") + "{% endif %}"
)


def write_alphabet(folder: Path) -> Path:
    """The model's folder. It has no generation_config.json."""
    letters = ALPHABET.encode()
    steps = dict(zip((_LETTERS, *letters), (*letters, _END), strict=True))
    steps |= {_RUN: ord("U"), ord("U"): ord("V"), ord("V"): ord("W"), ord("W"): ord(" ")}
    steps[ord(" ")] = ord("U")
    steps |= {digit: _END for digit in b"0123456789"}
    table = chain(256, steps)
    table[_DICE] = IMPOSSIBLE
    table[_DICE, list(b"0123456789")] = 0
    write_table(
        folder,
        table,
        bos_token_id=None,
        eos_token_id=_END,
        pad_token_id=None,
        max_position_embeddings=200_000,
    )
    write_bytes_tokenizer(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens([byte_alphabet()[_END]])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": _TEMPLATE}))
    return folder


def messages_in(path: Path) -> list[dict[str, str]]:
    """The messages of a session's file."""
    from safetensors.numpy import load_file

    conversation = json.loads(load_file(path)["conversation"].tobytes())
    messages: list[dict[str, str]] = conversation["messages"]
    return messages
