"""Weights that are not finite: an error that names the cause, only in that request."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import onward
from builders.core_engine import drain, new_engine, submit
from closed_form import base_config, chain, seen_tensors, table_tensors, write_folder
from onward.errors import NumericsError, WeightError
from onward.load.hub import find_model
from onward.load.loading import load_model
from onward.load.weights.dtypes import HEAD_DTYPES


def write_bad_embedding(folder: Path, value: float) -> Path:
    """3 is followed by 4, and 4 by 3. 5 is followed by 6, whose row of the embedding has
    `value`."""
    config = base_config(eos_token_id=None)
    tensors = table_tensors(config, chain(8, {3: 4, 4: 3, 5: 6}))
    tensors["model.embed_tokens.weight"][6, 2] = value
    return write_folder(folder, config, tensors)


class TestEmbedding:
    """A row of the embedding is not finite. Only requests with this token are affected."""

    @pytest.fixture
    def llm(self, tmp_path, open_llm, request):
        return open_llm(write_bad_embedding(tmp_path, request.param))

    @pytest.mark.parametrize("llm", [np.nan, np.inf, -np.inf], indirect=True)
    @pytest.mark.parametrize("temperature", [0.0, 0.7])
    def test_the_error_names_the_logits_and_the_next_call_works(self, llm, temperature):
        for _ in range(2):
            with pytest.raises(NumericsError, match=r"prompt: logits: token \d+ has a non-finite"):
                llm.generate([3, 6], temperature=temperature)
            result = llm.generate([3], max_new_tokens=4, temperature=temperature)
            assert result.token_ids == (4, 3, 4, 3)
        assert llm.stats()["running"] == 0

    @pytest.mark.parametrize("llm", [np.nan], indirect=True)
    def test_a_bad_row_is_found_during_decoding(self, llm):
        """5 is followed by 6, whose embedding is bad: one token, then the error."""
        assert llm.generate([5], max_new_tokens=1).token_ids == (6,)
        with pytest.raises(NumericsError, match="non-finite"):
            llm.generate([5], max_new_tokens=2)
        with pytest.raises(NumericsError, match="non-finite"):
            list(llm.stream([5], max_new_tokens=2))
        assert llm.generate([3], max_new_tokens=2).token_ids == (4, 3)

    @pytest.mark.parametrize("llm", [np.nan], indirect=True)
    def test_a_stale_cache_block_does_not_affect_the_next_request(self, llm):
        """The block of the failed request has NaN and is used by the next request."""
        for length in (1, 5, 15, 20):
            with pytest.raises(NumericsError):
                llm.generate([6] * 16)
            result = llm.generate([3] * length, max_new_tokens=16)
            assert result.token_ids == (4, 3) * 8

    @pytest.mark.parametrize("llm", [np.nan], indirect=True)
    def test_the_error_of_a_batch_names_the_bad_row(self, llm):
        with pytest.raises(NumericsError, match=r"prompt\[1\]: logits"):
            llm.generate([[3], [6], [4]], max_new_tokens=4)
        assert llm.generate([[3], [4]], max_new_tokens=2)[1].token_ids == (3, 4)

    @pytest.mark.parametrize("llm", [np.nan], indirect=True)
    def test_logits_before_the_bad_token_are_right(self, llm):
        """Token 6 comes last. The rows before it must not see it, for any size of chunks."""
        found = llm.logits([3, 4, 6])
        np.testing.assert_array_equal(found[:2], llm.logits([3, 4]))
        assert np.isnan(found[2]).all()


@pytest.mark.parametrize("dtype", HEAD_DTYPES)
@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_other_rows_of_the_batch_are_not_affected(value, temperature, dtype, tmp_path):
    """Straight in the engine: an error event for one request, and all their tokens for the others,
    whether the bad row is met in prefill or, like that of [5], while decoding."""
    folder = write_bad_embedding(tmp_path, value)
    engine = new_engine(load_model(find_model(folder), dtype, 1).core)
    options = {"max_new_tokens": 4, "temperature": temperature}
    good, bad, late, last = (
        submit(engine, prompt, **options) for prompt in ([3], [6, 3], [5], [4, 4, 4])
    )
    outputs = drain(engine, [good, bad, late, last])
    assert outputs[good].tokens == [4, 3, 4, 3]
    assert outputs[last].tokens == [3, 4, 3, 4]
    assert (outputs[bad].tokens, outputs[bad].finish) == ([], "error")
    assert (outputs[late].tokens, outputs[late].finish) == ([6], "error")
    assert "non-finite logit" in outputs[late].error
    assert engine.stats()["running"] == 0
    assert engine.stats()["cache_blocks_in_use"] == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("dtype", HEAD_DTYPES)
def test_a_bad_head_is_an_error_and_never_a_token(value, temperature, dtype, tmp_path, open_llm):
    """lm_head row 5 is not finite: 0 x NaN and 0 x inf are NaN, so every prompt meets it."""
    config = base_config()
    tensors = table_tensors(config, chain(8, {3: 4}))
    tensors["lm_head.weight"][5] = value
    llm = open_llm(write_folder(tmp_path, config, tensors), dtype=dtype)
    for _ in range(3):
        with pytest.raises(NumericsError, match="token 5 has a non-finite logit"):
            llm.generate([3], temperature=temperature)
    assert issubclass(NumericsError, onward.Error)
    assert issubclass(NumericsError, ArithmeticError)


def test_overflow_inside_the_network_is_found(tmp_path, open_llm):
    """Values of 1e30 through an output projection of 1e30: infinity, although no weight is."""
    config = base_config()
    tensors = seen_tensors(config)
    for name in ("v_proj", "o_proj"):
        tensors[f"model.layers.0.self_attn.{name}.weight"] = np.full((8, 8), 1e30, np.float32)
    llm = open_llm(write_folder(tmp_path, config, tensors))
    with pytest.raises(NumericsError, match="non-finite"):
        llm.generate([3, 4])


@pytest.mark.parametrize("dtype", ["f16", "int8", "int4"])
def test_values_too_large_for_an_f16_cache_are_an_error(dtype, tmp_path, open_llm):
    """Beyond 65,504 they are infinite; bf16 holds them."""
    config = base_config()
    tensors = seen_tensors(config)
    tensors["model.layers.0.self_attn.v_proj.weight"] *= np.float32(60_000)
    tensors["model.layers.0.self_attn.o_proj.weight"] /= np.float32(60_000)
    folder = write_folder(tmp_path, config, tensors)
    assert np.isfinite(open_llm(folder, dtype="bf16").logits([3, 4])).all()
    if dtype in ("f16", "int4"):  # whose range ends before these weights
        with pytest.raises(WeightError, match=r"v_proj\.weight has values up to 6e"):
            open_llm(folder, dtype=dtype)
        return
    with pytest.raises(NumericsError, match="non-finite"):
        open_llm(folder, dtype=dtype).generate([3, 4])
