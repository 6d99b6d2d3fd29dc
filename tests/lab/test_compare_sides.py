"""``onward compare``: the results of a side in this process, in another process and from a file.

The model is a small llama with random weights over bytes.
"""

from __future__ import annotations

import io
import json
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.seeded_folder import write_seeded
from closed_form import write_bytes_tokenizer, write_generation_config
from onward.errors import Error, InvalidArgument, IoError, LoadError
from onward.lab.compare import result_file
from onward.lab.compare.comparison import Question, compare, measure
from onward.lab.compare.local import LocalSide
from onward.lab.compare.messages import receive, send
from onward.lab.compare.remote import RemoteSide
from onward.lab.compare.result_file import SavedSide, load, save
from onward.lab.compare.setting import parse_setting
from onward.lab.compare.side import Text

QUESTION = Question(prompts=("One day", "x"), max_new_tokens=6, depths=())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = write_seeded(tmp_path_factory.mktemp("models") / "seeded", hidden_size=32)
    write_bytes_tokenizer(path)
    return str(path)


@pytest.fixture
def opened(folder: str) -> Iterator[Callable[..., Any]]:
    """Opens sides and closes them after the test."""
    sides: list[Any] = []

    def open_(setting: str, kind: Any = LocalSide, model: str = folder) -> Any:
        sides.append(kind(parse_setting(setting), model))
        return sides[-1]

    yield open_
    for side in sides:
        side.close()


