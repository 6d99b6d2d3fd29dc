"""Reads the fields that decoder configs have in common.

The file of a family adds what is different in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.rope import MAX_CONTEXT, MAX_POSITIONS, read_rope, still
from onward.spec import DecoderSpec

# Far above any published model. A product of two fits 64 bits, and a plan of all tensors stays
# small.
MAX_LAYERS = 4096
MAX_HEADS = 4096
MAX_HEAD_DIM = 512
MAX_WIDTH = 1 << 20
MAX_VOCAB = 1 << 24


# The names of activations in configs -> those of the core.
ACTIVATIONS = {
    **{"silu": "silu", "swish": "silu", "relu": "relu", "relu2": "relu2", "xielu": "xielu"},
    **{"gelu": "gelu", "gelu_python": "gelu", "quick_gelu": "quick_gelu"},
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh", "gelu_accurate"), "gelu_tanh"),
}
# Spellings of the GPT-2 family, for ``ConfigReader.spelled``.
GPT2_FIELDS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "intermediate_size": "n_inner",
    "hidden_act": "activation_function",
}


def num_layers(config: ConfigReader) -> int:
    """The depth of the decoder."""
    return config.integer("num_hidden_layers", 1, MAX_LAYERS)


def activation(config: ConfigReader, default: str, key: str = "hidden_act") -> str:
    """The core's name for the activation of a config."""
    return ACTIVATIONS[config.text(key, tuple(ACTIVATIONS), default)]


def decoder_spec(
    config: ConfigReader,
    architecture: str,
    *,
    default_context: int,
    default_head_dim: int | None = None,
    default_kv_heads: int | None = None,
    default_theta: float = 10000.0,
    default_tied: bool = False,
    default_eps: float = 1e-6,
    eps_field: str = "rms_norm_eps",
    default_inner: int | None = None,
    default_rotated: float | None = None,
    default_rotary_dim: int | None = None,
    default_rope: Mapping[str, object] | None = None,
    rotates: bool = True,
    rotated_dim: int | None = None,
    **fields: Any,
) -> DecoderSpec:
    """Read the common fields, add the fields of the family, and refuse fields that were not read.

    The sizes of the matrices are required. Fields that the reference library leaves out of a
    config when they have their default may be absent: ``num_key_value_heads`` (the family's, else
    one for each query head), ``head_dim`` (the family's, else hidden_size / num_attention_heads),
    ``max_position_embeddings``, ``eps_field``, ``tie_word_embeddings`` and ``rope_theta`` (the
    family's), ``hidden_act`` (silu).

    Args:
        config: ``spelled`` in the family's way.
        architecture: the family's file.
        eps_field: the field of the epsilon of norms.
        default_inner: multiplied by hidden_size: intermediate_size, where it is absent.
        default_rotated: the partial_rotary_factor, where it is absent; None: the whole head
            rotates, and the field must be 1.
        default_rotary_dim: of the families that have the field rotary_dim, the number of rotated
            dimensions of a head, in place of partial_rotary_factor.
        default_rope: the rope section, where the config has none; None: plain rotation.
        rotated_dim: the dimensions of a head that rotate, where the family reads them. Then
            ``fields`` have ``head_dim`` and ``num_kv_heads``.
        rotates: false for a family without rotation; its fields of rotation are not read. They are
            not read either if ``fields`` have ``rope``.
        fields: more fields of the spec. They replace what was read. Without ``mlp``, the activation
            must be silu. Lists by layer that have their default everywhere are left out.
    """
    hidden_size = config.integer("hidden_size", 1, MAX_WIDTH)
    num_heads = config.integer("num_attention_heads", 1, MAX_HEADS)
    num_kv_heads = _num_kv_heads(
        config, num_heads, fields.get("num_kv_heads"), default_kv_heads or num_heads
    )
    head_dim = rotated_dim or _head_dim(config, hidden_size, num_heads, default_head_dim)
    max_positions = config.integer("max_position_embeddings", 1, MAX_POSITIONS, default_context)
    if "mlp" not in fields:
        config.text("hidden_act", ("silu", "swish"), "silu")
    inner = fields.get(
        "intermediate_size", ... if default_inner is None else default_inner * hidden_size
    )
    common: dict[str, Any] = {
        "vocab_size": config.integer("vocab_size", 1, MAX_VOCAB),
        "hidden_size": hidden_size,
        "intermediate_size": config.integer("intermediate_size", 1, MAX_WIDTH, inner),
        "num_layers": num_layers(config),
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_dim": head_dim,
        "norm_eps": config.number(eps_field, 0, 1, default=default_eps),
        "tied_head": config.flag("tie_word_embeddings", default_tied),
    }
    if "rope" in fields:
        config.ignore("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor")
    elif rotates:
        rotary_dim = rotated_dim or _rotary_dim(config, head_dim, default_rotary_dim)
        rope = read_rope(
            config,
            head_dim,
            max_positions,
            default_theta,
            default_rotated,
            rotary_dim,
            default_rope,
        )
        common |= {"rope": rope.spec, "max_context": rope.max_context}
    else:
        common |= {"rope": still(head_dim), "max_context": min(max_positions, MAX_CONTEXT)}
        fields.setdefault("layer_ropes", (-1,) * num_layers(config))
    for name in ("windows", "chunks", "layer_ropes", "layer_experts"):
        if not any(fields.get(name, ())):
            fields.pop(name, None)
    refuse_quantized(config)
    config.refuse_the_rest()
    return DecoderSpec(architecture, **(common | fields))


