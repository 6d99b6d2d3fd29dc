"""Control tokens and ends of answers in GGUF files with incomplete or wrong types and ids."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Sequence
from typing import Any

import pytest

from builders.tiny_tokenizers import LETTERS, gguf_byte_level, gguf_sentencepiece, smollm2
from onward.errors import TokenizerError
from onward.text.gguf.keys import MAX_TOKENS
from onward.text.gguf.tokenizer import read_tokenizer as read_gguf_tokenizer

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED = 1, 2, 3, 4, 5
FIRST = 256
"""The id of the first marker."""
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def metadata(
    markers: Sequence[str], kind: int | None = CONTROL, template: str = "", **changes: Any
) -> dict[str, Any]:
    """The bytes, and markers of one type after them; the first is EOS. A kind of None: no types."""
    types = None if kind is None else [NORMAL] * FIRST + [kind] * len(markers)
    found = gguf_byte_level(
        tokens=[*LETTERS, *markers],
        token_type=types,
        merges=[],
        bos_token_id=None,
        eos_token_id=FIRST,
    )
    found |= {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return {**found, "tokenizer.chat_template": template} if template else found


def ends(*args: Any, **changes: Any) -> list[int]:
    return [i - FIRST for i in read_gguf_tokenizer(metadata(*args, **changes)).eos_token_ids]


@pytest.mark.parametrize(
    "marker",
    [
        *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|return|>"),
        *("<|call|>", "<|endofturn|>", "<|END_OF_TURN_TOKEN|>", "<end_of_utterance>", "[EOT]"),
        *("<|endoftext|>", "<|end_of_text|>"),
    ],
)
def test_control_tokens_known_as_ends(marker: str) -> None:
    assert ends(["</s>", "<|other|>", marker]) == [0, 2]


def test_user_defined_tokens_known_as_ends() -> None:
    """Converters give this type to added tokens that are not special, including ends of turns."""
    markers = ["</s>", "<|other|>", "<|im_end|>", "<|endoftext|>"]
    found = metadata(markers, kind=USER_DEFINED)
    tokenizer = read_gguf_tokenizer(found)
    assert tokenizer.eos_token_ids == [FIRST, FIRST + 2]
    assert tokenizer.encode("<|im_end|><|other|>") == [FIRST + 2, FIRST + 1]
    assert tokenizer.special_ids == {FIRST + 2}


def test_a_known_end_that_only_ends_the_reasoning_is_not_an_end() -> None:
    """<|end|> ends the reasoning of models that have <|return|> and <|call|>."""
    assert ends(["<|return|>", "<|end|>", "<|call|>", "<|channel|>"]) == [0, 2]
    assert ends(["<|end|>", "<|return|>", "<|call|>"], eos_token_id=FIRST + 1) == [1, 2]


def test_the_token_for_unknown_text_is_not_an_end() -> None:
    assert ends(["<|im_end|>", "<|endoftext|>"], unknown_token_id=FIRST + 1) == [0]
    assert smollm2().eos_token_ids == [2]


def test_ends_named_in_the_file() -> None:
    assert ends(["a0", "b0", "c0"], eot_token_id=FIRST + 2, eom_token_id=FIRST + 1) == [0, 2, 1]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("{{ m['content'] }}<|fin|>", [0, 1]),
        ("{{ m['content'] | trim }}\n <|fin|>\n", [0, 1]),
        ("{{ m['content'] }}{{ eos_token }}", [0]),
        ("{{ m['content'] }}, he said.<|fin|>", [0]),
        ("{{ m['content'] }}{{ raise_exception('no') }}<|fin|>", [0]),
        ("{{ m['content'] }}{% if m['role'] == 'assistant' %}<|final|>{% endif %}", [0, 3]),
    ],
)
def test_the_token_that_a_template_puts_after_an_answer_is_an_end(
    answer: str, expected: list[int]
) -> None:
    template = "{% for m in messages %}<|" + "{{ m['role'] }}|>" + answer + "{% endfor %}"
    template += "{# <|fin|> <|final|> #}"
    markers = ["</s>", "<|fin|>", "<|user|>", "<|final|>", "<|assistant|>"]
    assert ends(markers, template=template) == expected


def test_named_templates_are_searched_too() -> None:
    found = metadata(["</s>", "<|im_start|>", "<|im_end|>"], kind=NORMAL)
    found["tokenizer.chat_template.tool_use"] = CHATML
    tokenizer = read_gguf_tokenizer(found)
    assert tokenizer.special_ids == {FIRST, FIRST + 1, FIRST + 2}


@pytest.mark.parametrize("kind", [NORMAL, None])
def test_markers_of_a_template_are_control_tokens(kind: int | None) -> None:
    """With any types, and without types."""
    markers = ["</s>", "<|im_start|>", "<|im_end|>"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tokenizer = read_gguf_tokenizer(metadata(markers, kind=kind, template=CHATML))
    assert tokenizer.encode("<|im_start|>a<|im_end|></s>") == [FIRST + 1, 97, FIRST + 2, FIRST]
    assert tokenizer.eos_token_ids == [FIRST, FIRST + 2]
    assert tokenizer.special_ids == {FIRST, FIRST + 1, FIRST + 2}


def test_markers_inside_an_answer_are_shown() -> None:
    """A <tool_call> is part of the text that a program reads."""
    template = CHATML + "{# <tool_call> [INST] #}"
    markers = ["<|im_end|>", "<tool_call>", "[INST]", "<b>"]
    tokenizer = read_gguf_tokenizer(metadata(markers, kind=NORMAL, template=template))
    assert tokenizer.encode("[INST]<tool_call>") == [FIRST + 2, FIRST + 1]
    assert tokenizer.decode([FIRST + 1, FIRST]) == "<tool_call>"
    assert len(tokenizer.encode("<b>")) == 3  # no template writes it


def test_a_piece_made_by_merges_is_not_a_marker() -> None:
    """<b> is ordinary text in a vocabulary that learned it, even if a template contains it."""
    found = metadata(["</s>", "<b", "<b>"], kind=NORMAL, template=CHATML + "{# <b> #}")
    found |= {"tokenizer.ggml.merges": ["< b", "<b >"], "tokenizer.ggml.pre": "bloom"}
    tokenizer = read_gguf_tokenizer(found)
    assert tokenizer.encode("<b>") == [FIRST + 2]
    assert set(tokenizer.backend.get_added_tokens_decoder()) == {FIRST}


def test_other_markers_that_are_ordinary_pieces_are_named() -> None:
    markers = ["</s>", "<|user|>", "<\uff5cturn\uff5c>", "<|b d|>"]
    with pytest.warns(UserWarning, match=r"token_type: <\|user\|>, <.turn.>: looks like a control"):
        tokenizer = read_gguf_tokenizer(metadata(markers, kind=NORMAL))
    assert tokenizer.special_ids == {FIRST}
    assert len(tokenizer.encode("<|user|>")) == 8


def test_bytes_are_known_without_types() -> None:
    with_types = read_gguf_tokenizer(gguf_sentencepiece())
    without = read_gguf_tokenizer(gguf_sentencepiece(token_type=None))
    for text in ("hello é\n", "<0x41> <s>"):
        assert without.encode(text) == with_types.encode(text)


@pytest.mark.parametrize("key", ["padding", "unknown", "seperator", "mask", "cls", "eot"])
@pytest.mark.parametrize("value", [-1, FIRST + 1, "x", 2**31])
def test_ids_that_are_not_needed_are_ignored(key: str, value: object) -> None:
    message = f"{key}_token_id: found .*, expected 0 to 256; the key is ignored"
    with pytest.warns(UserWarning, match=message):
        tokenizer = read_gguf_tokenizer(metadata(["</s>"], **{f"{key}_token_id": value}))
    assert tokenizer.special_tokens == {"eos_token": "</s>"}
    assert tokenizer.eos_token_ids == [FIRST]


@pytest.mark.parametrize("key", ["bos", "eos"])
@pytest.mark.parametrize("value", [-1, FIRST + 1])
def test_ids_that_are_needed_are_errors(key: str, value: int) -> None:
    with pytest.raises(TokenizerError, match=f"{key}_token_id: found {value}, expected 0 to 256"):
        read_gguf_tokenizer(metadata(["</s>"], **{f"{key}_token_id": value}))


def test_templates_get_the_named_tokens() -> None:
    ids = {"padding": 1, "unknown": 2, "seperator": 3, "cls": 4, "mask": 5}
    keys = {f"{key}_token_id": FIRST + i for key, i in ids.items()}
    found = read_gguf_tokenizer(metadata(["e0", "p0", "u0", "s0", "c0", "m0"], **keys))
    assert found.special_tokens == {
        **{"eos_token": "e0", "pad_token": "p0", "unk_token": "u0", "sep_token": "s0"},
        **{"cls_token": "c0", "mask_token": "m0"},
    }


@pytest.mark.parametrize(
    ("pieces", "kinds"),
    [
        (["", ""], [UNUSED, UNUSED]),
        (["", ""], [NORMAL, CONTROL]),
        (["x0", "x0"], [UNUSED, UNUSED]),
        (["x0", "x0"], [NORMAL, UNUSED]),
        (["x0", "x0"], [UNUSED, NORMAL]),
        (["<unused>", "<unused>"], [NORMAL, NORMAL]),
    ],
)
@pytest.mark.parametrize("build", [gguf_byte_level, gguf_sentencepiece])
def test_empty_and_equal_unused_pieces(build: Any, pieces: list[str], kinds: list[int]) -> None:
    """They keep their ids, and the pieces after them keep theirs."""
    plain = build()
    tokens = plain["tokenizer.ggml.tokens"]
    changes = {
        "tokens": [*tokens, *pieces, "<|last|>"],
        "token_type": [*plain["tokenizer.ggml.token_type"], *kinds, CONTROL],
    }
    if build is gguf_sentencepiece:
        changes["scores"] = [*plain["tokenizer.ggml.scores"], 0.0, 0.0, 0.0]
    tokenizer = read_gguf_tokenizer(build(**changes))
    count = len(tokens)
    assert tokenizer.vocab_size == count + 3
    assert tokenizer.encode("<|last|>")[-1] == count + 2
    assert tokenizer.encode("hello a") == read_gguf_tokenizer(plain).encode("hello a")
    shown = [tokenizer.decode([count]), tokenizer.decode([count + 1])]
    kept = [i for i, kind in enumerate(kinds) if kind == NORMAL and pieces[i]]
    for i, text in enumerate(shown):
        assert text in ("", pieces[i])
        assert i not in kept[:1] or text == pieces[i]


def test_a_named_token_is_never_an_unused_piece() -> None:
    found = metadata(["x0", "x0"], kind=UNUSED, eos_token_id=FIRST + 1)
    tokenizer = read_gguf_tokenizer(found)
    assert tokenizer.eos_token_ids == [FIRST + 1]
    assert tokenizer.encode("x0") == [FIRST + 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": ["a"] * (MAX_TOKENS + 1)}, "524289 entries, expected at most 524288"),
        (
            {"merges": ["a b"] * ((1 << 20) + 1), "eos_token_id": 0},
            "1048577 entries, expected at most 1048576",
        ),
        (
            {"tokens": [*LETTERS, *map(str, range(10, 65800))], "token_type": [3] * 66046},
            "66046 control and user-defined tokens .0 of them empty or unused pieces., expected",
        ),
        (
            {"tokens": [*LETTERS, *[""] * 65537], "token_type": None, "eos_token_id": 0},
            "65538 control and user-defined tokens .65537 of them",
        ),
    ],
)
def test_vocabularies_beyond_the_limits(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        read_gguf_tokenizer(metadata([], **changes))


def two_letters(count: int) -> list[str]:
    """The shortest strings over two letters: nearly every split of one gives two others."""
    found = ["a", "b"]
    for text in found:
        if len(found) >= count:
            return found[:count]
        found += [text + "a", text + "b"]
    return found


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (
            two_letters(100_000),
            r"\d+ pieces can be made by merging two others in \d+ ways, expected at most \d+",
        ),
        (
            [str(i) + "x" * 505 for i in range(10_000, 30_000)],
            r"the pieces have \d+ characters, expected at most 8388608",
        ),
    ],
)
def test_vocabularies_with_too_many_merges(pieces: list[str], message: str) -> None:
    """Refused by the count, before memory is allocated for all rules."""
    metadata = gguf_sentencepiece(
        tokens=["<unk>", "<s>", "</s>", *pieces],
        scores=[0.0] * (len(pieces) + 3),
        token_type=[UNKNOWN, CONTROL, CONTROL, *[NORMAL] * len(pieces)],
    )
    start = time.process_time()
    with pytest.raises(TokenizerError, match=message) as caught:
        read_gguf_tokenizer(metadata)
    assert time.process_time() - start < 5
    counted = [int(word) for word in re.findall(r"\d+", str(caught.value))]
    if "ways" in message:  # the merges made: 8 for a piece, 65,536, and one piece more
        assert counted[1] <= 8 * counted[0] + (1 << 16) + 20