@pytest.fixture(scope="module")
def saved_path(folder: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "a.npz"
    save(measure(parse_setting("cpu:f32:threads=1"), folder, QUESTION), str(path))
    return path


class TestLocal:
    def test_rows_are_the_logits_of_one_pass(self, opened: Any, open_llm: Any, folder: str) -> None:
        side = opened("cpu:f32:threads=1")
        prompt = side.tokenize(["One day"])[0]
        assert prompt == tuple(b"One day")
        text, rows = side.write(prompt, 6)
        assert rows.shape == (6, 256) and text.written == tuple(rows.argmax(axis=1))
        llm = open_llm(folder)
        whole = llm.logits([*prompt, *text.written])
        assert rows.tobytes() == whole[len(prompt) - 1 : -1].tobytes()

    @pytest.mark.parametrize("cache", ["on", "off"])
    def test_it_computes_logits_for_given_tokens(
        self, opened: Any, open_llm: Any, folder: str, cache: str
    ) -> None:
        side = opened(f"cpu:f32:threads=1:cache={cache}")
        text = Text((5, 6, 7), (250, 3, 3, 77, 9))
        rows = side.follow(text)
        whole = open_llm(folder).logits([*text.prompt, *text.written])
        assert rows.tobytes() == whole[2:-1].tobytes()
        assert tuple(rows.argmax(axis=1)) != text.written

    def test_without_the_cache_everything_is_computed_again(self, opened: Any) -> None:
        text = Text((5, 6, 7), (250, 3, 3, 77, 9))
        computed = []
        for cache in ("on", "off"):
            side = opened(f"cpu:f32:threads=1:cache={cache}")
            side.follow(text)
            computed.append(side._llm.stats()["kv_computations"])
        assert computed == [3 + 4, 3 + 4 + 5 + 6 + 7]

    def test_the_models_own_options_have_no_effect(self, opened: Any, tmp_path: Path) -> None:
        rows = []
        for name, fields in (("plain", {}), ("odd", {"repetition_penalty": 1.9, "top_k": 3})):
            path = write_seeded(tmp_path / name, hidden_size=32)
            write_bytes_tokenizer(path)
            write_generation_config(path, do_sample=bool(fields), **fields)
            side = opened("cpu:f32:threads=1", model=str(path))
            rows.append(side.write((1, 2, 3), 8)[1].tobytes())
        assert rows[0] == rows[1]

    def test_a_description_has_the_requested_settings(self, opened: Any) -> None:
        found = opened("cpu:int8:kv=f32:threads=1:cache=off").describe()
        assert (found.dtype, found.kv_dtype, found.threads) == ("int8", "f32", 1)
        assert (found.device, found.cache, found.vocab_size) == ("cpu", False, 256)
        assert set(found.weight_dtypes) == {"q8_0"}

    def test_the_llm_refuses_unknown_devices(self, opened: Any) -> None:
        with pytest.raises(InvalidArgument, match="device: is 'toaster'"):
            opened("toaster:f32")

    def test_a_run_is_counted(self, opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        from onward.lab.bench import ceilings

        monkeypatch.setattr(ceilings._core.kernels, "probe", lambda *arguments: 10.0)
        side = opened("cpu:f32:threads=1")
        shallow, deep = side.run(0), side.run(64)
        assert shallow.prefill_tokens_per_s is None and shallow.arithmetic_share is None
        assert deep.prefill_tokens_per_s > 0 and deep.arithmetic_share > 0
        assert deep.read_share == pytest.approx(deep.gigabytes_per_s / 10)
        rate = deep.decode_tokens_per_s
        assert deep.gigabytes_per_s == pytest.approx(1e-9 * deep.bytes_per_token * rate)
        # Two layers, one kv head of 16, keys and values of four bytes: 64 tokens more.
        assert deep.bytes_per_token - shallow.bytes_per_token == 63 * 2 * 2 * 16 * 4


class TestRemote:
    def test_another_interpreter_gives_the_same_results(self, opened: Any) -> None:
        here = opened("cpu:f32:threads=1")
        there = opened(f"python={sys.executable},cpu:f32:threads=1", RemoteSide)
        assert there.tokenize(["ab", ""]) == [(97, 98), ()]
        text, rows = there.write((1, 2, 3), 5)
        assert (text, rows.tobytes()) == (lambda t, r: (t, r.tobytes()))(*here.write((1, 2, 3), 5))
        assert there.follow(text).tobytes() == rows.tobytes()
        assert there.spell([97, 98]) == ["a", "b"]
        assert there.footprint().weight_bytes == here.footprint().weight_bytes
        reported = there.describe()
        assert reported.core == here.describe().core
        assert reported.setting.startswith("python=")
        # An error of the child is raised here, and the side stays usable.
        with pytest.raises(InvalidArgument, match=r"^compare: python=.*: prompt"):
            there.write((1, 2, 999), 5)
        assert there.tokenize(["c"]) == [(99,)]
        there.close()
        assert there._child.returncode == 0

    def test_a_child_process_that_dies_is_an_error(self, opened: Any) -> None:
        there = opened(f"python={sys.executable},cpu:f32:threads=1", RemoteSide)
        there._child.kill()
        with pytest.raises(Error, match="exit code -9 before it answered, expected an answer"):
            there.describe()

    def test_another_instruction_set(self, opened: Any) -> None:
        here = opened("cpu:f32:threads=1")
        there = opened("cpu:f32:threads=1:isa=generic", RemoteSide)
        assert there.describe().isa == "generic"
        text, rows = here.write((1, 2, 3), 5)
        assert there.follow(text).tobytes() == rows.tobytes()

    def test_errors_of_loading_are_raised_here(self, opened: Any) -> None:
        with pytest.raises(InvalidArgument, match="device: is 'toaster'"):
            opened(f"python={sys.executable},toaster:f32", RemoteSide)

    def test_a_path_that_is_not_an_interpreter(self, opened: Any, tmp_path: Path) -> None:
        with pytest.raises(Error, match="cannot start"):
            opened(f"python={tmp_path}/python,cpu:f32", RemoteSide)
        with pytest.raises(Error, match="ended with exit code 1 before it answered"):
            opened("python=/bin/false,cpu:f32", RemoteSide)

    def test_messages(self) -> None:
        stream = io.BytesIO()
        send(stream, {"a": [1]}, [np.arange(3, dtype=np.float32)])
        send(stream, "b")
        stream.seek(0)
        body, arrays = receive(stream, "x") or ("", [])
        assert body == {"a": [1]} and arrays[0].tolist() == [0, 1, 2]
        assert receive(stream, "x") == ("b", [])
        assert receive(stream, "x") is None

    @pytest.mark.parametrize(
        "line",
        [
            b"hello\n",
            b"[]\n",
            b'{"body": 1}\n',
            b'{"body": 1, "bytes": [-1]}\n',
            b'{"body": 1, "bytes": [9]}\nshort',
            b'{"body": 1, "bytes": [5]}\nthere',
        ],
    )
    def test_a_line_that_is_not_a_message(self, line: bytes) -> None:
        with pytest.raises(LoadError, match=r"^x: "):
            receive(io.BytesIO(line), "x")

    def test_nothing_is_unpickled(self) -> None:
        part = io.BytesIO()
        np.save(part, np.array([{}], object), allow_pickle=True)
        data = part.getvalue()
        line = json.dumps({"body": 1, "bytes": [len(data)]}).encode()
        with pytest.raises(LoadError, match="sent no array"):
            receive(io.BytesIO(line + b"\n" + data), "x")


class TestFiles:
    def test_a_saved_side_is_read_unchanged(self, folder: str, tmp_path: Path) -> None:
        question = Question(QUESTION.prompts, 6, depths=(0, 4), repetitions=2)
        saved = measure(parse_setting("cpu:f32:threads=1"), folder, question)
        save(saved, str(tmp_path / "a.npz"))
        again = load(str(tmp_path / "a.npz"))
        assert again.description == saved.description and again.texts == saved.texts
        assert again.footprint == saved.footprint and again.rounds == saved.rounds
        assert [run.depth for run in again.rounds] == [0, 0, 4, 4]
        for a, b in zip(saved.logits, again.logits, strict=True):
            assert a.tobytes() == b.tobytes() and a.shape == b.shape == (6, 256)
        save(saved, str(tmp_path / "a.npz"))  # a saved result may be replaced

    def test_a_saved_side_compared_with_its_setting_is_identical(
        self, folder: str, saved_path: Path
    ) -> None:
        saved, live = (parse_setting(text) for text in (str(saved_path), "cpu:f32:threads=1"))
        for a, b, writer in ((saved, live, "A"), (live, saved, "B"), (saved, saved, "A")):
            found = compare(a, b, folder, QUESTION).comparison
            assert found.writer == writer
            assert found.judgement.verdict == "bit-identical"
        assert found.texts == load(str(saved_path)).texts

    def test_a_side_saved_for_other_tokens_is_refused(
        self, folder: str, saved_path: Path, tmp_path: Path
    ) -> None:
        other = tmp_path / "b.npz"
        question = Question(("else",), 6, depths=())
        save(measure(parse_setting("cpu:f32:threads=1"), folder, question), str(other))
        with pytest.raises(InvalidArgument, match=r"^b\.npz: was saved for other tokens"):
            compare(parse_setting(str(saved_path)), parse_setting(str(other)), None, QUESTION)

    def test_another_vocabulary_is_refused(self, saved_path: Path, tmp_path: Path) -> None:
        path = write_seeded(tmp_path / "wide", hidden_size=32, vocab_size=300)
        with pytest.raises(InvalidArgument, match="B has 300 tokens in its vocabulary"):
            compare(parse_setting(str(saved_path)), parse_setting("cpu:f32"), str(path), QUESTION)

    def test_it_refuses_to_compute(self, saved_path: Path) -> None:
        side = SavedSide(str(saved_path))
        for ask in (
            lambda: side.write((1,), 2),
            lambda: side.tokenize(["a"]),
            lambda: side.run(0),
            lambda: measure(parse_setting(str(saved_path)), None, QUESTION),
        ):
            with pytest.raises(InvalidArgument, match="is a saved result"):
                ask()

    def test_a_missing_file_is_an_error(self) -> None:
        with pytest.raises(IoError, match=r"^a\.npz: cannot read"):
            load("/does/not/exist/a.npz")

    def test_every_cut_is_an_error(self, saved_path: Path, tmp_path: Path) -> None:
        data = saved_path.read_bytes()
        for length in [0, 1, 100, len(data) // 2, len(data) - 30, len(data) - 1]:
            (tmp_path / "cut.npz").write_bytes(data[:length])
            with pytest.raises(LoadError, match=r"^cut\.npz: "):
                load(str(tmp_path / "cut.npz"))

    def test_damaged_headers_are_an_error_or_harmless(
        self, saved_path: Path, tmp_path: Path
    ) -> None:
        """Bytes of the headers of zip and numpy, which no checksum covers."""
        data, random = saved_path.read_bytes(), np.random.default_rng(0)
        starts = [match.start() for match in re.finditer(rb"PK(\x01\x02|\x03\x04|\x05\x06)", data)]
        places = [place for start in starts for place in range(start, min(start + 200, len(data)))]
        refused = 0
        for _ in range(1500):
            bad = bytearray(data)
            for place in random.choice(places, random.integers(1, 4)):
                bad[place] = random.integers(256)
            (tmp_path / "bad.npz").write_bytes(bad)
            try:
                load(str(tmp_path / "bad.npz"))
            except LoadError:
                refused += 1
        assert refused > 1000

    @pytest.mark.parametrize(
        ("change", "reported"),
        [
            (lambda head: head.update(version=2), "version 2, expected onward-compare version 1"),
            (lambda head: head.pop("texts"), "texts is not a list"),
            (lambda head: head.update(texts=[]), "for 0 texts"),
            (lambda head: head["texts"].pop(), "2 arrays of logits for 1 texts"),
            (lambda head: head["texts"][0]["written"].append(1), r"expected <f4 of \(7, 256\)"),
            (lambda head: head["texts"][0].update(written=[-1] * 6), "ids outside 0 to 255"),
            (lambda head: head["texts"][0].update(prompt="ab"), "texts: prompt: is 'ab'"),
            (lambda head: head["description"].update(vocab_size=10**9), "expected <f4 of"),
            (lambda head: head["description"].update(threads=True), "threads: is True"),
            (lambda head: head["description"].pop("isa"), "description: has "),
            (lambda head: head["footprint"].update(load_s=None), "load_s: is None"),
            (lambda head: head.update(rounds=[{}]), "rounds: has "),
        ],
    )
    def test_hostile_fields(
        self, saved_path: Path, tmp_path: Path, change: Callable[[Any], Any], reported: str
    ) -> None:
        with np.load(saved_path) as members:
            arrays = dict(members)
        head = json.loads(arrays["side.json"].tobytes())
        change(head)
        arrays["side.json"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
        np.savez(tmp_path / "bad.npz", **arrays)
        with pytest.raises(LoadError, match=reported) as caught:
            load(str(tmp_path / "bad.npz"))
        assert str(caught.value).startswith("bad.npz: ")

    def test_hostile_members(self, saved_path: Path, tmp_path: Path) -> None:
        path = tmp_path / "bad.npz"
        with np.load(saved_path) as members:
            arrays = dict(members)
        np.savez_compressed(path, **arrays)
        with pytest.raises(LoadError, match="is compressed or encrypted"):
            load(str(path))
        np.savez(path, **{**arrays, "more": np.zeros(3)})
        with pytest.raises(LoadError, match="3 arrays of logits for 2 texts"):
            load(str(path))
        np.savez(path, **{**arrays, "logits_0": arrays["logits_0"].astype(np.float64)})
        with pytest.raises(LoadError, match="is <f8 of"):
            load(str(path))
        np.savez(path, **{**arrays, "logits_0": np.array([{}] * 6, object)})
        with pytest.raises(LoadError, match=r"logits_0\.npy is"):
            load(str(path))
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("side.json.npy", b"no array at all")
        with pytest.raises(LoadError, match="is not an array"):
            load(str(path))
        path.write_bytes(b"PK nothing")
        with pytest.raises(LoadError, match="is not a saved result"):
            load(str(path))

    def test_memory_is_allocated_only_for_bytes_in_the_file(
        self, saved_path: Path, tmp_path: Path
    ) -> None:
        """A few bytes, with an array header that claims the size in the description."""
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": "<f4", "fortran_order": False, "shape": (6, 256)}
        )
        path = tmp_path / "bad.npz"
        with zipfile.ZipFile(saved_path) as source, zipfile.ZipFile(path, "w") as target:
            for name in source.namelist():
                data = source.read(name)
                target.writestr(name, header.getvalue() if name == "logits_0.npy" else data)
        with pytest.raises(LoadError, match="expected 6144 and a header"):
            load(str(path))

    def test_logits_beyond_the_limit_of_memory_are_refused(
        self, folder: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from onward.lab.compare import comparison

        monkeypatch.setattr(comparison, "_LOGITS_BYTES", 4 * 2 * 6 * 256 - 1)
        with pytest.raises(InvalidArgument, match="take 12288 bytes of logits"):
            measure(parse_setting("cpu:f32"), folder, QUESTION)
        assert result_file.VERSION == 1
