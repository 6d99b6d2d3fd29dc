"""The caller's own rules: logits_processor and stopping_criteria."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from builders.rules import ROW, at_rest, nothing, only, write_row


@pytest.fixture
def llm(tmp_path, open_llm):
    return open_llm(write_row(tmp_path / "row"))


class TestChange:
    def test_scores_may_be_changed_in_place(self, llm):
        result = llm.generate([0], max_new_tokens=3, logits_processor=only(5))
        assert result.token_ids == (5, 5, 5)

    @pytest.mark.parametrize("kind", [np.float32, np.float64, list, tuple])
    def test_a_rule_may_return_new_scores(self, llm, kind):
        def negative(token_ids, scores):
            return kind(-scores) if kind in (list, tuple) else (-scores).astype(kind)

        assert llm.generate([0], max_new_tokens=2, logits_processor=negative).token_ids == (2,)

    def test_rules_run_in_order(self, llm):
        """Each rule gets the scores of the rule before it, changed in place or returned."""
        seen = []

        def look(token_ids, scores):
            seen.append(scores.tolist())

        def double(token_ids, scores):
            return scores * 2

        def add(token_ids, scores):
            scores += 1

        llm.generate([0], max_new_tokens=1, logits_processor=[double, look, add, look])
        assert seen == [(ROW * 2).tolist(), (ROW * 2 + 1).tolist()]

    def test_a_rule_sees_prompt_and_output(self, llm):
        seen = []

        def look(token_ids, scores):
            assert token_ids.dtype == np.int32 and scores.dtype == np.float32
            assert scores.shape == (8,)
            seen.append(token_ids.tolist())

        llm.generate([0, 4], max_new_tokens=3, logits_processor=look)
        assert seen == [[0, 4], [0, 4, 1], [0, 4, 1, 1]]

    def test_a_rule_runs_after_the_built_in_stages_and_before_the_temperature(self, llm):
        """Token 1: (3 + 1) / 2; token 3 is banned; the temperature of 10 has no effect yet."""
        seen = []

        def look(token_ids, scores):
            seen.append(scores.tolist())

        llm.generate(
            [1],
            max_new_tokens=1,
            temperature=10.0,
            logits_processor=look,
            logit_bias={1: 1.0},
            repetition_penalty=2.0,
            suppress_tokens=[3],
        )
        expected = ROW.copy()
        expected[[1, 3]] = [2.0, -np.inf]
        assert seen == [expected.tolist()]

    def test_a_rule_may_lift_a_ban(self, llm):
        def lift(token_ids, scores):
            scores[1] = 9.0

        options = {"suppress_tokens": [1], "max_new_tokens": 2}
        assert llm.generate([0], **options).token_ids == (3, 3)
        assert llm.generate([0], logits_processor=lift, **options).token_ids == (1, 1)

    def test_arrays_kept_by_a_rule_do_not_change(self, llm):
        """Writing into the arrays after the call, or locking them, has no effect."""
        kept, views = [], []

        def keep(token_ids, scores):
            for old in kept:
                old[0][:] = 7
                old[1][:] = 100.0
                old[1].flags.writeable = False
            kept.append((token_ids, scores))
            views.append(scores[:4])
            scores[len(token_ids)] = 50.0
            kept_copies.append(scores.copy())

        kept_copies: list = []
        result = llm.generate([0], max_new_tokens=3, logits_processor=keep)
        assert result.token_ids == (1, 2)  # 2 ends it
        assert len({id(scores) for _, scores in kept}) == 2
        kept.clear()
        kept_copies.clear()

        def just_keep(token_ids, scores):
            scores[0] = len(token_ids)
            kept.append(scores)

        llm.generate([0], max_new_tokens=3, logits_processor=just_keep)
        assert [scores[0] for scores in kept] == [1.0, 2.0, 3.0]

    def test_log_probabilities_of_the_chain_include_the_rule(self, llm):
        result = llm.generate([0], max_new_tokens=1, logits_processor=only(5, 6), logprobs=8)
        [found] = result.logprobs
        assert [token for token, _ in found.chain_top] == [5, 6]
        expected = [-1 - np.log(np.exp(-1) + np.exp(-2)), -2 - np.log(np.exp(-1) + np.exp(-2))]
        np.testing.assert_allclose([v for _, v in found.chain_top], expected, atol=1e-6)
        assert found.top[0][0] == 1


class TestEverywhere:
    """The rule: after token 0 comes 5, after that 6, then 5 again."""

    @staticmethod
    def alternate(token_ids, scores):
        scores[:] = -np.inf
        scores[6 if token_ids[-1] == 5 else 5] = 0

    def test_each_row_of_a_batch_has_its_own_ids(self, llm):
        results = llm.generate(
            [[0], [5], [0, 5], [0]], max_new_tokens=3, logits_processor=self.alternate
        )
        assert [r.token_ids for r in results] == [(5, 6, 5), (6, 5, 6), (6, 5, 6), (5, 6, 5)]

    def test_rules_do_not_affect_requests_without_rules(self, llm):
        plain = llm.stream([0], max_new_tokens=3)
        ruled = llm.stream([0], max_new_tokens=3, logits_processor=self.alternate)
        pairs = list(zip(plain, ruled, strict=True))
        assert pairs == [("b", "f"), ("b", "g"), ("b", "f")]

    def test_in_a_stream(self, llm):
        stream = llm.stream([0], max_new_tokens=3, logits_processor=self.alternate)
        assert "".join(stream) == "fgf"

    def test_with_several_outputs(self, llm):
        """The last token of an output decides; half of the first tokens are 5."""

        def change(token_ids, scores):
            scores[:] = -np.inf
            if len(token_ids) == 1:
                scores[[5, 6]] = 0
            else:
                scores[token_ids[-1]] = 0

        result = llm.generate(
            [0],
            num_return_sequences=16,
            temperature=1.0,
            seed=1,
            max_new_tokens=3,
            logits_processor=change,
        )
        assert {s.token_ids for s in result.sequences} == {(5, 5, 5), (6, 6, 6)}

    def test_with_beams(self, llm):
        """Two beams over two tokens of equal worth: 5 or 6, and then the same again."""

        def change(token_ids, scores):
            scores[:] = -np.inf
            scores[[5, 6] if len(token_ids) == 1 else token_ids[-1]] = 0

        result = llm.generate(
            [0], num_beams=2, num_return_sequences=2, max_new_tokens=3, logits_processor=change
        )
        assert {s.token_ids for s in result.sequences} == {(5, 5, 5), (6, 6, 6)}

    def test_with_asyncio(self, llm):
        async def both():
            return await asyncio.gather(
                llm.agenerate([0], max_new_tokens=3, logits_processor=self.alternate),
                llm.agenerate([5], max_new_tokens=3, logits_processor=self.alternate),
            )

        assert [r.token_ids for r in asyncio.run(both())] == [(5, 6, 5), (6, 5, 6)]

    def test_without_a_cache(self, llm):
        options = {"max_new_tokens": 3, "logits_processor": self.alternate}
        assert llm.generate([0], cache=False, **options).token_ids == (5, 6, 5)

    def test_threads_of_the_caller(self, llm):
        def work(index: int) -> bool:
            token = 3 + index % 5
            result = llm.generate([0], max_new_tokens=5, logits_processor=only(token))
            return result.token_ids == (token,) * 5

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(40)))
        assert at_rest(llm)

    def test_the_result_is_json(self, llm):
        result = llm.generate([0], max_new_tokens=1, logits_processor=[only(3), nothing])
        reported = result.to_dict()["options"]
        assert reported["logits_processor"] == ["change", "nothing"]


class TestStopping:
    def test_a_criterion_ends_the_output_with_the_last_token(self, llm):
        seen = []

        def third(token_ids):
            seen.append(token_ids.tolist())
            return len(token_ids) == 5

        result = llm.generate([0, 4], stopping_criteria=third)
        assert result.token_ids == (1, 1, 1)
        assert (result.finish_reason, result.stop_reason) == ("stop", None)
        assert seen == [[0, 4, 1], [0, 4, 1, 1], [0, 4, 1, 1, 1]]
        assert at_rest(llm)

    @pytest.mark.parametrize("value", [True, 1, np.True_, np.array([2]), "yes"])
    def test_every_true_value_ends_the_output(self, llm, value):
        assert len(llm.generate([0], stopping_criteria=lambda ids: value).token_ids) == 1

    @pytest.mark.parametrize("value", [False, 0, None, np.False_, ""])
    def test_every_false_value_continues_the_output(self, llm, value):
        result = llm.generate([0], stopping_criteria=lambda ids: value, max_new_tokens=3)
        assert (len(result.token_ids), result.finish_reason) == (3, "length")

    def test_any_of_several_criteria_ends_the_output(self, llm):
        rules = [lambda ids: len(ids) >= 6, lambda ids: len(ids) >= 4]
        assert len(llm.generate([0], stopping_criteria=rules).token_ids) == 3

    def test_a_stop_token_is_the_reason_before_a_criterion(self, llm):
        result = llm.generate([0], stopping_criteria=lambda ids: True, stop_token_ids=[1])
        assert (result.finish_reason, result.stop_reason) == ("stop", 1)

    def test_a_criterion_at_the_limit_of_tokens_is_the_reason(self, llm):
        result = llm.generate([0], stopping_criteria=lambda ids: len(ids) == 3, max_new_tokens=2)
        assert (len(result.token_ids), result.finish_reason) == (2, "stop")

    def test_in_batches_and_streams(self, llm):
        def fourth(token_ids):
            return len(token_ids) == 4

        results = llm.generate([[0], [0, 0], [0, 0, 0]], stopping_criteria=fourth)
        assert [len(r.token_ids) for r in results] == [3, 2, 1]
        stream = llm.stream([0], stopping_criteria=fourth)
        assert "".join(stream) == "bbb"
        assert stream.result.finish_reason == "stop"

    def test_a_criterion_ends_each_of_several_outputs_separately(self, llm):
        """An output ends at its first 3; the most likely token, 1, does not end it."""
        result = llm.generate(
            [0],
            num_return_sequences=8,
            temperature=1.0,
            seed=3,
            max_new_tokens=6,
            stopping_criteria=lambda ids: ids[-1] == 3,
        )
        for sequence in result.sequences:
            assert 3 not in sequence.token_ids[:-1]
            stopped = sequence.token_ids[-1] == 3
            assert sequence.finish_reason == ("stop" if stopped else "length")
        assert {s.finish_reason for s in result.sequences} == {"stop", "length"}

    def test_with_beams(self, llm):
        result = llm.generate([0], num_beams=2, stopping_criteria=lambda ids: len(ids) == 4)
        assert len(result.token_ids) == 3
        assert (result.finish_reason, result.stop_reason) == ("stop", None)
