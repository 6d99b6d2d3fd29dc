"""The C interface through ctypes: declarations that are read from the header, and a client.

It calls the libonward.so that the extension module has loaded.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onward import _core

HEADER = Path(__file__).parents[2] / "csrc" / "include" / "onward" / "onward_c.h"
LIBRARY = Path(_core.__file__).parent / "lib" / "libonward.so"
TEXT = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.DOTALL)

SCALARS: dict[str, Any] = {
    "size_t": ctypes.c_size_t,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "double": ctypes.c_double,
    "float": ctypes.c_float,
    "char": ctypes.c_char,
    "onward_status": ctypes.c_int32,
}


def _field(text: str) -> tuple[str, Any]:
    """Name and type; every pointer, handle and function is an address."""
    kind, name = re.fullmatch(r"(?:const )?(\w+\s*\*?)\s*(\w+)", text.strip()).groups()  # type: ignore[union-attr]
    if kind == "char*":
        return name, ctypes.c_char_p
    return name, SCALARS.get(kind.strip(), ctypes.c_void_p)


def _structs() -> dict[str, type[ctypes.Structure]]:
    found = {}
    for name, body in re.findall(r"typedef struct (\w+) \{(.*?)\} \1;", TEXT, re.DOTALL):
        fields = [_field(text) for text in body.split(";") if text.strip()]
        found[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return found


STRUCTS = _structs()
FUNCTIONS = re.findall(r"^ONWARD_API [^(]*?\b(onward_\w+)\(", TEXT, re.MULTILINE)
STATUSES = {
    int(value): name
    for name, value in re.findall(r"\b(ONWARD_[A-Z_]+) = (\d+)", TEXT)
    if "FINISH" not in name
}
FINISHES = {0: None, 1: "stop", 2: "length", 3: "error"}

lib = ctypes.CDLL(str(LIBRARY))
for _name in ("onward_version", "onward_status_name", "onward_last_error"):
    getattr(lib, _name).restype = ctypes.c_char_p

SCORE_RULE = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_int32),
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_float),
    ctypes.c_size_t,
)
END_RULE = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32), ctypes.c_size_t
)
TRACE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(STRUCTS["onward_step_trace"]))


class CError(Exception):
    """A status other than ONWARD_OK."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{STATUSES[status]}: {message}")
        self.status = STATUSES[status]
        self.message = message


def last_error() -> str:
    return lib.onward_last_error().decode()


def call(function: str, *arguments: Any) -> None:
    """Call a function that returns a status; raises CError unless it is ONWARD_OK.

    The last error is read by the thread that called, before it calls anything else."""
    status = getattr(lib, function)(*arguments)
    if status:
        raise CError(status, last_error())


def struct(kind: str, **values: Any) -> ctypes.Structure:
    """An ``onward_{kind}`` with its defaults and these values. Arrays may be lists; the memory of
    pointers lives as long as the struct."""
    made = STRUCTS[f"onward_{kind}"]()
    init = (
        getattr(lib, f"onward_{kind}_init_sized", None)
        if f"onward_{kind}_init_sized" in (FUNCTIONS)
        else None
    )
    if init is not None:
        init(ctypes.byref(made), ctypes.c_size_t(ctypes.sizeof(made)))
    else:
        made.size = ctypes.sizeof(made)
    made.kept = []
    for name, value in values.items():
        setattr(made, name, _pointer(value, made.kept))
    return made


def _pointer(value: Any, kept: list[Any]) -> Any:
    kept.append(value)
    if isinstance(value, ctypes.Structure | ctypes.Array):
        return ctypes.addressof(value)
    if isinstance(value, ctypes._CFuncPtr):
        return ctypes.cast(value, ctypes.c_void_p).value
    return value


def ids_of(tokens: ArrayLike) -> ctypes.Array[ctypes.c_int32]:
    """A C array of token ids."""
    values = np.asarray(tokens, np.int32).tolist()
    return (ctypes.c_int32 * len(values))(*values)


def request_of(prompt: ArrayLike, *, sampling: Any = None, beams: Any = None, **values: Any) -> Any:
    """An ``onward_request``; sampling and beams are dicts, stop_token_ids a list."""
    given: dict[str, Any] = {"prompt": ids_of(prompt), "prompt_tokens": np.size(prompt), **values}
    if "stop_token_ids" in given:
        given["num_stop_token_ids"] = len(given["stop_token_ids"])
        given["stop_token_ids"] = ids_of(given["stop_token_ids"])
    if sampling is not None:
        given["sampling"] = struct("sampling", **_with_arrays(sampling))
    if beams is not None:
        given["beams"] = struct("beams", **beams)
    return struct("request", **given)


def _with_arrays(sampling: dict[str, Any]) -> dict[str, Any]:
    given = dict(sampling)
    for name in ("suppress_tokens", "allowed_token_ids"):
        if isinstance(given.get(name), list):
            given[f"num_{name}"] = len(given[name])
            given[name] = ids_of(given[name])
    if isinstance(given.get("logit_bias"), dict):
        pair = STRUCTS["onward_logit_bias"]
        pairs = given["logit_bias"].items()
        given["num_logit_bias"] = len(pairs)
        given["logit_bias"] = (pair * len(pairs))(*(pair(*item) for item in pairs))
    return given


