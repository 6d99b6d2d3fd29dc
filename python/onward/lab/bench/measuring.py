"""Runs the cases of a plan on a model, and compares each figure with the limits of the machine.

The read bandwidth and the arithmetic peak (on a GPU the copy bandwidth and the rate of its tensor
cores) are probed with the same threads and instructions before and after every timed run. On a
shared machine absolute figures drift; ratios of figures measured one after the other drift much
less. The first run of each case is not timed: it warms up, gives the hash of the logits, and sets
the tokens that the other runs must choose.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from onward import _core
from onward.errors import Error
from onward.lab.bench.cases import CHUNK_TOKENS, Bench, Decode, Prefill, Reading
from onward.lab.bench.ceilings import ARITHMETIC, ceilings
from onward.lab.bench.plan import Case, Plan
from onward.lab.bench.subject import Subject, find_subject, require_memory
from onward.lab.counts.costs import parameters
from onward.lab.counts.policy import Policy
from onward.machine.progress import ProgressBar

PROBE_S = 0.2


@dataclass(frozen=True)
class Line:
    """One case over all repetitions. Figures are medians if their names say nothing else."""

    what: str
    test: str
    """The name that llama-bench gives the case: pp512, tg16, tg16 @ d512."""
    batch: int
    tokens: int
    """Tokens of a prompt, or tokens in the cache before the first timed step."""
    tokens_per_s: float
    tokens_per_s_min: float
    tokens_per_s_max: float
    tokens_per_s_mean: float
    tokens_per_s_deviation: float
    """The standard deviation of a sample, as in llama-bench; 0 for one repetition."""
    bytes_per_token: float
    gigabytes_per_s: float
    read_share: float
    """Share of the read bandwidth that was probed around the run."""
    read_share_min: float
    read_share_max: float
    gigaflops: float
    """10**9 operations per second; a multiply-add is two operations."""
    arithmetic_share: float
    """Share of the arithmetic peak that was probed around the run."""
    arithmetic_share_min: float
    arithmetic_share_max: float
    probed_gigabytes_per_s: float
    probed_gigaflops: float
    logits_hash: str


@dataclass(frozen=True)
class Report:
    model: str
    dtype: str
    arithmetic: str
    """The arithmetic of the probed peak: f32, bf16 or int8."""
    backend: str
    device: str
    isa: str
    """The instruction set of the processor, which samples and packs for other devices too."""
    threads: int
    repetitions: int
    decode_tokens: int
    prefill_chunk_tokens: int
    parameters: int
    weight_bytes: int
    kv_dtype: str
    kv_window_tokens: int
    """The newest tokens that stay exact in a coded cache."""
    cache: bool
    """Whether decode used the cache."""
    lines: tuple[Line, ...]


def bench(
    plan: Plan,
    *,
    model: str | None = None,
    synthetic: str | None = None,
    dtype: str = "auto",
    head_dtype: str | None = None,
    threads: int | None = None,
    packed_cache: str | None = None,
    kv_dtype: str = "auto",
    kv_window_tokens: int = Policy.window_tokens,
    device: str = "cpu",
) -> Report:
    """Load or make a model, and measure it. A synthetic model that does not fit into memory is
    refused before it is made."""
    plan.check()
    subject = find_subject(
        lambda spec: plan.cached_tokens(plan.cases(spec.max_context)),
        model=model,
        synthetic=synthetic,
        dtype=dtype,
        head_dtype=head_dtype,
        threads=threads,
        packed_cache=packed_cache,
        kv_dtype=kv_dtype,
        kv_window_tokens=kv_window_tokens,
        device=device,
    )
    return measure(subject, plan)


def measure(subject: Subject, plan: Plan) -> Report:
    """All cases of the plan, in order."""
    spec, dtypes = subject.spec, subject.dtypes
    cases = plan.cases(spec.max_context)
    require_memory(subject.name, cache=subject.cache_bytes(plan.cached_tokens(cases)))
    engine = Bench(
        subject.core,
        subject.costs,
        subject.threads,
        max(case.batch for case in cases),
        subject.kv_arguments,
        cache=plan.cache,
    )
    lines: list[Line] = []
    total = len(cases) * (plan.repetitions + 1)
    with ProgressBar("measuring") as progress:
        for case in cases:

            def done(runs: int, before: int = len(lines) * (plan.repetitions + 1)) -> None:
                progress(before + runs, total)

            lines.append(_line(engine, case, plan, subject, done))
    return Report(
        model=subject.name,
        dtype=dtypes.name,
        arithmetic=ARITHMETIC[dtypes.name],
        backend=engine.engine.backend.partition(":")[0].upper(),
        device=subject.device,
        isa=_core.kernels.selected(),
        threads=subject.threads,
        repetitions=plan.repetitions,
        decode_tokens=plan.decode_tokens,
        prefill_chunk_tokens=CHUNK_TOKENS,
        parameters=parameters(spec),
        weight_bytes=subject.core.weight_bytes,
        kv_dtype=subject.kv_dtype,
        kv_window_tokens=subject.policy.window_tokens,
        cache=plan.cache,
        lines=tuple(lines),
    )


def _line(
    engine: Bench, case: Case, plan: Plan, subject: Subject, done: Callable[[int], None]
) -> Line:
    def start(*, watched: bool) -> Prefill | Decode:
        if case.what == "prefill":
            return Prefill(engine, case, watched=watched)
        return Decode(engine, case, plan.decode_tokens, watched=watched)

    first = start(watched=True)
    expected = first.run().chosen
    first.close()
    done(1)
    runs = start(watched=False)
    readings: list[Reading] = []
    probed = [_probe(subject)]
    try:
        for index in range(plan.repetitions):
            readings.append(runs.run())
            probed.append(_probe(subject))
            done(2 + index)
    finally:
        runs.close()
    again = readings if case.what == "prefill" else readings[:1]  # later runs continue the first
    if any(reading.chosen != expected for reading in again):
        raise Error(f"bench: {case}: other tokens than in the run before, expected the same")
    beside = [
        ((before[0] + after[0]) / 2, (before[1] + after[1]) / 2)
        for before, after in pairwise(probed)
    ]
    return _summary(case, plan.decode_tokens, readings, beside, first.logits_hash)


def _test(case: Case, decode_tokens: int) -> str:
    if case.what == "prefill":
        return f"pp{case.tokens}"
    return f"tg{decode_tokens}" + (f" @ d{case.tokens}" if case.tokens else "")


def _summary(
    case: Case,
    decode_tokens: int,
    readings: list[Reading],
    beside: list[tuple[float, float]],
    logits_hash: str,
) -> Line:
    rates = [reading.tokens / reading.seconds for reading in readings]
    read = [1e-9 * r.cost.bytes_read / r.seconds for r in readings]
    flops = [2e-9 * r.cost.multiply_adds / r.seconds for r in readings]
    bandwidths, peaks = zip(*beside, strict=True)
    read_shares = [found / bandwidth for found, bandwidth in zip(read, bandwidths, strict=True)]
    arithmetic_shares = [found / peak for found, peak in zip(flops, peaks, strict=True)]
    total = sum(reading.tokens for reading in readings)
    return Line(
        what=case.what,
        test=_test(case, decode_tokens),
        batch=case.batch,
        tokens=case.tokens,
        tokens_per_s=statistics.median(rates),
        tokens_per_s_min=min(rates),
        tokens_per_s_max=max(rates),
        tokens_per_s_mean=statistics.fmean(rates),
        tokens_per_s_deviation=statistics.stdev(rates) if len(rates) > 1 else 0.0,
        bytes_per_token=sum(reading.cost.bytes_read for reading in readings) / total,
        gigabytes_per_s=statistics.median(read),
        read_share=statistics.median(read_shares),
        read_share_min=min(read_shares),
        read_share_max=max(read_shares),
        gigaflops=statistics.median(flops),
        arithmetic_share=statistics.median(arithmetic_shares),
        arithmetic_share_min=min(arithmetic_shares),
        arithmetic_share_max=max(arithmetic_shares),
        probed_gigabytes_per_s=statistics.median(bandwidths),
        probed_gigaflops=statistics.median(peaks),
        logits_hash=logits_hash,
    )


def _probe(subject: Subject) -> tuple[float, float]:
    return ceilings(subject.device, subject.dtypes.name, subject.threads, PROBE_S)