def refuse_quantized(config: ConfigReader) -> None:
    """ConfigError if the weights are quantised in a way of another library."""
    if config.section("quantization_config") is not None:
        raise config.error(
            "quantization_config", "is present: weights quantised this way are not supported"
        )


def windows_by_layer(
    config: ConfigReader, *, default_window: int | None, slides: Sequence[bool] | None = None
) -> tuple[int, ...]:
    """Per-layer windows of the families that switch them with ``use_sliding_window``.

    ``layer_types`` decides when present; otherwise ``slides``, by layer, or else the layers from
    ``max_window_layers`` on have a window.
    """
    layers = num_layers(config)
    use = config.flag("use_sliding_window", False)
    window = config.integer("sliding_window", 0, MAX_POSITIONS, None)  # 0: off, as null
    first = config.integer("max_window_layers", 0, MAX_POSITIONS, 28)
    if "sliding_window" not in config.values:
        window = default_window
    kinds = layer_types(config)
    if kinds is None:
        after = [layer >= first for layer in range(layers)] if slides is None else slides
        sliding = [use and window is not None and each for each in after]
    else:
        sliding = [kind == "sliding_attention" for kind in kinds]
        if any(sliding) and not (use and window):
            raise config.error(
                "layer_types", "names sliding_attention, but use_sliding_window is not on"
            )
    return tuple(min(window or 0, MAX_CONTEXT) if slides else 0 for slides in sliding)


def window_everywhere(config: ConfigReader, default: int | None = None) -> tuple[int, ...]:
    """The window of each layer, where all have the same; 0 for all keys.

    ``sliding_window`` null means all keys. ``default`` is the window where the field is absent.
    """
    window = config.integer("sliding_window", 1, MAX_POSITIONS, None)
    if "sliding_window" not in config.values:
        window = default
    return (min(window or 0, MAX_CONTEXT),) * num_layers(config)


def layer_types(config: ConfigReader) -> list[str] | None:
    """The attention of each layer, where the config spells it out."""
    return config.texts("layer_types", ("full_attention", "sliding_attention"), num_layers(config))


def _num_kv_heads(config: ConfigReader, num_heads: int, own: int | None, default: int) -> int:
    """``own`` is what the family says; a field that it does not read cannot contradict it."""
    if own is not None:
        config.ignore("num_key_value_heads")
        return own
    if "num_key_value_heads" in config.values:
        default = num_heads  # null
    found = config.integer("num_key_value_heads", 1, MAX_HEADS, default)
    if num_heads % found:
        raise config.error(
            "num_key_value_heads", f"is {found}, expected a divisor of {num_heads} heads"
        )
    return found


def _rotary_dim(config: ConfigReader, head_dim: int, default: int | None) -> int | None:
    if default is None:
        return None
    rotary_dim = config.integer("rotary_dim", 2, MAX_HEAD_DIM, default)
    if rotary_dim > head_dim or rotary_dim % 2:
        raise config.error(
            "rotary_dim", f"is {rotary_dim}, expected an even number up to head_dim, {head_dim}"
        )
    return rotary_dim


def head_size(config: ConfigReader, default: int | None = None) -> int:
    """``head_dim``; where it is absent, ``default``, or else hidden_size / num_attention_heads."""
    hidden_size = config.integer("hidden_size", 1, MAX_WIDTH)
    return _head_dim(
        config, hidden_size, config.integer("num_attention_heads", 1, MAX_HEADS), default
    )


def _head_dim(config: ConfigReader, hidden_size: int, num_heads: int, default: int | None) -> int:
    head_dim = config.integer("head_dim", 2, MAX_HEAD_DIM, default)
    if head_dim is None:
        if hidden_size % num_heads:
            raise config.error(
                "num_attention_heads",
                f"is {num_heads}, which does not divide hidden_size {hidden_size}, "
                "and there is no head_dim",
            )
        head_dim = hidden_size // num_heads
    if head_dim % 2:
        raise config.error("head_dim", f"is {head_dim}, expected an even number to rotate pairs")
    return head_dim
