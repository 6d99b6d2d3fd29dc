"""Stop strings: the first complete one ends the output, and no part of it is ever shown."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.tiny_tokenizers import byte_level, sentencepiece, smollm2
from onward.errors import ArgumentTypeError, InvalidArgument
from onward.text.streaming import TextStream
from onward.text.tokenizer.tokenizer import Tokenizer


def _run(
    tokenizer: Tokenizer, ids: list[int], stop: Any, skip: bool = True, prompt: tuple[int, ...] = ()
) -> tuple[list[str], str | None]:
    """The pieces up to the stop, without the pieces of later ids."""
    stream = TextStream(tokenizer, prompt, stop, skip)
    pieces = []
    for token_id in ids:
        pieces.append(stream.push(token_id))
        if stream.stopped is not None:
            assert stream.push(97) == stream.finish() == ""
            break
    else:
        pieces.append(stream.finish())
    assert stream.text == "".join(pieces)
    return pieces, stream.stopped


def _letters(text: str, stop: Any, **options: Any) -> tuple[str, str | None]:
    pieces, stopped = _run(Tokenizer(byte_level()), list(text.encode()), stop, **options)
    return "".join(pieces), stopped


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    return Tokenizer(
        byte_level(added=["Paris", "Pa", "one,", " two,", " three,", " fo", "ur,", " five"])
    )


def _ids(tokenizer: Tokenizer, *pieces: str) -> list[int]:
    ids = [tokenizer.token_to_id(piece) for piece in pieces]
    return [i for i in ids if i is not None]


def test_stop_over_several_tokens(words: Tokenizer) -> None:
    ids = _ids(words, "one,", " two,", " three,", " fo", "ur,", " five")
    pieces, stopped = _run(words, ids, [" four"])
    assert "".join(pieces) == "one, two, three,"
    assert pieces == ["one,", " two,", " three,", "", ""]
    assert stopped == " four"


def test_stop_inside_a_token(words: Tokenizer) -> None:
    pieces, stopped = _run(words, _ids(words, "one,", "Paris", " five"), ["Pari"])
    assert (pieces, stopped) == (["one,", ""], "Pari")


def test_text_that_only_began_a_stop_string_is_shown_later(words: Tokenizer) -> None:
    assert _run(words, [*_ids(words, "Pa"), 98, 99], ["Pari"])[0] == ["", "Pab", "c", ""]
    assert _run(words, _ids(words, "Pa"), ["Pari"])[0] == ["", "Pa"]


def test_only_text_that_may_become_a_stop_string_is_held() -> None:
    tokenizer = Tokenizer(byte_level())
    pieces, _ = _run(tokenizer, list(b"abcabd"), ["abd"])
    assert pieces == ["", "", "abc", "", "", ""]
    pieces, _ = _run(tokenizer, list(b"aaab"), ["aab"])
    assert pieces == ["", "", "a", ""]


def test_the_earliest_complete_stop_string_wins() -> None:
    assert _letters("abcdef", ["cdef", "de"]) == ("abc", "de")
    assert _letters("abcdef", ["f", "bcd"]) == ("a", "bcd")
    assert _letters("abcdef", ["bc", "abcd"]) == ("a", "bc")
    assert _letters("xaby", ["b", "ab"]) == ("x", "ab")  # together: the longest
    assert _letters("xaby", ["ab", "b"]) == ("x", "ab")


def test_stop_strings_are_not_searched_in_the_prompt() -> None:
    tokenizer = Tokenizer(byte_level())
    pieces, stopped = _run(tokenizer, list(b"bcab"), ["ab"], prompt=(97,))
    assert ("".join(pieces), stopped) == ("bc", "ab")
    pieces, stopped = _run(tokenizer, list(b"xyz"), ["a"], prompt=(97, 97))
    assert ("".join(pieces), stopped) == ("xyz", None)


def test_stop_that_an_unfinished_character_ends() -> None:
    tokenizer = Tokenizer(byte_level())
    pieces, stopped = _run(tokenizer, list("xa🦙".encode()), ["a🦙"])
    assert (pieces, stopped) == (["x", "", "", "", "", ""], "a🦙")
    pieces, stopped = _run(tokenizer, [0x61, 0xF0, 0x9F], ["\ufffd"])
    assert ("".join(pieces), stopped) == ("a", "\ufffd")


@pytest.mark.parametrize("stop", ["", [""], ["a", ""]])
def test_empty_stop_string(stop: Any) -> None:
    with pytest.raises(InvalidArgument, match="empty"):
        TextStream(Tokenizer(byte_level()), [], stop)


@pytest.mark.parametrize("stop", [[3], [None], [b"a"], [["a"]]])
def test_a_stop_that_is_not_a_string_is_refused(stop: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="expected a str"):
        TextStream(Tokenizer(byte_level()), [], stop)


def test_a_single_string_is_one_stop_string() -> None:
    assert _letters("abc", "bc") == ("a", "bc")
    assert _letters("abc", ("bc", "bc")) == ("a", "bc")
    assert _letters("abc", ()) == ("abc", None)


@pytest.mark.parametrize("skip", [True, False])
def test_special_token_as_stop(skip: bool) -> None:
    tokenizer = Tokenizer(byte_level())
    for stop, text in (("<|end|>", "ab"), ("b<|end|>", "a"), ("b<|end|>c", "a")):
        pieces, stopped = _run(tokenizer, [97, 98, 256, 99, 100], [stop], skip)
        assert ("".join(pieces), stopped) == (text, stop)
    # A false start, and the token spelled letter by letter.
    pieces, stopped = _run(tokenizer, [97, 98, 256, 100], ["b<|end|>c"], skip)
    assert ("".join(pieces), stopped) == ("abd" if skip else "ab<|end|>d", None)
    pieces, stopped = _run(tokenizer, list(b"ab<|end|>c"), ["<|end|>"], skip)
    assert ("".join(pieces), stopped) == ("ab", "<|end|>")


def test_stop_over_a_hidden_token() -> None:
    """If special tokens are hidden, the shown text is searched."""
    tokenizer = Tokenizer(byte_level())
    assert _run(tokenizer, [97, 256, 98], ["ab"], True) == (["", "", ""], "ab")
    assert _run(tokenizer, [97, 256, 98], ["ab"], False)[1] is None
    assert _run(tokenizer, [97, 256, 98], ["end"], True)[1] is None
    assert _run(tokenizer, [97, 256, 98], ["end"], False)[1] == "end"


def test_added_token_as_stop() -> None:
    tokenizer = Tokenizer(byte_level(added=["<tool>"]))
    for skip in (True, False):
        pieces, stopped = _run(tokenizer, [97, 257, 98], ["<tool>"], skip)
        assert ("".join(pieces), stopped) == ("a", "<tool>")


def test_smollm2_end_of_turn_as_stop() -> None:
    tokenizer = smollm2()
    ids = tokenizer.encode("Gravity is a force.<|im_end|>\n")
    for skip in (True, False):
        pieces, stopped = _run(tokenizer, ids, ["<|im_end|>"], skip)
        assert ("".join(pieces), stopped) == ("Gravity is a force.", "<|im_end|>")


def test_stop_in_a_run_of_byte_tokens_ends_at_once() -> None:
    """The run is still held back, but a text that ends here ends with the stop string."""
    tokenizer = Tokenizer(sentencepiece())
    hello = tokenizer.token_to_id("hello")
    assert hello is not None
    line, llama = 3 + 10, [3 + byte for byte in "🦙".encode()]
    assert _run(tokenizer, [hello, line], ["\n"]) == (["hello", ""], "\n")
    assert _run(tokenizer, [hello, *llama, line], ["\n"])[0] == ["hello", "", "", "", "", "🦙"]
    assert _run(tokenizer, [hello, line, line, hello], ["\n\n"]) == (["hello", "", ""], "\n\n")
    assert _run(tokenizer, [line, *llama, hello], ["\nx"])[0][-2:] == ["\n🦙hello", ""]
    assert _run(tokenizer, [hello, line, 2, hello], ["\n</s>"]) == (["hello", "", ""], "\n</s>")
    assert _run(tokenizer, [hello, 2, line, hello], ["\n</s>"])[1] is None


def _plain(text: str, stops: list[str]) -> tuple[str, str | None]:
    """By the definition: the smallest end of a match; among those, the smallest start."""
    for end in range(1, len(text) + 1):
        starts = [(end - len(stop), stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            start, stop = min(starts)
            return text[:start], stop
    return text, None


@settings(max_examples=400, deadline=None)
@given(
    st.text("ab\u00e9c", max_size=40),
    st.lists(st.text("ab\u00e9", min_size=1, max_size=5), min_size=1, max_size=5),
)
def test_any_text_and_any_stops(text: str, stops: list[str]) -> None:
    ids = list(text.encode())
    pieces, stopped = _run(Tokenizer(byte_level()), ids, stops)
    assert ("".join(pieces), stopped) == _plain(text, stops)
    shown = ""
    for i, piece in enumerate(pieces[:-1]):
        shown += piece
        complete = bytes(ids[: i + 1]).decode("utf-8", "ignore")
        held = complete[len(shown) :]
        # Nothing is held but the beginning of a stop string (or, at the end, the stop string).
        assert not held or any(stop.startswith(held) for stop in stops)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["hello", "\u2581", "a", "\n", "🦙", "日"]), max_size=12),
    st.lists(st.sampled_from(["\n", "o\n", "🦙", "a ", "\n\n", "\n🦙", " a", "日"]), min_size=1),
)
def test_stops_with_byte_fallback(pieces: list[str], stops: list[str]) -> None:
    tokenizer = Tokenizer(sentencepiece())
    ids = []
    for piece in ["hello", *pieces]:
        found = tokenizer.token_to_id(piece)
        ids += [3 + byte for byte in piece.encode()] if found is None else [found]
    shown, stopped = _run(tokenizer, ids, stops)
    assert ("".join(shown), stopped) == _plain(tokenizer.decode(ids), stops)


def test_long_stop_strings_cost_little() -> None:
    tokenizer = Tokenizer(byte_level())
    stops = ["a" * 5000 + "b", *(f"{i:>300}" for i in range(100))]
    start = time.perf_counter()
    stream = TextStream(tokenizer, [], stops)
    for token_id in [97] * 20_000 + [32] * 20_000:
        stream.push(token_id)
    assert stream.finish()
    assert time.perf_counter() - start < 5


def test_text_is_held_while_either_automaton_may_match() -> None:
    """`b` alone begins the stop string as text, and `b<|end|>` begins it with the hidden token."""
    tokenizer = Tokenizer(byte_level())
    ids = [97, 98, 256, 99, 100]
    assert _run(tokenizer, ids, ["b<|end|>cd"]) == (["a", "", "", "", ""], "b<|end|>cd")
    pieces, stopped = _run(tokenizer, [97, 98, 256, 99, 256, 100], ["b<|end|>c<|end|>d"])
    assert ("".join(pieces), stopped) == ("a", "b<|end|>c<|end|>d")
    # The text as it is shown, bcd, cannot become the stop string, but is held all the same.
    assert _run(tokenizer, [97, 98, 256, 99, 101], ["b<|end|>cd"]) == (
        ["a", "", "", "", "bce", ""],
        None,
    )


def test_the_longest_hidden_token_of_a_stop_string_is_used() -> None:
    tokenizer = Tokenizer(byte_level(special=("<|e", "<|e|>")))
    pieces, stopped = _run(tokenizer, [97, 98, 257, 99], ["b<|e|>c"])
    assert ("".join(pieces), stopped) == ("a", "b<|e|>c")
    # Spelled with the shorter token and two letters, the text is the same, the tokens are not.
    pieces, stopped = _run(tokenizer, [97, 98, 256, *b"|>c"], ["b<|e|>c"])
    assert ("".join(pieces), stopped) == ("ab|>c", None)


def test_the_stripped_space_at_the_start_of_a_text_completes_no_stop_string() -> None:
    """A decoder drops the first space of a text, so a generation that begins with the byte of a
    space has no text yet."""
    tokenizer = Tokenizer(sentencepiece())
    space, hello, a = 3 + 0x20, tokenizer.token_to_id("hello"), 3 + 0x61
    assert hello is not None
    assert tokenizer.decode([space, a]) == "a"
    assert _run(tokenizer, [space, hello], [" "]) == (["", "hello", ""], None)
    pieces, stopped = _run(tokenizer, [space, a, hello], [" a"])
    assert ("".join(pieces), stopped) == ("ahello", None)
    assert _run(tokenizer, [space, a, hello], ["a"])[1] == "a"
    # After a text the space is there.
    assert _run(tokenizer, [space, a], [" a"], prompt=(hello,)) == (["", ""], " a")
    assert _run(tokenizer, [space, space, a], [" a"])[1] == " a"
