"""The limits of docs/files.md, each at its value and just above it.

A large limit is compared with its documented value and lowered for the test."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from builders.checkpoints import TINY, gguf_text, gguf_value, random_weights, write_folder
from builders.packs import open_pack, parts_of, put_together, tiny_pack
from builders.tiny_tokenizers import byte_level
from builders.tiny_tokenizers import write_folder as write_tokenizer
from onward.errors import (
    ConfigError,
    InvalidArgument,
    PackError,
    TemplateError,
    TokenizerError,
    WeightError,
)
from onward.files import json_file
from onward.load.weights import gguf_reader, safetensors
from onward.load.weights.gguf_reader import read_gguf_header
from onward.load.weights.safetensors import INDEX_NAME, SafetensorsCheckpoint
from onward.quantization import calibration
from onward.text.template.sandbox import MAX_SOURCE_CHARACTERS
from onward.text.template.template import ChatTemplate
from onward.text.tokenizer import file as tokenizer_file
from onward.text.tokenizer import folder as tokenizer_folder
from onward.text.tokenizer.tokenizer import Tokenizer

MIB = 1 << 20


def pad(path: Path, size: int) -> None:
    """Spaces at the end, which JSON ignores."""
    path.write_bytes(path.read_bytes().ljust(size))


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", INDEX_NAME])
def test_json_of_4_mib(tmp_path: Path, name: str) -> None:
    assert json_file.SIZE_LIMIT_BYTES == 4 * MIB
    folder = write_folder(tmp_path / "m")
    (folder / "generation_config.json").write_text("{}")
    if name == INDEX_NAME:
        (folder / "model.safetensors").rename(folder / "a.safetensors")
        weight_map = dict.fromkeys(random_weights(TINY), "a.safetensors")
        (folder / name).write_text(json.dumps({"weight_map": weight_map}))
    pad(folder / name, 4 * MIB)
    SafetensorsCheckpoint(folder).close()
    pad(folder / name, 4 * MIB + 1)
    with pytest.raises((ConfigError, WeightError), match=r"has 4194305 bytes, expected at most 4"):
        SafetensorsCheckpoint(folder)


def test_a_safetensors_header_of_8_mib(tmp_path: Path) -> None:
    assert safetensors.HEADER_LIMIT_BYTES == 8 * MIB
    folder = write_folder(tmp_path / "m")
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    begin = 8 + int.from_bytes(whole[:8], "little")
    for size, fits in ((8 * MIB, True), (8 * MIB + 1, False)):
        header = whole[8:begin].ljust(size)
        path.write_bytes(struct.pack("<Q", size) + header + whole[begin:])
        if fits:
            SafetensorsCheckpoint(folder).close()
            continue
        with pytest.raises(WeightError, match=r"header of 8388609 bytes, expected at most 8388608"):
            SafetensorsCheckpoint(folder)


class TestGguf:
    """A header that claims fewer tensors than it has bytes for is refused for another reason. This
    shows that the limit accepts it."""

    def header(self, pairs: list[bytes], tensors: int = 0) -> bytes:
        return b"GGUF" + struct.pack("<IQQ", 3, tensors, len(pairs)) + b"".join(pairs)

    def test_65536_keys(self) -> None:
        pairs = [gguf_text(f"{i}") + gguf_value(True) for i in range(65537)]
        assert len(read_gguf_header(self.header(pairs[:-1]) + bytes(64), "m").metadata) == 65536
        with pytest.raises(WeightError, match="claims 65537 key-value pairs, expected at most 655"):
            read_gguf_header(self.header(pairs) + bytes(64), "m")

    def test_65536_tensors(self) -> None:
        with pytest.raises(WeightError, match=r"claims 65536 tensors, but only \d+ bytes are left"):
            read_gguf_header(self.header([], 65536) + bytes(64), "m")
        with pytest.raises(WeightError, match="claims 65537 tensors, expected at most 65536"):
            read_gguf_header(self.header([], 65537) + bytes(64), "m")

    @pytest.mark.parametrize("parts", [[1 << 21], [1 << 20, 1 << 20], [(1 << 21) - 1, 0, 1]])
    def test_2097152_elements_of_all_arrays(self, parts: list[int]) -> None:
        def arrays(more: int) -> bytes:
            sizes = [*parts[:-1], parts[-1] + more]
            return self.header(
                [
                    gguf_text(f"{i}") + struct.pack("<IIQ", 9, 0, size) + bytes(size)
                    for i, size in enumerate(sizes)
                ]
            )

        found = read_gguf_header(arrays(0) + bytes(64), "m").metadata
        assert sum(len(values) for values in found.values()) == 1 << 21  # type: ignore[arg-type]
        with pytest.raises(WeightError, match="arrays have 2097153 elements"):
            read_gguf_header(arrays(1) + bytes(64), "m")

    def test_metadata_of_64_mib(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert gguf_reader.METADATA_LIMIT_BYTES == 64 * MIB
        monkeypatch.setattr(gguf_reader, "METADATA_LIMIT_BYTES", 1000)
        # 24 bytes, then a key of 1 with its length, the type and the text's length
        for length, fits in ((1000 - 24 - 9 - 12, True), (1001 - 24 - 9 - 12, False)):
            data = self.header([gguf_text("a") + gguf_value("x" * length)]) + bytes(2000)
            if fits:
                assert read_gguf_header(data, "m").metadata == {"a": "x" * length}
                continue
            with pytest.raises(WeightError, match=r"claims 956 bytes of text, but only 955 bytes"):
                read_gguf_header(data, "m")


class TestPack:
    def test_a_header_of_100_mb(self, tmp_path: Path) -> None:
        """At the limit the data would not begin at a multiple of 64, which is the next check."""
        path = tmp_path / "m.onward"
        for size, message in (
            (100_000_000, "data begins at byte 100000008, expected a multiple of 64"),
            (100_000_001, "header of 100000001 bytes, expected at most 100000000"),
        ):
            with open(path, "wb") as file:
                file.write(struct.pack("<Q", size))
                file.truncate(size + 1000)
            with pytest.raises(PackError, match=message):
                open_pack(path)

    def test_a_text_of_256_mib(self, tmp_path: Path) -> None:
        """At the limit it is read, and has no checksum."""
        path = tiny_pack(tmp_path)
        for size, message in (
            (256 * MIB, "tensor 'text.more' has no checksum"),
            (256 * MIB + 1, "tensor 'text.more' has 268435457 bytes, expected at most 268435456"),
        ):
            parts = parts_of(path)
            begin = len(parts.data)
            parts.header["text.more"] = {
                "dtype": "U8",
                "shape": [size],
                "data_offsets": [begin, begin + size],
            }
            whole = put_together(parts)
            with open(tmp_path / "m.onward", "wb") as file:
                file.write(whole)
                file.truncate(len(whole) + size)
            with pytest.raises(PackError, match=message):
                open_pack(tmp_path / "m.onward")


class TestTokenizer:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        tmp_path.joinpath("m").mkdir()
        write_tokenizer(tmp_path / "m", byte_level(), {})
        return tmp_path / "m"

    def test_a_tokenizer_of_64_mib(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert tokenizer_file.MAX_BYTES == 64 * MIB
        monkeypatch.setattr(tokenizer_file, "MAX_BYTES", 100_000)
        monkeypatch.setattr(tokenizer_folder, "MAX_BYTES", 100_000)
        pad(folder / "tokenizer.json", 100_000)
        Tokenizer.from_folder(folder)
        pad(folder / "tokenizer.json", 100_001)
        with pytest.raises(TokenizerError, match="it has 100001 bytes, expected at most 100000"):
            Tokenizer.from_folder(folder)

    @pytest.mark.parametrize(
        "name", ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"]
    )
    def test_a_file_beside_it_of_16_mib(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        assert tokenizer_folder.MAX_COMPANION_BYTES == 16 * MIB
        monkeypatch.setattr(tokenizer_folder, "MAX_COMPANION_BYTES", 1000)
        (folder / name).write_text("{}")
        pad(folder / name, 1000)
        Tokenizer.from_folder(folder)
        pad(folder / name, 1001)
        with pytest.raises(TokenizerError, match="has 1001 bytes, expected at most 1000"):
            Tokenizer.from_folder(folder)

    def test_pieces_of_4096_characters(self, folder: Path) -> None:
        state = json.loads((folder / "tokenizer.json").read_text())
        size = len(state["model"]["vocab"])
        for length, fits in ((4096, True), (4097, False)):
            changed: dict[str, Any] = json.loads(json.dumps(state))
            changed["model"]["vocab"]["x" * length] = size + 100
            (folder / "tokenizer.json").write_text(json.dumps(changed))
            if fits:
                assert Tokenizer.from_folder(folder).token_to_id("x" * length) == size + 100
                continue
            with pytest.raises(TokenizerError, match="4097 characters"):
                Tokenizer.from_folder(folder)

    def test_4194304_pieces(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert tokenizer_file.MAX_PIECES == 4_194_304
        state = json.loads((folder / "tokenizer.json").read_text())
        size = len(state["model"]["vocab"])
        monkeypatch.setattr(tokenizer_file, "MAX_PIECES", size)
        Tokenizer.from_folder(folder)
        monkeypatch.setattr(tokenizer_file, "MAX_PIECES", size - 1)
        with pytest.raises(TokenizerError, match=f"{size} pieces, expected at most {size - 1}"):
            Tokenizer.from_folder(folder)


def test_a_template_of_64_kib(tmp_path: Path) -> None:
    assert MAX_SOURCE_CHARACTERS == 64 << 10
    for length, fits in ((65536, True), (65537, False)):
        template = ChatTemplate({"default": "x" * length}, {}, "none")
        if fits:
            assert len(template.render([{"role": "user", "content": "a"}])) == length
            continue
        with pytest.raises(TemplateError, match="has 65537 characters, expected at most 65536"):
            template.render([{"role": "user", "content": "a"}])


def test_calibration_text_of_64_mib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert calibration.TEXT_LIMIT_BYTES == 64 * MIB
    monkeypatch.setattr(calibration, "TEXT_LIMIT_BYTES", 100)
    path = tmp_path / "text.txt"
    path.write_text("x" * 100)
    assert calibration.text_of(path) == "x" * 100
    path.write_text("x" * 101)
    with pytest.raises(InvalidArgument, match="has 101 bytes, expected at most 100"):
        calibration.text_of(path)


def test_the_document_gives_these_values() -> None:
    text = (Path(__file__).parents[2] / "docs" / "files.md").read_text()
    for value in (
        "4 MiB",
        "a header of 8 MiB",
        "metadata of 64 MiB, 65,536 keys, 65,536 tensors, arrays of 2,097,152 elements",
        "a header of 100 MB",
        "texts of 256 MiB",
        "64 MiB; 4,194,304 pieces of at most 4,096 characters",
        "16 MiB",
        "64 KiB of source",
        "64 MiB of UTF-8",
        "a `side.json` of 4 MiB",
    ):
        assert value in text
