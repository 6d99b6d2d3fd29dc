"""Tables of names become parts of tensors: fused, grouped, transposed, rotated, of experts."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from onward.load.architectures.names import ONES, Stored, fused, names, transposed
from onward.load.architectures.parts import Part, stored_shapes
from onward.load.architectures.planned_parts import planned
from onward.spec import (
    AttentionSpec,
    DecoderSpec,
    ExpertsSpec,
    LatentSpec,
    MlpSpec,
    NormSpec,
    RopeSpec,
)

BASE = DecoderSpec(
    architecture="any",
    vocab_size=20,
    hidden_size=8,
    intermediate_size=12,
    num_layers=1,
    num_heads=4,
    num_kv_heads=2,
    head_dim=4,
    norm_eps=1e-6,
    max_context=64,
    rope=RopeSpec((1.0, 0.1)),
)


def parts_of(table: Any, stored: Any = (), **changes: Any) -> dict[str, tuple[Part, ...]]:
    spec = dataclasses.replace(BASE, **changes)
    return {p.name.removeprefix("layers.0."): p.parts for p in planned(spec, table, stored)}


def rows(part: Part) -> list[int] | None:
    return None if part.rows is None else np.asarray(part.rows).tolist()


def test_llama() -> None:
    found = parts_of(names(), qkv_bias=True, qk_norm=True)
    assert [part.tensor for part in found["qkv"]] == [
        f"model.layers.0.self_attn.{name}_proj.weight" for name in "qkv"
    ]
    assert [(part.shape, part.stored, rows(part)) for part in found["qkv"]] == [
        ((16, 8), (16, 8), None),
        ((8, 8), (8, 8), None),
        ((8, 8), (8, 8), None),
    ]
    assert found["qkv_bias"][2].tensor == "model.layers.0.self_attn.v_proj.bias"
    assert found["q_norm"][0].shape == (4,)
    assert found["head"][0].tensor == "lm_head.weight"


def test_layers_of_other_sizes() -> None:
    """A layer with 6 heads of 8 on 3, and values of 2."""
    found = parts_of(
        names(qkv=fused("qkv", "q", "k", "v", groups="kv_heads")),
        layer_heads=(6,),
        layer_kv_heads=(3,),
        layer_head_dims=(8,),
        value_dim=2,
        qk_norm=True,
        layer_ropes=(-1,),
    )
    assert [part.shape for part in found["qkv"]] == [(48, 8), (24, 8), (6, 8)]
    assert rows(found["qkv"][2]) == [24, 25, 50, 51, 76, 77]
    assert found["o"][0].shape == (8, 12)
    assert found["k_norm"][0].shape == (8,)


def test_stacked_tensors() -> None:
    """Phi-3: q, k and v in one matrix, gate and up in another."""
    table = names(
        qkv=fused("self_attn.qkv_proj", "q", "k", "v"), gate_up=fused("mlp.gate_up", "gate", "up")
    )
    found = parts_of(table)
    assert {part.tensor for part in found["qkv"]} == {"model.layers.0.self_attn.qkv_proj.weight"}
    assert [part.rows for part in found["qkv"]] == [range(0, 16), range(16, 24), range(24, 32)]
    assert {part.stored for part in found["qkv"]} == {(32, 8)}
    assert [part.rows for part in found["gate_up"]] == [range(0, 12), range(12, 24)]


def test_groups_of_heads_and_partial_rotation() -> None:
    """GPT-NeoX: q, k and v head by head, in a layer of which half of each head rotates."""
    table = names(qkv=fused("attention.qkv", "q", "k", "v", groups="kv_heads"))
    rope = RopeSpec((1.0, 0.0))
    found = parts_of(table, num_kv_heads=4, rope=rope, qkv_bias=True)
    # A head has rows 0 to 3; 0 and 1 rotate and go to 0 and 2.
    assert rows(found["qkv"][0])[:8] == [0, 2, 1, 3, 12, 14, 13, 15]  # type: ignore[index]
    assert rows(found["qkv"][1])[:4] == [4, 6, 5, 7]  # type: ignore[index]
    assert rows(found["qkv"][2])[:4] == [8, 9, 10, 11]  # type: ignore[index]
    assert rows(found["qkv_bias"][1])[:4] == [4, 6, 5, 7]  # type: ignore[index]
    assert found["qkv_bias"][1].stored == (48,)


def test_groups_with_several_heads() -> None:
    """Falcon: each group has two heads of q, then k and v."""
    found = parts_of(names(qkv=fused("qkv", "q", "k", "v", groups="kv_heads")))
    assert rows(found["qkv"][0]) == [*range(8), *range(16, 24)]
    assert rows(found["qkv"][1]) == [*range(8, 12), *range(24, 28)]
    assert rows(found["qkv"][2]) == [*range(12, 16), *range(28, 32)]


def test_neighbours_rotate_with_the_weights_of_their_norms() -> None:
    """Cohere: pairs (2i, 2i + 1), and a norm with a weight for each head."""
    over_heads = AttentionSpec(qk_norm_over="heads")
    found = parts_of(names(rotation="pairs"), qk_norm=True, attention=over_heads)
    assert rows(found["qkv"][1]) == [0, 2, 1, 3, 4, 6, 5, 7]
    assert rows(found["k_norm"][0]) == [0, 2, 1, 3, 4, 6, 5, 7]
    assert rows(found["qkv"][2]) is None
    still = parts_of(names(rotation="pairs"), layer_ropes=(-1,))
    assert rows(still["qkv"][1]) is None  # a layer that does not rotate


def test_pairs_with_frequency_zero_are_not_moved() -> None:
    rope = RopeSpec((1.0, 0.0))
    assert rows(parts_of(names(rotation="as_stored"), rope=rope)["qkv"][0]) is None


def test_transposed_modules_without_a_gate() -> None:
    """GPT-2: Conv1D, no "model." in old files, learned positions, a bias everywhere."""
    table = names(
        model=("transformer.", ""),
        layer="h.{i}.",
        embed="wte",
        positions="wpe",
        norm="ln_f",
        attention_norm="ln_1",
        mlp_norm="ln_2",
        qkv=fused("attn.c_attn", "q", "k", "v", transposed=True),
        o=transposed("attn.c_proj"),
        up=transposed("mlp.c_fc"),
        down=transposed("mlp.c_proj"),
    )
    changes: dict[str, Any] = {
        "num_kv_heads": 4,
        "norms": NormSpec("layer", bias=True),
        "mlp": MlpSpec("gelu", gated=False),
        "mlp_bias": True,
        "learned_positions": 32,
        "layer_ropes": (-1,),
        "qkv_bias": True,
    }
    found = parts_of(table, {"wte.weight"}, **changes)
    k = found["qkv"][1]
    assert (k.tensor, k.shape, k.stored, k.transposed, k.rows) == (
        "h.0.attn.c_attn.weight",
        (16, 8),
        (8, 48),
        True,
        range(16, 32),
    )
    assert (found["qkv_bias"][1].stored, found["qkv_bias"][1].transposed) == ((48,), False)
    assert found["up"][0].stored == (8, 12)
    assert found["up_bias"][0].tensor == "h.0.mlp.c_fc.bias"
    assert found["positions"][0].shape == (32, 8)
    assert found["norm_bias"][0].tensor == "ln_f.bias"
    assert parts_of(table, **changes)["embed"][0].tensor == "transformer.wte.weight"


def test_norms() -> None:
    """Gemma 2 adds 1 to the weights of four norms; OLMo has no weights."""
    table = names(norm_plus=1.0, attention_post_norm="post_attention_layernorm", mlp_norm="pre_ffn")
    found = parts_of(table, norms=NormSpec(after=True))
    four = ("attention_norm", "attention_post_norm", "mlp_norm", "mlp_post_norm")
    assert [found[name][0].plus for name in four] == [1.0] * 4
    assert found["attention_post_norm"][0].tensor == (
        "model.layers.0.post_attention_layernorm.weight"
    )
    bare = parts_of(names(norm_constant=1.0))
    assert (bare["norm"][0].constant, bare["norm"][0].tensor) == (1.0, "")
    assert parts_of(names(norm=ONES))["norm"][0].constant == 1.0
    assert parts_of(names(norm=Stored("norm", plus=1.0)))["norm"][0].plus == 1.0
    parallel = parts_of(names(), residual="parallel")
    assert "mlp_norm" not in parallel and "attention_norm" in parallel


EXPERTS = ExpertsSpec(count=3, chosen=2, intermediate_size=6, shared_size=5, shared_gate=True)


def test_experts_in_separate_tensors() -> None:
    table = names(shared_gate="mlp.shared_expert.gate_proj")
    found = parts_of(table, experts=EXPERTS, layer_experts=(1,))
    assert [part.tensor for part in found["experts_gate_up"]] == [
        f"model.layers.0.mlp.experts.{expert}.{name}_proj.weight"
        for expert in range(3)
        for name in ("gate", "up")
    ]
    assert found["experts_down"][2].shape == (8, 6)
    assert found["router"][0].shape == (3, 8)
    assert found["shared_gate"][0].shape == (1, 8)
    assert found["shared_gate_up"][0].tensor == "model.layers.0.mlp.shared_expert.gate_proj.weight"
    assert "gate_up" not in found
    assert "experts_down" not in parts_of(table, experts=EXPERTS, layer_experts=(0,))


def test_experts_in_one_tensor() -> None:
    """The file decides: its experts are slices of one tensor."""
    stored = {
        "model.layers.0.mlp.experts.gate_up_proj",
        "model.layers.0.mlp.experts.down_proj",
    }
    found = parts_of(names(), stored, experts=EXPERTS, layer_experts=(1,))
    gate, up = found["experts_gate_up"][2:4]
    assert (gate.tensor, gate.stored, gate.slice) == (
        "model.layers.0.mlp.experts.gate_up_proj",
        (3, 12, 8),
        1,
    )
    assert (gate.rows, up.rows) == (range(0, 6), range(6, 12))
    assert found["experts_down"][1].stored == (3, 8, 6)


def test_transposed_experts_in_turns_with_biases() -> None:
    """gpt-oss: (experts, inputs, outputs), rows of gate and up in turns, bias under own names."""
    gate_up = fused(
        "mlp.experts.gate_up_proj",
        *("expert_gate", "expert_up"),
        turns=True,
        transposed=True,
        weight="",
        bias="_bias",
    )
    table = names(
        expert_gate_up=gate_up,
        expert_down=Stored("mlp.experts.down_proj", weight="", bias="_bias", transposed=True),
        router="mlp.router",
    )
    experts = dataclasses.replace(EXPERTS, bias=True, router_bias=True, shared_size=0)
    found = parts_of(table, experts=experts, layer_experts=(1,))
    up = found["experts_gate_up"][3]
    assert (up.stored, up.slice, up.transposed, up.rows) == ((3, 8, 12), 1, True, range(1, 12, 2))
    bias = found["experts_gate_up_bias"][3]
    assert (bias.tensor, bias.stored, bias.slice, bias.rows) == (
        "model.layers.0.mlp.experts.gate_up_proj_bias",
        (3, 12),
        1,
        range(1, 12, 2),
    )
    assert found["router_bias"][0].tensor == "model.layers.0.mlp.router.bias"


def test_latent_attention() -> None:
    """DeepSeek: k's half of kv_b_proj is transposed, and rotated dimensions are neighbours."""
    latent = LatentSpec(kv_rank=6, q_rank=5, nope_dim=3, rope_dim=4, value_dim=4)
    found = parts_of(names(rotation="pairs"), latent=latent, num_kv_heads=4)
    assert "qkv" not in found
    assert rows(found["q_b"][0])[:14] == [  # type: ignore[index]
        *(0, 1, 2, 3, 5, 4, 6),
        *(7, 8, 9, 10, 12, 11, 13),
    ]
    assert rows(found["kv_a"][0]) == [0, 1, 2, 3, 4, 5, 6, 8, 7, 9]
    k, v = found["k_up"][1], found["v_up"][1]
    assert (k.shape, k.stored, k.transposed, k.columns) == ((6, 3), (28, 6), True, range(7, 10))
    assert (v.shape, v.rows) == ((4, 6), range(10, 14))
    direct = parts_of(names(), latent=dataclasses.replace(latent, q_rank=0), num_kv_heads=4)
    assert direct["qkv"][0].shape == (28, 8)


