"""onward pack: its output, messages and refusals, and other commands with a pack."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from builders.packs import open_pack, parts_of, tiny_pack, write_talking
from onward.cli import main
from onward.errors import PackError
from onward.load import packing


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_talking(tmp_path_factory.mktemp("made") / "model")


def reported(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    seen = capsys.readouterr()
    return seen.out, seen.err


class TestWriting:
    def test_it_prints_a_summary_and_the_next_command(
        self, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output = tmp_path / "my model.onward"
        assert main(["pack", str(folder), "-o", str(output), "--dtype", "int4"]) == 0
        out, err = reported(capsys)
        assert err == ""
        assert f"{output}: model in int4, head int8\n" in out
        size = output.stat().st_size
        assert f"{size:,} bytes: weights " in out
        assert f"""onward generate "Once upon a time" --model '{output}'""" in out
        assert [path.name for path in tmp_path.iterdir()] == [output.name]

    def test_the_summary_as_json_with_a_name(
        self, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output = tmp_path / "m.onward"
        arguments = ["pack", str(folder), "-o", str(output), "--name", "Ours 1", "--json"]
        assert main([*arguments, "--dtype", "bf16", "--head-dtype", "int8", "--threads", "1"]) == 0
        summary = json.loads(reported(capsys)[0])
        assert summary.pop("seconds") > 0
        model, texts = open_pack(output)
        assert summary == {
            "output": str(output),
            "name": "Ours 1",
            "dtype": "bf16",
            "head_dtype": "int8",
            "weight_bytes": sum(len(data) for _, _, data in model.packed()),
            "file_bytes": output.stat().st_size,
        }
        assert texts["name"] == "Ours 1"

    def test_an_existing_file_is_overwritten_only_with_force(
        self, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output = tmp_path / "m.onward"
        output.write_text("precious")
        assert main(["pack", str(folder), "-o", str(output)]) == 2
        assert "m.onward exists, expected a new path, or --force" in reported(capsys)[1].replace(
            "\n", " "
        )
        assert output.read_text() == "precious"
        assert main(["pack", str(folder), "-o", str(output), "--force"]) == 0
        open_pack(output, verify=True)

    def test_a_pack_in_use_is_replaced_and_not_changed(self, folder: Path, tmp_path: Path) -> None:
        """The new file is a different file, so processes that map the old one keep it."""
        output = tmp_path / "m.onward"
        main(["pack", str(folder), "-o", str(output), "--dtype", "int8"])
        model, _ = open_pack(output)
        views = model.packed()
        main(["pack", str(folder), "-o", str(output), "--dtype", "f32", "--force"])
        digest = {name: bytes(data) for name, _, data in views}
        main(["pack", str(folder), "-o", str(output), "--dtype", "int8", "--force"])
        assert digest == {name: bytes(data) for name, _, data in open_pack(output)[0].packed()}

    @pytest.mark.parametrize("problem", [OSError(28, "No space left on device"), KeyboardInterrupt])
    def test_a_failure_leaves_no_file(
        self,
        folder: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        problem: Any,
    ) -> None:
        def fails(*arguments: object) -> None:
            raise problem

        monkeypatch.setattr(os, "fsync", fails)
        code = main(["pack", str(folder), "-o", str(tmp_path / "m.onward")])
        assert code == (1 if isinstance(problem, OSError) else 130)
        if code == 1:
            assert "m.onward: cannot write: No space left on device" in reported(capsys)[1]
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            (["-o", "m.gguf"], "m.gguf does not end in .onward, expected m.gguf.onward"),
            (["-o", "{tmp}/folder.onward"], "is a folder, expected a file"),
            (["-o", "{tmp}/m.onward", "--dtype", "int3"], "dtype: is 'int3', expected one of"),
            (["-o", "{tmp}/m.onward", "--name", " "], "name: is ' ', expected text of one line"),
            (["-o", "{tmp}/m.onward", "--name", "a\nb"], "expected text of one line"),
            (["-o", "{tmp}/m.onward", "--threads", "0"], "threads: is 0"),
            ([], "output: is missing, expected -o FILE.onward"),
            (["--verify", "x", "-o", "y"], "verify: is given together with"),
        ],
    )
    def test_refused(
        self,
        folder: Path,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        arguments: list[str],
        problem: str,
    ) -> None:
        (tmp_path / "folder.onward").mkdir()
        filled = [argument.replace("{tmp}", str(tmp_path)) for argument in arguments]
        assert main(["pack", str(folder), *filled]) == 2
        assert problem in reported(capsys)[1]
        assert [path.name for path in tmp_path.iterdir()] == ["folder.onward"]

    def test_packing_a_pack_is_refused(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tiny_pack(tmp_path)
        assert main(["pack", str(path), "-o", str(tmp_path / "again.onward")]) == 2
        assert "is a pack, expected the model that it was made of" in reported(capsys)[1]

    def test_half_a_surrogate_pair_is_refused(self, tmp_path: Path) -> None:
        folder = write_talking(tmp_path / "model")
        (folder / "tokenizer_config.json").write_text(r'{"chat_template": "a\ud800"}')
        with pytest.raises(PackError, match="chat_template: holds half of a surrogate pair"):
            packing.pack_model(folder, tmp_path / "m.onward", threads=1)


class TestVerify:
    def test_verify_accepts_a_good_pack(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tiny_pack(tmp_path)
        size = path.stat().st_size
        weights = len(open_pack(path)[0].packed())
        assert main(["pack", "--verify", str(path)]) == 0
        assert reported(capsys)[0] == f"{path}: {weights} weights, {size:,} bytes: good\n"
        assert main(["pack", "--verify", str(path), "--json"]) == 0
        assert json.loads(reported(capsys)[0]) == {
            "file": str(path),
            "name": "model",
            "weights": weights,
            "bytes": size,
            "good": True,
        }

    def test_verify_refuses_a_damaged_pack(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tiny_pack(tmp_path)
        whole = bytearray(path.read_bytes())
        begin = parts_of(path).header["layers.0.down"]["data_offsets"][0]
        whole[len(whole) - len(parts_of(path).data) + begin] ^= 1
        path.write_bytes(whole)
        assert main(["pack", "--verify", str(path)]) == 1
        assert "tiny.onward: tensor 'layers.0.down' has checksum" in reported(capsys)[1]

    def test_verify_of_a_missing_file_is_an_error(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["pack", "--verify", str(tmp_path / "gone.onward")]) == 1
        assert "gone.onward: cannot open: No such file or directory" in reported(capsys)[1]


class TestOtherCommands:
    def test_generate_gives_the_output_of_the_model(
        self, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output = tmp_path / "m.onward"
        main(["pack", str(folder), "-o", str(output)])
        capsys.readouterr()
        texts = []
        for model in (folder, output):
            assert main(["generate", "abc", "--model", str(model), "--json"]) == 0
            texts.append(json.loads(reported(capsys)[0])["text"])
        assert texts[0] == texts[1]
        assert main(["generate", "abc", "--model", str(output), "--dtype", "int4"]) == 2
        assert "is packed in f32, expected" in reported(capsys)[1]

    def test_kv_gives_the_same_bytes(
        self, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        output = tmp_path / "m.onward"
        main(["pack", str(folder), "-o", str(output), "--dtype", "bf16"])
        capsys.readouterr()
        tables = []
        for model, dtype in ((folder, "bf16"), (output, "auto")):
            assert main(["kv", str(model), "--dtype", dtype, "--memory", "2GiB"]) == 0
            tables.append(reported(capsys)[0])
        assert tables[0] == tables[1]
        assert main(["kv", str(output), "--dtype", "f32"]) == 2
        assert "is packed in bf16, expected" in reported(capsys)[1]

    def test_bench_accepts_a_pack(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tiny_pack(tmp_path)
        sizes = ["--prefill", "8", "--decode-tokens", "4", "--batch", "1", "--depth", "0"]
        assert main(["bench", "--model", str(path), *sizes, "--repetitions", "1"]) == 0
        assert reported(capsys)[0].startswith("model, f32, ")

    def test_quantize_refuses_a_pack(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tiny_pack(tmp_path)
        assert main(["quantize", str(path), "-o", str(tmp_path / "out")]) == 2
        assert "tiny.onward: is a pack, expected the model" in reported(capsys)[1]
