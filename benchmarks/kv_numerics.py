"""The distance of every kv_dtype from exact keys and values: KL divergence, top-1 agreement and
perplexity, with its bits per value and the divergence of q4_0.

The reference is the dequantised model in f32 with an exact f32 cache. It is compared with the same
model with another kv_dtype, so only the cache differs. The tokens of one window of each of three
texts (kv_texts.py) are given, and every position is compared. There are four settings: with and
without the exact window of the newest tokens, with and without the exact first block. The exit code
is 1 if a bound in kv_tables.py is exceeded.

    python benchmarks/kv_numerics.py [--work DIR] [--tokens 4096] [--kv-dtypes turbo4 q4_0 ...]
        [--settings default exposed ...] [--texts austen ...] [-o text|md|json] [--plot FILE.svg]

All 114 rows take 10 to 25 seconds each on two cores. A row is kept in the work folder (3 GB) under
a digest of the tokens, the name of the model and the core library. It is measured again only if one
of these changes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kv_texts
import numpy as np
from agreement import Agreement
from kv_chart import chart
from kv_tables import Row, promises, tables
from numpy.typing import NDArray

import onward
from onward import _core
from onward.lab.counts.vectors import pair_bytes
from onward.load.hub import find_model
from onward.options.kv_dtypes import parse_kv_dtype

ALONE = ("f16", "int8", "turbo8v4", "turbo4", "turbo3", "turbo2", "q4_0")
PAIRS = ("int8/turbo3", "f32/turbo4", "turbo4/f32")
WORK = Path(__file__).parent / ".kv-numerics"


@dataclass(frozen=True)
class Setting:
    """The blocks that stay exact."""

    name: str
    window_tokens: int
    sinks: bool


SETTINGS = (
    Setting("default", 128, True),
    Setting("exposed", 0, False),
    Setting("no window", 0, True),
    Setting("no sinks", 128, False),
)
DEFAULT = SETTINGS[0]


class Passage:
    """The tokens of a text, and the paths of its results."""

    def __init__(self, name: str, ids: Sequence[int], tokens: int, model: str, work: Path) -> None:
        if len(ids) <= tokens:
            raise SystemExit(f"{name}: has {len(ids)} tokens, expected over {tokens}")
        self.name = name
        self.ids = list(ids[:tokens])
        self.next_ids = np.array(ids[1 : tokens + 1], np.int64)
        core = Path(str(_core.__file__)).read_bytes()
        read = np.array(ids[: tokens + 1], np.int64).tobytes()
        key = hashlib.sha256(read + model.encode() + hashlib.sha256(core).digest())
        self._stem = work / f"{name}-{key.hexdigest()[:12]}"

    @property
    def reference(self) -> Path:
        """float32, (tokens, vocab)."""
        return self._stem.with_suffix(".f32")

    def row(self, kv_dtype: str, setting: Setting) -> Path:
        words = f"{kv_dtype} {setting.name}".replace("/", "-").replace(" ", "-")
        return self._stem.with_name(f"{self._stem.name}-{words}.json")


class Bench:
    """The model, its texts and the results."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        work: Path = arguments.work
        work.mkdir(parents=True, exist_ok=True)
        self._model = arguments.model
        self._threads: int = arguments.threads
        self._begin = time.monotonic()
        cuts = kv_texts.find(work)
        with self._llm("f32", DEFAULT) as llm:
            spec = llm.spec
            self._vocab, self._head_dim = spec.vocab_size, spec.head_dim
            name = find_model(self._model).name
            self._passages = [
                Passage(text, llm.tokenize(cuts[text]), arguments.tokens, name, work)
                for text in arguments.texts
            ]
        self.rows: list[Row] = []

    def run(self, kv_dtype: str, setting: Setting) -> None:
        """The rows of all texts. Results of earlier runs are read from the work folder."""
        missing = [p for p in self._passages if not p.row(kv_dtype, setting).exists()]
        for passage in missing:
            self._make_reference(passage)
            if kv_dtype == "f32":
                self._measure(passage, kv_dtype, setting, self._reference_of(passage))
        if missing and kv_dtype != "f32":
            with self._llm(kv_dtype, setting) as llm:
                for passage in missing:
                    self._measure(passage, kv_dtype, setting, llm.logits(passage.ids))
        for passage in self._passages:
            measured = json.loads(passage.row(kv_dtype, setting).read_text(encoding="utf-8"))
            self.rows.append(Row(**measured))

    def _measure(
        self, passage: Passage, kv_dtype: str, setting: Setting, logits: NDArray[np.float32]
    ) -> None:
        agreement = Agreement()
        agreement.add(self._reference_of(passage), logits, passage.next_ids)
        dtypes = parse_kv_dtype(kv_dtype, "f32")
        row = {
            "text": passage.name,
            "kv_dtype": kv_dtype,
            "setting": setting.name,
            "window_tokens": setting.window_tokens,
            "sinks": setting.sinks,
            "bits": 4 * pair_bytes(dtypes.keys, dtypes.values, self._head_dim) / self._head_dim,
            **agreement.figures(),
        }
        self._write(passage.row(kv_dtype, setting), lambda to: to.write_text(json.dumps(row)))
        self._say(f"{passage.name}, {kv_dtype}, {setting.name}: {row['kl_mean']:.3g}")

    def _llm(self, kv_dtype: str, setting: Setting) -> onward.LLM:
        return onward.LLM(
            self._model,
            dtype="f32",
            threads=self._threads,
            kv_dtype=kv_dtype,
            kv_window_tokens=setting.window_tokens,
            kv_sinks=setting.sinks,
            prefix_cache=False,
        )

    def _make_reference(self, passage: Passage) -> None:
        if passage.reference.exists():
            return
        with self._llm("f32", DEFAULT) as llm:
            self._write(passage.reference, llm.logits(passage.ids).tofile)
        self._say(f"{passage.name}: reference")

    def _reference_of(self, passage: Passage) -> NDArray[np.float32]:
        shape = (len(passage.ids), self._vocab)
        return np.memmap(passage.reference, np.float32, "r", 0, shape)

    @staticmethod
    def _write(path: Path, write: Callable[[Path], object]) -> None:
        """Write the file whole or not at all."""
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        write(unfinished)
        unfinished.rename(path)

    def _say(self, words: str) -> None:
        print(f"{words}, {time.monotonic() - self._begin:.0f} s", file=sys.stderr, flush=True)


