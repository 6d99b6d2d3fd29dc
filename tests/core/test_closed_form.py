"""Models with known answers through the whole engine: files, spec, weights, attention.

closed_form.py describes each model. The same tests run in float32 and bfloat16 if the answer does
not depend on more than 8 bits.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from closed_form import (
    ATTENTION,
    IMPOSSIBLE,
    base_config,
    base_tensors,
    chain,
    seen_tensors,
    table_tensors,
    write_copy,
    write_folder,
    write_gqa,
    write_safetensors,
    write_seen,
    write_table,
)

LLAMA3_FACTORS = {
    "factor": 2.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}
THETA_4 = {"rope_theta": 4.0}


@pytest.fixture(params=["f32", "f16", "bf16", "int8"])
def dtype(request):
    return request.param


def next_token(llm, prompt) -> int:
    """The greedy continuation by one token, which must agree with the logits."""
    [token] = llm.generate(prompt, max_new_tokens=1).token_ids
    assert int(llm.logits(prompt)[-1].argmax()) == token
    return token


def copied_distance(llm) -> int:
    """M-COPY on 12 tokens, all 3 except a 4 at distance d from the last: the d that gives 4."""
    distances = [
        distance
        for distance in range(1, 12)
        if next_token(llm, [3] * (11 - distance) + [4] + [3] * distance) == 4
    ]
    assert len(distances) == 1, distances
    return distances[0]


class TestTable:
    """Logits are rows of the table, at every position."""

    TABLE = np.random.default_rng(3).uniform(-4, 4, (8, 8)).astype(np.float32)

    def test_logits_are_the_rows(self, tmp_path, open_llm):
        llm = open_llm(write_table(tmp_path, self.TABLE))
        prompt = [3, 7, 1, 1, 6, 0, 2]
        np.testing.assert_allclose(llm.logits(prompt), self.TABLE[prompt], rtol=1e-6)

    def test_bfloat16_rounds_each_weight_once(self, tmp_path, open_llm):
        """8 bits of mantissa on the table, on 1/sqrt(8) and on the row that enters the product."""
        llm = open_llm(write_table(tmp_path, self.TABLE), dtype="bf16")
        np.testing.assert_allclose(llm.logits([3, 7, 1]), self.TABLE[[3, 7, 1]], rtol=3 * 2**-8)

    def test_it_follows_a_chain(self, tmp_path, open_llm, dtype):
        llm = open_llm(write_table(tmp_path, chain(8, {1: 3, 3: 5, 5: 4, 4: 7, 7: 2})), dtype=dtype)
        assert llm.generate([1]).token_ids == (3, 5, 4, 7, 2)


class TestRope:
    """M-COPY(1) in base theta has inv_freq [1, theta ** -0.5]: the sine peaks at d * f = pi / 2."""

    @pytest.mark.parametrize(
        ("rope", "expected"),
        [
            ({"rope_parameters": {"rope_type": "default", "rope_theta": 4.0}}, 3),  # 3 x .5 = 1.5
            ({"rope_parameters": {"rope_type": "default", "rope_theta": 16.0}}, 6),  # 6 x .25 = 1.5
            ({"rope_theta": 4.0}, 3),
            ({"rope_theta": 16.0}, 6),
            ({"rope_theta": 4.0, "rope_scaling": None}, 3),
            ({}, 11),  # 10000: .01 a step, so the farthest
        ],
    )
    def test_both_spellings_of_theta_are_read(self, rope, expected, tmp_path, open_llm):
        assert copied_distance(open_llm(write_copy(tmp_path, 1, **rope))) == expected

    @pytest.mark.parametrize("key", ["type", "rope_type"])
    def test_linear_scaling_halves_the_frequency(self, key, tmp_path, open_llm):
        scaling = {key: "linear", "factor": 2.0}
        llm = open_llm(write_copy(tmp_path, 1, **THETA_4, rope_scaling=scaling))
        assert copied_distance(llm) == 6

    @pytest.mark.parametrize("where", ["rope_scaling", "rope_parameters"])
    @pytest.mark.parametrize("key", ["type", "rope_type"])
    def test_llama3_scaling_is_applied(self, where, key, tmp_path, open_llm):
        """inv_freq becomes [.545539, .25]. The wavelength of .5 is 12.6 > 8 / 1: divided by 2."""
        section = {key: "llama3", **LLAMA3_FACTORS}
        rope = {where: section, **THETA_4}
        if where == "rope_parameters":
            rope = {where: {**section, **THETA_4}}
        llm = open_llm(write_copy(tmp_path, 1, **rope))
        assert copied_distance(llm) == 6
        np.testing.assert_allclose(llm.spec.rope.inv_freq, [0.545539, 0.25], atol=1e-6)

    def test_an_unknown_kind_of_rope_is_refused(self, tmp_path, open_llm):
        scaling = {"rope_type": "banana", "factor": 2.0}
        folder = write_copy(tmp_path, 1, **THETA_4, rope_scaling=scaling)
        with pytest.raises(ValueError, match=r"rope_scaling\.rope_type is 'banana', expected"):
            open_llm(folder)

    def test_pairs_are_half_a_head_apart(self, tmp_path, open_llm):
        """M-COPY(0) turns by 1 radian a token: the sine is largest at distance 2 (.909; .841 and
        .141 beside it), where [6, 5, 4, 3, 6, 5] has 3. Adjacent pairs would score 0 everywhere."""
        llm = open_llm(write_copy(tmp_path, 0))
        assert next_token(llm, [6, 5, 4, 3, 6, 5]) == 3

    def test_scores_of_1800_do_not_overflow(self, tmp_path, open_llm):
        llm = open_llm(write_copy(tmp_path, 0))
        assert np.isfinite(llm.logits([6, 5, 4, 3, 6, 5])).all()

    def test_head_dim_comes_from_the_config(self, tmp_path, open_llm):
        """hidden 8, one head, head_dim 4: sizes, rotation and scale follow the 4."""
        llm = open_llm(write_copy(tmp_path, 1, **THETA_4))
        assert llm.spec.head_dim == 4
        assert len(llm.spec.rope.inv_freq) == 2
        assert copied_distance(llm) == 3


class TestAttention:
    def test_attention_sees_every_position(self, tmp_path, open_llm, dtype):
        """Id 1 has weight 0: a single 7 among forty of them decides, in any of three cache
        blocks."""
        llm = open_llm(write_seen(tmp_path), dtype=dtype)
        for place in range(40):
            prompt = [1] * 40
            prompt[place] = 7
            assert next_token(llm, prompt) == 7

    def test_attention_is_causal(self, tmp_path, open_llm, dtype):
        """Row i of the logits has seen tokens 0 to i: the largest so far."""
        llm = open_llm(write_seen(tmp_path), dtype=dtype)
        assert llm.logits([1, 4, 1, 6, 1, 7]).argmax(axis=1).tolist() == [1, 4, 4, 6, 6, 7]

    @pytest.mark.parametrize("chunk", [1, 2, 256])
    @pytest.mark.parametrize(("window", "expected"), [(1, 3), (3, 5), (4, 6), (5, 7), (None, 7)])
    def test_a_window_counts_the_token_itself(
        self, window, expected, chunk, tmp_path, open_llm, dtype
    ):
        """[7, 6, 5, 4, 3]: a window of W sees the last W tokens, and then its own output."""
        folder = write_seen(tmp_path, model_type="mistral", sliding_window=window)
        llm = open_llm(folder, dtype=dtype, prefill_chunk_tokens=chunk)
        assert next_token(llm, [7, 6, 5, 4, 3]) == expected
        assert llm.generate([7, 6, 5, 4, 3], max_new_tokens=5).token_ids == (expected,) * 5

    def test_kv_heads_are_repeated_by_group(self, tmp_path, open_llm, dtype):
        """Query heads 0, 1 read kv head 0. Tiling would give head 1 the other one, and token 4."""
        assert next_token(open_llm(write_gqa(tmp_path), dtype=dtype), [5, 6]) == 3


class TestBiases:
    """M-SEEN with 50 at index 6 of the bias of v: 6 wins over the visible ids."""

    BIAS = np.eye(1, 8, 6, dtype=np.float32)[0] * 50
    NONE = np.zeros(8, np.float32)

    def biased(self, config, *names: str):
        tensors = seen_tensors(config)
        for name in names:
            tensors[f"{ATTENTION}{name}_proj.bias"] = self.BIAS if name == "v" else self.NONE
        return tensors

    def test_llama_attention_bias(self, tmp_path, open_llm, dtype):
        config = base_config(attention_bias=True)
        write_folder(tmp_path, config, self.biased(config, "q", "k", "v", "o"))
        assert next_token(open_llm(tmp_path, dtype=dtype), [3, 4]) == 6

    def test_qwen2_has_biases_without_a_flag_in_its_config(self, tmp_path, open_llm, dtype):
        config = base_config(model_type="qwen2", architectures=["Qwen2ForCausalLM"])
        write_folder(tmp_path, config, self.biased(config, "q", "k", "v"))
        assert next_token(open_llm(tmp_path, dtype=dtype), [3, 4]) == 6

    def test_without_a_bias_the_largest_visible_id_wins(self, tmp_path, open_llm, dtype):
        assert next_token(open_llm(write_seen(tmp_path), dtype=dtype), [3, 4]) == 4

    def test_a_bias_that_the_config_does_not_mention_is_refused(self, tmp_path, open_llm):
        write_folder(tmp_path, base_config(), self.biased(base_config(), "v"))
        with pytest.raises(ValueError, match=r"no place for .*v_proj\.bias"):
            open_llm(tmp_path)


class TestTiedHead:
    """embed is the identity except embed[6, 3] = 2, and there is no lm_head.weight."""

    def write(self, folder: Path, tied: bool) -> Path:
        config = base_config(tie_word_embeddings=tied)
        tensors = base_tensors(config)
        tensors["model.embed_tokens.weight"][6, 3] = 2
        del tensors["lm_head.weight"]
        return write_folder(folder, config, tensors)

    def test_the_embedding_is_the_head(self, tmp_path, open_llm, dtype):
        assert next_token(open_llm(self.write(tmp_path, True), dtype=dtype), [3]) == 6

    def test_a_missing_untied_head_is_refused(self, tmp_path, open_llm):
        with pytest.raises(ValueError, match=r"missing tensors: lm_head\.weight"):
            open_llm(self.write(tmp_path, False))


class TestStorage:
    def test_mixed_dtypes(self, tmp_path, open_llm):
        """embed F16, head BF16, norms F32: 1.75, 1.5 and -4 times sqrt(8) times .5."""
        config = base_config()
        table = np.full((8, 8), -4.0, np.float32)
        table[3, 5], table[3, 6] = 1.75, 1.5
        tensors = table_tensors(config, table)
        tensors["model.norm.weight"] = np.full(8, 0.5, np.float32)
        dtypes = {"model.embed_tokens.weight": "F16", "lm_head.weight": "BF16"}
        llm = open_llm(write_folder(tmp_path, config, tensors, dtypes=dtypes), dtype="auto")
        assert llm.dtype == "f32"
        expected = [-5.656854, 2.474874, 2.121320]
        np.testing.assert_allclose(llm.logits([3])[0, [4, 5, 6]], expected, rtol=1e-6)
        assert next_token(llm, [3]) == 5

    def test_an_unknown_quantisation_is_refused(self, tmp_path, open_llm):
        folder = write_table(tmp_path, chain(8, {}), quantization_config={"quant_method": "fp8"})
        with pytest.raises(ValueError, match="quantization_config"):
            open_llm(folder)


class TestShards:
    """Shard 1 has every tensor, with rows 3 and 4 of the head swapped. Shard 2 has the right
    head."""

    def write(self, folder: Path) -> Path:
        config = base_config()
        table = np.full((8, 8), IMPOSSIBLE, np.float32)
        table[1, 3] = 0
        right = table_tensors(config, table)
        stale = dict(right)
        stale["lm_head.weight"] = right["lm_head.weight"][[0, 1, 2, 4, 3, 5, 6, 7]]
        first, second = (f"model-0000{n}-of-00002.safetensors" for n in (1, 2))
        write_folder(folder, config, {})
        (folder / "model.safetensors").unlink()
        write_safetensors(folder / first, stale)
        write_safetensors(folder / second, {"lm_head.weight": right["lm_head.weight"]})
        write_safetensors(folder / "old.safetensors", {"lm_head.weight": stale["lm_head.weight"]})
        weight_map = {name: second if name == "lm_head.weight" else first for name in right}
        index = {"metadata": {}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        return folder

    def test_the_index_decides_which_shard_has_a_tensor(self, tmp_path, open_llm):
        assert next_token(open_llm(self.write(tmp_path)), [1]) == 3

    @pytest.mark.parametrize("number", [1, 2])
    def test_a_missing_shard_is_named(self, number, tmp_path, open_llm):
        name = f"model-0000{number}-of-00002.safetensors"
        (self.write(tmp_path) / name).unlink()
        with pytest.raises(ValueError, match=name):
            open_llm(tmp_path)

    def test_a_folder_without_weights_is_refused(self, tmp_path, open_llm):
        (write_seen(tmp_path) / "model.safetensors").unlink()
        with pytest.raises(ValueError, match="safetensors"):
            open_llm(tmp_path)


@pytest.mark.parametrize(
    ("temperature", "expected"),
    [(1e-6, {3}), (1e-38, {3}), (1e-45, {3}), (0, {3}), (1e300, set(range(8)))],
)
def test_extreme_temperatures(temperature, expected, tmp_path, open_llm):
    """Logits 10.0 and 9.99. Tiny temperatures are the argmax, a huge one is uniform."""
    table = np.full((8, 8), 0.0)
    table[:, 3], table[:, 4] = 10.0, 9.99
    folder = write_table(tmp_path, table, eos_token_id=None, max_position_embeddings=512)
    result = open_llm(folder).generate([3], max_new_tokens=300, temperature=temperature, seed=1)
    assert set(result.token_ids) == expected
