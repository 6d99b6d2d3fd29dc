"""config.json becomes a DecoderSpec: every family, old and new spelling, and every wrong value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from builders.checkpoints import TINY, config_of
from onward.errors import ConfigError, LoadError
from onward.files.json_file import parse_json_object, read_json_object
from onward.load import architectures
from onward.load.architectures import read_spec, tensor_plan
from onward.load.architectures.model_types import FAMILIES
from onward.load.architectures.parts import stored_shapes

# As in the repository of the model, with fields of other programs.
SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 576,
    "initializer_range": 0.041666666666666664,
    "intermediate_size": 1536,
    "is_llama_config": True,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "pad_token_id": 2,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_interleaved": False,
    "rope_scaling": None,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16", "fp16": "float16"}},
    "transformers_version": "4.42.3",
    "use_cache": True,
    "vocab_size": 49152,
}


def test_smollm2_config() -> None:
    spec = read_spec(SMOLLM2)
    assert (spec.architecture, spec.vocab_size, spec.hidden_size) == ("llama", 49152, 576)
    assert (spec.num_layers, spec.num_heads, spec.num_kv_heads, spec.head_dim) == (30, 9, 3, 64)
    assert (spec.max_context, spec.tied_head, spec.windows) == (8192, True, ())
    assert spec.norm_eps == 1e-5
    assert not (spec.qkv_bias or spec.output_bias or spec.mlp_bias or spec.qk_norm)


def test_every_family_has_a_file() -> None:
    folder = Path(architectures.__file__).parent / "families"
    files = {path.stem for path in folder.glob("[!_]*.py")}
    assert {"llama", "mistral", "qwen2", "qwen3"} <= files
    named = {name.replace("-", "_") for name in architectures.families()}
    assert named == files | {name.replace("-", "_") for name in FAMILIES}
    assert architectures.families() == sorted(architectures.families())
    assert set(FAMILIES.values()) <= files


@pytest.mark.parametrize(
    "model_type",
    [None, 3, "", "gpt-9", "Llama", "rope", "config_reader", "../llama", "llama.x", "os"],
)
def test_unknown_model_type_is_named(model_type: object) -> None:
    with pytest.raises(ConfigError, match=r"config\.json: model_type .*, llama, .*, qwen2, "):
        read_spec({**TINY, "model_type": model_type})


def test_optional_fields_have_defaults() -> None:
    spec = read_spec(config_of(num_key_value_heads=..., max_position_embeddings=...))
    assert (spec.num_kv_heads, spec.max_context, spec.rope.theta) == (2, 2048, 10000.0)
    assert read_spec(config_of(model_type="qwen3", rms_norm_eps=...)).head_dim == 128
    assert read_spec(config_of(rms_norm_eps=...)).norm_eps == 1e-6


def test_head_dim_comes_from_the_config() -> None:
    spec = read_spec(config_of(hidden_size=8, num_attention_heads=1, head_dim=4))
    assert (spec.head_dim, len(spec.rope.inv_freq)) == (4, 2)
    shapes = stored_shapes(tensor_plan(spec))
    assert shapes["model.layers.0.self_attn.q_proj.weight"] == (4, 8)
    assert shapes["model.layers.0.self_attn.o_proj.weight"] == (8, 4)


def test_biases_by_family() -> None:
    def biases(**changes: Any) -> tuple[bool, bool, bool, bool]:
        spec = read_spec(config_of(**changes))
        return spec.qkv_bias, spec.output_bias, spec.mlp_bias, spec.qk_norm

    assert biases() == (False, False, False, False)
    assert biases(attention_bias=True) == (True, True, False, False)
    assert biases(mlp_bias=True) == (False, False, True, False)
    assert biases(model_type="qwen2") == (True, False, False, False)
    assert biases(model_type="mistral") == (False, False, False, False)
    assert biases(model_type="qwen3") == (False, False, False, True)
    assert biases(model_type="qwen3", attention_bias=True) == (True, True, False, True)


def test_tensor_plan_names_and_shapes() -> None:
    spec = read_spec(config_of(model_type="qwen3", head_dim=8, attention_bias=True))
    plan = {planned.name: planned for planned in tensor_plan(spec)}

    def sources_and_shapes(name: str) -> tuple[object, object]:
        return plan[name].sources, plan[name].shapes

    assert sources_and_shapes("embed") == (("model.embed_tokens.weight",), ((16, 32),))
    assert sources_and_shapes("head") == (("lm_head.weight",), ((16, 32),))
    assert sources_and_shapes("norm") == (("model.norm.weight",), ((32,),))
    layer = "model.layers.1.self_attn."
    assert plan["layers.1.qkv"].sources == tuple(f"{layer}{x}_proj.weight" for x in "qkv")
    assert plan["layers.1.qkv"].shapes == ((16, 32), (8, 32), (8, 32))
    assert plan["layers.1.qkv_bias"].shapes == ((16,), (8,), (8,))
    assert sources_and_shapes("layers.1.o_bias") == ((layer + "o_proj.bias",), ((32,),))
    assert sources_and_shapes("layers.1.q_norm") == ((layer + "q_norm.weight",), ((8,),))
    assert plan["layers.1.gate_up"].shapes == ((64, 32), (64, 32))
    assert plan["layers.1.down"].shapes == ((32, 64),)
    assert plan["layers.1.mlp_norm"].sources == ("model.layers.1.post_attention_layernorm.weight",)
    assert len(plan) == 3 + 2 * (6 + 2 + 2)
    tied = read_spec(config_of(tie_word_embeddings=True))
    assert "head" not in {planned.name for planned in tensor_plan(tied)}


def windows(model_type: str, **changes: Any) -> tuple[int, ...]:
    changes = {"num_hidden_layers": 3, **changes}
    return read_spec(config_of(model_type=model_type, **changes)).windows


def test_layers_without_rotation_of_smollm3() -> None:
    def ropes(**changes: Any) -> tuple[int, ...]:
        config = config_of(model_type="smollm3", num_hidden_layers=5, **changes)
        return read_spec(config).layer_ropes

    assert ropes() == (0, 0, 0, -1, 0)  # one layer in four
    assert ropes(no_rope_layer_interval=2) == (0, -1, 0, -1, 0)
    assert ropes(no_rope_layers=[1, 0, 0, 1, 1]) == (0, -1, -1, 0, 0)
    assert ropes(no_rope_layers=[1] * 5) == ()
    for wrong in ([1, 0], [1, 0, 2, 1, 1], [1, 0, 0.5, 1, 1], "1"):
        with pytest.raises(ConfigError, match="no_rope_layers"):
            ropes(no_rope_layers=wrong)
    with pytest.raises(ConfigError, match="no_rope_layer_interval is 0"):
        ropes(no_rope_layer_interval=0)


def test_defaults_of_smollm3() -> None:
    absent = {key: ... for key in ("tie_word_embeddings", "max_position_embeddings", "rope_theta")}
    spec = read_spec(config_of(model_type="smollm3", attention_bias=True, **absent))
    assert (spec.tied_head, spec.max_context, spec.rope.theta) == (True, 32768, 2e6)
    assert (spec.qkv_bias, spec.output_bias, spec.mlp_bias) == (True, True, False)


def test_windows_of_smollm3() -> None:
    on = {"use_sliding_window": True, "sliding_window": 8, "no_rope_layer_interval": 2}
    assert windows("smollm3", sliding_window=8) == ()
    assert windows("smollm3", **on) == (0, 8, 0)  # the layers that do not rotate
    mixed = ["sliding_attention", "full_attention", "full_attention"]
    assert windows("smollm3", **on, layer_types=mixed) == (8, 0, 0)
    with pytest.raises(ConfigError, match="layer_types"):
        windows("smollm3", layer_types=mixed)


def test_windows_of_mistral() -> None:
    assert windows("mistral", sliding_window=8) == (8, 8, 8)
    assert windows("mistral", sliding_window=None) == ()
    assert windows("mistral") == (4096,) * 3  # what the field stands for when it is left out
    assert windows("mistral", sliding_window=8, layer_types=["sliding_attention"] * 3) == (8,) * 3
    with pytest.raises(ConfigError, match="layer_types"):
        windows("mistral", sliding_window=8, layer_types=["full_attention"] * 3)


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
def test_windows_of_qwen(model_type: str) -> None:
    on = {"use_sliding_window": True, "sliding_window": 8}
    assert windows(model_type, sliding_window=8, max_window_layers=0) == ()
    assert windows(model_type, **on, max_window_layers=1) == (0, 8, 8)
    assert windows(model_type, **on) == ()  # max_window_layers is 28 when left out
    mixed = ["sliding_attention", "full_attention", "sliding_attention"]
    assert windows(model_type, **on, max_window_layers=1, layer_types=mixed) == (8, 0, 8)
    assert windows(model_type, use_sliding_window=True, max_window_layers=2) == (0, 0, 4096)
    with pytest.raises(ConfigError, match="layer_types"):
        windows(model_type, layer_types=mixed)
    with pytest.raises(ConfigError, match="expected a list of 3 strings"):
        windows(model_type, layer_types=mixed[:2])
    with pytest.raises(ConfigError, match=r"layer_types\[1\] is 'chunked_attention'"):
        windows(model_type, layer_types=[mixed[0], "chunked_attention", mixed[0]])


BAD_VALUES: list[tuple[str, object]] = [
    ("num_attention_heads", 0),
    ("num_attention_heads", -1),
    ("num_attention_heads", 7),  # does not divide 32
    ("num_key_value_heads", 0),
    ("num_key_value_heads", 3),
    ("num_key_value_heads", 4),
    ("num_hidden_layers", 1431655766),
    ("num_hidden_layers", -1),
    ("num_hidden_layers", None),
    ("vocab_size", 2**31),
    ("vocab_size", 2**63),
    ("vocab_size", 10**400),
    ("vocab_size", "8"),
    ("vocab_size", 8.5),
    ("vocab_size", True),
    ("vocab_size", [8]),
    ("hidden_size", ...),
    ("hidden_size", 0),
    ("intermediate_size", {}),
    ("rms_norm_eps", float("nan")),
    ("rms_norm_eps", float("inf")),
    ("rms_norm_eps", -1),
    ("rms_norm_eps", "1e-5"),
    ("rms_norm_eps", False),
    ("head_dim", 15),
    ("head_dim", 0),
    ("head_dim", 1 << 40),
    ("max_position_embeddings", 0),
    ("max_position_embeddings", -5),
    ("max_position_embeddings", 64.0),
    ("tie_word_embeddings", 1),
    ("tie_word_embeddings", "true"),
    ("attention_bias", "yes"),
    ("hidden_act", "gelu"),
    ("hidden_act", 4),
    ("hidden_act", ["silu"]),
    ("rope_theta", 0),
    ("rope_theta", float("nan")),
    ("rope_theta", 10**400),
    ("rope_scaling", "linear"),
    ("rope_scaling", [1]),
    ("partial_rotary_factor", 0.5),
    ("layer_types", ["sliding_attention", "full_attention"]),
    ("layer_types", "full_attention"),
]


@pytest.mark.parametrize(("field", "value"), BAD_VALUES)
def test_bad_value_is_an_error_that_names_the_field(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"^config\.json: {field}\b") as caught:
        read_spec(config_of(**{field: value}))
    assert isinstance(caught.value, ValueError)
    assert len(str(caught.value)) < 300


def test_odd_derived_head_dim() -> None:
    with pytest.raises(ConfigError, match="head_dim is 15"):
        read_spec(config_of(hidden_size=30))


PUBLISHED: dict[str, dict[str, Any]] = {
    "llama 3.2": {
        "rope_theta": 500000.0,
        "max_position_embeddings": 131072,
        "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "eos_token_id": [128001, 128008, 128009],
        "pretraining_tp": 1,
    },
    "yarn llama 2": {
        "_name_or_path": "x",
        "auto_map": {"AutoConfig": "configuration_llama.LlamaConfig"},
        "max_position_embeddings": 65536,
        "rope_scaling": {
            "factor": 16.0,
            "original_max_position_embeddings": 4096,
            "type": "yarn",
            "finetuned": True,
        },
    },
    "mistral 0.3": {"model_type": "mistral", "sliding_window": None, "rope_theta": 1e6},
    "qwen 2.5": {
        "model_type": "qwen2",
        "max_window_layers": 21,
        "sliding_window": 131072,
        "use_mrope": False,
        "use_sliding_window": False,
        "rope_theta": 1000000.0,
    },
    "qwen 3": {
        "model_type": "qwen3",
        "attention_bias": False,
        "head_dim": 128,
        "max_window_layers": 28,
        "rope_scaling": None,
        "sliding_window": None,
        "use_sliding_window": False,
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_fields_of_published_configs_are_understood(name: str) -> None:
    spec = read_spec(config_of(**PUBLISHED[name]))
    assert spec.windows == ()
    assert spec.max_context == PUBLISHED[name].get("max_position_embeddings", 64)


def test_an_unlimited_context_is_accepted() -> None:
    assert read_spec(config_of(max_position_embeddings=2**40)).max_context == 2**31 - 1
    assert read_spec(config_of(max_position_embeddings=1_024_000)).max_context == 1_024_000


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("quantization_config", {"quant_method": "fp8"}),
        ("quantization", {"bits": 4}),
        ("logits_scaling", 8.0),
        ("residual_multiplier", 0.22),
        ("embedding_multiplier", 12),
        ("attention_multiplier", 0.0156),
        ("final_logit_softcapping", 30.0),
        ("attn_logit_softcapping", 50),
        ("num_local_experts", 8),
        ("num_experts_per_tok", 2),
        ("sliding_window", 4096),  # llama has none
        ("no_rope_layers", [1, 1, 0]),
        ("use_qk_norm", True),
        ("clip_qkv", 8.0),
        ("query_pre_attn_scalar_heads", 256),
        ("rope_interleaved", True),
        ("use_mrope", True),
        ("alibi", True),
        ("parallel_attn", True),
        ("norm_type", "layernorm"),
        ("logit_scale", 0.0625),
        ("cross_attention_layers", [3]),
    ],
)
def test_field_that_changes_the_network_is_refused(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"^config\.json: {field} is "):
        read_spec(config_of(**{field: value}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("quantization_config", None),
        ("logits_scaling", 1.0),
        ("num_local_experts", 0),
        ("final_logit_softcapping", None),
        ("use_qk_norm", False),
        ("layer_types", ["full_attention", "full_attention"]),
        ("sliding_window", None),
        ("pruned_heads", {}),
        ("unsloth_version", "2024.9"),
        ("attention_dropout", 0.1),
        ("resid_pdrop", 0.1),
        ("some_future_note", {"made": "by a newer library"}),
        ("_attn_implementation_autoset", True),
        ("dtype", "bfloat16"),
        ("sep_token_id", 5),
        ("partial_rotary_factor", 1.0),
        ("hidden_act", "swish"),
    ],
)
def test_a_field_without_effect_is_accepted(field: str, value: object) -> None:
    assert read_spec(config_of(**{field: value})) == read_spec(TINY)


def test_a_message_is_short_and_has_no_control_characters() -> None:
    with pytest.raises(ConfigError) as caught:
        read_spec(config_of(**{"\x1b[31mbias" + "x" * 10_000 + "_bias": 1}))
    assert str(caught.value).startswith("config.json: ?[31mbiasxxx")
    assert len(str(caught.value)) < 300
    with pytest.raises(ConfigError) as caught:
        read_spec(config_of(hidden_act="\x1b[31m" + "x" * 10_000))
    assert "\x1b" not in str(caught.value) and len(str(caught.value)) < 300


def test_generation_settings_in_a_config_are_accepted() -> None:
    settings = {"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1, "max_length": 20}
    assert read_spec({**TINY, **settings}) == read_spec(TINY)


BAD_JSON = {
    "empty": (b"", "is empty"),
    "blank": (b" \n", "is empty"),
    "list": (b"[1]", "a list"),
    "null": (b"null", "null"),
    "number": (b"7", "a number"),
    "byte order mark": (b"\xef\xbb\xbf{}", "byte order mark"),
    "utf-16": ('{"a": 1}'.encode("utf-16"), "UTF-8"),
    "invalid utf-8": (b'{"a": "\xff"}', "byte 7 is not valid UTF-8"),
    "deep": (b'{"a":' + b"[" * 100_000, "nested too deeply"),
    "deep and closed": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
    "duplicate key": (b'{"a": 1, "b": 2, "a": 3}', "'a' occurs twice"),
    "inner duplicate": (b'{"x": {"a": 1, "a": 1}}', "'a' occurs twice"),
    "NaN": (b'{"a": NaN}', "NaN"),
    "Infinity": (b'{"a": -Infinity}', "-Infinity"),
    "cut": (b'{"a": [1, 2', "not valid JSON"),
    "trailing": (b"{} {}", "not valid JSON"),
    "long integer": (b'{"a": ' + b"9" * 5000 + b"}", "not valid JSON"),
}


@pytest.mark.parametrize("case", BAD_JSON)
def test_bad_json_is_an_error_that_names_the_file(case: str) -> None:
    data, message = BAD_JSON[case]
    with pytest.raises(ConfigError, match=rf"^config\.json: .*{message}"):
        parse_json_object(data, "config.json")


def test_json_file_limits(tmp_path: Path) -> None:
    path = tmp_path / "index.json"
    path.write_text(json.dumps({"text": "x" * 100}))
    assert read_json_object(path, "index.json") == {"text": "x" * 100}
    with pytest.raises(ConfigError, match=r"index\.json: .* has 112 bytes, expected at most 50"):
        read_json_object(path, "index.json", limit_bytes=50)
    with pytest.raises(ConfigError, match="does not exist"):
        read_json_object(tmp_path / "none.json", "none.json")
    with pytest.raises(LoadError, match="not a regular file"):
        read_json_object(tmp_path, "config.json")
