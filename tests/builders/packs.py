"""Makes packs of small models, and splits, changes and rebuilds packs."""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builders.checkpoints import TINY_GGUF, config_of, gguf_bytes, tiny_gguf_tensors
from builders.seeded_folder import write_seeded
from builders.tiny_tokenizers import byte_level, gguf_byte_level
from builders.tiny_tokenizers import write_folder as write_tokenizer
from onward import _core
from onward.load import pack_contents as contents
from onward.load.packing import Packing, pack_model

TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"


def pack(model: Path, output: Path, **options: Any) -> Packing:
    return pack_model(model, output, threads=1, **options)


def write_talking(folder: Path, **changes: Any) -> Path:
    """A folder with everything that a pack stores: a tokenizer with a BOS, a template, defaults."""
    write_seeded(folder, **{"vocab_size": 320, "eos_token_id": 300, **changes})
    write_tokenizer(
        folder,
        byte_level(special=("<|end|>", "<|begin|>", "<|fill|>"), added=("<tool>",)),
        {
            "bos_token": "<|begin|>",
            "eos_token": "<|end|>",
            "pad_token": {"content": "<|fill|>"},
            "add_bos_token": True,
            "chat_template": TEMPLATE,
        },
        {"generation_config.json": json.dumps({"eos_token_id": [301], "max_new_tokens": 9})},
    )
    return folder


def tiny_pack(folder: Path, **options: Any) -> Path:
    """A pack of one layer of the model of ``write_talking``."""
    model = write_talking(folder / "model", num_layers=1, hidden_size=32, intermediate_size=32)
    pack(model, folder / "tiny.onward", **options)
    return folder / "tiny.onward"


def write_gguf(path: Path) -> Path:
    """A GGUF file with a tokenizer and a template."""
    tensors = tiny_gguf_tensors(config_of(vocab_size=320))
    facts = {**TINY_GGUF, **gguf_byte_level(), "tokenizer.chat_template": TEMPLATE}
    path.write_bytes(gguf_bytes(facts, tensors))
    return path


@dataclass
class Parts:
    """The parts of a pack: its header and its data."""

    header: dict[str, Any]
    data: bytearray

    @property
    def metadata(self) -> dict[str, Any]:
        return self.header["__metadata__"]

    def reported(self, key: str) -> dict[str, Any]:
        return json.loads(self.metadata[key])

    def tell(self, key: str, change: Callable[[dict[str, Any]], object]) -> None:
        """Change an object of the metadata."""
        value = self.reported(key)
        change(value)
        self.metadata[key] = json.dumps(value)


def parts_of(path: Path) -> Parts:
    whole = path.read_bytes()
    begin = 8 + int.from_bytes(whole[:8], "little")
    return Parts(json.loads(whole[8:begin]), bytearray(whole[begin:]))


def put_together(parts: Parts, *, sign: bool = True, alignment: int = 64) -> bytes:
    """``sign``: write the checksum of the present metadata."""
    metadata = parts.header.get("__metadata__")
    if sign and isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values()):
        metadata["checksum"] = contents.metadata_checksum(metadata)
    return framed(json.dumps(parts.header).encode(), bytes(parts.data), alignment)


def framed(header: bytes, data: bytes, alignment: int = 64) -> bytes:
    header += b" " * (-(8 + len(header)) % alignment)
    return len(header).to_bytes(8, "little") + header + data


def open_pack(path: Path, **options: Any) -> tuple[_core.Model, dict[str, str]]:
    return _core.open_pack(path, 1, **options)


def checksum(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"


def packed_bytes(model: _core.Model) -> dict[str, tuple[str, bytes]]:
    return {name: (dtype, bytes(data)) for name, dtype, data in model.packed()}


def fields(value: object) -> Mapping[str, Any]:
    return dataclasses.asdict(value)  # type: ignore[call-overload]
