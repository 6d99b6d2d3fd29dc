"""The model to measure, loaded or made, with the settings of its cache.

A model that does not fit into memory with its cache is refused before it is loaded; the error
gives the sizes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from onward import _core
from onward.errors import InvalidArgument
from onward.lab.bench.synthetic import (
    random_model,
    source_bytes,
    synthetic_dtypes,
    synthetic_spec,
)
from onward.lab.counts.costs import StepCosts, cache_bytes, packed_bytes
from onward.lab.counts.policy import Policy
from onward.load.hub import find_model
from onward.load.loading import check_dtypes
from onward.load.packed_cache import load_with_cache
from onward.load.weights.dtypes import WeightDtypes
from onward.machine.memory import memory_bytes
from onward.machine.progress import ProgressBar
from onward.options.kv_dtypes import KvDtypes, parse_kv_dtype
from onward.options.values import check_integer
from onward.spec import DecoderSpec

WORKING_BYTES = 512 << 20
"""Memory of the probe of the read bandwidth, which is more than the activations of a step."""
MAX_THREADS = 1024


@dataclass(frozen=True)
class Subject:
    """A model in memory, and the settings to compute it with."""

    name: str
    core: _core.Model
    spec: DecoderSpec
    dtypes: WeightDtypes
    threads: int
    kv: KvDtypes | None = None
    """The dtypes of keys and values; None: the float dtype ``dtypes.cache``."""
    policy: Policy = field(default_factory=Policy)
    device: str = "cpu"
    """The device that computes."""

    @property
    def costs(self) -> StepCosts:
        return StepCosts(self.spec, self.dtypes, self.kv, self.policy)

    @property
    def kv_dtype(self) -> str:
        return self.dtypes.cache if self.kv is None else self.kv.name

    @property
    def kv_arguments(self) -> dict[str, Any]:
        """The arguments of the core's Engine for the KV cache."""
        if self.kv is None:
            return {}
        keys, values = self.kv.codecs
        return {
            "kv_keys": keys,
            "kv_values": values,
            "kv_window_tokens": self.policy.window_tokens,
            "kv_sinks": self.policy.sinks,
        }

    def cache_bytes(self, tokens: int) -> int:
        return cache_bytes(self.spec, self.dtypes, tokens, self.kv, self.policy)


def find_subject(
    cached_tokens: Callable[[DecoderSpec], int],
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
) -> Subject:
    """The model in memory, with room for ``cached_tokens`` tokens in its cache."""
    check_dtypes(dtype, head_dtype)
    device = _core.device_name(device)
    if model is not None and synthetic is not None:
        raise InvalidArgument("synthetic: is given together with a model, expected one of them")
    if packed_cache is not None and synthetic is not None:
        raise InvalidArgument("packed_cache: is given for a synthetic model, which has no files")
    count = _core.default_threads() if threads is None else threads
    check_integer("threads", count, 1, MAX_THREADS)
    parse_kv_dtype(kv_dtype, "f32")
    policy = Policy(kv_window_tokens)
    policy.check()
    if synthetic is None:
        files = find_model(model)
        with ProgressBar(f"loading {files.name}") as progress:
            loaded = load_with_cache(
                packed_cache, files, dtype, count, progress, head_dtype, kv_dtype, device
            )
        return Subject(
            *(loaded.files.name, loaded.core, loaded.spec, loaded.dtypes, count, loaded.kv),
            policy=policy,
            device=device,
        )
    spec = synthetic_spec(synthetic)
    dtypes = synthetic_dtypes(spec, dtype, head_dtype)
    kv = parse_kv_dtype(kv_dtype, dtypes.cache)
    dtypes = dataclasses.replace(dtypes, cache=kv.exact)
    require_memory(
        f"synthetic {synthetic} in {dtypes.name}",
        weights=sum(packed_bytes(spec, dtypes).values()),
        source=source_bytes(spec),
        cache=cache_bytes(spec, dtypes, cached_tokens(spec), kv, policy),
    )
    with ProgressBar(f"making {synthetic}") as progress:
        core = random_model(spec, dtypes, count, progress, device=device)
    return Subject(f"synthetic {synthetic}", core, spec, dtypes, count, kv, policy, device)


def require_memory(where: str, **parts: int) -> None:
    """Raise InvalidArgument, with the sizes, if the parts and the working memory do not fit."""
    available = memory_bytes()["available"]
    needed = sum(parts.values()) + WORKING_BYTES
    if available is None or needed <= available:
        return
    listed = ", ".join(f"{name} {_gib(count)}" for name, count in parts.items())
    raise InvalidArgument(
        f"{where}: needs {_gib(needed)} ({listed}, work {_gib(WORKING_BYTES)}), "
        f"expected at most the {_gib(available)} of memory that are available"
    )


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
