"""Packs through the C interface: the same ids as in Python, their metadata, and refusals. The
example of docs/c-interface.md runs unchanged.
"""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from builders.c_interface import HEADER, LIBRARY, CError, CModel, call, lib, struct
from builders.packs import TEMPLATE, tiny_pack
from onward import LLM

DOCUMENT = Path(__file__).parents[2] / "docs" / "c-interface.md"
PROMPT = [1, 2, 3]


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tiny_pack(tmp_path_factory.mktemp("packs"))


def open_pack(path: Path, **options) -> CModel:
    value = ctypes.c_void_p()
    made = struct("model_options", **options)
    call("onward_model_open", str(path).encode(), ctypes.byref(made), ctypes.byref(value))
    assert value.value is not None
    return CModel(value.value)


def metadata(model: CModel, key: str, capacity: int | None = None) -> bytes:
    length = ctypes.c_size_t()
    size = ctypes.byref(length)
    none = ctypes.c_size_t(0)
    call("onward_model_metadata", model.handle, key.encode(), None, none, size)
    room = length.value if capacity is None else capacity
    text = ctypes.create_string_buffer(b"\x55" * (room + 1), room + 1)
    given = ctypes.c_size_t(room)
    call("onward_model_metadata", model.handle, key.encode(), text, given, size)
    assert text.raw[room:] == b"\x55", "no terminator"
    return text.raw[: min(room, length.value)]


@pytest.mark.parametrize("options", [{}, {"copy": 1}, {"verify": 1}, {"copy": 1, "threads": 2}])
def test_the_same_ids_as_python(path, options):
    with LLM(path, threads=1) as llm:
        expected = [
            llm.generate(PROMPT, max_new_tokens=30, **sampling).token_ids
            for sampling in ({}, {"temperature": 1.0, "seed": 5})
        ]
    with open_pack(path, **options) as model, model.engine(threads=1) as engine:
        found = [
            engine.complete(PROMPT, max_new_tokens=30, sampling=sampling)
            for sampling in ({}, {"temperature": 1.0, "seed": 5})
        ]
    assert [tuple(tokens) for (tokens,) in found] == expected
    assert expected[0] != expected[1]


def test_an_output_ends_at_the_packs_end_tokens(path):
    """A bias makes an end token certain, as in Python."""
    with open_pack(path) as model, model.engine(threads=1) as engine:
        biased = {"logit_bias": {301: 1000.0}}
        request = engine.submit(PROMPT, sampling=biased, max_new_tokens=5)
        (output,) = engine.drain([request])[request]
        assert (output.tokens, output.finish) == ([301], "stop")
        assert engine.complete(PROMPT, sampling=biased, max_new_tokens=5, ignore_eos=1) == [
            [301] * 5
        ]


def test_the_metadata_of_a_pack(path):
    with open_pack(path) as model, LLM(path) as llm:
        info = model.info()
        assert (info.vocab_size, info.num_layers, info.hidden_size) == (320, 1, 32)
        special = [llm.tokenizer.encode(text)[-1] for text in ("<|begin|>", "<|fill|>")]
        assert [info.bos_token_id, info.pad_token_id] == special
        assert special[0] != special[1] and -1 not in special
        ids, count = (ctypes.c_int32 * 4)(), ctypes.c_size_t()
        call(
            "onward_model_eos_token_ids",
            model.handle,
            ids,
            ctypes.c_size_t(4),
            ctypes.byref(count),
        )
        assert count.value == info.num_eos_token_ids
        assert {300, 301} <= set(ids[: count.value])
        assert json.loads(metadata(model, "tokenizer.json"))["model"]
        assert metadata(model, "chat_template").decode() == TEMPLATE
        assert metadata(model, "chat_template", 5).decode() == TEMPLATE[:5]
        with pytest.raises(
            CError, match=r'key: the model has no "nothing", expected one of .*conf'
        ):
            metadata(model, "nothing")


def test_a_model_outlives_its_handle_and_its_name(path, tmp_path):
    copied = shutil.copy(path, tmp_path / "copied.onward")
    model = open_pack(copied)
    engine, other = model.engine(threads=1), model.engine(threads=1)
    model.close()
    Path(copied).unlink()
    with engine, other:
        assert engine.complete(PROMPT, max_new_tokens=8) == other.complete(PROMPT, max_new_tokens=8)


def test_files_that_are_not_packs_are_refused(path, tmp_path):
    whole = path.read_bytes()
    damaged = {
        "empty": b"",
        "text": b"hello" * 100,
        "cut": whole[: len(whole) // 2],
        "header": whole[:20] + bytes([whole[20] ^ 0xFF]) + whole[21:],
    }
    for name, data in damaged.items():
        file = tmp_path / name
        file.write_bytes(data)
        with pytest.raises(CError) as caught:
            open_pack(file)
        assert caught.value.status == "ONWARD_PACK_ERROR", name
    flipped = bytearray(whole)
    flipped[-5] ^= 1
    (tmp_path / "bit").write_bytes(flipped)
    with pytest.raises(CError) as caught:
        open_pack(tmp_path / "bit", verify=1)
    assert caught.value.status == "ONWARD_PACK_ERROR"
    with pytest.raises(CError) as caught:
        open_pack(tmp_path / "none")
    assert caught.value.status == "ONWARD_IO_ERROR"
    assert "none" in lib.onward_last_error().decode()


@pytest.mark.skipif(shutil.which("cc") is None, reason="no cc here")
@pytest.mark.skipif(sys.platform != "linux", reason="finds the library by an ELF run path")
def test_the_example_of_the_document(path, tmp_path):
    (source,) = re.findall(r"```c\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    file, binary = tmp_path / "example.c", tmp_path / "example"
    file.write_text(source)
    command = ["cc", "-std=c99", "-pedantic-errors", "-Wall", "-Wextra", "-Werror"]
    command += ["-I", HEADER.parents[1], file, LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}"]
    subprocess.run([*command, "-o", binary], check=True, timeout=60)
    run = subprocess.run([binary, path], capture_output=True, text=True, check=True, timeout=60)
    with LLM(path, threads=1) as llm:
        expected = llm.generate(PROMPT, max_new_tokens=20).token_ids
    assert tuple(map(int, run.stdout.split())) == expected
    failed = subprocess.run(
        [binary, tmp_path / "none"], capture_output=True, text=True, check=False, timeout=60
    )
    assert failed.returncode == 1 and failed.stderr.startswith("ONWARD_IO_ERROR: ")