@dataclass
class CEvent:
    """An ``onward_event``, copied out of the memory it points to."""

    request: int
    sequence: int
    token: int
    finish: str | None
    ends_request: bool
    status: str
    message: str
    score: float
    logprob: float
    chain_logprob: float
    top: list[tuple[int, float]]
    cached_tokens: int

    @classmethod
    def of(cls, event: Any) -> CEvent:
        top = ctypes.cast(event.top, ctypes.POINTER(STRUCTS["onward_scored_token"]))
        return cls(
            event.request,
            event.sequence,
            event.token,
            FINISHES[event.finish],
            bool(event.ends_request),
            STATUSES[event.status],
            event.message.decode(),
            event.score,
            event.logprob,
            event.chain_logprob,
            [(top[i].token, top[i].logprob) for i in range(event.num_top)],
            event.cached_tokens,
        )


@dataclass
class COutput:
    """The events of one sequence."""

    tokens: list[int] = field(default_factory=list)
    events: list[CEvent] = field(default_factory=list)
    finish: str | None = None

    def push(self, event: CEvent) -> None:
        assert self.finish is None, "an event after the end"
        self.events.append(event)
        if event.token >= 0:
            self.tokens.append(event.token)
        self.finish = event.finish


class CModel:
    """A model handle that is closed at the end of a ``with`` block."""

    def __init__(self, value: int) -> None:
        self.handle = ctypes.c_void_p(value)

    def info(self) -> Any:
        info = struct("model_info")
        call("onward_model_get_info", self.handle, ctypes.byref(info))
        return info

    def close(self) -> None:
        call("onward_model_close", self.handle)

    def __enter__(self) -> CModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def engine(self, **options: Any) -> CEngine:
        value = ctypes.c_void_p()
        made = struct("engine_options", **options)
        call("onward_engine_open", self.handle, ctypes.byref(made), ctypes.byref(value))
        assert value.value is not None
        return CEngine(value.value)


class CEngine:
    """An engine handle, used in the same way as in a C program."""

    def __init__(self, value: int) -> None:
        self.handle = ctypes.c_void_p(value)

    @classmethod
    def of(cls, engine: _core.Engine, eos: Iterable[int] = ()) -> CEngine:
        """One more client of an engine that Python made."""
        return cls(engine.new_handle(list(eos)))

    def __enter__(self) -> CEngine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        lib.onward_engine_close(self.handle)

    def close(self) -> None:
        call("onward_engine_close", self.handle)

    def model(self) -> CModel:
        value = ctypes.c_void_p()
        call("onward_engine_model", self.handle, ctypes.byref(value))
        assert value.value is not None
        return CModel(value.value)

    def share(self) -> CEngine:
        """One more client of the same engine."""
        value = ctypes.c_void_p()
        call("onward_engine_share", self.handle, ctypes.byref(value))
        assert value.value is not None
        return CEngine(value.value)

    def submit(self, prompt: ArrayLike, **values: Any) -> int:
        return self.submit_struct(request_of(prompt, **values))

    def submit_struct(self, request: Any) -> int:
        found = ctypes.c_int64(-1)
        call("onward_engine_submit", self.handle, ctypes.byref(request), ctypes.byref(found))
        return found.value

    def step(self, capacity: int = 64) -> list[CEvent]:
        kind = STRUCTS["onward_event"]
        events = (kind * capacity)()
        count = ctypes.c_size_t(12345)
        call(
            "onward_engine_step",
            self.handle,
            events,
            ctypes.c_size_t(ctypes.sizeof(kind)),
            ctypes.c_size_t(capacity),
            ctypes.byref(count),
        )
        return [CEvent.of(event) for event in events[: count.value]]

    def cancel(self, request: int, sequence: int | None = None) -> None:
        if sequence is None:
            call("onward_engine_cancel", self.handle, ctypes.c_int64(request))
        else:
            call(
                "onward_engine_cancel_sequence",
                self.handle,
                ctypes.c_int64(request),
                ctypes.c_int64(sequence),
            )

    def interrupt(self) -> None:
        call("onward_engine_interrupt", self.handle)

    def stats(self) -> dict[str, int]:
        stats = struct("stats")
        call("onward_engine_stats", self.handle, ctypes.byref(stats))
        return {name: getattr(stats, name) for name, _ in stats._fields_ if name != "size"}

    def set_trace(self, trace: Callable[..., None] | None) -> None:
        call("onward_engine_set_trace", self.handle, TRACE() if trace is None else trace, None)

    def score(self, ids: ArrayLike) -> NDArray[np.float64]:
        found = np.full(max(np.size(ids) - 1, 0), np.nan)
        call(
            "onward_engine_score",
            self.handle,
            ids_of(ids),
            ctypes.c_size_t(np.size(ids)),
            found.ctypes.data_as(ctypes.c_void_p),
        )
        return found

    def logits(self, ids: ArrayLike, vocab_size: int) -> NDArray[np.float32]:
        found = np.full((np.size(ids), vocab_size), np.nan, np.float32)
        call(
            "onward_engine_logits",
            self.handle,
            ids_of(ids),
            ctypes.c_size_t(np.size(ids)),
            found.ctypes.data_as(ctypes.c_void_p),
        )
        return found

    def drain(self, requests: Iterable[int], capacity: int = 64) -> dict[int, list[COutput]]:
        """Run steps until these requests have ended; returns their outputs by sequence. Other
        events fail."""
        outputs: dict[int, dict[int, COutput]] = {request: {} for request in requests}
        unfinished = set(outputs)
        while unfinished:
            for event in self.step(capacity):
                assert event.request in unfinished, "an event of another's, or after the end"
                outputs[event.request].setdefault(event.sequence, COutput()).push(event)
                if event.ends_request:
                    unfinished.remove(event.request)
        return {r: [found[i] for i in sorted(found)] for r, found in outputs.items()}

    def complete(self, prompt: ArrayLike, **values: Any) -> list[list[int]]:
        """The tokens of every sequence of one request."""
        request = self.submit(prompt, **values)
        return [output.tokens for output in self.drain([request])[request]]