def test_a_norm_of_several_tensors() -> None:
    """StableLM keeps a norm for each head."""
    table = names(q_norm=Stored(joined=("self_attn.q_layernorm.norms.{e}.weight",)))
    changes: dict[str, Any] = {"qk_norm": True, "attention": AttentionSpec(qk_norm_over="heads")}
    (part,) = parts_of(table, **changes)["q_norm"]
    assert part.shape == (16,)
    assert part.joined[3].tensor == "model.layers.0.self_attn.q_layernorm.norms.3.weight"
    assert [rows(piece) for piece in part.joined] == [None] * 4
    (half,) = parts_of(table, rope=RopeSpec((1.0, 0.0)), **changes)["q_norm"]
    assert [rows(piece) for piece in half.joined] == [[0, 2, 1, 3]] * 4  # as the rows of a head


def test_rows_before_the_first_position() -> None:
    """OPT: a matrix of 34 rows, of which the first 2 are not read."""
    table = names(positions=Stored("embed_positions", first_row=2))
    (part,) = parts_of(table, learned_positions=32)["positions"]
    assert (part.shape, part.stored, part.rows) == ((32, 8), (34, 8), range(2, 34))


def test_positions_without_a_tensor() -> None:
    def ones(shape: tuple[int, ...]) -> Any:
        return np.ones(shape, np.float32)

    found = parts_of(names(positions=Stored(computed=ones)), learned_positions=32)
    (part,) = found["positions"]
    assert (part.shape, part.computed, part.tensors, part.is_whole) == ((32, 8), ones, (), False)


