"""The distance of each weight dtype, and of llama.cpp, from float32: KL divergence, top-1
agreement, perplexity.

All runs read the same token ids in the same windows, so each position compares two distributions
over the same next token. The reference is the dequantised model in f32. --llama-cpp takes a Python
with llama-cpp-python. Its quantiser then writes GGUF files from the dequantised model. Each file is
run by llama.cpp ("F32": without its f16 cache, as a control of the method), by onward unchanged
("auto") and by onward dequantised ("f32": the effect of the weights alone).

    python benchmarks/numerics.py [--work DIR] [--tokens 20480] [--dtypes int8 int4/f16 ...]
        [--llama-cpp PYTHON] [--files Q8_0 Q4_0 ...]

Results are kept in the work folder (5 GB) and are not measured again. Delete the folder after a
change of either engine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mmap
import os
import pydoc_data.topics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from agreement import Agreement
from numpy.typing import NDArray

import onward
from onward.load.hub import find_model
from onward.load.weights.gguf_reader import read_gguf_header

WINDOW = 1024
DTYPES = ("f16", "bf16", "int8", "int8/f16", "int4", "int4/f16", "int4/f32")
FILES = ("F32", "F16", "Q8_0", "Q4_0", "Q4_K_M", "Q6_K")
AS_SHIPPED = "as shipped"
CHILD = Path(__file__).parent / "llama_logits.py"
WORK = Path(__file__).parent / ".numerics"

Logits = Callable[[int], NDArray[np.float32]]
"""Logits of a window: (WINDOW, vocab)."""


@dataclass(frozen=True)
class Row:
    """One way of running one file."""

    engine: str  # onward or llama.cpp
    file: str  # AS_SHIPPED or one of FILES
    dtype: str = ""  # dtype of onward; after a slash, the dtype of the head

    @property
    def label(self) -> str:
        return f"{self.engine} {self.dtype}".strip()


class Bench:
    """The model, its conversions and the reference, in the work folder."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.work: Path = arguments.work
        self.work.mkdir(parents=True, exist_ok=True)
        self.model = arguments.model
        self.python: str | None = arguments.llama_cpp
        self.threads = arguments.threads
        self.text = default_text() if arguments.text is None else arguments.text.read_text("utf-8")
        self.windows = -(-arguments.tokens // WINDOW)
        with onward.LLM(self.model, dtype="f32", threads=self.threads) as llm:
            ids = np.array(llm.tokenize(self.text), np.int64)
            self.vocab = llm.spec.vocab_size
            if len(ids) <= self.windows * WINDOW:
                raise SystemExit(f"text: has {len(ids)} tokens, expected over {arguments.tokens}")
            self.ids = ids[: self.windows * WINDOW].reshape(self.windows, WINDOW)
            self.next_ids = ids[1 : self.windows * WINDOW + 1].reshape(self.windows, WINDOW)
            key = hashlib.sha256(self.ids.tobytes() + find_model(self.model).name.encode())
            self.key = key.hexdigest()[:12]
            np.save(self.work / f"ids-{self.key}.npy", self.ids)
            self.reference = self._make_reference(lambda w: llm.logits(self.ids[w].tolist()))

    def run(self, row: Row) -> dict[str, Any]:
        """The figures of one row. Results of earlier runs are read from the work folder."""
        name = f"{row.file} {row.label}".replace("/", "-").replace(" ", "-")
        path = self.work / f"row-{self.key}-{name}.json"
        if not path.exists():
            measured = {"file": row.file, "run_by": row.label, **self._measure(row)}
            path.write_text(json.dumps(measured), encoding="utf-8")
        figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        print(json.dumps(figures), file=sys.stderr, flush=True)
        return figures

    def _measure(self, row: Row) -> dict[str, float]:
        agreement, begin = Agreement(), time.monotonic()
        with self._logits(row) as logits:
            for window in range(self.windows):
                agreement.add(self._reference_of(window), logits(window), self.next_ids[window])
                progress(f"{row.file}, {row.label}: {window + 1}/{self.windows}", begin)
        return agreement.figures()

    def path(self, file: str) -> Path:
        """A GGUF file; it is written if it does not exist yet."""
        if file == AS_SHIPPED:
            source: Path = find_model(self.model).path
            return source
        path = self.work / f"{file}.gguf"
        if not path.exists():
            assert self.python is not None
            source = self.path(AS_SHIPPED if file == "F32" else "F32")
            unfinished = path.with_suffix(".unfinished")
            command = [self.python, str(CHILD), "write", str(source), str(unfinished), file]
            with (self.work / "llama.log").open("a") as log:
                subprocess.run(command, check=True, stdout=log, stderr=log)
            unfinished.rename(path)
        return path

    def mix(self, file: str) -> str:
        """The types of the matrices of a file."""
        with self.path(file).open("rb") as stream:
            data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            header = read_gguf_header(data, file)
        found = Counter(t.dtype for t in header.tensors.values() if len(t.shape) == 2)
        embedding = header.tensors["token_embd.weight"].dtype
        counts = ", ".join(f"{count} {dtype}" for dtype, count in found.most_common())
        return f"{counts}; embedding and head {embedding}"

    @contextmanager
    def _logits(self, row: Row) -> Iterator[Logits]:
        if row.engine == "onward":
            dtype, _, head = row.dtype.partition("/")
            model = self.model if row.file == AS_SHIPPED else self.path(row.file)
            with onward.LLM(
                model, dtype=dtype, head_dtype=head or None, threads=self.threads
            ) as llm:
                yield lambda window: llm.logits(self.ids[window].tolist())
            return
        assert self.python is not None
        out = self.work / f"logits-{os.getpid()}.npy"
        command = [self.python, str(CHILD), "logits", str(self.path(row.file))]
        command += [str(self.work / f"ids-{self.key}.npy"), str(out), f"--threads={self.threads}"]
        if row.file == "F32":
            command.append("--exact")
        pipe = subprocess.PIPE
        with (
            (self.work / "llama.log").open("a") as log,
            subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True) as child,
        ):
            assert child.stdin is not None and child.stdout is not None
            stdin, stdout = child.stdin, child.stdout

            def ask(window: int) -> NDArray[np.float32]:
                print(window, file=stdin, flush=True)
                if not stdout.readline():
                    raise SystemExit(f"llama.cpp ended; see {self.work / 'llama.log'}")
                logits: NDArray[np.float32] = np.load(out, mmap_mode="r")
                return logits

            yield ask
            stdin.close()
        out.unlink()

    def _make_reference(self, logits: Logits) -> Path:
        """float32 logits on the disk, one window after another: 4 GB for 20,480 tokens and 49,152
        words."""
        path = self.work / f"reference-{self.key}.f32"
        if not path.exists():
            begin, unfinished = time.monotonic(), path.with_suffix(".unfinished")
            with unfinished.open("wb") as out:
                for window in range(self.windows):
                    logits(window).tofile(out)
                    progress(f"reference: {window + 1}/{self.windows}", begin)
            unfinished.rename(path)
        return path

    def _reference_of(self, window: int) -> NDArray[np.float32]:
        shape = (WINDOW, self.vocab)
        offset = window * WINDOW * self.vocab * 4
        return np.memmap(self.reference, np.float32, "r", offset, shape)


