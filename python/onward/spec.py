"""DecoderSpec: what differs between decoder families, as data.

An architecture file (``onward/architectures/<model_type>.py``) writes one from a config; the C++
core reads it. Nothing here knows a family's name for anything, or a tensor's name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RopeSpec:
    """Rotary position embedding (Su et al. 2021), half-split pairs over the whole head.

    ``inv_freq`` has ``head_dim // 2`` angles per position step, already scaled (linear, llama3,
    yarn); ``attention_factor`` multiplies cos and sin (yarn). ``dynamic_factor`` > 0 turns on
    dynamic NTK scaling: position ``p >= dynamic_original_context`` uses the frequencies of a
    sequence of length ``p + 1``, with base ``theta * ((factor * length / original) - (factor - 1))
    ** (head_dim / (head_dim - 2))``. Each position's frequencies depend on that position alone, so
    a cached key never has to be rotated again.
    """

    inv_freq: tuple[float, ...]
    attention_factor: float = 1.0
    theta: float = 10000.0
    dynamic_factor: float = 0.0
    dynamic_original_context: int = 0


@dataclass(frozen=True)
class DecoderSpec:
    """The shape and the choices of one pre-norm decoder with RMSNorm, RoPE, GQA and SwiGLU."""

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    max_context: int
    """Tokens of prompt and output together that the model's positions allow."""
    rope: RopeSpec
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    """RMSNorm over each head of q and k before the rotation (Qwen 3)."""
    tied_head: bool = False
    """The output head is the embedding matrix."""
    windows: tuple[int, ...] = ()
    """Per layer, keys a query sees including its own; 0 means all. Empty means 0 everywhere."""
