"""The core's inner loops on numpy arrays, for tests and benchmarks.

``isa`` is an instruction set of ``onward._core.kernels.available()``. Arrays of a wrong shape and
unknown names raise ``onward.errors.InvalidArgument``.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onward._core import SamplingOptions

_F32 = NDArray[np.float32]
_I32 = NDArray[np.int32]
_U8 = NDArray[np.uint8]

def linear(
    isa: str,
    weights: _U8,
    stored: str,
    dtype: str,
    x: _F32,
    bias: _F32 | None = None,
    add: _F32 | None = None,
    threads: int = 1,
) -> _F32:
    """add + (x @ weights.T + bias), cut into tasks for that number of threads. weights: the bytes
    of (n, k) as ``stored``, packed as ``dtype``; x (rows, k), bias (1, n), add (rows, n)."""

def product_on(
    device: str,
    weights: _U8,
    stored: str,
    dtype: str,
    x: _F32,
    norm: _F32 | None = None,
    eps: float = 0.0,
    bias: _F32 | None = None,
    add: _F32 | None = None,
    gated: bool = False,
) -> _F32:
    """A device's ``linear``, or its ``gated_linear`` of two equal parts. x (rows, k) is normalised
    where norm (1, k) is given; bias (parts, n), add (rows, n)."""

def embed_on(device: str, table: _U8, stored: str, dtype: str, ids: _I32) -> _F32:
    """Rows of a table that is packed for a device. (ids, k padded to a multiple of 16)"""

def product_rate(isa: str, dtype: str, rows: int, k: int, seconds: float) -> float:
    """GFLOP/s of one thread's processor time: rows x k times 256 outputs in ``dtype``."""

def quantize(isa: str, x: _F32) -> tuple[NDArray[np.int8], _F32, _I32]:
    """x in groups of 32: int8 values, scales and sums."""

def attend(
    isa: str,
    q: _F32,
    keys: NDArray[Any],
    values: NDArray[Any],
    first_position: int,
    window: int,
    scale: float,
) -> _F32:
    """q (tokens, group, head_dim); keys (positions, head_dim), values (positions, value_dim)."""

def attend_layer(
    q: _F32,
    slices: Sequence[tuple[int, int, Sequence[_U8 | None], Sequence[_U8 | None]]],
    kv_heads: int,
    dtype: str,
    key_codec: str,
    value_codec: str,
    layers: int,
    layer: int,
    scale: float,
    threads: int = 1,
    window: int = 0,
    sink_tokens: int = 0,
    window_blocks: int = 0,
    exact_first: bool = True,
    sink_cosines: _F32 | None = None,
    sink_sines: _F32 | None = None,
    device: str = "cpu",
    value_dim: int = 0,
    chunk: int = 0,
    softcap: float = 0.0,
    sink_logits: _F32 | None = None,
    alibi_slopes: _F32 | None = None,
) -> _F32:
    """Attention of one layer on a device; "cpu" runs the instruction set in use. q (rows, heads,
    head_dim) holds the rows of the slices one after another. A slice is (first position, tokens,
    exact blocks, coded blocks). A block is the bytes that cache_layout.h describes, or None.
    sink_logits and alibi_slopes have one number for each head."""

def attend_rate(
    caches: Sequence[tuple[str, str, str]],
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    depth: int,
    rows: int,
    threads: int,
    window_blocks: int,
    rounds: int,
) -> list[tuple[list[float], int]]:
    """Seconds of attention alone, in all layers, over caches (dtype, key codec, value codec) in
    turns. Returns, for each cache, the seconds of every round and the bytes of its blocks."""

def rms_norm(isa: str, x: _F32, weight: _F32, eps: float) -> _F32: ...
def layer_norm(isa: str, x: _F32, weight: _F32, bias: _F32 | None, eps: float) -> _F32: ...
def activate(
    isa: str,
    activation: str,
    x: _F32,
    up: _F32 | None = None,
    limit: float = 0.0,
    up_shift: float = 0.0,
    parameters: _F32 | None = None,
) -> _F32: ...
def soft_cap(isa: str, x: _F32, scale: float, cap: float) -> _F32: ...
def add_scaled(isa: str, x: _F32, scale: float, y: _F32) -> _F32: ...
def round_bf16(isa: str, x: _F32) -> NDArray[np.uint16]: ...
def hadamard(isa: str, x: _F32, inverse: bool = False) -> _F32:
    """The rotation of one vector, or its inverse."""

