"""Streamed text: for all ids, the joined pieces equal the text that decodes all ids."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders

from builders.tiny_tokenizers import BYTES, MARK, byte_level, sentencepiece, smollm2, text_of
from onward.errors import InvalidArgument
from onward.text.streaming import TextStream
from onward.text.tokenizer.tokenizer import Tokenizer

TEXTS = (
    "plain words, and more",
    "🦙 llamas 👩🏽‍🚀",
    "👨‍👩‍👧‍👦",
    "ภาษาไทย",
    "မြန်မာဘာသာ",
    "हिन्दी में",
    "日本語と漢字",
    "a\u0301e\u0308 n\u0303",
    "  two spaces, \n\n\tand lines  ",
    "a literal \ufffd here \ufffd",
    "\ufeffmark \u200b zero",
)


def _byte_level() -> Tokenizer:
    backend = byte_level([("a", "b"), ("ð", "Ł")], ("<|end|>", "<\uff5cé>"), ("日本", " x y "))
    return Tokenizer(backend)


def _sentencepiece(decoder: decoders.Decoder | None = None) -> Callable[[], Tokenizer]:
    def make() -> Tokenizer:
        backend = sentencepiece(decoder)
        backend.add_tokens([AddedToken("日々", normalized=False), "\ufffd", "<0xZZ>"])
        return Tokenizer(backend)

    return make


MAKERS: dict[str, Callable[[], Tokenizer]] = {
    "byte level": _byte_level,
    "sentencepiece": _sentencepiece(),
    "without prefix space": _sentencepiece(
        decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()])
    ),
    "metaspace": _sentencepiece(decoders.Metaspace()),
    "fallback and metaspace": _sentencepiece(
        decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    ),
    "wordpiece": _sentencepiece(decoders.WordPiece()),
    "suffix": _sentencepiece(decoders.BPEDecoder("a")),
    "byte level, stripped": _sentencepiece(
        decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    ),
}
KINDS = [*MAKERS, "smollm2"]
MADE: dict[str, Tokenizer] = {}


def _tokenizer(kind: str) -> Tokenizer:
    if kind == "smollm2":
        return smollm2()
    if kind not in MADE:
        MADE[kind] = MAKERS[kind]()
    return MADE[kind]


def _pieces(tokenizer: Tokenizer, prompt: list[int], ids: list[int], skip: bool) -> list[str]:
    stream = TextStream(tokenizer, prompt, [], skip)
    pieces = [*(stream.push(i) for i in ids), stream.finish()]
    assert stream.text == "".join(pieces)
    assert stream.stopped is None
    assert stream.push(1) == stream.finish() == ""
    return pieces


def _bytes_of(tokenizer: Tokenizer, kind: str) -> list[int]:
    """Ids that stand for one byte, the ones that can leave a character unfinished."""
    if kind == "smollm2":
        spelled = ((i, tokenizer.id_to_token(i)) for i in range(300))
        return [i for i, text in spelled if text is not None and len(text) == 1]
    return list(range(256)) if kind == "byte level" else list(range(3, 259))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_pieces_join_to_the_text_of_any_ids(kind: str, data: st.DataObject) -> None:
    tokenizer = _tokenizer(kind)
    some = st.integers(0, tokenizer.vocab_size + 3)
    ids = st.one_of(
        st.sampled_from(_bytes_of(tokenizer, kind)), some, st.sampled_from([0, 1, 2, 256, 260])
    )
    prompt = data.draw(st.lists(ids, max_size=8))
    generated = data.draw(st.lists(ids, max_size=16))
    skip = data.draw(st.booleans())
    joined = "".join(_pieces(tokenizer, prompt, generated, skip))
    assert joined == text_of(tokenizer, prompt, generated, skip)


@pytest.mark.parametrize("kind", ["byte level", "sentencepiece", "smollm2"])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_pieces_join_after_every_cut(kind: str, data: st.DataObject) -> None:
    """Any cut between prompt and answer, also inside a character."""
    tokenizer = _tokenizer(kind)
    ids = tokenizer.encode(data.draw(st.sampled_from(TEXTS)))
    cut = data.draw(st.integers(0, len(ids)))
    end = data.draw(st.integers(cut, len(ids)))
    pieces = _pieces(tokenizer, ids[:cut], ids[cut:end], True)
    assert "".join(pieces) == text_of(tokenizer, ids[:cut], ids[cut:end], True)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", ["byte level", "sentencepiece", "smollm2"])
def test_valid_text_streams_without_replacement_characters(kind: str, text: str) -> None:
    tokenizer = _tokenizer(kind)
    pieces = _pieces(tokenizer, [], tokenizer.encode(text, add_special_tokens=False), True)
    assert "".join(pieces) == text
    assert sum(piece.count("\ufffd") for piece in pieces) == text.count("\ufffd")


def test_pieces_of_a_llama() -> None:
    tokenizer = Tokenizer(byte_level())
    pieces = _pieces(tokenizer, [], list("a🦙é".encode()), True)
    assert pieces == ["a", "", "", "", "🦙", "", "é", ""]


def test_an_emoji_of_eighteen_bytes_is_streamed_in_characters() -> None:
    family = "👨‍👩‍👧"
    pieces = _pieces(Tokenizer(byte_level()), [], list(family.encode()), True)
    assert [piece for piece in pieces if piece] == list(family)
    assert len(pieces) == 18 + 1


def test_invalid_and_cut_bytes() -> None:
    tokenizer = Tokenizer(byte_level())
    assert _pieces(tokenizer, [], [0x41, 0xFF, 0x42], True) == ["A", "\ufffd", "B", ""]
    assert _pieces(tokenizer, [], [0xF0, 0x9F, 0x98], True) == ["", "", "", "\ufffd"]
    assert _pieces(tokenizer, [], [0xF0, 0x9F, 0x20, 0x78], True) == ["", "", "\ufffd ", "x", ""]


def test_literal_replacement_character_is_not_held() -> None:
    tokenizer = Tokenizer(byte_level())
    pieces = _pieces(tokenizer, [], list("a\ufffdb".encode()), True)
    assert pieces == ["a", "", "", "\ufffd", "b", ""]


def test_prompt_that_ends_inside_a_character() -> None:
    tokenizer = Tokenizer(byte_level())
    llama = list("🦙".encode())
    prompt = [*b"a long prompt ", *llama[:2]]
    assert _pieces(tokenizer, prompt, llama[2:], True) == ["", "🦙", ""]
    assert _pieces(tokenizer, prompt, [0x78], True) == ["x", ""]
    assert _pieces(tokenizer, prompt, [], True) == [""]


@pytest.mark.parametrize("spaces", [" ", "  "])
@pytest.mark.parametrize("kind", ["byte level", "sentencepiece", "metaspace", "smollm2"])
def test_leading_spaces_of_an_answer_are_kept(kind: str, spaces: str) -> None:
    tokenizer = _tokenizer(kind)
    prompt = tokenizer.encode("hello")
    answer = tokenizer.encode("hello" + spaces + "a b", add_special_tokens=False)
    answer = answer[len(tokenizer.encode("hello", add_special_tokens=False)) :]
    assert "".join(_pieces(tokenizer, prompt, answer, True)) == spaces + "a b"


@pytest.mark.parametrize("kind", ["byte level", "sentencepiece", "smollm2"])
def test_a_continuation_continues_the_text(kind: str) -> None:
    tokenizer = _tokenizer(kind)
    prompt, ids = tokenizer.encode("hello"), tokenizer.encode(" a 日本 🦙  b", False)
    whole = "".join(_pieces(tokenizer, prompt, ids, True))
    for cut in range(len(ids)):
        if "\ufffd" not in tokenizer.decode(ids[:cut]):
            first = "".join(_pieces(tokenizer, prompt, ids[:cut], True))
            second = "".join(_pieces(tokenizer, prompt + ids[:cut], ids[cut:], True))
            assert first + second == whole


def test_special_tokens_are_shown_or_not() -> None:
    tokenizer = Tokenizer(byte_level())
    assert _pieces(tokenizer, [], [97, 256, 98], True) == ["a", "", "b", ""]
    assert _pieces(tokenizer, [], [97, 256, 98], False) == ["a", "<|end|>", "b", ""]


def test_bad_run_of_byte_tokens_is_shown_as_decode_shows_it() -> None:
    tokenizer = Tokenizer(sentencepiece())
    a, bad = BYTES.index("<0x41>") + 3, BYTES.index("<0xEA>") + 3
    assert tokenizer.decode([a, bad, a]) == "\ufffd" * 3
    assert _pieces(tokenizer, [], [a, bad, a, a], True) == ["", "", "\ufffd" * 3, "\ufffd", ""]
    hello = tokenizer.backend.token_to_id("hello")
    assert _pieces(tokenizer, [], [a, hello], True) == ["", "Ahello", ""]


@pytest.mark.parametrize("token_id", [-1, 2**32])
@pytest.mark.parametrize("kind", ["byte level", "sentencepiece", "metaspace"])
def test_ids_out_of_range(kind: str, token_id: int) -> None:
    with pytest.raises(InvalidArgument, match="token id"):
        TextStream(_tokenizer(kind), []).push(token_id)


@pytest.mark.parametrize("kind", KINDS)
def test_cost_of_a_token_does_not_grow(kind: str) -> None:
    tokenizer = _tokenizer(kind)
    inside = _bytes_of(tokenizer, kind)
    for ids in (
        [i % tokenizer.vocab_size for i in range(0, 7 * 20_000, 7)],
        inside[65:66] * 20_000,
    ):
        stream = TextStream(tokenizer, ids, ["never found"])
        start = time.perf_counter()
        for token_id in ids:
            stream.push(token_id)
        stream.finish()
        assert time.perf_counter() - start < 5  # quadratic work would take minutes


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 255), max_size=24))
@example([0xED, 0xA0, 0x80])
@example([0xF4, 0x90, 0x80, 0x80])
def test_bytes_are_read_as_the_decoder_reads_them(ids: list[int]) -> None:
    tokenizer = Tokenizer(byte_level())
    assert "".join(_pieces(tokenizer, [], ids, True)) == tokenizer.decode(ids)
