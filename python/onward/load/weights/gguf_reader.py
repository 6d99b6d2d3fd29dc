"""Reads the header of a GGUF file: the metadata, and the place of each tensor.

It does not use the ``gguf`` package, because the reader of that package trusts the counts in the
file. A string array that claims 2**60 elements makes it loop without end, and a shape whose product
overflows is accepted. It also takes two seconds for the 49,000 tokens of SmolLM2, because each
becomes a numpy array. A separate check of the counts would have to visit every entry, which is the
whole work of reading. Here every count is compared with the remaining bytes before it is used.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass

from onward.errors import WeightError
from onward.files.contents import START_BYTES, unexpected_content
from onward.load.weights.checkpoint import STORAGE
from onward.message_text import label, shown

MAGIC = b"GGUF"
METADATA_LIMIT_BYTES = 64 << 20  # SmolLM2 has 1.8 MB, the largest vocabularies about 15 MB
ENTRY_LIMIT = 1 << 16  # of key-value pairs, and of tensors
ELEMENT_LIMIT = 1 << 21  # of all arrays together; vocabulary, its types and its merges

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
_BOOL, _STRING, _ARRAY = 7, 8, 9

# Numbers of the tensor types, for the file and for messages.
_TYPES = (
    "F32 F16 Q4_0 Q4_1 Q4_2 Q4_3 Q5_0 Q5_1 Q8_0 Q8_1 Q2_K Q3_K Q4_K Q5_K Q6_K Q8_K IQ2_XXS "
    "IQ2_XS IQ3_XXS IQ1_S IQ4_NL IQ3_S IQ2_S IQ4_XS I8 I16 I32 I64 F64 IQ1_M BF16 Q4_0_4_4 "
    "Q4_0_4_8 Q4_0_8_8 TQ1_0 TQ2_0 IQ4_NL_4_4 IQ4_NL_4_8 IQ4_NL_8_8 MXFP4 NVFP4 Q1_0"
)
_TYPE_NAMES = dict(enumerate(_TYPES.split()))


@dataclass(frozen=True)
class GgufTensor:
    """Where a tensor lies. ``shape`` is rows first, as everywhere else in this package."""

    name: str
    dtype: str  # a name of the format; one of STORAGE if the tensor can be used
    shape: tuple[int, ...]
    begin: int  # offsets in the file; end is begin where the dtype's size is not known
    end: int


@dataclass(frozen=True)
class GgufHeader:
    """What stands before the tensors' bytes."""

    metadata: dict[str, object]
    tensors: dict[str, GgufTensor]


def read_gguf_header(data: mmap.mmap | bytes, name: str) -> GgufHeader:
    """Parse the header of a whole file; ``name`` opens the messages."""
    try:
        return _Parser(data, name).header()
    except struct.error:
        raise WeightError(
            f"{name}: ends within its header, after {len(data)} bytes; the file is cut short"
        ) from None


