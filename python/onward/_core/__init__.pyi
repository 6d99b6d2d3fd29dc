"""The C++ core: translation between Python and the engine. The public interface is the package.

Every call that computes or waits releases the GIL. Errors are the classes of ``onward.errors``.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from onward._core import kernels as kernels
from onward.options.callables import StoppingCriterion

_F32 = NDArray[np.float32]
_I32 = NDArray[np.int32]
_U8 = NDArray[np.uint8]
_Rule = Callable[[_I32, _F32], object]

__version__: str
build: str
"""Compiler and version, build type, processor family."""
packed_layout: int
"""Of the bytes that ``Model.packed`` gives: raised with each change, the same on any ISA."""

def default_threads() -> int:
    """Processors this process may use: affinity, limited by the cgroup quota."""

def open_pack(
    path: str | PathLike[str],
    threads: int,
    verify: bool = False,
    copy: bool = False,
    cache_dtype: str | None = None,
    device: str = "cpu",
) -> tuple[Model, dict[str, str]]:
    """A pack's model, mapped unless copied or brought to a device, and its metadata. PackError,
    IoError, DeviceError."""

def devices() -> list[tuple[str, str, str]]:
    """Name, description and why it cannot be used (empty: it can) of each device there may be."""

def device_name(device: str) -> str:
    """The name in full ("cuda:0" of "cuda"). InvalidArgument, DeviceError."""

def device_free_bytes(device: str) -> int | None:
    """Of memory that is the device's own; None where it computes in the host's."""

def measure_device(device: str, seconds: float) -> dict[str, float]:
    """What a device that is not the processor can do at most: GB/s under "read" and "copy", G
    operations per second under "f32", "bf16" and "int8"."""

block_layout: int
"""The version of the bytes of a cache block; saved sessions hold blocks."""
kv_block_tokens: int
"""Consecutive tokens of a sequence in one block of the cache."""

def kv_codecs() -> list[str]:
    """The names of the codecs of the cache, without "exact"."""

def kv_vector_bytes(name: str, head_dim: int, keys: bool) -> int:
    """Bytes of one key or value, its scales included, in a codec or a float dtype."""

def kv_cache_bytes(
    num_layers: int, num_kv_heads: int, head_dim: int, tokens: int, bytes_per_value: int
) -> int:
    """2 x layers x kv heads x head_dim x tokens x bytes per value."""

class DecoderSpec:
    """onward.spec.DecoderSpec as the core has checked it."""

    def __init__(self, fields: dict[str, Any]) -> None:
        """From the fields as ``onward.spec.to_fields`` gives them; an absent field has its default.
        InvalidArgument for a missing, unknown or wrong one."""
    @property
    def vocab_size(self) -> int: ...
    @property
    def max_context(self) -> int: ...

def spec_table() -> list[tuple[str, str, bool, object]]:
    """Path ("rope.theta"), type, whether it is required, and default (None where it is) of each
    field of the spec."""

def layer_features(spec: DecoderSpec) -> list[str]:
    """What a model needs of a device besides the layers of the Llama family, in words."""

class ModelBuilder:
    """Packs weights one canonical name at a time."""

    def __init__(
        self, spec: DecoderSpec, cache_dtype: str, threads: int, device: str = "cpu"
    ) -> None: ...
    def add(
        self,
        name: str,
        parts: Sequence[tuple[Buffer, str, Sequence[int], _I32 | None]],
        dtype: str,
        mapped: bool = False,
    ) -> None:
        """Pack one weight from parts (buffer, dtype, shape, row order) stacked along rows, a matrix
        as ``dtype``. Copies what it needs; pages of ``mapped`` files are dropped on the way."""

    def finish(self) -> Model: ...

@final
class Model:
    """A spec and its packed weights."""

    @property
    def spec(self) -> DecoderSpec: ...
    @property
    def cache_dtype(self) -> str: ...
    @property
    def device(self) -> str: ...
    @property
    def packed_layout(self) -> int:
        """Of the bytes that ``packed`` gives: each kind of device has its own."""
    @property
    def weight_bytes(self) -> int: ...
    def packed(self) -> list[tuple[str, str, memoryview]]:
        """Canonical name, dtype and bytes of each weight; the views keep the model alive."""

@final
class TokenLogprobs:
    """Natural logarithms of the probabilities of one choice."""

    @property
    def token(self) -> int: ...
    @property
    def raw(self) -> float:
        """Of the model's own distribution."""

    @property
    def chain(self) -> float:
        """Of what the chain had left; with beams what was added to the hypothesis's sum."""

    @property
    def raw_top(self) -> list[tuple[int, float]]:
        """The likeliest (token, log-probability), best first."""

    @property
    def chain_top(self) -> list[tuple[int, float]]: ...

class Event(NamedTuple):
    """One token of one sequence of a request, or an end, or both."""

    request: int
    sequence: int
    """Of the request; with beams the rank of the hypothesis."""
    token: int
    """-1 where the event carries no token."""
    finish_reason: Literal["stop", "length", "error"] | None
    ends_request: bool
    """No event of the request follows."""
    time: float
    """On the clock of time.perf_counter."""
    gathered: tuple[tuple[int, ...], tuple[TokenLogprobs, ...], float] | None
    """Where the request gathers: the sequence's tokens before ``token``, their log-probabilities
    where those are asked for, and the time of the first."""
    score: float | None
    """Of a finished hypothesis."""
    logprobs: TokenLogprobs | None
    prompt_logprobs: tuple[TokenLogprobs, ...]
    cached_tokens: int
    """Of the prompt, not computed again; -1 in all events of a request but its first."""
    prompt_computed: int
    """Tokens of the prompt so far, in the events that ``progress`` asks for; else -1."""
    guessed: int
    """Tokens guessed by speculation since the sequence's last event."""
    accepted: int
    """Of these, those that were right."""
    failure: object
    """What ``raise_failure`` raises."""
    def raise_failure(self) -> None:
        """Raise what ended the request, where finish_reason is "error"; once."""

