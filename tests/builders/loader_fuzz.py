"""Opens thousands of damaged models and reports what was not a clean outcome.

Run as a program, in a process of its own, because a bad read ends in a signal:
``python loader_fuzz.py KIND SECONDS SEED``. The outcome of every file must be success or
onward.Error, in under a second, without the memory growing.
"""

from __future__ import annotations

import itertools
import json
import random
import resource
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from builders.checkpoints import (
    BLOCKS,
    TINY,
    TINY_GGUF,
    Stored,
    config_of,
    gguf_bytes,
    gguf_name,
    random_blocks,
    random_weights,
    stored,
    tiny_gguf_tensors,
    write_folder,
)
from onward import architectures
from onward.errors import Error
from onward.hub import find_model
from onward.loading import check_tensors, load_model
from onward.weights import open_checkpoint
from onward.weights.checkpoint import STORAGE
from onward.weights.safetensors import INDEX_NAME

INTEGERS = [0, 1, 2, 7, 31, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
LITERALS = [
    b"-1", b"0", b"1", b"7", b"1e999", b"-1e-400", b"0.5", b"NaN", b"Infinity", b"null", b"true",
    b'""', b'"F32"', b'"../x"', b"[]", b"{}", b"[[]]", b"4294967296", b"18446744073709551615",
    b"9223372036854775807", b"1" * 5000, b"[" * 2000,
]  # fmt: skip


def damage(data: bytes, head: int, source: random.Random) -> bytes:
    """Change one to four things, mostly within the first ``head`` bytes."""
    out = bytearray(data)
    for _ in range(source.choice([1, 1, 1, 2, 4])):
        span = min(len(out), head if source.random() < 0.9 else len(out))
        at = source.randrange(span) if span else 0
        source.choice(DAMAGES)(out, at, source)
    return bytes(out)


def flip_bit(out: bytearray, at: int, source: random.Random) -> None:
    if at < len(out):
        out[at] ^= 1 << source.randrange(8)


def set_byte(out: bytearray, at: int, source: random.Random) -> None:
    if at < len(out):
        out[at] = source.randrange(256)


def insert(out: bytearray, at: int, source: random.Random) -> None:
    out[at:at] = source.randbytes(source.choice([1, 2, 8, 64]))


def delete(out: bytearray, at: int, source: random.Random) -> None:
    del out[at : at + source.choice([1, 2, 8, 64])]


def cut(out: bytearray, at: int, source: random.Random) -> None:
    del out[at:]


def repeat(out: bytearray, at: int, source: random.Random) -> None:
    out[at:at] = out[at : at + source.choice([8, 40, 200])]


def write_integer(out: bytearray, at: int, source: random.Random) -> None:
    size, code = source.choice([(4, "<I"), (8, "<Q")])
    value = source.choice(INTEGERS) & (2 ** (8 * size) - 1)
    out[at : at + size] = struct.pack(code, value)


def write_literal(out: bytearray, at: int, source: random.Random) -> None:
    """Replace the number or word that begins at or after ``at``: edits that stay JSON."""
    begin = at
    while begin < len(out) and not chr(out[begin]).isalnum():
        begin += 1
    end = begin
    while end < len(out) and (chr(out[end]).isalnum() or out[end] in b".-"):
        end += 1
    out[begin:end] = source.choice(LITERALS)


DAMAGES = [flip_bit, set_byte, insert, delete, cut, repeat, write_integer, write_literal]


def safetensors_header(data: bytes, source: random.Random) -> bytes:
    """Damage the header and state its new length rightly, so that it gets past the length."""
    size = int.from_bytes(data[:8], "little")
    header = bytearray(data[8 : 8 + size])
    for _ in range(source.choice([1, 2])):
        source.choice([write_literal, write_literal, flip_bit, repeat])(
            header, source.randrange(len(header)), source
        )
    return struct.pack("<Q", len(header)) + bytes(header) + data[8 + size :]


def outcome(path: Path) -> None:
    """All of loading that reads the files; the first and last byte of every tensor too.

    GGUF models, whose tensors may end up as another format than they were, are packed as well.
    """
    checkpoint = open_checkpoint(find_model(path))
    try:
        spec = architectures.read_spec(checkpoint.config, checkpoint.where)
        check_tensors(architectures.tensor_plan(spec), checkpoint, spec)
        for name in checkpoint.names():
            if checkpoint.describe(name)[0] in STORAGE:
                buffer = checkpoint.tensor(name).buffer
                sum(buffer[:1]) + sum(buffer[-1:])
                checkpoint.release(name)
    finally:
        checkpoint.close()
    if path.suffix == ".gguf":
        load_model(find_model(path), "bf16", 1)


def gguf_of_blocks() -> tuple[dict[str, object], dict[str, Stored]]:
    """A GGUF file whose matrices take every block format in turn."""
    sizes = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 3}
    keys = {"llama.embedding_length": 256, "llama.feed_forward_length": 256, "llama.block_count": 3}
    formats = itertools.cycle(BLOCKS)
    generator = np.random.default_rng(0)
    tensors = {}
    for name, array in random_weights(config_of(**sizes)).items():
        matrix = array.ndim == 2
        tensors[gguf_name(name)] = (
            random_blocks(next(formats), array.shape, generator) if matrix else stored(array)
        )
    assert {tensor.dtype for tensor in tensors.values()} == {"F32", *BLOCKS}
    return {**TINY_GGUF, **keys}, tensors


def target(kind: str, folder: Path) -> tuple[Path, Path, Callable[[bytes, random.Random], bytes]]:
    """The model to open, the file of it to damage, and how."""
    if kind.startswith("gguf"):
        path = folder / "m.gguf"
        metadata, tensors = (
            gguf_of_blocks() if kind == "gguf-blocks" else (TINY_GGUF, tiny_gguf_tensors())
        )
        path.write_bytes(gguf_bytes(metadata, tensors))
        head = path.stat().st_size - sum(len(tensor.data) for tensor in tensors.values())
        return path, path, lambda data, source: damage(data, head, source)
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
    write_folder(folder, config_of(rope_parameters={**rope, "rope_theta": 500.0}))
    if kind == "config":
        return folder, folder / "config.json", lambda d, source: damage(d, len(d), source)
    if kind == "index":
        weight_map = {name: "model.safetensors" for name in random_weights(TINY)}
        index = folder / INDEX_NAME
        index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
        return folder, index, lambda data, source: damage(data, len(data), source)
    file = folder / "model.safetensors"
    if kind == "safetensors-header":
        return folder, file, safetensors_header
    head = 8 + int.from_bytes(file.read_bytes()[:8], "little")
    return folder, file, lambda data, source: damage(data, head, source)


def main(kind: str, seconds: float, seed: int) -> None:
    folder = Path(tempfile.mkdtemp())
    model, file, change = target(kind, folder)
    good = file.read_bytes()
    outcome(model)
    source = random.Random(seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    opened = refused = 0
    slowest = 0.0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        file.unlink()  # a new file: one that is mapped must not be shortened
        file.write_bytes(change(good, source))
        start = time.perf_counter()
        try:
            outcome(model)
            opened += 1
        except Error as error:
            refused += 1
            if len(str(error)) > 2000:
                raise SystemExit(f"message of {len(str(error))} characters: {error}") from None
        except BaseException:
            kept = shutil.copy(file, Path(tempfile.gettempdir()) / f"loader-fuzz-{kind}")
            print(f"not a clean outcome; the file is {kept}", file=sys.stderr)
            raise
        slowest = max(slowest, time.perf_counter() - start)
    shutil.rmtree(folder)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps([opened, refused, slowest, grown]))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