class _Parser:
    def __init__(self, data: mmap.mmap | bytes, name: str) -> None:
        self.data = data
        self.name = name
        self.end = len(data)
        self.limit = min(len(data), METADATA_LIMIT_BYTES)
        self.at = 0
        self.elements = 0

    def wrong(self, problem: str) -> WeightError:
        return WeightError(f"{self.name}: {problem}")

    def header(self) -> GgufHeader:
        if self.data[:4] != MAGIC:
            if (found := unexpected_content(self.data[:START_BYTES])) is not None:
                raise self.wrong(f"is {found}")
            raise self.wrong(f"starts with {self.data[:4]!r}, expected {MAGIC!r}")
        self.at = 4
        version = self.scalar("I")
        if version not in (2, 3):
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            kind = "big-endian " if swapped in (2, 3) else ""
            raise self.wrong(f"{kind}GGUF version {min(version, swapped)}, expected 2 or 3")
        tensor_count = self.count(self.scalar("Q"), 32, "tensors", ENTRY_LIMIT)
        pair_count = self.count(self.scalar("Q"), 13, "key-value pairs", ENTRY_LIMIT)
        metadata: dict[str, object] = {}
        for _ in range(pair_count):
            key = self.string()
            if key in metadata:
                raise self.wrong(f"key {label(key)} occurs twice")
            metadata[key] = self.value(key)
        entries = [self.tensor_entry() for _ in range(tensor_count)]
        return GgufHeader(metadata, self.place(entries, self.alignment(metadata)))

    def scalar(self, code: str) -> int:
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value  # type: ignore[no-any-return]

    def count(self, count: int, bytes_each: int, what: str, limit: int) -> int:
        """A count from the file, once that many could fit into what is left."""
        if count > limit:
            raise self.wrong(f"claims {count} {what}, expected at most {limit}")
        if count * bytes_each > self.limit - self.at:
            raise self.wrong(
                f"claims {count} {what}, but only {max(self.limit - self.at, 0)} bytes are left "
                "for them; the file is cut short or malformed"
            )
        return count

    def string(self) -> str:
        length = self.count(self.scalar("Q"), 1, "bytes of text", METADATA_LIMIT_BYTES)
        begin = self.at
        self.at += length
        try:
            return self.data[begin : self.at].decode("utf-8")
        except UnicodeDecodeError:
            raise self.wrong(f"text at byte {begin} is not valid UTF-8") from None

    def value(self, key: str) -> object:
        kind = self.scalar("I")
        if kind == _STRING:
            return self.string()
        if kind == _BOOL:
            return self.booleans(1)[0]
        if kind in _SCALARS:
            return self.scalar(_SCALARS[kind])
        if kind == _ARRAY:
            return self.array(key)
        raise self.wrong(f"key {label(key)} has value type {kind}, which the format does not have")

    def array(self, key: str) -> list[object]:
        kind, count = self.scalar("I"), self.scalar("Q")
        self.elements += count
        if self.elements > ELEMENT_LIMIT:
            raise self.wrong(f"arrays have {self.elements} elements, expected {ELEMENT_LIMIT}")
        if kind == _STRING:
            return self.strings(self.count(count, 8, "strings", ELEMENT_LIMIT))
        if kind == _BOOL:
            return list(self.booleans(self.count(count, 1, "booleans", ELEMENT_LIMIT)))
        if kind in _SCALARS:
            size = struct.calcsize("<" + _SCALARS[kind])
            self.count(count, size, "numbers", ELEMENT_LIMIT)
            values = struct.unpack_from(f"<{count}{_SCALARS[kind]}", self.data, self.at)
            self.at += count * size
            return list(values)
        raise self.wrong(f"key {label(key)} is an array of type {kind}, which is not supported")

    def strings(self, count: int) -> list[object]:
        """As ``string``, in one tight loop: a vocabulary has 10**5 of them."""
        result: list[object] = []
        data, at, limit = self.data, self.at, self.limit
        unpack = struct.Struct("<Q").unpack_from
        try:
            for _ in range(count):
                (length,) = unpack(data, at)
                begin = at + 8
                at = begin + length
                if at > limit:
                    raise self.wrong(f"text of {length} bytes at byte {begin} leaves the file")
                result.append(data[begin:at].decode("utf-8"))
        except UnicodeDecodeError:
            raise self.wrong(f"text at byte {begin} is not valid UTF-8") from None
        self.at = at
        return result

    def booleans(self, count: int) -> list[bool]:
        raw = self.data[self.at : self.at + count]
        if len(raw) < count or raw.strip(b"\0\1"):
            raise self.wrong(f"boolean at byte {self.at} is cut short or neither 0 nor 1")
        self.at += count
        return [byte == 1 for byte in raw]

    def tensor_entry(self) -> tuple[str, int, tuple[int, ...], int]:
        """Name, type number, shape (rows first), offset in the data section."""
        name = self.string()
        dimensions = self.scalar("I")
        if not 1 <= dimensions <= 4:
            raise self.wrong(f"tensor {label(name)} has {dimensions} dimensions, expected 1 to 4")
        shape = struct.unpack_from(f"<{dimensions}Q", self.data, self.at)
        self.at += 8 * dimensions
        kind, offset = self.scalar("I"), self.scalar("Q")
        return name, kind, tuple(reversed(shape)), offset

    def alignment(self, metadata: dict[str, object]) -> int:
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 1 <= alignment <= 1 << 16 or alignment.bit_count() > 1:
            raise self.wrong(f"general.alignment is {shown(alignment)}, expected a power of two")
        return alignment

    def place(
        self, entries: list[tuple[str, int, tuple[int, ...], int]], alignment: int
    ) -> dict[str, GgufTensor]:
        """Turn offsets into places in the file, each within it and apart from the others."""
        start = -(-self.at // alignment) * alignment
        tensors: dict[str, GgufTensor] = {}
        for name, kind, shape, offset in entries:
            if name in tensors:
                raise self.wrong(f"tensor {label(name)} occurs twice")
            dtype = _TYPE_NAMES.get(kind, f"number {kind}")
            size = self.tensor_bytes(name, dtype, shape)
            begin = start + offset
            if offset % alignment:
                raise self.wrong(
                    f"tensor {label(name)} has offset {offset}, expected a multiple of {alignment}"
                )
            if begin + size > self.end:
                raise self.wrong(
                    f"has {self.end} bytes, expected at least {begin + size} for tensor "
                    f"{label(name)}; the file is cut short or malformed"
                )
            tensors[name] = GgufTensor(name, dtype, shape, begin, begin + size)
        self.refuse_overlap(tensors)
        return tensors

    def tensor_bytes(self, name: str, dtype: str, shape: tuple[int, ...]) -> int:
        if 0 in shape:
            raise self.wrong(f"tensor {label(name)} has shape {shape}, expected no empty dimension")
        if dtype not in STORAGE:
            return 0
        values, size = STORAGE[dtype]
        if shape[-1] % values:
            raise self.wrong(
                f"tensor {label(name)} has rows of {shape[-1]} values, "
                f"expected a multiple of {values} for {dtype}"
            )
        return math.prod(shape) // values * size

    def refuse_overlap(self, tensors: dict[str, GgufTensor]) -> None:
        end, before = 0, ""
        for tensor in sorted(tensors.values(), key=lambda tensor: tensor.begin):
            if tensor.begin < end:
                raise self.wrong(f"tensors {label(before)} and {label(tensor.name)} overlap")
            end, before = tensor.end, tensor.name
