"""The C interface from another language: Python's ctypes, in the place of any foreign-function
interface. Structs are written down as ``onward_c.h`` has them; nothing is compiled.

    python ctypes_caller.py PACK [ID...]
"""

from __future__ import annotations

import ctypes as c
import sys
from pathlib import Path

import onward

Int32s, Pointer = c.POINTER(c.c_int32), c.c_void_p


class Request(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("prompt", Int32s),
        ("prompt_tokens", c.c_size_t),
        ("max_new_tokens", c.c_int64),
        ("min_new_tokens", c.c_int64),
        ("ignore_eos", c.c_int32),
        ("stop_token_ids", Int32s),
        ("num_stop_token_ids", c.c_size_t),
        ("sampling", Pointer),
        ("beams", Pointer),
        ("num_sequences", c.c_int64),
        ("lookup_tokens", c.c_int64),
        ("logprobs", c.c_int64),
        ("priority", c.c_int64),
        ("cache", c.c_int32),
        ("score_rule", Pointer),
        ("score_rule_context", Pointer),
        ("end_rule", Pointer),
        ("end_rule_context", Pointer),
    ]


class Event(c.Structure):
    _fields_ = [
        ("request", c.c_int64),
        ("sequence", c.c_int64),
        ("token", c.c_int32),
        ("finish", c.c_int32),
        ("ends_request", c.c_int32),
        ("status", c.c_int32),
        ("message", c.c_char_p),
        ("score", c.c_double),
        ("logprob", c.c_double),
        ("chain_logprob", c.c_double),
        ("top", Pointer),
        ("num_top", c.c_size_t),
        ("cached_tokens", c.c_int64),
        ("time", c.c_double),
    ]


def main(pack: str, prompt: list[int], count: int = 32) -> None:
    (file,) = Path(onward.get_lib_dir()).glob("libonward.*")
    lib = c.CDLL(str(file))
    lib.onward_last_error.restype = c.c_char_p

    def check(status: int) -> None:
        if status != 0:
            raise RuntimeError(lib.onward_last_error().decode())

    model, engine = Pointer(), Pointer()
    check(lib.onward_model_open(pack.encode(), None, c.byref(model)))
    check(lib.onward_engine_open(model, None, c.byref(engine)))

    request = Request()
    lib.onward_request_init_sized(c.byref(request), c.c_size_t(c.sizeof(Request)))
    request.prompt = (c.c_int32 * len(prompt))(*prompt)
    request.prompt_tokens = len(prompt)
    request.max_new_tokens = count
    number = c.c_int64()
    check(lib.onward_engine_submit(engine, c.byref(request), c.byref(number)))

    events, num_events = (Event * 16)(), c.c_size_t()
    ended = False
    while not ended:
        capacity, size = c.c_size_t(len(events)), c.c_size_t(c.sizeof(Event))
        check(lib.onward_engine_step(engine, events, size, capacity, c.byref(num_events)))
        for event in events[: num_events.value]:
            if event.token >= 0:
                print(event.token, flush=True)
            if event.status != 0:
                raise RuntimeError(event.message.decode())
            ended = ended or event.ends_request != 0

    check(lib.onward_engine_close(engine))
    check(lib.onward_model_close(model))


if __name__ == "__main__":
    main(sys.argv[1], [int(word) for word in sys.argv[2:]] or [0])
