"""The ends of a text: end-of-sequence ids from every file of a model, stop ids, stop strings.

These tests use the whole engine; test_stop_strings.py tests how a text is cut.
"""

from __future__ import annotations

import pytest

from closed_form import (
    chain,
    write_byte_script,
    write_generation_config,
    write_pieces_tokenizer,
    write_script,
    write_table,
)

SCRIPT = ["<pad>", "<s>", "</s>", "one,", " two,", " three,", " fo", "ur,", " five"]


class TestEndOfSequence:
    """M-TABLE 3 -> 7 -> 7 ..., which generates 7 without end unless 7 is an end token."""

    def write(self, folder, config_eos, generation_eos):
        write_table(folder, chain(8, {3: 7}), eos_token_id=config_eos)
        if generation_eos is not None:
            write_generation_config(folder, eos_token_id=generation_eos)
        return folder

    @pytest.mark.parametrize(
        ("config_eos", "generation_eos"),
        [(2, [2, 7]), (2, 7), ([2, 7], None), ([2, 7], 2), (7, None), (7, [2]), (None, [7])],
    )
    def test_end_tokens_of_all_files_are_joined(
        self, config_eos, generation_eos, tmp_path, open_llm
    ):
        """The set is the union of config.json and generation_config.json, each an id or a list."""
        llm = open_llm(self.write(tmp_path, config_eos, generation_eos))
        result = llm.generate([3])
        assert result.token_ids == (7,)
        assert (result.finish_reason, result.stop_reason) == ("stop", 7)
        assert result.usage.completion_tokens == 1

    def test_the_end_token_of_the_tokenizer_is_used_too(self, tmp_path, open_llm):
        write_script(tmp_path, SCRIPT, eos_token_id=None)
        (tmp_path / "tokenizer_config.json").write_text('{"eos_token": " three,"}')
        result = open_llm(tmp_path).generate([1])
        assert result.token_ids == (3, 4, 5)
        assert (result.finish_reason, result.stop_reason) == ("stop", 5)

    def test_without_an_end_token_the_output_runs_to_the_limit(self, tmp_path, open_llm):
        result = open_llm(self.write(tmp_path, 2, [2])).generate([3], max_new_tokens=9)
        assert result.token_ids == (7,) * 9
        assert (result.finish_reason, result.stop_reason) == ("length", None)

    def test_ignore_eos_runs_to_the_limit(self, tmp_path, open_llm):
        llm = open_llm(self.write(tmp_path, 2, [2, 7]))
        result = llm.generate([3], ignore_eos=True, max_new_tokens=9)
        assert result.token_ids == (7,) * 9
        assert result.finish_reason == "length"

    def test_ignore_eos_keeps_the_stop_tokens_of_the_call(self, tmp_path, open_llm):
        llm = open_llm(self.write(tmp_path, 2, [2, 7]))
        result = llm.generate([3], ignore_eos=True, stop_token_ids=[7])
        assert (result.token_ids, result.finish_reason) == ((7,), "stop")

    def test_an_eos_in_the_prompt_does_not_end_it(self, tmp_path, open_llm):
        llm = open_llm(self.write(tmp_path, 2, None))
        assert llm.generate([2, 3], max_new_tokens=2).token_ids == (7, 7)

    def test_an_end_token_at_the_limit_is_reported_as_a_stop(self, tmp_path, open_llm):
        """The end token and the limit at once: the reason is "stop", not "length"."""
        llm = open_llm(self.write(tmp_path, 7, None))
        assert llm.generate([3], max_new_tokens=1).finish_reason == "stop"

    @pytest.mark.parametrize("minimum", [1, 2, 5])
    def test_min_new_tokens_delays_the_end_token(self, minimum, tmp_path, open_llm):
        """3 -> 7 or, nearly as likely, 3; 7 ends it."""
        table = chain(8, {3: 7})
        table[3, 3] = -1
        llm = open_llm(write_table(tmp_path, table, eos_token_id=7))
        result = llm.generate([3], max_new_tokens=5, min_new_tokens=minimum)
        assert result.token_ids == ((*[3] * minimum, 7) if minimum < 5 else (3,) * 5)

    @pytest.mark.parametrize("bad", [8, -2, "7", 7.0, True, [2, 8], [[7]]])
    def test_an_impossible_end_token_is_refused_at_load(self, bad, tmp_path, open_llm):
        folder = self.write(tmp_path, 2, None)
        write_generation_config(folder, eos_token_id=bad)
        with pytest.raises(ValueError, match=r"generation_config\.json: eos_token_id"):
            open_llm(folder)


class TestStopTokens:
    def test_stop_token_ids_of_the_call_end_the_text(self, tmp_path, open_llm):
        llm = open_llm(write_script(tmp_path, SCRIPT))
        result = llm.generate([1], stop_token_ids=[5])
        assert result.token_ids == (3, 4, 5)
        assert (result.finish_reason, result.stop_reason) == ("stop", 5)

    def test_stop_token_ids_are_added_to_the_end_tokens_of_the_model(self, tmp_path, open_llm):
        llm = open_llm(write_script(tmp_path, SCRIPT))
        result = llm.generate([1], stop_token_ids=[1])
        assert result.token_ids == (3, 4, 5, 6, 7, 8, 2)
        assert result.stop_reason == 2

    def test_a_stop_ends_only_its_row(self, tmp_path, open_llm):
        """One of two rows ends early; the other continues to its own end."""
        llm = open_llm(write_script(tmp_path, SCRIPT))
        early, late = llm.generate([[1], [5]], stop_token_ids=[5])
        assert early.token_ids == (3, 4, 5)
        assert late.token_ids == (6, 7, 8, 2)


