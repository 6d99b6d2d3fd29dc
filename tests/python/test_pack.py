"""Packs: the same model as their source, mapped, shared and read when needed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

import onward
from builders.core_engine import new_engine
from builders.packed_folders import DTYPES
from builders.packs import (
    TEMPLATE,
    checksum,
    open_pack,
    pack,
    packed_bytes,
    parts_of,
    put_together,
    tiny_pack,
    write_gguf,
    write_talking,
)
from builders.resources import needs_proc, resident_bytes
from builders.seeded_folder import write_seeded
from onward import _core
from onward.errors import InvalidArgument, IoError, ModelNotFound, PackError, TokenizerError
from onward.load import packing
from onward.load.hub import ModelFiles, find_model
from onward.load.loading import load_model

MESSAGES = [{"role": "user", "content": "hi <tool> there"}]


def same(a: onward.LLM, b: onward.LLM) -> None:
    """All properties and outputs of the two models are equal."""
    assert (a.name, a.dtype, a.kv_dtype, a.context) == (b.name, b.dtype, b.kv_dtype, b.context)
    assert a.spec == b.spec
    assert a.weight_bytes == b.weight_bytes
    for text in ("", "abc", "<|end|>é日 <tool>", "  two  spaces\n"):
        assert a.tokenize(text) == b.tokenize(text)
    ids = a.tokenize("hello there")
    assert a.logits(ids).tobytes() == b.logits(ids).tobytes()
    assert a.chat_token_ids(MESSAGES) == b.chat_token_ids(MESSAGES)
    for options in ({}, {"temperature": 1.0, "seed": 3, "max_new_tokens": 30}):
        one, two = a.chat(MESSAGES, **options), b.chat(MESSAGES, **options)
        assert one.token_ids == two.token_ids
        assert (one.text, one.finish_reason) == (two.text, two.finish_reason)
    ours, theirs = a.tokenizer, b.tokenizer
    for name in ("special_tokens", "special_ids", "bos_token_id", "eos_token_ids", "config"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.backend.to_str() == theirs.backend.to_str()


class TestTheSameModel:
    @pytest.mark.parametrize("dtype", [*DTYPES, "auto"])
    def test_a_pack_of_a_folder(
        self, tmp_path: Path, open_llm: Callable[..., Any], dtype: str
    ) -> None:
        folder = write_talking(tmp_path / "model")
        pack(folder, tmp_path / "m.onward", dtype=dtype)
        original = open_llm(folder, dtype=dtype)
        same(original, open_llm(tmp_path / "m.onward", dtype="auto"))
        same(original, open_llm(tmp_path / "m.onward", dtype=original.dtype))

    def test_a_pack_of_a_gguf_file(self, tmp_path: Path, open_llm: Callable[..., Any]) -> None:
        path = write_gguf(tmp_path / "m.gguf")
        pack(path, tmp_path / "other.onward")
        same(open_llm(path, dtype="auto"), open_llm(tmp_path / "other.onward", dtype="auto"))

    def test_the_defaults_equal_the_files(
        self, tmp_path: Path, open_llm: Callable[..., Any]
    ) -> None:
        llm = open_llm(tiny_pack(tmp_path), dtype="auto")
        result = llm.generate("abc")
        assert result.usage.completion_tokens == 9  # generation_config.json
        assert llm.tokenize("a")[0] == llm.tokenizer.token_to_id("<|begin|>")
        assert llm.tokenizer.decode(llm.chat_token_ids(MESSAGES), False).endswith(
            "[user]hi <tool> there"
        )

    def test_a_head_of_another_dtype(self, tmp_path: Path, open_llm: Callable[..., Any]) -> None:
        folder = write_talking(tmp_path / "model")
        done = pack(folder, tmp_path / "m.onward", dtype="int4", head_dtype="f32")
        assert (done.dtype, done.head_dtype) == ("int4", "f32")
        same(
            open_llm(folder, dtype="int4", head_dtype="f32"),
            open_llm(tmp_path / "m.onward", dtype="int4", head_dtype="f32"),
        )

    def test_templates_of_several_names(self, tmp_path: Path, open_llm: Callable[..., Any]) -> None:
        folder = write_talking(tmp_path / "model")
        (folder / "chat_templates").mkdir()
        (folder / "chat_templates" / "tool_use.jinja").write_text("T" + TEMPLATE)
        pack(folder, tmp_path / "m.onward")
        a, b = open_llm(folder), open_llm(tmp_path / "m.onward")
        for name in ("default", "tool_use"):
            options = {"chat_template": name}
            ids = a.chat_token_ids(MESSAGES, options)
            assert ids == b.chat_token_ids(MESSAGES, options)
        assert ids != a.chat_token_ids(MESSAGES)

    def test_a_pack_without_a_tokenizer(self, tmp_path: Path, open_llm: Callable[..., Any]) -> None:
        pack(write_seeded(tmp_path / "model"), tmp_path / "m.onward")
        llm = open_llm(tmp_path / "m.onward")
        assert len(llm.generate([1, 2, 3], max_new_tokens=4).token_ids) == 4
        with pytest.raises(TokenizerError, match=r"m.onward: .*packed without a tokenizer"):
            llm.generate("text")

    def test_floats_of_the_cache_can_be_chosen(
        self, tmp_path: Path, open_llm: Callable[..., Any]
    ) -> None:
        folder = write_talking(tmp_path / "model")
        pack(folder, tmp_path / "m.onward", dtype="bf16")
        for kv_dtype in ("auto", "f32", "f16"):
            a = open_llm(folder, dtype="bf16", kv_dtype=kv_dtype)
            b = open_llm(tmp_path / "m.onward", dtype="auto", kv_dtype=kv_dtype)
            assert a.kv_dtype == b.kv_dtype
            ids = list(range(40))
            assert a.logits(ids).tobytes() == b.logits(ids).tobytes()

    def test_a_conversation_continues_in_the_pack(
        self, tmp_path: Path, open_llm: Callable[..., Any]
    ) -> None:
        folder = write_talking(tmp_path / "model")
        pack(folder, tmp_path / "m.onward", dtype="f32", name="renamed")
        a, b = open_llm(folder), open_llm(tmp_path / "m.onward", dtype="auto")
        assert b.name == "renamed"
        session = a.session()
        session.send("hello")
        session.save(tmp_path / "talk.session")
        again = b.session()
        again.load(tmp_path / "talk.session")
        assert again.send("and on").token_ids == session.send("and on").token_ids

    def test_a_pack_as_a_draft_model(self, tmp_path: Path, open_llm: Callable[..., Any]) -> None:
        path = tiny_pack(tmp_path)
        plain = open_llm(path, dtype="auto").generate("abc").token_ids
        kept = {"draft_model": path, "packed_cache": tmp_path / "kept"}  # of the model alone
        assert open_llm(tmp_path / "model", **kept).generate("abc").token_ids == plain
        assert open_llm(path, dtype="auto", draft_model=path).generate("abc").token_ids == plain

    def test_the_weights_have_the_same_bytes(self, tmp_path: Path) -> None:
        """Copied or in place: the packed bytes of the original."""
        folder = write_seeded(tmp_path / "model")
        for dtype in DTYPES:
            path = tmp_path / f"{dtype}.onward"
            pack(folder, path, dtype=dtype)
            plain = load_model(find_model(folder), dtype, 1).core
            for copy in (False, True):
                model, _ = open_pack(path, copy=copy, verify=True)
                assert packed_bytes(model) == packed_bytes(plain)
                assert model.weight_bytes == plain.weight_bytes
                assert model.cache_dtype == plain.cache_dtype
                ids = np.arange(12, dtype=np.int32)
                ours = np.asarray(new_engine(model).logits(ids))
                assert ours.tobytes() == np.asarray(new_engine(plain).logits(ids)).tobytes()


class TestTheFile:
    def test_every_tensor_is_aligned_and_safetensors_reads_it(self, tmp_path: Path) -> None:
        # 16 rows of 34 bytes, 544: no multiple of 64
        folder = write_talking(tmp_path / "m", hidden_size=32, vocab_size=304)
        padding = 0
        for dtype in DTYPES:
            path = tmp_path / f"{dtype}.onward"
            pack(folder, path, dtype=dtype)
            parts = parts_of(path)
            begin = path.stat().st_size - len(parts.data)
            model = packed_bytes(open_pack(path)[0])
            with safe_open(path, framework="numpy") as file:
                assert set(file.keys()) >= set(model)
                for name, (_, data) in model.items():
                    assert file.get_tensor(name).tobytes() == data
                metadata = file.metadata()
            for name, entry in parts.header.items():
                if name.startswith("padding."):
                    padding += 1
                elif name != "__metadata__":
                    assert (begin + entry["data_offsets"][0]) % 64 == 0, name
            assert (begin + len(parts.data)) % 64 == 0
            assert metadata["format"] == "onward pack"
            assert metadata["layout"] == str(_core.packed_layout)
            sums = json.loads(metadata["checksums"])
            ours = {name: checksum(data) for name, (_, data) in model.items()}
            assert ours.items() <= sums.items()
        assert padding > 0

    def test_the_metadata_for_native_programs(self, tmp_path: Path) -> None:
        _, texts = open_pack(tiny_pack(tmp_path, name="a name"))
        vocabulary = json.loads(texts["vocabulary"])
        assert vocabulary == {
            "bos_token_id": 257,
            "pad_token_id": 258,
            "eos_token_ids": [256, 300, 301],
        }
        assert texts["name"] == "a name"
        assert texts["chat_template"] == TEMPLATE
        assert json.loads(texts["tokenizer.json"])["model"]["type"] == "BPE"
        assert json.loads(texts["config"])["model_type"] == "llama"
        assert json.loads(texts["generation_config"])["max_new_tokens"] == 9

    def test_long_texts_are_tensors_and_short_ones_are_not(self, tmp_path: Path) -> None:
        folder = write_talking(tmp_path / "model")
        template = TEMPLATE + "{# " + "é" * 20_000 + " #}"
        (folder / "chat_template.jinja").write_text(template, "utf-8")
        pack(folder, tmp_path / "m.onward")
        parts = parts_of(tmp_path / "m.onward")
        assert "text.chat_template" in parts.header
        assert "chat_template" not in parts.metadata
        assert "config" in parts.metadata
        assert open_pack(tmp_path / "m.onward")[1]["chat_template"] == template

    def test_packing_again_gives_the_same_file(self, tmp_path: Path) -> None:
        folder = write_talking(tmp_path / "model")
        for name in ("a.onward", "b.onward"):
            pack(folder, tmp_path / name, dtype="int8")
        assert (tmp_path / "a.onward").read_bytes() == (tmp_path / "b.onward").read_bytes()


class TestRefused:
    def test_another_dtype_is_refused_with_the_command_to_pack_again(
        self, tmp_path: Path, open_llm: Callable[..., Any]
    ) -> None:
        path = tiny_pack(tmp_path, dtype="int4")
        expected = (
            r'dtype: is \'f32\', but tiny.onward is packed in int4, expected "auto" or "int4"; to '
            r"pack the model anew: onward pack MODEL -o tiny.onward --dtype f32 --force"
        )
        with pytest.raises(InvalidArgument, match=expected):
            open_llm(path, dtype="f32")
        with pytest.raises(InvalidArgument, match=r"head_dtype: is 'f32', .*packed in int8"):
            open_llm(path, dtype="auto", head_dtype="f32")

    def test_a_folder_of_packed_weights(self, tmp_path: Path, open_llm: Callable[..., Any]) -> None:
        with pytest.raises(InvalidArgument, match=r"packed_cache: .*tiny.onward.*packed already"):
            open_llm(tiny_pack(tmp_path), dtype="auto", packed_cache=tmp_path)

    def test_another_layout_is_refused_with_the_next_step(self, tmp_path: Path) -> None:
        path = tiny_pack(tmp_path)
        parts = parts_of(path)
        parts.metadata.update(layout="77", onward="9.9")
        path.write_bytes(put_together(parts))
        ours = _core.packed_layout
        found = r"tiny.onward: has layout 77 \(packed by onward 9.9\)"
        way_out = r".*onward pack MODEL -o tiny.onward --force"
        with pytest.raises(PackError, match=f"{found}, expected layout {ours}: {way_out}"):
            open_pack(path)

    def test_missing_files_and_folders_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ModelNotFound, match="no such file"):
            onward.LLM(tmp_path / "gone.onward")
        with pytest.raises(ModelNotFound, match="no such file"):
            find_model("owner/gone.onward")
        with pytest.raises(IoError, match=r"gone.onward: cannot open: No such file"):
            open_pack(tmp_path / "gone.onward")
        with pytest.raises(IoError, match="is not a regular file"):
            open_pack(tmp_path)
        os.mkfifo(tmp_path / "pipe.onward")
        with pytest.raises(IoError, match="is not a regular file"):
            open_pack(tmp_path / "pipe.onward")

    def test_a_text_above_the_limit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """256 MiB, as docs/files.md says; lowered here."""
        assert packing.TEXT_LIMIT_BYTES == 268_435_456
        folder = write_seeded(tmp_path / "m")
        (folder / "generation_config.json").write_text(json.dumps({"note": "x" * 5000}))
        monkeypatch.setattr(packing, "TEXT_LIMIT_BYTES", 5000)
        with pytest.raises(
            PackError, match=r"generation_config: has 5\d\d\d bytes, expected at most 5000"
        ):
            packing.pack_model(folder, tmp_path / "m.onward", threads=1)
        assert not (tmp_path / "m.onward").exists()

    def test_find_model_by_the_suffix(self, tmp_path: Path) -> None:
        path = tmp_path / "some.name.onward"
        path.touch()
        assert find_model(path) == ModelFiles("some.name", path, "pack")

    def test_unusual_names_of_files_are_accepted(self, tmp_path: Path) -> None:
        path = tiny_pack(tmp_path)
        odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\x01" + "é".encode() + b".onward"))
        path.rename(odd)
        assert open_pack(odd)[1]["name"] == "model"
        odd.write_bytes(b"no")
        with pytest.raises(PackError, match=r"^\?\?\?\?.onward: has 2 bytes"):
            open_pack(odd)


@needs_proc
class TestMemory:
    def of_mapping(self, path: Path) -> dict[str, int]:
        """kB of the fields of a file's mapping in this process, summed."""
        found: dict[str, int] = {}
        inside = False
        for line in Path("/proc/self/smaps").read_text().splitlines():
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                inside = line.endswith(str(path))
            elif inside and line.endswith(" kB"):
                key, value = line.split(":")
                found[key] = found.get(key, 0) + int(value.split()[0])
        return found

    def test_opening_touches_no_weight(self, tmp_path: Path) -> None:
        pack(write_seeded(tmp_path / "m", hidden_size=512, num_layers=4), tmp_path / "m.onward")
        model, _ = open_pack(tmp_path / "m.onward")
        assert model.weight_bytes > 10 << 20
        seen = self.of_mapping(tmp_path / "m.onward")
        assert seen["Size"] > 10 << 10
        assert seen["Rss"] == 0
        new_engine(model).logits(np.arange(4, dtype=np.int32))
        seen = self.of_mapping(tmp_path / "m.onward")
        assert seen["Rss"] > 0
        assert seen["Private_Dirty"] + seen["Shared_Dirty"] + seen["Anonymous"] == 0
        del model

    def test_a_loaded_pack_touches_no_weight(
        self, tmp_path: Path, open_llm: Callable[..., Any]
    ) -> None:
        folder = write_talking(tmp_path / "m", hidden_size=512, num_layers=4)
        pack(folder, tmp_path / "m.onward")
        open_llm(tmp_path / "m.onward", dtype="auto")
        assert self.of_mapping(tmp_path / "m.onward")["Rss"] == 0

    def test_the_default_cache_leaves_memory_for_unread_weights(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_llm: Callable[..., Any]
    ) -> None:
        path = tiny_pack(tmp_path)
        given: list[int] = []
        free = 1 << 20
        monkeypatch.setattr("onward.options.cache.memory_bytes", lambda: {"available": free})

        class Engine(_core.Engine):
            def __init__(self, model: _core.Model, **options: Any) -> None:
                given.append(options["kv_cache_bytes"])
                super().__init__(model, **options)

        monkeypatch.setattr("onward.llm._core.Engine", Engine)
        weights = open_llm(path, dtype="auto").weight_bytes
        open_llm(path, dtype="auto", draft_model=path)
        open_llm(tmp_path / "model")
        free = weights // 2
        open_llm(path, dtype="auto")
        shares = [(1 << 20) - weights, (1 << 20) - 2 * weights, 1 << 20, weights // 20]
        assert given == pytest.approx([int(0.8 * share) for share in shares], abs=2)

    def test_a_copy_keeps_no_mapping(self, tmp_path: Path) -> None:
        path = tiny_pack(tmp_path)
        model, _ = open_pack(path, copy=True)
        assert self.of_mapping(path) == {}
        assert model.weight_bytes > 0

    def test_the_mapping_goes_with_the_model_and_stays_with_its_views(self, tmp_path: Path) -> None:
        path = tiny_pack(tmp_path)
        model, _ = open_pack(path)
        view = model.packed()[0][2]
        expected = bytes(view)
        del model
        path.unlink()  # a file that is replaced or removed goes on where it is mapped
        assert bytes(view) == expected
        del view
        assert "tiny.onward" not in Path("/proc/self/maps").read_text()

    def test_two_processes_share_the_pages(
        self, tmp_path: Path, child_environment: dict[str, str]
    ) -> None:
        """The Pss of each of n processes has an n-th of a page that all of them map."""
        pack(write_seeded(tmp_path / "m", hidden_size=512, num_layers=4), tmp_path / "m.onward")
        code = (
            "import sys\n"
            "from pathlib import Path\n"
            "from builders.packs import open_pack, packed_bytes\n"
            "from test_pack import TestMemory\n"
            "model, _ = open_pack(Path(sys.argv[1]))\n"
            "for line in sys.stdin:\n"
            "    packed_bytes(model)\n"
            "    seen = TestMemory().of_mapping(Path(sys.argv[1]))\n"
            "    print(seen['Rss'], seen['Pss'], flush=True)\n"
        )
        children = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(tmp_path / "m.onward")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=child_environment,
            )
            for _ in range(2)
        ]

        def look(child: subprocess.Popen[str]) -> tuple[int, int]:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("look\n")
            child.stdin.flush()
            rss, pss = child.stdout.readline().split()
            return int(rss), int(pss)

        try:
            alone = look(children[0])
            look(children[1])
            together = look(children[0])
        finally:
            for child in children:
                child.communicate(timeout=60)
        assert alone[0] > 10 << 10
        assert alone[1] >= 0.9 * alone[0]
        assert together[1] <= 0.6 * together[0]

    def test_opening_and_closing_leaves_no_memory_and_no_files(self, tmp_path: Path) -> None:
        path = tiny_pack(tmp_path)
        for _ in range(20):
            open_pack(path)
        before, files = resident_bytes(), len(os.listdir("/proc/self/fd"))
        for _ in range(300):
            open_pack(path)
            with pytest.raises(PackError):
                _core.open_pack(path, 1, cache_dtype="q8_0")
        assert resident_bytes() - before < 4 << 20
        assert len(os.listdir("/proc/self/fd")) == files


def test_opening_takes_the_same_time_for_any_size(tmp_path: Path) -> None:
    """A model of 100 MB opens as fast as a small one: within 50 ms, in the best of several tries
    because the machine may be busy."""
    pack(
        write_talking(tmp_path / "m", hidden_size=1024, intermediate_size=2816, num_layers=2),
        tmp_path / "m.onward",
    )
    assert (tmp_path / "m.onward").stat().st_size > 80 << 20
    best = 1.0
    for _ in range(5):
        began = time.perf_counter()
        open_pack(tmp_path / "m.onward")
        best = min(best, time.perf_counter() - began)
    assert best < 0.05
