"""Configs of BERT and its relatives as decoders: their norms, heads and positions."""

from __future__ import annotations

from typing import Any

import pytest

from onward.errors import ConfigError
from onward.load.architectures import names_of, read_spec, tensor_plan
from onward.load.architectures.parts import stored_shapes
from onward.spec import DecoderSpec, EmbeddingSpec, HeadSpec

SIZES = {
    **{"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "vocab_size": 10},
    **{"intermediate_size": 32, "max_position_embeddings": 20, "is_decoder": True},
}
GPT = {"n_embd": 24, "n_layer": 2, "n_head": 3, "vocab_size": 10}
SUMMED = ("bert", "ernie", "roberta", "camembert", "xlm-roberta", "data2vec-text", "big_bird")
NORMED_BEFORE = ("megatron-bert", "roberta-prelayernorm", "xlm-roberta-xl")


def spec_of(model_type: str, sizes: dict[str, Any] = SIZES, **fields: Any) -> DecoderSpec:
    return read_spec({"model_type": model_type, **sizes, **fields})


@pytest.mark.parametrize("model_type", [*SUMMED, *NORMED_BEFORE, "electra", "rembert", "roformer"])
def test_an_encoder_is_refused(model_type: str) -> None:
    for flag in (False, None):
        with pytest.raises(ConfigError, match=r"is_decoder is .*, expected true"):
            spec_of(model_type, is_decoder=flag)


@pytest.mark.parametrize("model_type", SUMMED)
def test_norms_of_the_sums(model_type: str) -> None:
    norms = spec_of(model_type).norms
    assert (norms.sums, norms.before, norms.final, norms.embedding) == (True, False, False, True)


def test_norms_before_the_blocks() -> None:
    found = {name: spec_of(name).norms for name in NORMED_BEFORE}
    assert all(norms.before and norms.final and not norms.sums for norms in found.values())
    assert [found[name].embedding for name in NORMED_BEFORE] == [False, True, False]


def test_the_layer_before_the_head() -> None:
    assert spec_of("bert", hidden_act="relu").head == HeadSpec(24, "relu", bias=True, norm=True)
    assert spec_of("roberta", hidden_act="relu").head.activation == "gelu"
    assert spec_of("bert-generation").head == HeadSpec()
    electra = spec_of("electra", embedding_size=8)
    assert (electra.head.size, electra.embedding) == (8, EmbeddingSpec(8, bias=True))
    assert spec_of("electra", embedding_size=24).embedding == EmbeddingSpec()
    rembert = spec_of("rembert", input_embedding_size=8, output_embedding_size=40)
    assert (rembert.head.size, rembert.embedding.size, rembert.tied_head) == (40, 8, False)


def test_positions_of_roberta_follow_that_of_the_padding_token() -> None:
    spec = spec_of("roberta")
    assert (spec.learned_positions, spec.max_context) == (18, 18)
    plan = tensor_plan(spec)
    part = next(planned.parts[0] for planned in plan if planned.name == "positions")
    assert (part.rows, part.stored) == (range(2, 20), (20, 24))
    with pytest.raises(ConfigError, match="pad_token_id is 0, expected 1"):
        spec_of("roberta", pad_token_id=0)


def test_the_first_token_type_is_added_to_the_positions() -> None:
    plan = tensor_plan(spec_of("bert"), {"bert.embeddings.word_embeddings.weight"})
    part = next(planned.parts[0] for planned in plan if planned.name == "positions")
    (row,) = part.added
    assert (row.tensor, row.shape) == ("bert.embeddings.token_type_embeddings.weight", (1, 24))
    assert (row.rows, row.more_rows) == (range(1), True)
    assert row.tensor in stored_shapes(plan)
    rotated = tensor_plan(spec_of("roformer"))
    part = next(planned.parts[0] for planned in rotated if planned.name == "positions")
    assert (part.constant, len(part.added)) == (0, 1)


def test_the_head_is_beside_the_model() -> None:
    stored = {"bert.embeddings.word_embeddings.weight", "cls.predictions.bias"}
    spec = spec_of("bert")
    plan = {planned.name: planned.parts[0].tensor for planned in tensor_plan(spec, stored)}
    assert plan["head_dense"] == "cls.predictions.transform.dense.weight"
    assert plan["head_norm_bias"] == "cls.predictions.transform.LayerNorm.bias"
    assert plan["head_bias"] == "cls.predictions.bias"
    assert plan["layers.1.mlp_post_norm"] == "bert.encoder.layer.1.output.LayerNorm.weight"
    assert names_of(spec).is_ignored("bert.pooler.dense.weight", 2)


@pytest.mark.parametrize(
    ("model_type", "field", "value"),
    [
        ("bert", "position_embedding_type", "relative_key"),
        ("bert", "add_cross_attention", True),
        ("ernie", "use_task_id", True),
        ("roformer", "rotary_value", True),
        ("big_bird", "attention_type", "random"),
    ],
)
def test_values_that_are_refused(model_type: str, field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"config\.json: {field} is"):
        spec_of(model_type, **{field: value})


def test_the_first_gpt() -> None:
    spec = spec_of("openai-gpt", GPT)
    assert (spec.mlp.activation, spec.intermediate_size) == ("gelu_tanh", 96)
    norms = spec.norms
    assert (norms.sums, norms.final, norms.embedding) == (True, False, False)
    with pytest.raises(ConfigError, match="afn is 'gelu_new', expected one of"):
        spec_of("openai-gpt", GPT, afn="gelu_new")