class TestStopStrings:
    def test_a_stop_string_over_two_tokens(self, tmp_path, open_llm):
        """ " four" is " fo" and "ur,": no piece of the stream may show its first half."""
        llm = open_llm(write_script(tmp_path, SCRIPT))
        result = llm.generate([1], stop=[" four"])
        assert result.text == "one, two, three,"
        assert result.token_ids == (3, 4, 5, 6, 7)
        assert (result.finish_reason, result.stop_reason) == ("stop", " four")

        stream = llm.stream([1], stop=[" four"])
        pieces = list(stream)
        assert "".join(pieces) == result.text
        assert not any(" fo" in piece for piece in pieces)
        assert stream.result.token_ids == result.token_ids

    def test_text_that_only_began_a_stop_string_is_shown_later(self, tmp_path, open_llm):
        llm = open_llm(write_script(tmp_path, SCRIPT))
        result = llm.generate([1], stop=[" four five six"])
        assert result.text == "one, two, three, four, five" + "</s>"
        assert result.stop_reason == 2
        assert "".join(llm.stream([1], stop=[" four five six"])) == result.text

    def test_the_first_complete_stop_string_ends_the_text(self, tmp_path, open_llm):
        llm = open_llm(write_script(tmp_path, SCRIPT))
        for stop in (["three", "two"], ["two", "three"], ["two, three, four", "two"]):
            result = llm.generate([1], stop=stop)
            assert (result.text, result.stop_reason) == ("one, ", "two")

    def test_nothing_is_computed_after_a_stop_string(self, tmp_path, open_llm):
        """After the complete string nothing is computed: 2 tokens instead of 60."""
        write_table(tmp_path, chain(8, {3: 4, 4: 3}), eos_token_id=None)
        write_pieces_tokenizer(tmp_path, list("abcdefgh"))
        llm = open_llm(tmp_path)
        before = llm.stats()["decode_tokens"]
        assert llm.generate([3], stop="ed", max_new_tokens=60).token_ids == (4, 3)
        assert llm.stats()["decode_tokens"] - before <= 2
        assert llm.stats()["running"] == 0

    def test_a_stop_in_one_row_of_a_batch(self, tmp_path, open_llm):
        llm = open_llm(write_script(tmp_path, SCRIPT))
        first, second = llm.generate([[1], [6]], stop=" three")
        assert (first.text, first.finish_reason) == ("one, two,", "stop")
        assert (second.text, second.stop_reason) == ("ur, five</s>", 2)

    def test_stop_strings_are_not_searched_in_the_prompt(self, tmp_path, open_llm):
        """The string is searched only in the output, even if it would begin in the prompt."""
        llm = open_llm(write_script(tmp_path, SCRIPT))
        assert llm.generate([1, 3], stop="one").text == " two, three, four, five</s>"
        assert llm.generate([1, 6], stop=" four").text == "ur, five</s>"

    @pytest.mark.parametrize("bad", ["", ["a", ""], 3, [3], b"a"])
    def test_wrong_stop_strings_are_refused(self, bad, tmp_path, open_llm):
        llm = open_llm(write_script(tmp_path, SCRIPT))
        with pytest.raises((ValueError, TypeError), match="stop"):
            llm.generate([1], stop=bad)
        assert llm.generate([1], stop=None, max_new_tokens=1).text == "one,"


class TestStreamedText:
    """Through the whole engine; the rules of cutting text are in test_streaming.py."""

    def test_a_character_of_several_tokens_is_streamed_at_once(self, tmp_path, open_llm):
        """ "a🦙é" as seven bytes: the stream never shows half of one."""
        llm = open_llm(write_byte_script(tmp_path, "a🦙é".encode()))
        stream = llm.stream([1], max_new_tokens=7)
        assert list(stream) == ["a", "🦙", "é"]
        assert stream.result.text == "a🦙é" == llm.generate([1], max_new_tokens=7).text

    def test_an_output_that_ends_inside_a_character(self, tmp_path, open_llm):
        """F0 9F 98 is most of an emoji: one U+FFFD, at the end."""
        llm = open_llm(write_byte_script(tmp_path, b"A\xf0\x9f\x98\x80"))
        result = llm.generate([1], max_new_tokens=4)
        assert result.text == "A�"
        assert "".join(llm.stream([1], max_new_tokens=4)) == result.text
        assert llm.generate([1], max_new_tokens=5).text == "A😀"

    def test_a_byte_that_is_not_text(self, tmp_path, open_llm):
        llm = open_llm(write_byte_script(tmp_path, b"A\xffB"))
        assert llm.generate([1], max_new_tokens=3).text == "A�B"
        assert "".join(llm.stream([1], max_new_tokens=3)) == "A�B"
