"""Memory under load: prints where the memory is while many threads send requests to one LLM, and
after.

The table has a column for each phase: before the model is loaded, loaded, at the end of the load
test, after the threads have ended, after ``cache.clear()``, after ``close()``. Linux with glibc.

    python benchmarks/load.py --threads 200 --seconds 180
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onward import LLM
from onward.errors import Error

MIB = 1 << 20
WORDS = ("sea", "a", "light", "in", "old", "houses", "of", "many", "days", "when", "rain", "hills")
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}}


class Allocator:
    """The statistics of glibc's malloc; zeros with another C library."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._known = hasattr(self._libc, "mallinfo2")

    def figures(self) -> dict[str, float]:
        if not self._known:
            return {}

        class Mallinfo(ctypes.Structure):
            _fields_ = [
                (name, ctypes.c_size_t)
                for name in (
                    *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
                    *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
                )
            ]

        self._libc.mallinfo2.restype = Mallinfo
        found = self._libc.mallinfo2()
        return {
            "malloc: in use": found.uordblks / MIB,
            "malloc: free, kept": found.fordblks / MIB,
            "malloc: mapped alone": found.hblkhd / MIB,
            "malloc: arenas (count)": self._arenas(),
        }

    def trim(self) -> None:
        if self._known:
            self._libc.malloc_trim(0)

    def _arenas(self) -> int:
        text, size = ctypes.c_char_p(), ctypes.c_size_t()
        libc = self._libc
        libc.open_memstream.restype = ctypes.c_void_p
        stream = ctypes.c_void_p(libc.open_memstream(ctypes.byref(text), ctypes.byref(size)))
        libc.malloc_info(0, stream)
        libc.fclose(stream)
        return len(re.findall(rb"<heap nr", text.value or b""))


def mapped() -> dict[str, float]:
    """Resident MiB by kind of mapping."""
    found: Counter[str] = Counter()
    kind = ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            name = line.split(maxsplit=5)[5:]
            path = name[0] if name else ""
            kind = "files" if path.startswith("/") else "heap" if path == "[heap]" else "anonymous"
        elif line.startswith("Rss:"):
            found[f"resident: {kind}"] += int(line.split()[1]) / 1024
    return dict(found)


class Load:
    """Threads that send requests, and the number of requests by outcome."""

    def __init__(self, llm: LLM, threads: int, seconds: float) -> None:
        self.outcomes: Counter[str] = Counter()
        self._llm = llm
        self._end = time.monotonic() + seconds
        self._asked = [
            threading.Thread(target=self._ask, args=(number,)) for number in range(threads)
        ]

    def run(self, at_the_end: Callable[[], None]) -> None:
        for thread in self._asked:
            thread.start()
        time.sleep(max(self._end - time.monotonic() - 0.5, 0.1))
        at_the_end()
        for thread in self._asked:
            thread.join()

    def _ask(self, number: int) -> None:
        chance = random.Random(number)
        while time.monotonic() < self._end:
            kind = chance.choice(KINDS)
            try:
                kind(self._llm, chance)
                self.outcomes["answered"] += 1
            except Error as error:
                self.outcomes[type(error).__name__] += 1


def text_of(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(WORDS, k=words))


def options_of(chance: random.Random) -> dict[str, Any]:
    return {"max_new_tokens": chance.randint(1, 24), "seed": chance.randrange(1 << 30)}


def whole(llm: LLM, chance: random.Random) -> None:
    llm.generate(text_of(chance, chance.randint(1, 120)), **options_of(chance))


def sampled(llm: LLM, chance: random.Random) -> None:
    llm.generate(text_of(chance, 20), temperature=0.9, top_p=0.9, logprobs=3, **options_of(chance))


def several(llm: LLM, chance: random.Random) -> None:
    several = {"num_beams": 3} if chance.random() < 0.5 else {"best_of": 3, "temperature": 1.0}
    llm.generate(text_of(chance, 10), **several, **options_of(chance))