def generation_options() -> dict[str, list[dict[str, Any]]]:
    """The rows of the core's tables of options, by table: "beams", "draw", "scores", "others"."""

class SamplingOptions:
    """How one request turns logits into tokens.

    Has an attribute for each row of the tables "draw", "scores" and "others".
    """

    def __init__(self) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...
    seed: int
    stream: int
    stop_token_ids: Sequence[int]
    logprobs: int
    def set_logits_processor(self, rule: Callable[[_I32, _F32], object] | None) -> None: ...
    def set_grammar(self, rule: Callable[[_I32, _F32], object] | None) -> None:
        """A rule that comes after all processors."""

    def chain(self) -> list[str]:
        """The active stages in order, by the option that turns each on; then "greedy" or "draw"."""

class BeamOptions:
    """How a beam search runs. Has an attribute for each row of the table "beams"."""

    def __init__(self) -> None: ...
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...

class SpeculationOptions:
    """Tokens guessed and then checked. 0 guesses: off."""

    def __init__(self) -> None: ...
    lookup_tokens: int
    lookup_ngram: int
    draft_tokens: int

class Request:
    """One prompt and what is wanted of it."""

    def __init__(
        self,
        prompt: _I32,
        *,
        max_new_tokens: int,
        sampling: SamplingOptions,
        num_sequences: int = 1,
        beams: BeamOptions | None = None,
        speculation: SpeculationOptions = ...,
        end_rules: Sequence[StoppingCriterion] = (),
        prompt_logprobs: int = -1,
        priority: int = 0,
        cache: bool = True,
        progress: bool = False,
        gather: bool = False,
    ) -> None: ...

class EngineClient:
    """One caller's requests in an engine, and the mailbox of their events. May be used from any
    thread. Letting go of it closes it."""

    def submit(self, requests: Sequence[Request]) -> list[int]:
        """The ids of the requests: all of them before the next step, or none with an error."""

    def next_event(self) -> Event:
        """The next event of any of its requests. Runs steps, for all clients, until there is one.
        Requests that ``gather`` have one event for each sequence, at its end.

        Raises ClosedError where the client or the engine is closed meanwhile, Error where no event
        can come, and what a signal handler raises: then no request has moved."""

    def cancel(self, request: int, sequence: int | None = None) -> None:
        """Give up a request, or one of its sequences. Other ids are ignored. Never waits."""

    def close(self) -> None:
        """Give up all requests. Never waits, and may be called repeatedly."""

class Engine:
    """One engine: the model, its cache, and the loop of steps that all clients share.

    ``submit``, ``step`` and ``cancel`` are a client of its own, for a caller that runs each step
    by itself."""

    def __init__(
        self,
        model: Model,
        *,
        threads: int,
        prefill_chunk_tokens: int,
        max_sequences: int = 256,
        draft: Model | None = None,
        max_context: int = 0,
        kv_keys: str = "exact",
        kv_values: str = "exact",
        kv_window_tokens: int = 128,
        kv_sinks: bool = True,
        attention_window: int = 0,
        kv_cache_bytes: int | None = None,
        prefix_cache: bool = True,
        prefix_cache_bytes: int | None = None,
    ) -> None: ...
    def new_client(self) -> EngineClient: ...
    def close(self) -> None:
        """Close all clients and drop the model, now or after the present step. Never waits."""

    def check_open(self) -> None:
        """Raise ClosedError after ``close``."""

    def submit(self, *args: Any, **kwargs: Any) -> int:
        """Hand in one request; takes the arguments of ``Request``. Returns its id."""

    def step(self) -> list[Event]:
        """Compute one step. Lets signal handlers run; interrupted, no request has moved."""

    def cancel(self, request: int, sequence: int | None = None) -> None:
        """Give a request up, or one of its sequences. Unknown ids are ignored."""

    def logits(self, token_ids: _I32) -> _F32:
        """(tokens, vocab_size): what each token predicts."""

    def score(self, token_ids: _I32) -> NDArray[np.float64]:
        """(tokens - 1): ln of the probability of each token after the first."""

    def store_prefix(self, token_ids: _I32) -> list[tuple[int, bool, int, bytes]]:
        """Compute and keep a prefix, and give out its blocks: group, coded, index, bytes."""

    def restore_prefix(
        self, token_ids: _I32, blocks: Sequence[tuple[int, bool, int, Buffer]]
    ) -> None:
        """Keep a prefix, from the blocks that ``store_prefix`` returned with the same model and
        options.

        Raises:
            InvalidArgument: a block does not fit the layout of the cache.
            NotCached: blocks are absent, or the cache has no room for them.
        """

    def forget_prefixes(self) -> None: ...
    def stats(self) -> dict[str, int]:
        """Counters since the engine was made, and what it holds now."""

    def new_handle(self, eos_token_ids: Sequence[int]) -> int:
        """An ``onward_engine`` of the C interface: one more client of this engine."""

    @property
    def backend(self) -> str: ...
    @property
    def threads(self) -> int: ...

def observe_inputs(
    model: Model,
    token_ids: _I32,
    callback: Callable[[str, _F32, _F32 | None], object],
    threads: int,
) -> None:
    """One prefill: callback(name, x, residual) after the product of every matrix of every layer.
    name is canonical ("layers.0.qkv"), x (tokens, inputs) what the matrix was multiplied with;
    residual (tokens, hidden_size) is the residual stream with the product added, where it is (o
    and down), else None. What the callback raises ends the prefill. No logits are computed."""
