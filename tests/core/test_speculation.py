"""Speculation in the engine: guesses change the number of steps of an output, and never the output.

Every guess is compared with the token that would have been chosen with the same random number. So
tokens and log-probabilities are compared bit for bit with a run without guesses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from builders.core_engine import (
    Output,
    Shape,
    complete,
    drain,
    drain_all,
    guessing,
    ids,
    new_engine,
    random_prompt,
    seeded_model,
    submit,
)
from builders.distributions import assert_distribution, log_probabilities, table_engine, table_model
from onward import _core
from onward.errors import InvalidArgument

SMALL = Shape(vocab_size=40, num_layers=2)
"""The vocabulary is so small that random texts repeat themselves."""
REPEATS = np.tile(random_prompt(12, 40), 4)
SAMPLED = {"temperature": 0.8, "seed": 11}
DTYPES = ("f32", "bf16", "int8")


@pytest.fixture(scope="module", params=DTYPES)
def dtype(request):
    return request.param


@pytest.fixture(scope="module")
def models():
    """The model by dtype. Another dtype as the draft guesses well, but not always right."""
    return {dtype: seeded_model(dtype, SMALL) for dtype in DTYPES}


@pytest.fixture(params=["lookup", "itself", "other", "stranger", "both"])
def way(request):
    return request.param


def draft_of(way: str, models: dict[str, _core.Model], dtype: str) -> _core.Model | None:
    match way:
        case "lookup":
            return None
        case "itself":
            return models[dtype]
        case "stranger":
            return seeded_model("f32", Shape(vocab_size=40, num_layers=1), seed=9)
        case _:
            return models["bf16" if dtype == "f32" else "f32"]


def guesses_of(way: str, count: int = 4) -> _core.SpeculationOptions:
    lookup = count if way in ("lookup", "both") else 0
    return guessing(lookup=lookup, draft=0 if way == "lookup" else count)


def run(engine: _core.Engine, prompt: Any, **options: Any) -> Output:
    request = submit(engine, prompt, **{"max_new_tokens": 48, "logprobs": 3, **options})
    output = drain(engine, [request])[request]
    assert engine.stats()["cache_blocks_in_use"] == engine.stats()["running"] == 0
    return output


def said(output: Output) -> Any:
    """The outputs that must be the same with and without guesses."""
    logprobs = [(f.token, f.raw, f.chain, f.raw_top, f.chain_top) for f in output.logprobs]
    return output.tokens, output.finish, logprobs


OPTIONS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "greedy penalised": {"repetition_penalty": 1.3, "frequency_penalty": 0.2},
    "sampled": SAMPLED,
    "filtered": {**SAMPLED, "top_k": 10, "top_p": 0.9, "min_p": 0.02},
    "penalised": {**SAMPLED, "repetition_penalty": 1.2, "presence_penalty": 0.3},
    "mirostat": {**SAMPLED, "mirostat": 2, "mirostat_tau": 2.0, "mirostat_eta": 0.4},
    "xtc and dry": {**SAMPLED, "xtc_probability": 0.5, "dry_multiplier": 0.8},
    "no repeated ngrams": {"no_repeat_ngram_size": 3},
    "stop tokens": {**SAMPLED, "stop_token_ids": list(range(0, 40, 5)), "min_new_tokens": 9},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_output_is_the_same_bit_for_bit(models, dtype, way, name):
    plain = run(new_engine(models[dtype]), REPEATS, **OPTIONS[name])
    engine = new_engine(models[dtype], draft=draft_of(way, models, dtype))
    found = run(engine, REPEATS, speculation=guesses_of(way), **OPTIONS[name])
    assert said(found) == said(plain)
    assert 0 <= found.accepted <= found.guessed
    assert (plain.guessed, plain.accepted) == (0, 0)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 30, 1000])
def test_any_number_of_guesses(models, way, count):
    engine = new_engine(models["f32"], draft=draft_of(way, models, "f32"))
    speculation = guesses_of(way, count)
    for options in ({}, SAMPLED):
        plain = run(new_engine(models["f32"]), REPEATS, **options)
        assert said(run(engine, REPEATS, speculation=speculation, **options)) == said(plain)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
def test_steps_of_one_token_have_no_guesses(models, way, chunk, threads):
    """A step of one token has no guesses, right or wrong."""
    model = models["f32"]
    engine = new_engine(model, threads=threads, chunk=chunk, draft=draft_of(way, models, "f32"))
    found = run(engine, REPEATS, speculation=guesses_of(way), **SAMPLED)
    assert said(found) == said(run(new_engine(model), REPEATS, **SAMPLED))
    if chunk == 1:
        assert found.guessed == 0


@pytest.mark.parametrize("chunk", [3, 16, 512])
def test_a_batch_of_requests_with_and_without_guesses(models, chunk):
    model = models["f32"]
    engine = new_engine(model, chunk=chunk, draft=models["bf16"])
    prompts = [np.tile(random_prompt(5, 40, seed=i), 1 + i % 4) for i in range(12)]
    kinds = [guessing(), guessing(lookup=5), guessing(draft=3), guessing(lookup=2, draft=4)]
    options = [{**(SAMPLED if i % 3 else {}), "max_new_tokens": 10 + i} for i in range(12)]
    requests = [
        submit(engine, prompts[i], speculation=kinds[i % 4], logprobs=3, **options[i])
        for i in range(12)
    ]
    outputs = drain(engine, requests)
    for i, request in enumerate(requests):
        assert said(outputs[request]) == said(run(new_engine(model), prompts[i], **options[i]))
    assert engine.stats()["cache_blocks_in_use"] == 0


def test_several_outputs_of_one_prompt(models, way):
    model = models["f32"]
    engine = new_engine(model, draft=draft_of(way, models, "f32"))
    options = {**SAMPLED, "num_sequences": 4, "max_new_tokens": 30}
    guessed = submit(engine, REPEATS, speculation=guesses_of(way), **options)
    plain = submit(engine, REPEATS, **options)
    outputs = drain_all(engine, [guessed, plain])
    assert [o.tokens for o in outputs[guessed]] == [o.tokens for o in outputs[plain]]
    assert engine.stats()["cache_blocks_in_use"] == 0


def test_the_context_ends_an_output_with_guesses_at_the_same_token(way):
    shape = Shape(vocab_size=40, num_layers=1, max_context=60)
    models = {dtype: seeded_model(dtype, shape) for dtype in DTYPES}
    for length in (48, 57, 58, 59, 60):
        prompt = np.resize(REPEATS, length)
        plain = run(new_engine(models["f32"]), prompt, **SAMPLED)
        draft = draft_of(way, models, "f32")
        found = run(new_engine(models["f32"], draft=draft), prompt, speculation=guesses_of(way))
        assert said(found) == said(run(new_engine(models["f32"]), prompt))
        assert len(plain.tokens) == len(found.tokens) == 60 - length


def test_a_draft_stops_guessing_at_the_end_of_its_context(models):
    """The text begins with 48 tokens and ends with 96; the draft holds 64."""
    draft = seeded_model("f32", Shape(vocab_size=40, num_layers=2, max_context=64))
    found = run(new_engine(models["f32"], draft=draft), REPEATS, speculation=guessing(draft=4))
    assert said(found) == said(run(new_engine(models["f32"]), REPEATS))
    assert 0 < found.guessed <= 64 - 48


def test_a_text_without_a_cache_or_with_beams_has_no_guesses(models):
    engine = new_engine(models["f32"])
    beams = _core.BeamOptions()
    beams.num_beams = 2
    for option in ({"cache": False}, {"beams": beams}):
        with pytest.raises(InvalidArgument, match="speculation: with beams or without a cache"):
            submit(engine, [1], speculation=guessing(lookup=2), **option)


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"lookup": -1}, "lookup_tokens: found -1"),
        ({"lookup": 1, "ngram": 0}, "lookup_ngram: found 0"),
        ({"draft": -1}, "draft_tokens: found -1"),
        ({"draft": 1}, "draft_tokens: the engine has no draft model"),
    ],
)
def test_wrong_options_of_guesses_are_refused(models, options, reported):
    with pytest.raises(InvalidArgument, match=reported):
        submit(new_engine(models["f32"]), [1], speculation=guessing(**options))


def test_a_draft_of_another_vocabulary_is_refused(models):
    with pytest.raises(InvalidArgument, match="draft model: vocab_size: found 300, expected 40"):
        new_engine(models["f32"], draft=seeded_model("f32"))


class TestAcceptance:
    @pytest.mark.parametrize("options", [{}, SAMPLED, OPTIONS["mirostat"], OPTIONS["penalised"]])
    def test_a_model_that_drafts_for_itself_is_always_right(self, models, dtype, options):
        """41 tokens: one from the prompt, then 5 a step, 4 of them guessed."""
        engine = new_engine(models[dtype], draft=models[dtype])
        options = {**options, "max_new_tokens": 41}
        found = run(engine, REPEATS, speculation=guessing(draft=4), **options)
        assert (found.guessed, found.accepted) == (32, 32)
        assert engine.stats()["steps"] == 1 + 8
        assert engine.stats()["decode_tokens"] == 40

    @pytest.mark.parametrize("tokens", [1, 2, 3, 6, 7, 8, 10, 11, 12])
    def test_the_last_token_is_never_guessed(self, models, tokens):
        """Each step gives 5 tokens after the first one. The last token of a step is chosen, not
        guessed."""
        engine = new_engine(models["f32"], draft=models["f32"])
        found = run(engine, REPEATS, speculation=guessing(draft=4), max_new_tokens=tokens)
        assert found.guessed == found.accepted == tokens - engine.stats()["steps"]
        assert engine.stats()["steps"] == 1 + -(-(tokens - 1) // 5)

    def test_a_repeating_text_is_guessed_from_itself(self):
        """Period 5 and 5 guesses: after the first period nearly all are right."""
        steps = np.full((8, 8), -100.0)
        for token, following in {1: 2, 2: 3, 3: 4, 4: 5, 5: 1}.items():
            steps[token, following] = 0
        engine = table_engine(steps)
        found = run(engine, [1], speculation=guessing(lookup=5), max_new_tokens=100, **SAMPLED)
        assert found.tokens == [2, 3, 4, 5, 1] * 20
        assert found.accepted / found.guessed > 0.95
        assert engine.stats()["steps"] < 25

    def test_the_latest_of_equal_matches_is_the_guess(self):
        """After the first token the text ends in 5, 7. A 7 was followed by 6, and later by 8, which
        the model generates. Neither 7 came after a 5, so both matches have the same length."""
        steps = np.full((10, 10), -100.0)
        for token, following in {5: 7, 7: 8, 8: 9}.items():
            steps[token, following] = 0
        prompt = [1, 2, 7, 6, 3, 4, 7, 8, 9, 5]
        speculation = guessing(lookup=1)
        found = run(table_engine(steps), prompt, speculation=speculation, max_new_tokens=3)
        assert found.tokens == [7, 8, 9]
        assert (found.guessed, found.accepted) == (1, 1)

    def test_half_of_the_guesses_of_a_coin_are_wrong(self):
        """A draft that is sure of token 0 guesses for a fair coin. Of 4 guesses 1/2, 1/4, 1/8 and
        1/16 are reached and right, .9375 in the mean, and a step brings 1.9375 tokens."""
        rows = np.zeros((2, 2))
        sure = table_model([[0.0, -100.0]] * 2)
        engine = new_engine(table_model(rows), draft=sure)
        options = {"temperature": 1.0, "seed": 4, "max_new_tokens": 4000, "logprobs": -1}
        found = run(engine, [0], speculation=guessing(draft=4), **options)
        assert found.accepted / found.guessed == pytest.approx(0.9375 / 4, rel=0.05)
        assert engine.stats()["steps"] == pytest.approx(4000 / 1.9375, rel=0.03)

    @pytest.mark.parametrize("seed", range(5))
    def test_the_guesses_of_a_draft_depend_only_on_the_text(self, models, seed):
        """Lookup and draft take turns, also after wrong guesses of either. The guesses of the draft
        equal the guesses of a new draft for the same text."""
        model, draft = models["f32"], models["bf16"]
        engine, fresh = new_engine(model, draft=draft), new_engine(draft)
        options = {"temperature": 0.6, "seed": seed}
        [whole] = complete(new_engine(model), [REPEATS], max_new_tokens=120, **options)
        speculation = guessing(lookup=3, draft=4, ngram=3)
        submit(engine, REPEATS, speculation=speculation, max_new_tokens=120, **options)
        written = drafted = 0
        while engine.stats()["running"]:
            events = engine.step()
            guessed = sum(event.guessed for event in events)
            text = [*REPEATS.tolist(), *whole[:written]]
            if guessed and not look_up(text, 3, 3):
                expected = continuation(fresh, text, written, guessed, **options)
                wrong = (i for i in range(guessed) if expected[i] != whole[written + i])
                assert sum(event.accepted for event in events) == next(wrong, guessed), written
                drafted += 1
            written += len(events)
        assert drafted > 3


def look_up(tokens: list[int], ngram: int, count: int) -> list[int]:
    """The continuation of an earlier match of the last tokens: the longest match, then the
    latest."""
    for length in range(min(ngram, len(tokens) - 1), 0, -1):
        for end in range(len(tokens) - 1, length - 1, -1):
            if tokens[end - length : end] == tokens[-length:]:
                return tokens[end : end + count]
    return []


def continuation(engine: Any, text: list[int], written: int, count: int, **options) -> list[int]:
    """The tokens that a model draws after a text whose last `written` tokens are its output."""
    prompt, output = text[: len(text) - written], text[len(text) - written :]

    def replay(token_ids, scores):
        if len(token_ids) < len(text):
            forced = output[len(token_ids) - len(prompt)]
            scores[:] = -np.inf
            scores[forced] = 0

    sampling = _core.SamplingOptions()
    for name, value in options.items():
        setattr(sampling, name, value)
    sampling.set_logits_processor(replay)
    request = engine.submit(ids(prompt), max_new_tokens=written + count, sampling=sampling)
    tokens = drain(engine, [request])[request].tokens
    assert tokens[:written] == output
    return tokens[written:]


class TestLookUp:
    """The guesses of a lookup, observed by the accepted tokens of a model that follows the text."""

    def accepted(self, prompt: list[int], table: dict[int, int], **options: int) -> list[int]:
        """Accepted guesses step by step."""
        rows = np.full((16, 16), -100.0)
        for token in range(16):
            rows[token, table.get(token, 0)] = 0
        engine = table_engine(rows)
        submit(engine, prompt, speculation=guessing(**options), max_new_tokens=8)
        steps = []
        while engine.stats()["running"]:
            steps.append(sum(event.accepted for event in engine.step()))
        return steps

    COUNT_UP = {i: i + 1 for i in range(15)}  # noqa: RUF012

    def test_the_continuation_of_an_earlier_match_is_guessed(self):
        """The prompt says 1 2 3 4 5 and begins again: 2 comes from it, then 3 4 5 are guessed, and
        6 is new; nothing follows 6 before."""
        steps = self.accepted([1, 2, 3, 4, 5, 1], self.COUNT_UP, lookup=3)
        assert steps == [0, 3, 0, 0, 0]

    def test_no_more_guesses_than_requested(self):
        assert self.accepted([1, 2, 3, 4, 5, 1], self.COUNT_UP, lookup=1) == [0, 1, 1, 0, 0, 0]

    def test_the_latest_of_equally_long_matches(self):
        """2 was followed by 9 and then by 3: 3 is guessed, and right."""
        steps = self.accepted([2, 9, 7, 2, 3, 4, 1], self.COUNT_UP, lookup=2, ngram=1)
        assert steps[1] == 2

    def test_a_longer_match_is_better_than_a_later_one(self):
        """1 2 was followed by 3, a later 2 by 9."""
        steps = self.accepted([1, 2, 3, 8, 2, 9, 1], self.COUNT_UP, lookup=1, ngram=2)
        assert steps[1] == 1
        assert self.accepted([1, 2, 3, 8, 2, 9, 1], self.COUNT_UP, lookup=1, ngram=1)[1] == 0


class TestDistribution:
    P = log_probabilities([0.5, 0.3, 0.15, 0.05])

    @pytest.mark.parametrize("kind", ["lookup", "uniform draft", "skewed draft"])
    def test_draws_with_guesses_follow_the_distribution(self, kind):
        """20,000 tokens of one request. Each right guess saves a step."""
        row = {"uniform draft": np.zeros(4), "skewed draft": self.P[::-1].copy()}.get(kind)
        draft = None if row is None else table_model(np.tile(row, (4, 1)))
        engine = new_engine(table_model(np.tile(self.P, (4, 1))), threads=1, draft=draft)
        speculation = guessing(lookup=3) if draft is None else guessing(draft=3)
        options = {"temperature": 1.0, "seed": 1, "max_new_tokens": 20_000, "logprobs": -1}
        found = run(engine, [0], speculation=speculation, **options)
        assert_distribution(np.array(found.tokens), {0: 0.5, 1: 0.3, 2: 0.15, 3: 0.05})
        assert found.accepted > 1500
        assert engine.stats()["steps"] == 20_000 - found.accepted


class TestEnds:
    def test_a_stop_token_inside_an_accepted_run(self, models):
        """At any position in a run of 5; tokens after it are not reported."""
        model = models["f32"]
        [whole] = complete(new_engine(model), [REPEATS], max_new_tokens=30, **SAMPLED)
        for stop in set(whole):
            first = whole.index(stop)
            engine = new_engine(model, draft=model)
            options = {"stop_token_ids": [stop], **SAMPLED}
            found = run(engine, REPEATS, speculation=guessing(draft=4), **options)
            assert (found.tokens, found.finish) == (whole[: first + 1], "stop")

    @pytest.mark.parametrize("steps", [0, 1, 2, 3])
    def test_cancelling_frees_both_caches(self, models, steps):
        engine = new_engine(models["f32"], draft=models["bf16"])
        options = {**SAMPLED, "num_sequences": 2, "max_new_tokens": 50}
        request = submit(engine, REPEATS, speculation=guessing(draft=4), **options)
        plain = submit(engine, REPEATS, max_new_tokens=20)
        tokens = []
        for step in range(1 + 20):
            if step == steps:
                engine.cancel(request)
            tokens += [event.token for event in engine.step() if event.request == plain]
        assert [tokens] == complete(new_engine(models["f32"]), [REPEATS], max_new_tokens=20)
        assert engine.stats()["cache_blocks_in_use"] == 0

    def test_the_drafts_blocks_are_counted(self, models):
        """48 + 16 tokens are 4 blocks of 16, in each of the two caches."""
        engine = new_engine(models["f32"], draft=models["f32"])
        submit(engine, REPEATS, speculation=guessing(draft=4), max_new_tokens=16)
        most = 0
        while engine.stats()["running"]:
            engine.step()
            most = max(most, engine.stats()["cache_blocks_in_use"])
        assert most == 8

    def test_a_draft_with_nan_logits_guesses_nothing(self, models):
        """The output is the output of the model."""
        broken = np.full((4, 4), np.nan)
        model = table_model(np.tile(TestDistribution.P, (4, 1)))
        engine = new_engine(model, draft=table_model(broken))
        found = run(engine, [0], speculation=guessing(draft=4), **SAMPLED)
        assert said(found) == said(run(new_engine(model), [0], **SAMPLED))
        assert found.guessed == 0


@pytest.mark.parametrize("dtype", ["int8", "bf16"])
def test_a_wider_draft_leaves_the_padding_of_rows_zero(dtype):
    """Both models' rows are normalised into the same memory. The draft has 96 values a row, this
    model 84, padded to 96: the padding has to be zero, or it would count in the scales of int8."""
    narrow = Shape(vocab_size=40, hidden_size=84, num_layers=2)
    model = seeded_model(dtype, narrow)
    draft = seeded_model(dtype, Shape(vocab_size=40, hidden_size=96, num_layers=1), seed=9)
    plain = run(new_engine(model), REPEATS, **SAMPLED)
    found = run(new_engine(model, draft=draft), REPEATS, speculation=guessing(draft=4), **SAMPLED)
    assert said(found) == said(plain)