def batch(llm: LLM, chance: random.Random) -> None:
    llm.generate([text_of(chance, n) for n in (1, 7, 30)], **options_of(chance))


def streamed(llm: LLM, chance: random.Random) -> None:
    with llm.stream(text_of(chance, 12), stop=" the", **options_of(chance)) as stream:
        for _ in stream:
            if chance.random() < 0.05:
                break


def constrained(llm: LLM, chance: random.Random) -> None:
    schema = {**SCHEMA, "title": text_of(chance, 3)}  # a different schema each time
    options = {"json_schema": schema} if chance.random() < 0.5 else {"regex": "[a-z]{1,9}"}
    llm.generate(text_of(chance, 5), **options, **options_of(chance))


def scored(llm: LLM, chance: random.Random) -> None:
    llm.score(text_of(chance, chance.randint(2, 60)))


def talked(llm: LLM, chance: random.Random) -> None:
    session = llm.session(text_of(chance, 4), **options_of(chance))
    for _ in range(2):
        session.send(text_of(chance, 6))


def refused(llm: LLM, chance: random.Random) -> None:
    llm.generate("x", temperature=-1 - chance.random())


KINDS = [whole, whole, sampled, several, batch, streamed, constrained, scored, talked, refused]


def measure(
    model: str | None, threads: int, seconds: float, options: dict[str, Any], trim: bool
) -> dict[str, Any]:
    """The figures of each phase, and the outcomes."""
    allocator = Allocator()
    phases: dict[str, dict[str, float]] = {}

    def note(phase: str, llm: LLM | None = None) -> None:
        figures = {**mapped(), **allocator.figures()}
        figures["resident"] = sum(v for k, v in figures.items() if k.startswith("resident: "))
        figures["threads (count)"] = threading.active_count()
        figures["Python objects (thousands)"] = len(gc.get_objects()) / 1000
        if llm is not None:
            stats = llm.stats()
            for name in ("cache_bytes", "prefix_cache_bytes", "scratch_bytes"):
                if name in stats:
                    figures[f"engine: {name}"] = stats[name] / MIB
        phases[phase] = figures

    note("start")
    llm = LLM(model, **options)
    llm.generate("a b c", max_new_tokens=2)
    note("loaded", llm)
    load = Load(llm, threads, seconds)
    load.run(lambda: note("under load"))
    gc.collect()
    note("idle", llm)
    llm.cache.clear()
    note("cleared", llm)
    llm.close()
    del llm, load._llm
    gc.collect()
    note("closed")
    if trim:
        allocator.trim()
        note("trimmed")
    return {"phases": phases, "outcomes": dict(load.outcomes)}


def table(found: dict[str, Any]) -> str:
    phases = found["phases"]
    names = sorted({name for figures in phases.values() for name in figures})
    lines = [f"{'MiB':<32}" + "".join(f"{phase:>12}" for phase in phases)]
    for name in names:
        cells = (figures.get(name) for figures in phases.values())
        lines.append(
            f"{name:<32}" + "".join(f"{'' if c is None else format(c, '.1f'):>12}" for c in cells)
        )
    outcomes = ", ".join(f"{count} {name}" for name, count in found["outcomes"].items())
    return "\n".join([*lines, f"requests: {outcomes}"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="default: the default model")
    parser.add_argument("--threads", type=int, default=200, help="number of threads; default: 200")
    parser.add_argument("--seconds", type=float, default=180, help="how long; default: 180")
    parser.add_argument("--kv-cache-bytes", type=int, help="default: the default of LLM")
    parser.add_argument("--trim", action="store_true", help="add a column after malloc_trim")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    given = parser.parse_args()
    options = {} if given.kv_cache_bytes is None else {"kv_cache_bytes": given.kv_cache_bytes}
    found = measure(given.model, given.threads, given.seconds, options, given.trim)
    print(json.dumps(found) if given.json else table(found))


if __name__ == "__main__":
    main()