def progress(text: str, begin: float) -> None:
    print(f"{text}, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


def default_text() -> str:
    """The help topics of this Python: reference text with grammar and examples."""
    topics = pydoc_data.topics.topics
    return "\n\n".join(topics[name] for name in sorted(topics))


def rows_of(dtypes: Sequence[str], files: Sequence[str], llama_cpp: bool) -> list[Row]:
    """The list of runs. The dtypes round the dequantised file, because codes of four bits in a file
    would be kept."""
    plain = "F32" if llama_cpp else AS_SHIPPED
    rows = [Row("onward", plain, dtype) for dtype in dtypes]
    rows += [Row("onward", AS_SHIPPED, "auto"), Row("onward", AS_SHIPPED, "auto/f16")]
    if not llama_cpp:
        return rows
    rows.append(Row("llama.cpp", AS_SHIPPED))
    for file in files:
        rows.append(Row("llama.cpp", file))
        if file not in ("F32", "F16"):
            rows += [Row("onward", file, "auto"), Row("onward", file, "f32")]
    return rows


def markdown(results: list[dict[str, Any]]) -> str:
    lines = [
        "| file | run by | KL mean | KL 99.9 % | top-1 agreement | perplexity |",
        "|---|---|---|---|---|---|",
    ]
    for result in results:
        lines.append(
            f"| {result['file']} | {result['run_by']} "
            f"| {result['kl_mean']:.3g} ± {result['kl_error']:.1g} "
            f"| {result['kl_p99_9']:.2g} | {result['top1_agreement']:.2%} "
            f"| {result['perplexity']:.3f} |"
        )
    return "\n".join(lines)


def text_table(results: list[dict[str, Any]]) -> str:
    rows = [line.strip("| ").split(" | ") for line in markdown(results).splitlines()]
    del rows[1]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=" ".join((__doc__ or "").split("\n\n")[0].split()))
    parser.add_argument("--model", default=None, help="a .gguf; default: SmolLM2-135M-Instruct")
    parser.add_argument("--text", type=Path, default=None, help="default: Python's help topics")
    parser.add_argument("--tokens", type=int, default=20480)
    parser.add_argument("--dtypes", nargs="*", default=DTYPES, metavar="DTYPE[/HEAD_DTYPE]")
    parser.add_argument("--llama-cpp", default=None, metavar="PYTHON")
    parser.add_argument("--files", nargs="*", default=FILES, metavar="TYPE")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("-o", "--output", choices=("text", "md", "json"), default="text")
    arguments = parser.parse_args()
    bench = Bench(arguments)
    rows = rows_of(arguments.dtypes, arguments.files, arguments.llama_cpp is not None)
    results: list[dict[str, Any]] = []
    for row in [Row("onward", AS_SHIPPED, "f32"), *rows]:
        results.append(bench.run(row))
    mixes = {file: bench.mix(file) for file in dict.fromkeys(row.file for row in rows)}
    digest = hashlib.sha256(bench.text.encode()).hexdigest()
    about = {"onward": onward.__version__, "text_sha256": digest, "tokens": bench.ids.size}
    if arguments.output == "json":
        print(json.dumps({**about, "files": mixes, "rows": results}, indent=2))
        return
    print(markdown(results) if arguments.output == "md" else text_table(results))
    print()
    for file, mix in mixes.items():
        print(f"{file}: {mix}")
    print(", ".join(f"{name} {value}" for name, value in about.items()))


if __name__ == "__main__":
    main()
