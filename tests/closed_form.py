"""Models with a known answer, as ordinary Hugging Face folders.

Each is a one-layer decoder with one-hot embeddings and no MLP, so that a single matrix decides the
next token:

* ``write_table``: the logits after token ``i`` are row ``i`` of a table, for any earlier tokens.
* ``write_seen``: the next token is the visible token with the largest weight.
* ``write_copy``: copies the token at the distance where ``sin(distance * inv_freq[pair])`` peaks.
* ``write_gqa``: generates 3 if query head 1 reads kv head 0 (right), 4 if it reads kv head 1.

Safetensors files are written byte by byte, so any dtype and any fault is possible. Nothing of the
tested package is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

IMPOSSIBLE = -100.0
"""A logit whose probability in float32 is 0 if another logit is 0."""
SEEN_WEIGHTS = (100.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0)
"""M-SEEN: the weight of each id. Id 0 (pad) outweighs all others: a leak of padding gives 0."""

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 8,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-12,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
Tensors = dict[str, NDArray[np.float32]]
LAYER = "model.layers.0."
ATTENTION = LAYER + "self_attn."


def base_config(**changes: Any) -> dict[str, Any]:
    """The common config with keys replaced; a key set to ``...`` is left out."""
    return {key: value for key, value in {**CONFIG, **changes}.items() if value is not ...}


def base_tensors(config: Mapping[str, Any]) -> Tensors:
    """Every tensor of the config: identity embedding, norms that return a one-hot, zeros."""
    hidden, inner, vocab = (
        config[key] for key in ("hidden_size", "intermediate_size", "vocab_size")
    )
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or hidden // heads
    # RMSNorm of a one-hot row of n values is sqrt(n) times that row; this weight undoes it.
    one_hot_norm = np.full(hidden, 1 / np.sqrt(hidden), np.float32)
    shapes = {
        ATTENTION + "q_proj.weight": (heads * head_dim, hidden),
        ATTENTION + "k_proj.weight": (kv_heads * head_dim, hidden),
        ATTENTION + "v_proj.weight": (kv_heads * head_dim, hidden),
        ATTENTION + "o_proj.weight": (hidden, heads * head_dim),
        LAYER + "mlp.gate_proj.weight": (inner, hidden),
        LAYER + "mlp.up_proj.weight": (inner, hidden),
        LAYER + "mlp.down_proj.weight": (hidden, inner),
    }
    tensors = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    tensors["model.embed_tokens.weight"] = np.eye(vocab, hidden, dtype=np.float32)
    tensors[LAYER + "input_layernorm.weight"] = one_hot_norm
    tensors[LAYER + "post_attention_layernorm.weight"] = one_hot_norm.copy()
    tensors["model.norm.weight"] = np.ones(hidden, np.float32)
    tensors["lm_head.weight"] = np.eye(vocab, hidden, dtype=np.float32)
    return tensors


def table_tensors(config: Mapping[str, Any], table: ArrayLike) -> Tensors:
    """M-TABLE: logits after token i are table[i]."""
    rows = np.asarray(table, np.float32)
    tensors = base_tensors(config)
    tensors["model.norm.weight"] = tensors[LAYER + "input_layernorm.weight"].copy()
    tensors["lm_head.weight"] = np.zeros((rows.shape[1], config["hidden_size"]), np.float32)
    tensors["lm_head.weight"][:, : len(rows)] = rows.T
    return tensors


def write_table(folder: Path, table: ArrayLike, **changes: Any) -> Path:
    """M-TABLE for any vocabulary. Hidden sizes of 4, 16, 64, 256 give the logits of the table
    exactly (their square roots are powers of two); others give them to the last one or two bits."""
    vocab = np.shape(table)[1]
    hidden = next(size for size in (8, 16, 64, 256, 1024) if size >= vocab)
    config = base_config(**{"vocab_size": vocab, "hidden_size": hidden, **changes})
    return write_folder(folder, config, table_tensors(config, table))


def chain(vocab_size: int, steps: Mapping[int, int]) -> NDArray[np.float32]:
    """A table that follows ``steps`` and repeats the token elsewhere."""
    table = np.full((vocab_size, vocab_size), IMPOSSIBLE, np.float32)
    for token in range(vocab_size):
        table[token, steps.get(token, token)] = 0
    return table


def seen_tensors(config: Mapping[str, Any]) -> Tensors:
    """M-SEEN: attention is uniform over the visible tokens; values are one-hots by weight."""
    tensors = base_tensors(config)
    tensors[ATTENTION + "v_proj.weight"] = np.diag(np.asarray(SEEN_WEIGHTS, np.float32))
    tensors[ATTENTION + "o_proj.weight"] = 64 * np.eye(8, dtype=np.float32)
    return tensors


def write_seen(folder: Path, **changes: Any) -> Path:
    config = base_config(**changes)
    return write_folder(folder, config, seen_tensors(config))


def write_copy(folder: Path, pair: int, **changes: Any) -> Path:
    """M-COPY: scores are 1800 sin(distance * inv_freq[pair]), so attention is one-hot."""
    config = base_config(**{"head_dim": 4, **changes})
    tensors = base_tensors(config)
    tensors[ATTENTION + "q_proj.weight"][pair, :] = 60
    tensors[ATTENTION + "k_proj.weight"][pair + 2, :] = 60
    picks = np.eye(4, 8, k=3, dtype=np.float32)  # ids 3, 4, 5, 6
    tensors[ATTENTION + "v_proj.weight"] = picks
    tensors[ATTENTION + "o_proj.weight"] = 64 * picks.T
    return write_folder(folder, config, tensors)


def write_gqa(folder: Path) -> Path:
    """M-GQA: 4 query heads of 2 on 2 kv heads with constant values."""
    config = base_config(num_attention_heads=4, num_key_value_heads=2)
    tensors = base_tensors(config)
    tensors[ATTENTION + "v_proj.weight"][0, :] = 1  # kv head 0: [1, 0]
    tensors[ATTENTION + "v_proj.weight"][3, :] = 1  # kv head 1: [0, 1]
    tensors[ATTENTION + "o_proj.weight"][3, 2] = 64  # query head 1, dim 0 -> token 3
    tensors[ATTENTION + "o_proj.weight"][4, 3] = 64  # query head 1, dim 1 -> token 4
    return write_folder(folder, config, tensors)


# Files


def bfloat16_bits(values: ArrayLike) -> NDArray[np.uint16]:
    """Round to nearest even, as bfloat16 bits."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def stored(values: ArrayLike, dtype: str) -> bytes:
    """Values in the form of a safetensors file."""
    match dtype:
        case "F32":
            return np.asarray(values, np.float32).tobytes()
        case "F16":
            return np.asarray(values, np.float16).tobytes()
        case "BF16":
            return bfloat16_bits(values).tobytes()
    raise ValueError(f"no way to store {dtype}")


