"""All writers of the package by name: the saved content, and a reader that checks it.

A new writer needs one entry in ``WRITERS``.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from builders.packs import write_gguf as write_gguf_model
from builders.talking import write_talking
from onward import LLM
from onward.cli import output
from onward.cli.chat import history
from onward.errors import Error
from onward.lab.compare import page, result_file
from onward.lab.compare.comparison import Question, compare, measure
from onward.lab.compare.setting import parse_setting
from onward.lab.report import Chart, Curve
from onward.lab.report import write as write_chart
from onward.load.hub import find_model
from onward.load.packing import pack_model, write_pack
from onward.load.weights import open_checkpoint
from onward.quantization.folder_output import write_folder
from onward.quantization.gguf_output import require_gguf, write_gguf

Save = Callable[[Path, int], None]
"""Writes version 0 or 1 to a path."""


@dataclass(frozen=True)
class Writer:
    """How a kind of file is written. ``prepare`` gets the folder of ``write_models``."""

    target: str
    prepare: Callable[[Path, ExitStack], Save]
    error: type[Exception] = Error
    """The error of a failed save. OSError if the callers convert it."""
    replaces: bool = True
    needs: str = "onward"
    """A module that this writer needs."""
    read: Callable[[Path], object] = Path.read_bytes
    """Reads the file. Raises for a damaged file, or returns a value that no good file has."""


def write_models(folder: Path) -> Path:
    """Write the inputs of the writers: a folder, a GGUF file and two saved sides of a
    comparison."""
    small = {"num_layers": 1, "hidden_size": 64, "intermediate_size": 64}
    model = write_talking(folder / "model", **small)
    write_gguf_model(folder / "model.gguf")
    question = Question(prompts=("One day",), max_new_tokens=4, depths=())
    for name in ("f32", "bf16"):
        setting = parse_setting(f"cpu:{name}:threads=1")
        result_file.save(measure(setting, str(model), question), str(folder / f"{name}.npz"))
    return folder


def _pack(models: Path, ends: ExitStack) -> Save:
    return lambda path, version: void(
        pack_model(models / "model", path, name=f"v{version}", force=True, threads=1)
    )


def _cached_pack(models: Path, ends: ExitStack) -> Save:
    content = memoryview(bytes(range(256)) * 400)
    return lambda path, version: write_pack(
        path, {"version": str(version)}, [("weight", "int8", content)]
    )


def _session(models: Path, ends: ExitStack) -> Save:
    llm = ends.enter_context(LLM(models / "model", threads=1))
    sessions = [llm.session(text, max_new_tokens=40) for text in ("be brief", "be good")]
    for session in sessions:
        session.send("hello there")
    return lambda path, version: sessions[version].save(path)


def _gguf_file(models: Path, ends: ExitStack) -> Save:
    require_gguf()
    return lambda path, version: write_gguf([models / "model.gguf"], path, "Q8_0", {}, unchanged)


def _folder(models: Path, ends: ExitStack) -> Save:
    checkpoint = open_checkpoint(find_model(models / "model"))
    ends.callback(checkpoint.close)
    tensors = [(name, checkpoint.tensor(name)) for name in sorted(checkpoint.names())]
    return lambda path, version: write_folder(
        models / "model", path, checkpoint.config, {}, tensors, unchanged
    )


def _saved_side(models: Path, ends: ExitStack) -> Save:
    sides = [result_file.load(str(models / f"{name}.npz")) for name in ("f32", "bf16")]
    return lambda path, version: result_file.save(sides[version], str(path))


def _page(models: Path, ends: ExitStack) -> Save:
    a, b = (parse_setting(str(models / f"{name}.npz")) for name in ("f32", "bf16"))
    found = compare(a, b, None, Question(prompts=("One day",), max_new_tokens=4, depths=()))
    return lambda path, version: page.write(found.comparison, [f"v{version}"], str(path))


def _plot(models: Path, ends: ExitStack) -> Save:
    """Write SVG or PNG, depending on the name of the target."""
    points = tuple((float(x), float(x)) for x in range(1, 200))
    return lambda path, version: write_chart(
        Chart(f"v{version}", "x", (Curve("a", points),), str), str(path)
    )


def _result(models: Path, ends: ExitStack) -> Save:
    return lambda path, version: output.write(str(path), f"v{version}\n" * 2000)


def _history(models: Path, ends: ExitStack) -> Save:
    return lambda path, version: history._rewrite(path, [f"v{version}"] * 2000)


def _arrays(path: Path) -> object:
    """The file contains its time of writing, so its bytes differ each time."""
    side = result_file.load(str(path))
    return side.description, side.texts, [logits.tobytes() for logits in side.logits]


def _tree(path: Path) -> object:
    return {
        str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()
    }


WRITERS = {
    "pack": Writer("f.onward", _pack),
    "pack of packed_cache": Writer("f.onward", _cached_pack, OSError),
    "session": Writer("f.session", _session),
    "quantized GGUF file": Writer("f.gguf", _gguf_file, OSError, replaces=False, needs="gguf"),
    "quantized folder": Writer("f", _folder, OSError, replaces=False, read=_tree),
    "compare --save": Writer("f.npz", _saved_side, read=_arrays),
    "compare --html": Writer("f.html", _page),
    "plot": Writer("f.svg", _plot),
    "plot as PNG": Writer("f.png", _plot, needs="matplotlib"),
    "result of -o": Writer("f.txt", _result),
    "chat history": Writer("f", _history, OSError),
}


def void(_: object) -> None:
    """Ignore a result, for callables that return nothing."""


def unchanged() -> None:
    """The source of a quantized file has not changed."""


def save_forever(name: str, models: Path, target: Path, aside: Path, first: Connection) -> None:
    """The loop of a child until it is killed. A target that is never replaced is moved away."""
    writer = WRITERS[name]
    with ExitStack() as ends:
        save = writer.prepare(models, ends)
        first.send("ready")
        for version in itertools.cycle((1, 0)):
            if not writer.replaces and target.exists():
                os.rename(target, aside)
                shutil.rmtree(aside) if aside.is_dir() else aside.unlink()
            save(target, version)
