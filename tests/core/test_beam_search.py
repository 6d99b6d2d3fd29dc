"""Beam search through the API: known answers, streams, ends, refusals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onward
from builders.beam_oracle import Rule, beam_search
from builders.beam_requests import float32_log_softmax, search
from builders.distributions import table_engine
from closed_form import (
    IMPOSSIBLE,
    write_generation_config,
    write_pieces_tokenizer,
    write_table,
)

FIXTURES = Path(__file__).parents[1] / "fixtures" / "smollm2"


def table(steps: Mapping[int, Mapping[int, float]], vocab: int = 8) -> list[list[float]]:
    """Logits that are log-probabilities. A token without a row is followed by itself."""
    rows = np.full((vocab, vocab), IMPOSSIBLE)
    for token in range(vocab):
        for after, probability in steps.get(token, {token: 1.0}).items():
            rows[token, after] = math.log(probability)
    return rows.tolist()


# After 1: 3 is likelier than 4, but nothing after 3 is as likely as 5 after 4.
GARDEN_PATH = {
    1: {3: 0.5, 4: 0.4, 5: 0.1},
    3: {5: 0.4, 6: 0.3, 7: 0.3},
    4: {5: 0.9, 6: 0.1},
    **{token: {2: 1.0} for token in (5, 6, 7)},
}
# [3, 2] has a probability of .6 * .3 = .18, and [4, 5, 7, 2] of .4 * .7 * .9 * .9 = .2268.
SHORT_OR_LONG = {
    1: {3: 0.6, 4: 0.4},
    3: {2: 0.5, 5: 0.3, 6: 0.2},
    4: {5: 0.7, 6: 0.3},
    5: {7: 0.9, 2: 0.1},
    7: {2: 0.9, 7: 0.1},
    6: {6: 0.5, 7: 0.5},
}


@pytest.fixture
def open_table(tmp_path, open_llm):
    """M-TABLE with these probabilities; ``pieces`` are the texts of its tokens."""

    def open_(steps: Mapping[int, Mapping[int, float]], pieces: Any = None, **options: Any) -> Any:
        changes = {"max_position_embeddings": options.pop("context", 64)}
        vocab = len(pieces) if pieces else 8
        folder = write_table(tmp_path / "table", table(steps, vocab), **changes)
        if pieces:
            write_pieces_tokenizer(folder, pieces)
        return open_llm(folder, **options)

    return open_


def tokens_of(result: Any) -> list[list[int]]:
    return [list(sequence.token_ids) for sequence in result.sequences]


class TestKnownAnswers:
    def test_two_beams_find_a_better_sequence_than_greedy_choice(self, open_table):
        """Greedy takes 3 and ends with .5 * .4 = .2; two beams find .4 * .9 = .36. Each ends with
        one eos, which counts in the length: ln(.36) / 3 and ln(.2) / 3."""
        llm = open_table(GARDEN_PATH)
        assert llm.generate([1]).token_ids == (3, 5, 2)
        result = llm.generate([1], num_beams=2, num_return_sequences=2)
        assert tokens_of(result) == [[4, 5, 2], [3, 5, 2]]
        scores = [sequence.score for sequence in result.sequences]
        assert scores == pytest.approx([-0.340550, -0.536479], abs=1e-5)
        assert result.token_ids == (4, 5, 2)
        assert (result.score, result.finish_reason, result.stop_reason) == (scores[0], "stop", 2)
        assert result.usage.completion_tokens == 6

    @pytest.mark.parametrize(
        ("length_penalty", "tokens", "score"),
        [
            (0, (3, 2), -1.203973),  # ln .3
            (1, (4, 5, 7, 2), -0.370920),  # ln .2268 / 4
            (2, (4, 5, 7, 2), -0.092730),  # / 16
            (-1, (3, 2), -2.407946),  # ln .3 * 2
        ],
    )
    def test_the_length_penalty_decides(self, open_table, length_penalty, tokens, score):
        """It is the length of the output: ten tokens of prompt make no difference. [3, 2] has
        .6 * .5 = .3 and [4, 5, 7, 2] .4 * .7 * .9 * .9 = .2268."""
        llm = open_table(SHORT_OR_LONG)
        for prompt in ([1] * 10, [1]):
            result = llm.generate(
                prompt, num_beams=3, max_new_tokens=8, length_penalty=length_penalty
            )
            assert result.token_ids == tokens
            assert result.score == pytest.approx(score, abs=1e-5)

    def test_a_repetition_penalty_multiplies_log_probabilities(self, open_llm, tmp_path):
        """Logits 0 and -ln 1.5 for 1, which the prompt has, and 3. Greedy choice leaves a logit of
        0 where it is, and says 1. Beams have ln .6 = -.51 and ln .4 = -.92; the penalty doubles the
        first to -1.02, and 3 is the best."""
        logits = np.full((8, 8), IMPOSSIBLE)
        logits[:, 1], logits[:, 3] = 0, -math.log(1.5)
        llm = open_llm(write_table(tmp_path / "table", logits))
        options = {"repetition_penalty": 2.0, "max_new_tokens": 1}
        assert llm.generate([1], **options).token_ids == (1,)
        result = llm.generate([1], num_beams=2, num_return_sequences=2, **options)
        assert tokens_of(result) == [[3], [1]]
        scores = [sequence.score for sequence in result.sequences]
        assert scores == pytest.approx([math.log(0.4), 2 * math.log(0.6)], abs=1e-6)

    def test_groups_take_different_tokens(self, open_table):
        """Two groups of one beam. Without a penalty both say [3, 5, 2], with probability .5 * .4.
        With a penalty of 1 the second group's beam takes 4, since ln .5 - 1 < ln .4, then 5, though
        the first takes it too (ln .9 - 1 > ln .1), then 2, which costs nothing: the first group's
        hypothesis ends with it, and no beam lives on that took it. That is ln .36 - 1 in all."""
        llm = open_table(GARDEN_PATH)
        options = {"num_beams": 2, "num_beam_groups": 2, "num_return_sequences": 2}
        assert tokens_of(llm.generate([1], **options)) == [[3, 5, 2], [3, 5, 2]]
        result = llm.generate([1], diversity_penalty=1, **options)
        assert tokens_of(result) == [[3, 5, 2], [4, 5, 2]]
        scores = [sequence.score for sequence in result.sequences]
        expected = [math.log(0.2) / 3, (math.log(0.36) - 1) / 3]
        assert scores == pytest.approx(expected, abs=1e-6)

    @pytest.mark.parametrize("length_penalty", [1e308, -1e308])
    def test_a_length_penalty_of_any_size_gives_an_answer(self, open_table, length_penalty):
        """Scores are then 0 or infinite, and no score is NaN."""
        llm = open_table(SHORT_OR_LONG)
        result = llm.generate(
            [1], num_beams=3, max_new_tokens=8, length_penalty=length_penalty, ignore_eos=True
        )
        assert not math.isnan(result.score)
        assert len(result.token_ids) == 8


class TestStreams:
    PIECES = ("<pad>", "<s>", "</s>", "one", " two", " three", " four", "!")

    @pytest.mark.parametrize("groups", [1, 2])
    @pytest.mark.parametrize("beams", [2, 4])
    def test_the_pieces_of_a_stream_join_to_the_text(self, open_table, beams, groups):
        llm = open_table(SHORT_OR_LONG, self.PIECES)
        options = {
            **{"num_beams": beams, "num_return_sequences": beams, "num_beam_groups": groups},
            **{"max_new_tokens": 12, "early_stopping": "never"},
        }
        result = llm.generate([1], **options)
        stream = llm.stream([1], **options)
        pieces = list(stream)
        assert "".join(pieces) == result.text == stream.result.text
        assert all(pieces)
        assert len(result.sequences) == len(stream.result.sequences) == beams
        assert tokens_of(stream.result) == tokens_of(result)
        assert [s.text for s in stream.result.sequences] == [s.text for s in result.sequences]
        assert [s.score for s in stream.result.sequences] == [s.score for s in result.sequences]

    def test_a_token_is_reported_when_all_beams_share_it(self):
        """3 or 4, then 5 or 6 after 3, and the two best live on: [3] and [4] of .9 and .1, then
        [3, 5] and [3, 6] of .54 and .36, which share 3; then both say 7 and end."""
        steps = {1: {3: 0.9, 4: 0.1}, 3: {5: 0.6, 6: 0.4}, 4: {5: 1.0}, 5: {7: 1.0}, 6: {7: 1.0}}
        engine = table_engine(table({**steps, 7: {2: 1.0}}))
        beams = search(engine, [1], num_beams=2, stop_token_ids=[2])
        assert [tokens for tokens, _ in beams.scored] == [[3, 5, 7, 2], [3, 6, 7, 2]]
        assert beams.reported == [0, 1, 1, 4]

    def test_settled_text_is_streamed_before_the_end(self, open_table):
        """All beams begin with "one", as in the test above."""
        steps = {1: {3: 0.9, 4: 0.1}, 3: {5: 0.6, 6: 0.4}, 4: {5: 1.0}, 5: {7: 1.0}, 6: {7: 1.0}}
        llm = open_table(steps, self.PIECES)
        with llm.stream([1], num_beams=2, max_new_tokens=60) as stream:
            assert next(stream) == "one"
            assert llm.stats()["running"] == 1
        assert llm.stats()["running"] == llm.stats()["cache_blocks_in_use"] == 0
        assert llm.generate([1], num_beams=2, max_new_tokens=3).token_ids == (3, 5, 7)


def cut(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The text before the first complete stop string; of several, the longest one."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return text[: end - len(stop)], stop
    return text, None


def row_of(llm: Any, token_ids: list[int]) -> Any:
    """Log-probabilities of the next token."""
    return float32_log_softmax(llm.logits(token_ids)[-1])


class TestEnds:
    # "Stop" lies across the tokens 5 and 6.
    PIECES = ("<pad>", "<s>", "</s>", "one ", "two ", "St", "op", "!")

    @pytest.mark.parametrize("first", [0.6, 0.3])
    def test_a_hypothesis_with_a_stop_string_competes_by_its_score(self, open_table, first):
        """[3, 5, 6] says "one Stop" with probability p, [4, 7, 2] says "two !" and ends with
        .9 * (1 - p): .6 and .36, or .3 and .63. Both are three tokens long."""
        steps = {1: {3: first, 4: 1 - first}, 3: {5: 1.0}, 5: {6: 1.0}, 6: {7: 1.0}}
        llm = open_table({**steps, 4: {7: 0.9, 4: 0.1}, 7: {2: 1.0}}, self.PIECES)
        options = {"num_beams": 2, "num_return_sequences": 2, "max_new_tokens": 10}
        stopped = ([3, 5, 6], "one ", "Stop", math.log(first) / 3)
        other = ([4, 7, 2], "two !</s>", 2, math.log(0.9 * (1 - first)) / 3)
        expected = [stopped, other] if first > 0.5 else [other, stopped]
        stream = llm.stream([1], stop="Stop", **options)
        pieces = list(stream)
        for result in (llm.generate([1], stop="Stop", **options), stream.result):
            found = [
                (list(s.token_ids), s.text, s.stop_reason, pytest.approx(s.score, abs=1e-5))
                for s in result.sequences
            ]
            assert found == expected
            assert {s.finish_reason for s in result.sequences} == {"stop"}
        assert "".join(pieces) == expected[0][1]
        unstopped = llm.generate([1], **options)
        assert [3, 5, 6, 7, 2] in tokens_of(unstopped)

    def test_a_stop_string_may_end_inside_a_token(self, open_table):
        llm = open_table({1: {3: 0.6, 4: 0.4}, 3: {5: 1.0}, 5: {6: 1.0}}, self.PIECES)
        result = llm.generate([1], num_beams=2, stop=["t", "nothing"], max_new_tokens=10)
        assert (result.text, result.stop_reason, result.token_ids) == ("one S", "t", (3, 5))

    @pytest.mark.parametrize("seed", range(30))
    def test_stop_strings_of_random_texts(self, open_llm, tmp_path, seed):
        """Against the plain rule, where a hypothesis ends when its text has a stop string, across
        pieces or inside one."""
        pieces = ("<pad>", "<s>", ".", "a", "b", "c", "ab", "bc", "ca", "abc", "aa", "b.")
        generator = np.random.default_rng(seed)
        folder = write_table(tmp_path / "table", generator.standard_normal((12, 12)))
        write_pieces_tokenizer(folder, pieces)
        llm = open_llm(folder)
        stops = ["".join(generator.choice(list("abc."), n)) for n in (2, 2 + seed % 3, 4)]
        prompt = generator.integers(3, 12, 3).tolist()

        def text_of(output: tuple[int, ...]) -> tuple[str, str | None]:
            return cut("".join(pieces[token] for token in output), stops)

        rule = Rule(
            num_beams=2 + seed % 3,
            max_new_tokens=10,
            eos=(2,),
            early_stopping=(False, "never", True)[seed // 3 % 3],
            stops=lambda output: text_of(output)[1] is not None,
        )
        expected = beam_search(lambda output: row_of(llm, [*prompt, *output]), rule)
        options = {
            **{"num_beams": rule.num_beams, "num_return_sequences": rule.num_beams, "stop": stops},
            **{"early_stopping": rule.early_stopping, "max_new_tokens": 10},
        }
        stream = llm.stream(prompt, **options)
        joined = "".join(stream)
        for result in (llm.generate(prompt, **options), stream.result):
            assert tokens_of(result) == [list(h.tokens) for h in expected.results]
            for sequence, hypothesis in zip(result.sequences, expected.results, strict=True):
                text, stopped = text_of(hypothesis.tokens)
                assert sequence.text == text
                assert sequence.score == pytest.approx(hypothesis.score, abs=1e-5)
                ended_by_token = 2 if hypothesis.tokens[-1] == 2 else None
                assert sequence.stop_reason == (stopped or ended_by_token)
            assert joined == result.text

    def test_several_end_tokens_end_hypotheses(self, open_table):
        """7 ends too: [4, 5, 7] has .4 * .7 * .9 = .252 and ln / 3 = -.459, [3, 2] ln .3 / 2 =
        -.602; [3, 5, 7] comes next with ln .162 / 3 = -.607."""
        llm = open_table(SHORT_OR_LONG)
        options = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 8}
        result = llm.generate([1], stop_token_ids=[7], **options)
        assert tokens_of(result) == [[4, 5, 7], [3, 2]]
        assert [s.stop_reason for s in result.sequences] == [7, 2]
        scores = [s.score for s in result.sequences]
        assert scores == pytest.approx([math.log(0.252) / 3, math.log(0.3) / 2], abs=1e-5)

    def test_end_tokens_of_the_model_file(self, open_llm, tmp_path):
        folder = write_table(tmp_path / "table", table(SHORT_OR_LONG))
        write_generation_config(folder, eos_token_id=[2, 7])
        result = open_llm(folder).generate([1], num_beams=3, max_new_tokens=8)
        assert (result.token_ids, result.stop_reason) == ((4, 5, 7), 7)

    def test_ignore_eos(self, open_table):
        """2 goes on to say 2: [3, 2, 2, 2] has .3, [4, 5, 7, 2] .2268."""
        llm = open_table(SHORT_OR_LONG)
        result = llm.generate(
            [1], num_beams=3, num_return_sequences=2, max_new_tokens=4, ignore_eos=True
        )
        assert tokens_of(result) == [[3, 2, 2, 2], [4, 5, 7, 2]]
        assert [s.finish_reason for s in result.sequences] == ["length"] * 2
        assert result.score == pytest.approx(math.log(0.3) / 4, abs=1e-5)

    def test_a_stopping_criterion(self, open_table):
        """[4, 5] has .36 and [3, 5] .2; [5] alone, with .1, is the third of its step and of no
        account. What is left is [3, 6] of .15: ln .15 / 2 is below both."""
        llm = open_table(GARDEN_PATH)
        asked: list[list[int]] = []

        def at_five(token_ids: Any) -> bool:
            asked.append(token_ids.tolist())
            return bool(token_ids[-1] == 5)

        result = llm.generate(
            [1], num_beams=2, num_return_sequences=2, stopping_criteria=at_five, max_new_tokens=9
        )
        assert tokens_of(result) == [[4, 5], [3, 5]]
        assert [(s.finish_reason, s.stop_reason) for s in result.sequences] == [("stop", None)] * 2
        scores = [s.score for s in result.sequences]
        assert scores == pytest.approx([math.log(0.36) / 2, math.log(0.2) / 2], abs=1e-5)
        assert all(token_ids[0] == 1 for token_ids in asked)

    def test_an_exception_in_a_criterion_ends_only_its_request(self, open_table):
        def broken(token_ids: Any) -> bool:
            raise ZeroDivisionError("criterion")

        llm = open_table(GARDEN_PATH)
        with pytest.raises(ZeroDivisionError, match="criterion"):
            llm.generate([1], num_beams=2, stopping_criteria=broken)
        assert llm.stats()["running"] == llm.stats()["cache_blocks_in_use"] == 0
        assert llm.generate([1], num_beams=2).token_ids == (4, 5, 2)

    def test_a_logits_processor_sees_the_text_of_its_beam(self, open_table):
        """It bans 5 after 4: of what begins with 4, [4, 6] is left, .4 * .1 * 1."""
        llm = open_table(GARDEN_PATH)

        def no_five_after_four(token_ids: Any, scores: Any) -> None:
            assert scores.max() <= 0  # log-probabilities
            if token_ids[-1] == 4:
                scores[5] = -np.inf

        result = llm.generate(
            [1], num_beams=4, num_return_sequences=4, logits_processor=no_five_after_four
        )
        assert tokens_of(result)[0] == [3, 5, 2]
        assert [4, 6, 2] in tokens_of(result)
        assert [4, 5, 2] not in tokens_of(result)

    def test_min_new_tokens(self, open_table):
        """Without a length penalty [3, 2] is the best; where the end may not come among the first
        three tokens it is [4, 5, 7, 2], .2268, before [3, 5, 7, 2], .6 * .3 * .9 * .9 = .1458."""
        llm = open_table(SHORT_OR_LONG)
        options = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 8}
        result = llm.generate([1], length_penalty=0, min_new_tokens=3, **options)
        assert tokens_of(result) == [[4, 5, 7, 2], [3, 5, 7, 2]]
        scores = [s.score for s in result.sequences]
        assert scores == pytest.approx([math.log(0.2268), math.log(0.1458)], abs=1e-5)

    def test_beams_of_zero_and_of_one_token(self, open_table):
        llm = open_table(SHORT_OR_LONG)
        options = {"num_beams": 2, "num_return_sequences": 2}
        none = llm.generate([1], max_new_tokens=0, **options)
        assert (none.text, none.token_ids, none.finish_reason) == ("", (), "length")
        assert none.score is None
        one = llm.generate([1], max_new_tokens=1, **options)
        assert tokens_of(one) == [[3], [4]]
        assert [s.finish_reason for s in one.sequences] == ["length"] * 2
        scores = [s.score for s in one.sequences]
        assert scores == pytest.approx([math.log(0.6), math.log(0.4)], abs=1e-6)

    @pytest.mark.parametrize("early_stopping", [False, "never"])
    def test_a_prompt_that_nearly_fills_the_context(self, open_table, early_stopping):
        """Of 16 tokens 14 are taken: two are left, whatever max_new_tokens says. [3, 2] has .3,
        [4, 5] .28."""
        llm = open_table(SHORT_OR_LONG, context=16)
        options = {
            **{"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 50},
            "early_stopping": early_stopping,
        }
        result = llm.generate([1] * 14, **options)
        assert tokens_of(result) == [[3, 2], [4, 5]]
        assert [s.finish_reason for s in result.sequences] == ["stop", "length"]
        full = llm.generate([1] * 16, **options)
        assert (full.token_ids, full.finish_reason) == ((), "length")

    def test_more_beams_than_tokens_of_the_vocabulary(self, open_table):
        """Eight tokens, ten beams: eight hypotheses after the first step, ten after the second."""
        llm = open_table(SHORT_OR_LONG)
        options = {"num_beams": 10, "num_return_sequences": 10, "ignore_eos": True}
        one = llm.generate([1], max_new_tokens=1, **options)
        assert sorted(tokens_of(one)) == [[token] for token in range(8)]
        two = tokens_of(llm.generate([1], max_new_tokens=2, **options))
        assert len({tuple(tokens) for tokens in two}) == 10
        assert two[:3] == [[3, 2], [4, 5], [3, 5]]
        assert sorted(two[3:5]) == [[3, 6], [4, 6]]  # .6 * .2 and .4 * .3

    def test_rules_that_leave_one_token_give_one_hypothesis(self, open_table):
        llm = open_table(SHORT_OR_LONG)
        result = llm.generate(
            [1], num_beams=3, num_return_sequences=3, allowed_token_ids=[6], max_new_tokens=4
        )
        assert tokens_of(result) == [[6, 6, 6, 6]]
        assert result.finish_reason == "length"

    def test_ended_hypotheses_are_returned_if_live_ones_run_out_of_tokens(self, open_table):
        """With no token twice and only 2, 3 and 4 allowed, three tokens are the most there can be;
        [3, 2] has .3, and nothing else but what ends in an impossible token."""
        llm = open_table(SHORT_OR_LONG)
        result = llm.generate(
            [1], num_beams=2, no_repeat_ngram_size=1, allowed_token_ids=[2, 3, 4], max_new_tokens=9
        )
        assert result.token_ids == (3, 2)

    def test_all_tokens_banned(self, open_table):
        llm = open_table(SHORT_OR_LONG)
        for options in ({}, {"num_beam_groups": 2}, {"temperature": 1.0}):
            with pytest.raises(ValueError, match="masked"):
                llm.generate([1], num_beams=2, suppress_tokens=list(range(8)), **options)
        assert llm.stats()["running"] == llm.stats()["cache_blocks_in_use"] == 0
        assert llm.generate([1], num_beams=2, length_penalty=0).token_ids == (3, 2)


def test_log_probabilities_add_up_to_the_score(open_table):
    llm = open_table(GARDEN_PATH)
    options = {"num_beams": 2, "num_return_sequences": 2, "length_penalty": 2}
    assert llm.generate([1], **options).logprobs is None
    result = llm.generate([1], logprobs=2, prompt_logprobs=1, **options)
    for sequence in result.sequences:
        total = sum(each.chain_logprob for each in sequence.logprobs)
        assert total / len(sequence.token_ids) ** 2 == pytest.approx(sequence.score, abs=1e-9)
    assert result.logprobs[0].top[0] == (3, pytest.approx(math.log(0.5), abs=1e-6))
    assert result.logprobs[0].token_id == 4
    assert result.prompt_logprobs == ()


# Refusals


BAD_VALUES = [
    *[("num_beams", value) for value in (0, -1, 2.0, "4", None, True, [2])],
    *[("num_beam_groups", value) for value in (0, -2, 3, 8, 2.0, "2", None, True)],
    *[("diversity_penalty", value) for value in (-0.1, math.inf, math.nan, "1", None, True)],
    *[("length_penalty", value) for value in (math.inf, -math.inf, math.nan, "1", None, True)],
    *[("early_stopping", value) for value in ("always", "", 1, 0, None, 1.0, ["never"])],
    *[("num_return_sequences", value) for value in (0, -1, 5, 2.0, "2", None, True)],
    *[("best_of", 4), ("mirostat", 2), ("dynatemp_range", 0.5), ("prompt_lookup_num_tokens", 2)],
    *[("num_return_sequences", 10**30), ("num_beam_groups", 10**30)],
]


@pytest.fixture(scope="module")
def garden(tmp_path_factory):
    folder = write_table(tmp_path_factory.mktemp("garden") / "table", table(GARDEN_PATH))
    with onward.LLM(folder, dtype="f32", max_sequences=8) as llm:
        yield llm


class TestRefusals:
    @pytest.mark.parametrize(("name", "value"), BAD_VALUES)
    def test_the_error_names_the_bad_value(self, garden, name, value):
        options = {"num_beams": 4, **({"num_beam_groups": 2} if "diversity" in name else {})}
        with pytest.raises((ValueError, TypeError), match=f"^{name}: ") as raised:
            garden.generate([1], **{**options, name: value})
        assert isinstance(raised.value, onward.Error)
        assert garden.stats()["running"] == 0

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("num_beam_groups", 2),
            ("diversity_penalty", 0.5),
            ("length_penalty", 0.5),
            ("early_stopping", True),
            ("early_stopping", "never"),
        ],
    )
    def test_options_of_beams_are_refused_without_beams(self, garden, name, value):
        with pytest.raises(ValueError, match=f"^{name}: .*num_beams above 1"):
            garden.generate([1], **{name: value})

    def test_a_diversity_penalty_without_groups_is_refused(self, garden):
        with pytest.raises(ValueError, match=r"^diversity_penalty: .*num_beam_groups"):
            garden.generate([1], num_beams=2, diversity_penalty=0.5)

    def test_more_beams_than_places_are_refused(self, garden):
        with pytest.raises(ValueError, match=r"num_beams: .*9.*max_sequences, which is 8"):
            garden.generate([1], num_beams=9)
        assert garden.generate([1], num_beams=8).token_ids == (4, 5, 2)

    def test_one_bad_prompt_refuses_the_batch(self, garden):
        with pytest.raises(ValueError, match=r"prompt\[1\]"):
            garden.generate([[1], [99]], num_beams=2)
        results = garden.generate([[1], [1, 1]], num_beams=2, num_return_sequences=2)
        assert [tokens_of(result) for result in results] == [[[4, 5, 2], [3, 5, 2]]] * 2