def test_a_bias_with_an_entry_of_its_own() -> None:
    """GPT-NeoX-Japanese has one in the last layer alone."""
    table = names(o_bias=(Stored("self_attn.o_bias", bias=""), Stored(constant=0.0)))
    tensor = "model.layers.0.self_attn.o_bias"
    assert parts_of(table, {tensor}, output_bias=True)["o_bias"][0].tensor == tensor
    absent = parts_of(table, {"model.embed_tokens.weight"}, output_bias=True)
    assert absent["o_bias"][0].constant == 0
    assert absent["o"][0].tensor == "model.layers.0.self_attn.o_proj.weight"


def test_scalars_of_an_activation() -> None:
    found = parts_of(names(), mlp=MlpSpec("xielu", gated=False))
    (part,) = found["activation_parameters"]
    assert part.shape == (4,)
    assert [piece.stored for piece in part.joined] == [(1,), (1,), (), ()]
    assert part.change is not None
    values = part.change(np.array([0, math.log(math.e - 1), 0.5, -1e-6], np.float32))
    np.testing.assert_allclose(values, [math.log(2), 1.5, 0.5, -1e-6], rtol=1e-6)


@pytest.mark.parametrize(
    ("embedding", "head"),
    [
        ("model.embed_tokens.weight", "lm_head.weight"),
        ("model.language_model.embed_tokens.weight", "lm_head.weight"),
        ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight"),
        ("embed_tokens.weight", "lm_head.weight"),
    ],
)
def test_the_embedding_gives_the_prefix_of_the_decoder(embedding: str, head: str) -> None:
    found = parts_of(names(), {embedding})
    assert (found["embed"][0].tensor, found["head"][0].tensor) == (embedding, head)
    begin = embedding.removesuffix("embed_tokens.weight")
    assert found["down"][0].tensor == f"{begin}layers.0.mlp.down_proj.weight"


def test_tensors_that_text_models_do_not_read() -> None:
    table = names(ignored=(".attn.bias",))
    for name in (
        "model.vision_tower.a",
        "visual.b",
        "model.layers.0.attn.bias",
        "x.rotary_emb.inv_freq",
    ):
        assert table.is_ignored(name, 2)
    assert not table.is_ignored("model.layers.0.mlp.down_proj.weight", 2)
    assert table.is_media("model.visual.x") and not table.is_media("h.0.attn.bias")


def test_a_head_that_turns_backwards() -> None:
    assert rows(parts_of(names(rotation="backwards"))["qkv"][1]) == [2, 3, 0, 1, 6, 7, 4, 5]


def test_a_table_with_an_unknown_role_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no role 'qq'"):
        names(qq="self_attn.qq")


def test_every_tensor_is_planned_once_for_its_shape() -> None:
    spec = dataclasses.replace(BASE, experts=EXPERTS, layer_experts=(1,))
    assert len(stored_shapes(planned(spec, names(), ()))) == 3 + 6 + 1 + 9 + 4