def hadamard_lanes(isa: str, x: _F32) -> _F32:
    """The rotation of sixteen vectors: the columns of x (n, 16)."""

def encode_block(
    isa: str,
    keys: NDArray[Any],
    values: NDArray[Any],
    key_codec: str,
    value_codec: str,
    first_keys: NDArray[Any] | None = None,
    first_centred_pair: int = 0,
) -> tuple[_U8, _U8, _U8, _U8]:
    """Bytes of key codes, key scales, value codes, value scales. keys, values and the keys of
    block 0: (16, head_dim) of one head."""

def encode_blocks(
    keys: NDArray[Any],
    values: NDArray[Any],
    key_codec: str,
    value_codec: str,
    group_of: Sequence[int],
    first_keys: NDArray[Any] | None,
    threads: int,
    first_centred_pair: int = 0,
    device: str = "cpu",
) -> list[_U8]:
    """Blocks that a device codes, (blocks, bytes) for each layer group. keys, values: (blocks,
    layers, heads, 16, head_dim)."""

def rotate_on(
    device: str,
    q: _F32,
    k: _F32,
    v: _F32,
    cosines: _F32,
    sines: _F32,
    first_position: int = 0,
    q_norm: _F32 | None = None,
    k_norm: _F32 | None = None,
    norm_over: str = "head",
    after_rotation: bool = False,
    v_norm: bool = False,
    eps: float = 0.0,
    clip: float = 0.0,
    q_scales: _F32 | None = None,
    layer_norm: bool = False,
    q_bias: _F32 | None = None,
    k_bias: _F32 | None = None,
) -> tuple[_F32, _F32, _F32]:
    """Queries (rows, heads, head_dim), and the keys (rows, kv_heads, head_dim) and values (rows,
    kv_heads, value_dim) as a float32 cache holds them, of one sequence from first_position on."""

def all_finite(isa: str, x: _F32) -> bool: ...
def largest(isa: str, x: _F32) -> float: ...
def rescale(isa: str, x: _F32, shift: float, factor: float) -> tuple[_F32, float]:
    """(x - shift) * factor, and the smallest of these values."""

def exponentials(isa: str, x: _F32) -> tuple[_F32, float]:
    """exp(x), and the sum."""

def dot(isa: str, a: _F32, b: _F32) -> float: ...
def sum_at_least(isa: str, key: _F32, value: _F32, least: float) -> float: ...
def gather_range(
    isa: str, key: _F32, low: float, high: float, value: _F32, id: _I32 | None = None
) -> tuple[_F32, _I32]:
    """value and id where low <= key < high."""

def first_largest(scores: _F32) -> int: ...
def best_tokens(scores: _F32, k: int) -> tuple[_I32, _F32]:
    """Ids and scores, best first."""

def log_sum_exp(scores: _F32) -> float: ...
def log_softmax(scores: _F32) -> _F32: ...
def filter(scores: _F32, steps: Sequence[tuple[str, float]]) -> tuple[_I32, _F32]:
    """Ids and log-probabilities of the tokens that remain after the (name, value) steps."""

def best_filtered(scores: _F32, steps: Sequence[tuple[str, float]], k: int) -> tuple[_I32, _F32]:
    """The k most likely tokens that ``filter`` returns."""

def draws(scores: _F32, steps: Sequence[tuple[str, float]], uniforms: Sequence[float]) -> list[int]:
    """The token that each number from 0 to 1 draws from the result of ``filter``."""

def sample_rows(
    device: str,
    logits: _F32,
    options: Sequence[SamplingOptions],
    tokens: Sequence[tuple[Sequence[int], Sequence[int]]],
    threads: int = 1,
) -> list[tuple[int, float | None, float | None] | None]:
    """For each row of logits (rows, vocab_size), with its own options and its own (prompt, output):
    the token, and where the options ask for them its log-probabilities of the logits and after the
    chain. None for a row that the device leaves to the host."""

def sampler_seconds(
    logits: _F32, options: SamplingOptions, prompt: Sequence[int], steps: int
) -> list[float]:
    """Seconds of each sampling step over logits (rows, vocab_size)."""