def about(tokens: int) -> dict[str, Any]:
    core = Path(str(_core.__file__)).read_bytes()
    return {
        "onward": onward.__version__,
        "core_sha256": hashlib.sha256(core).hexdigest(),
        "tokens": tokens,
        "texts": {text.name: f"{text.about} ({text.package})" for text in kv_texts.TEXTS},
    }


def main() -> None:
    names = [text.name for text in kv_texts.TEXTS]
    settings = {setting.name.replace(" ", "-"): setting for setting in SETTINGS}
    parser = argparse.ArgumentParser(description=" ".join((__doc__ or "").split("\n\n")[0].split()))
    parser.add_argument("--model", default=None, help="default: SmolLM2-135M-Instruct")
    parser.add_argument("--kv-dtypes", nargs="+", default=[*ALONE, *PAIRS], metavar="KV_DTYPE")
    parser.add_argument("--settings", nargs="+", default=list(settings), choices=settings)
    parser.add_argument("--texts", nargs="+", default=names, choices=names)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--work", type=Path, default=WORK)
    parser.add_argument("-o", "--output", choices=("text", "md", "json"), default="text")
    parser.add_argument("--json", dest="output", action="store_const", const="json")
    parser.add_argument("--plot", type=Path, help="an SVG file to write")
    arguments = parser.parse_args()

    bench = Bench(arguments)
    for setting in (settings[name] for name in arguments.settings):
        for kv_dtype in ("f32", *arguments.kv_dtypes):
            # Without codes, all settings are equal.
            if parse_kv_dtype(kv_dtype, "f32").coded or setting is DEFAULT:
                bench.run(kv_dtype, setting)
    found = promises(bench.rows, DEFAULT.name)
    if arguments.plot is not None:
        arguments.plot.write_text(chart(bench.rows, DEFAULT.name), encoding="utf-8")
    facts = about(arguments.tokens)
    if arguments.output == "json":
        rows = [row.as_dict(bench.rows) for row in bench.rows]
        kept = [{"promise": each.words, "kept": each.kept} for each in found]
        print(json.dumps({**facts, "rows": rows, "promises": kept}, indent=2))
    else:
        print(tables(bench.rows, markdown=arguments.output == "md"))
        for each in found:
            print(f"{'kept' if each.kept else 'BROKEN'}: {each.words}")
        print(f"onward {facts['onward']}, core {facts['core_sha256'][:12]}", end=", ")
        print(f"{arguments.tokens} tokens a text")
    if not all(each.kept for each in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
