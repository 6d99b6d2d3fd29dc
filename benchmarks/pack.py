"""Compares a mapped pack with copied weights: opening, the first token, decode and memory, in
turns.

    onward pack MODEL -o m.onward
    python benchmarks/pack.py m.onward --threads 2 --rounds 12

Mapped weights are on pages of the page cache, 4 KiB each on many systems; copied weights are on
huge pages. --advise calls madvise for the mapping once after opening, with willneed, populate or
hugepage.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import re
import statistics
import time
from pathlib import Path

import numpy as np

from onward import _core

ADVICE = {"willneed": 3, "hugepage": 14, "populate": 22}
PROMPT = np.arange(5, 21, dtype=np.int32)


def address_and_size(model: _core.Model) -> tuple[int, int]:
    """The part of the mapping that contains weights, in whole pages."""
    arrays = [np.frombuffer(data, np.uint8) for _, _, data in model.packed()]
    begins = [array.ctypes.data for array in arrays]
    ends = [array.ctypes.data + array.nbytes for array in arrays]
    begin = min(begins) // mmap.PAGESIZE * mmap.PAGESIZE
    return begin, max(ends) - begin


def advise(model: _core.Model, advice: str) -> str:
    """The seconds of the call, or the error of the system."""
    begin, size = address_and_size(model)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    began = time.perf_counter()
    if libc.madvise(begin, size, ADVICE[advice]) != 0:
        return f"refused (errno {ctypes.get_errno()})"
    return f"took {1e3 * (time.perf_counter() - began):.1f} ms"


def kilobytes_of(path: str) -> dict[str, int]:
    """The sums of the smaps fields of the file's mappings, in kB."""
    found: dict[str, int] = {}
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            inside = line.endswith(path)
        elif inside and line.endswith(" kB"):
            key, value = line.split(":")
            found[key] = found.get(key, 0) + int(value.split()[0])
    return found


class Reader:
    """A model of the pack, and an engine that decodes with it."""

    def __init__(self, path: str, threads: int, copy: bool, advice: str | None) -> None:
        self.threads, self.name = threads, "copied" if copy else "mapped"
        began = time.perf_counter()
        self.model, _ = _core.open_pack(path, threads, copy=copy)
        self.opening_s = time.perf_counter() - began
        self.advised = "" if copy or advice is None else f", {advice} {advise(self.model, advice)}"
        self.engine = _core.Engine(self.model, threads=threads, prefill_chunk_tokens=256)
        self.first_token_s = self.decode(1)
        self.rates: list[float] = []

    def decode(self, tokens: int) -> float:
        """The seconds of `tokens` tokens after the prompt; with 1, the seconds of prompt and first
        token."""
        sampling = _core.SamplingOptions()
        sampling.temperature = 0.0
        began = time.perf_counter()
        request = self.engine.submit(PROMPT, max_new_tokens=tokens, sampling=sampling)
        first, ended = 0.0, False
        while not ended:
            for event in self.engine.step():
                ended = ended or (event.request == request and event.ends_request)
            if not first:
                first = time.perf_counter()
        return time.perf_counter() - (began if tokens == 1 else first)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("pack")
    parser.add_argument("--threads", type=int, default=_core.default_threads())
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--advise", choices=ADVICE)
    arguments = parser.parse_args()
    path = str(Path(arguments.pack).resolve())
    readers = [Reader(path, arguments.threads, copy, arguments.advise) for copy in (False, True)]
    for round_ in range(arguments.rounds):
        for reader in readers if round_ % 2 == 0 else reversed(readers):
            seconds = reader.decode(arguments.tokens)
            if round_:  # the first round warms up
                reader.rates.append((arguments.tokens - 1) / seconds)
    for reader in readers:
        opened, first = 1e3 * reader.opening_s, 1e3 * reader.first_token_s
        print(
            f"{reader.name}: opened in {opened:.1f} ms{reader.advised}, first token after "
            f"{first:.0f} ms, decode {statistics.median(reader.rates):.1f} tokens/s "
            f"(median; best {max(reader.rates):.1f})"
        )
    seen = kilobytes_of(path)
    if seen:
        listed = ", ".join(
            f"{key} {seen.get(key, 0):,} kB" for key in ("Size", "Rss", "Pss", "FilePmdMapped")
        )
        print(f"mapping: {listed}")


if __name__ == "__main__":
    main()