def write_safetensors(
    path: Path, tensors: Mapping[str, ArrayLike], dtypes: Mapping[str, str] | None = None
) -> None:
    """One file. ``dtypes`` lists the tensors that are not F32."""
    header: dict[str, Any] = {}
    data: list[bytes] = []
    end = 0
    for name, values in tensors.items():
        dtype = (dtypes or {}).get(name, "F32")
        data.append(stored(values, dtype))
        begin, end = end, end + len(data[-1])
        header[name] = {
            "dtype": dtype,
            "shape": list(np.shape(values)),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(b"".join([len(text).to_bytes(8, "little"), text, *data]))


def write_folder(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, ArrayLike],
    *,
    dtypes: Mapping[str, str] | None = None,
) -> Path:
    """Write config.json and model.safetensors; creates the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    write_safetensors(folder / "model.safetensors", tensors, dtypes)
    return folder


def write_generation_config(folder: Path, **fields: Any) -> None:
    (folder / "generation_config.json").write_text(json.dumps(fields))


# Tokenizers


def write_pieces_tokenizer(folder: Path, pieces: Sequence[str]) -> None:
    """Id i is the text pieces[i]; text is cut at "|", which must not occur in a piece."""
    vocab = {piece: token for token, piece in enumerate(pieces)}
    assert len(vocab) == len(pieces), "pieces must differ"
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token=pieces[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("|", "removed")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(folder / "tokenizer.json"))


def write_bytes_tokenizer(folder: Path) -> None:
    """Ids 0 to 255 are the bytes themselves, in the byte-level alphabet."""
    vocab = {character: byte for byte, character in enumerate(byte_alphabet())}
    tokenizer = Tokenizer(models.BPE(vocab, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))


def byte_alphabet() -> list[str]:
    """The visible character that stands for each byte (GPT-2): itself, or 256 and up."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    hidden = (byte for byte in range(256) if byte not in visible)
    stand_in = {byte: chr(256 + order) for order, byte in enumerate(hidden)}
    return [stand_in.get(byte, chr(byte)) for byte in range(256)]


def write_script(folder: Path, pieces: Sequence[str], **changes: Any) -> Path:
    """M-TABLE that generates pieces[3], pieces[4], ... in order after pieces[1] (bos), then eos
    (2).

    The pieces begin with a pad, a bos and an eos.
    """
    last = len(pieces) - 1
    steps = {1: 3, **{token: token + 1 for token in range(3, last)}, last: 2}
    write_table(folder, chain(len(pieces), steps), **changes)
    write_pieces_tokenizer(folder, pieces)
    return folder


def write_byte_script(folder: Path, said: bytes, *, then: int = 0, **changes: Any) -> Path:
    """M-TABLE over bytes that generates ``said`` (all bytes different) after byte 1, then
    ``then``."""
    assert len(set(said)) == len(said), "a table cannot tell two equal bytes apart"
    steps = dict(zip((1, *said), (*said, then), strict=True))
    changes = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, **changes}
    write_table(folder, chain(256, steps), **changes)
    write_bytes_tokenizer(folder)
    return folder
