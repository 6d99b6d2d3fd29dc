"""Damaged and hostile session files: an error of onward, and the engine serves the next call."""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.session_files import changed, read_parts
from builders.talking import talked, write_talking
from onward import LLM
from onward.errors import ArgumentTypeError, InvalidArgument, NumericsError, SessionError

OpenLLM = Callable[..., LLM]
CACHES: list[dict[str, Any]] = [
    {},
    {"kv_dtype": "turbo4", "kv_window_tokens": 32},
    {"kv_dtype": "turbo4", "kv_window_tokens": 0, "kv_sinks": False},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_talking(tmp_path_factory.mktemp("talking") / "m")


@pytest.fixture(autouse=True)
def no_warnings() -> Any:
    """Warnings are errors in these tests, except where a test expects them."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture(scope="module")
def saved(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "talk.session"
    with LLM(folder, dtype="f32") as llm:
        talked(llm).save(path)
    return path


def refused(llm: LLM, path: Path) -> str:
    """The message of the error. The session is unchanged, and the engine serves the next call."""
    session = llm.session("s", max_new_tokens=2)
    with pytest.raises(SessionError) as failure:
        session.load(path)
    assert session.messages == [{"role": "system", "content": "s"}]
    reported = str(failure.value)
    assert reported.startswith(f"{path.name}: ") and len(reported) < 600
    return reported


def test_a_file_that_is_cut_short(
    folder: Path, saved: Path, tmp_path: Path, open_llm: OpenLLM
) -> None:
    llm, path = open_llm(folder), tmp_path / "cut"
    data = saved.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    places = [*range(0, 40), *range(0, header + 64, 37), *range(header, len(data), 9973)]
    for size in sorted({*places, header - 1, header, header + 1, len(data) - 1}):
        path.write_bytes(data[:size])
        refused(llm, path)
    path.write_bytes(data + b"\0")
    refused(llm, path)
    assert len(llm.generate([1, 2, 3], max_new_tokens=3).token_ids) == 3


def test_any_changed_byte_is_found(
    folder: Path, saved: Path, tmp_path: Path, open_llm: OpenLLM
) -> None:
    llm, path = open_llm(folder), tmp_path / "damaged"
    data = bytearray(saved.read_bytes())
    header = 8 + int.from_bytes(data[:8], "little")
    generator = np.random.default_rng(0)
    places = [
        *range(8),
        *generator.integers(8, header, 200),
        *generator.integers(header, len(data), 200),
    ]
    for place in places:
        for flip in (1, 0x80):
            data[place] ^= flip
            path.write_bytes(data)
            try:
                llm.session().load(path)
            except SessionError:
                pass
            except UserWarning as warning:  # the name of the backend has no other effect
                assert "was computed on" in str(warning)
            else:
                assert data[place] ^ flip == ord(
                    " "
                )  # after the header, where a space may be a tab
            data[place] ^= flip


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (b"", "is empty"),
        (b"hello", "has 5 bytes, expected a header"),
        (b"\xff" * 64, "cut short or no safetensors file"),
        ((1 << 40).to_bytes(8, "little") + b"{}", "cut short or no safetensors file"),
        ((2).to_bytes(8, "little") + b"{}", "its format is None, expected 'onward session'"),
        ((1 << 62).to_bytes(8, "little") + b"{" * 100, "cut short"),
    ],
)
def test_files_that_are_not_sessions_are_refused(
    folder: Path, tmp_path: Path, open_llm: OpenLLM, content: bytes, reported: str
) -> None:
    (tmp_path / "other").write_bytes(content)
    assert reported in refused(open_llm(folder), tmp_path / "other")


def test_files_that_cannot_be_opened(folder: Path, tmp_path: Path, open_llm: OpenLLM) -> None:
    llm = open_llm(folder)
    assert "cannot open: No such file" in refused(llm, tmp_path / "absent")
    assert "regular file" in refused(llm, tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "regular file" in refused(llm, tmp_path / "pipe")
    (tmp_path / "weights").write_bytes((folder / "model.safetensors").read_bytes())
    assert "its format is None" in refused(llm, tmp_path / "weights")
    for bad, error in ((3, ArgumentTypeError), (None, ArgumentTypeError), ("", InvalidArgument)):
        for call in (llm.session().load, llm.session().save):
            with pytest.raises(error, match=r"path: is .*expected the path of a file"):
                call(bad)  # type: ignore[arg-type]


def _set(name: str, make: Callable[[np.ndarray], np.ndarray]) -> Callable[[Any], object]:
    return lambda parts: parts.tensors.update({name: make(parts.tensors[name])})


def _drop(*names: str) -> Callable[[Any], object]:
    return lambda parts: [parts.tensors.pop(name) for name in names]


def _say(**values: Any) -> Callable[[Any], object]:
    def change(parts: Any) -> None:
        parts.conversation = {**parts.conversation, **values}

    return change


EXACT, INDEX = "blocks.0.exact", "blocks.0.exact.index"
HOSTILE: list[tuple[Callable[[Any], object], str]] = [
    (lambda p: p.metadata.update(format_version="2"), "is of version '2' of sessions"),
    (lambda p: p.metadata.update(kv_dtype="int8"), "kv_dtype 'int8', expected 'f32'"),
    (lambda p: p.metadata.pop("model"), "model None, expected"),
    (lambda p: p.metadata.update(model="x" * 9999), "was saved with model 'xxx"),
    (lambda p: p.metadata.update(block_layout="9"), "layout of cache blocks '9', expected '2'"),
    (_drop("token_ids"), "has no tensor token_ids"),
    (_drop("conversation"), "has no tensor conversation"),
    (_drop(EXACT), f"has {INDEX} alone"),
    (_drop(INDEX), f"has {EXACT} alone"),
    (_set("token_ids", lambda t: t.astype(np.int64)), "token_ids is I64 of shape"),
    (_set("token_ids", lambda t: t[None]), r"expected I32 of 1 dimension"),
    (_set("token_ids", lambda t: t.view(np.float32)), "token_ids is F32"),
    (_set("token_ids", lambda t: t + 10_000), "has token ids from 10006 to"),
    (_set("token_ids", lambda t: -t), "has token ids from -"),
    (_set("token_ids", lambda t: t[:-1]), "transcript: has"),
    (_set("token_ids", lambda t: np.resize(t, 1 << 18)), "tokens, expected at most 131072"),
    (_set("conversation", lambda t: t[:-1]), "conversation: is not valid JSON"),
    (_set("conversation", lambda t: t[:0]), "conversation: is empty"),
    (_set("conversation", lambda t: np.full(9, 255, np.uint8)), "is not valid UTF-8"),
    (_set("conversation", lambda t: np.full(100_000, ord("["), np.uint8)), "nested too deeply"),
    (_set(EXACT, lambda t: t[:, :-1]), "block: bytes"),
    (_set(EXACT, lambda t: t[:, :0]), "block: bytes"),
    (_set(EXACT, lambda t: t.reshape(-1)), "expected U8 of 2 dimensions"),
    (_set(EXACT, lambda t: t.astype(np.uint16)), f"{EXACT} is U16"),
    (_set(EXACT, lambda t: t[:-1]), "blocks and"),
    (_set(INDEX, lambda t: t[:-1]), "blocks and"),
    (_set(INDEX, lambda t: t.astype(np.int32)), "index is I32"),
    (_set(INDEX, lambda t: t * 0), "block: index"),
    (_set(INDEX, lambda t: t - 1), "block: index"),
    (_set(INDEX, lambda t: t + 1), "block: index"),
    (_set(INDEX, lambda t: t + 2**62), "block: index"),
    (_set(INDEX, lambda t: t - 2**62), "block: index"),
    (lambda p: p.tensors.update({"x": p.tensors[INDEX]}), "has a tensor 'x', which no session has"),
    (lambda p: p.tensors.update({"blocks.99999.exact": p.tensors[EXACT]}), "has a tensor"),
    (
        lambda p: p.tensors.update(
            {"blocks.7.exact": p.tensors[EXACT], "blocks.7.exact.index": p.tensors[INDEX]}
        ),
        "block: layer group",
    ),
    (
        lambda p: p.tensors.update(
            {"blocks.0.coded": p.tensors[EXACT], "blocks.0.coded.index": p.tensors[INDEX]}
        ),
        "block: coded",
    ),
    (_say(messages=3), "messages: is 3, expected a list"),
    (_say(messages=[3]), r"messages\[0\]: found a int"),
    (_say(messages=[{"role": "user", "content": 5}]), "its content is 5"),
    (_say(messages=[{"role": 1, "content": "x"}]), "its role is 1"),
    (_say(transcript=None), "transcript: is None, expected a list"),
    (_say(transcript=[]), "transcript: has 0 tokens"),
    (_say(transcript=[1]), r"transcript\[0\]: is 1"),
    (_say(transcript=[{"text": "", "tokens": -5, "messages": 0, "said": True}]), "tokens: is -5"),
    (_say(transcript=[{"text": "", "tokens": 1, "messages": 1e9, "said": True}]), "messages: is"),
    (_say(transcript=[{"text": 0, "tokens": 1, "messages": 1, "said": True}]), "text: is 0"),
    (_say(transcript=[{"text": "", "tokens": 1, "messages": 1, "said": 1}]), "said: is 1"),
    (_say(usage=[]), r"usage: is \[\], expected an object"),
    (_say(usage={"prompt_tokens": -1}), "prompt_tokens: is -1"),
    (_say(usage={"prompt_tokens": 10**400}), "is"),
    (_say(template_options=[]), r"template_options: is \[\]"),
]


@pytest.mark.parametrize(("change", "reported"), HOSTILE, ids=[str(i) for i in range(len(HOSTILE))])
def test_hostile_files_with_a_matching_hash(
    folder: Path, saved: Path, tmp_path: Path, open_llm: OpenLLM, change: Any, reported: str
) -> None:
    llm = open_llm(folder)
    path = changed(saved, tmp_path / "hostile", change)
    assert re.search(reported, refused(llm, path)), refused(llm, path)
    assert len(llm.generate([1, 2, 3], max_new_tokens=3).token_ids) == 3


@pytest.mark.parametrize("cache", CACHES, ids=str)
def test_files_with_missing_blocks_or_wrong_bytes(
    folder: Path, tmp_path: Path, open_llm: OpenLLM, cache: dict[str, Any]
) -> None:
    """A hash can be made to match any content. Then the answers follow from the file, without other
    effects."""
    talked(open_llm(folder, **cache)).save(tmp_path / "good")
    good = read_parts(tmp_path / "good")
    stems = sorted(name for name in good.tensors if name.endswith(("exact", "coded")))
    assert len(stems) == 1 + ("kv_dtype" in cache)

    def keep(stem: str, rows: Any) -> Callable[[Any], None]:
        def change(parts: Any) -> None:
            for name in (stem, f"{stem}.index"):
                parts.tensors[name] = parts.tensors[name][rows]

        return change

    for stem in stems:
        for rows in (slice(1, None), slice(None, -1), slice(0, 0), slice(None, None, 2)):
            path = changed(tmp_path / "good", tmp_path / "s", keep(stem, rows))
            if read_parts(path).tensors[stem].shape == good.tensors[stem].shape:
                continue
            llm = open_llm(folder, **cache)
            session = llm.session(max_new_tokens=30)
            # A file without any block is one that was saved without keys and values.
            if len(stems) > 1 or rows != slice(0, 0):
                with pytest.warns(UserWarning, match="the cache does not hold"):
                    session.load(path)
            else:
                session.load(path)
            whole = open_llm(folder, **cache).session(max_new_tokens=30)
            whole.load(tmp_path / "good")
            assert session.send("x").token_ids == whole.send("x").token_ids
            llm.close()
        for byte in (0, 0x55, 0xFF):
            llm = open_llm(folder, **cache)
            session = llm.session(max_new_tokens=30)
            session.load(
                changed(
                    tmp_path / "good",
                    tmp_path / "s",
                    _set(stem, partial(np.full_like, fill_value=byte)),
                )
            )
            with contextlib.suppress(NumericsError):
                session.send("x")
            llm.cache.clear()
            assert len(llm.generate([1, 2, 3], max_new_tokens=3).token_ids) == 3
            llm.close()
