"""Reads the fields that decoder configs have in common.

The file of a family adds what is different in it.
"""

from __future__ import annotations

from collections.abc import Sequence

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.rope import MAX_CONTEXT, MAX_POSITIONS, read_rope
from onward.spec import DecoderSpec

# Far above any published model. A product of two fits 64 bits, and a plan of all tensors stays
# small.
MAX_LAYERS = 4096
MAX_HEADS = 4096
MAX_HEAD_DIM = 512
MAX_WIDTH = 1 << 20
MAX_VOCAB = 1 << 24


def num_layers(config: ConfigReader) -> int:
    """The depth of the decoder."""
    return config.integer("num_hidden_layers", 1, MAX_LAYERS)


def decoder_spec(
    config: ConfigReader,
    architecture: str,
    *,
    default_context: int,
    default_head_dim: int | None = None,
    default_theta: float = 10000.0,
    default_tied: bool = False,
    qkv_bias: bool = False,
    output_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
    windows: tuple[int, ...] = (),
    layer_ropes: tuple[int, ...] = (),
) -> DecoderSpec:
    """Read the common fields, add the fields of the family, and refuse fields that were not read.

    The sizes of the matrices are required. Fields that the reference library leaves out of a
    config when they have their default may be absent: ``num_key_value_heads`` (one for each
    query head), ``head_dim`` (the family's, else hidden_size / num_attention_heads),
    ``max_position_embeddings`` (the family's), ``rms_norm_eps`` (1e-6), ``hidden_act`` (silu),
    ``tie_word_embeddings`` and ``rope_theta`` (the family's).
    """
    hidden_size = config.integer("hidden_size", 1, MAX_WIDTH)
    num_heads = config.integer("num_attention_heads", 1, MAX_HEADS)
    num_kv_heads = config.integer("num_key_value_heads", 1, MAX_HEADS, num_heads)
    if num_heads % num_kv_heads:
        raise config.error(
            "num_key_value_heads", f"is {num_kv_heads}, expected a divisor of {num_heads} heads"
        )
    head_dim = _head_dim(config, hidden_size, num_heads, default_head_dim)
    max_positions = config.integer("max_position_embeddings", 1, MAX_POSITIONS, default_context)
    rope = read_rope(config, head_dim, max_positions, default_theta)
    if config.number("partial_rotary_factor", 0, 1, default=1.0) != 1:
        raise config.wrong("partial_rotary_factor", "1")
    config.text("hidden_act", ("silu", "swish"), "silu")
    spec = DecoderSpec(
        architecture=architecture,
        vocab_size=config.integer("vocab_size", 1, MAX_VOCAB),
        hidden_size=hidden_size,
        intermediate_size=config.integer("intermediate_size", 1, MAX_WIDTH),
        num_layers=num_layers(config),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        norm_eps=config.number("rms_norm_eps", 0, 1, default=1e-6),
        max_context=rope.max_context,
        rope=rope.spec,
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        mlp_bias=mlp_bias,
        qk_norm=qk_norm,
        tied_head=config.flag("tie_word_embeddings", default_tied),
        windows=windows if any(windows) else (),
        layer_ropes=layer_ropes if any(layer_ropes) else (),
    )
    if config.section("quantization_config") is not None:
        raise config.error(
            "quantization_config", "is present: weights quantised this way are not supported"
        )
    config.refuse_the_rest()
    return spec


def windows_by_layer(
    config: ConfigReader, *, default_window: int | None, slides: Sequence[bool] | None = None
) -> tuple[int, ...]:
    """Per-layer windows of the families that switch them with ``use_sliding_window``.

    ``layer_types`` decides when present; otherwise ``slides``, by layer, or else the layers from
    ``max_window_layers`` on have a window.
    """
    layers = num_layers(config)
    use = config.flag("use_sliding_window", False)
    window = config.integer("sliding_window", 1, MAX_POSITIONS, None)
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


def layer_types(config: ConfigReader) -> list[str] | None:
    """The attention of each layer, where the config spells it out."""
    return config.texts("layer_types", ("full_attention", "sliding_attention"), num_layers(config))


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
