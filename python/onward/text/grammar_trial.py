"""Tests in a child process whether llguidance reads a large grammar in time.

llguidance has limits of its own, but some schemas of a few kilobytes keep it busy for minutes, and
a thread inside it cannot be stopped. A child process can be killed. A grammar of up to TRIED_FROM
characters was never seen to take a second, so only longer ones are tested.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

TRIED_FROM = 2048
LIMIT_S = 3
"""Seconds of processor time."""
PATIENCE_S = 20.0
"""Seconds of wall-clock time, for a machine whose processors are busy."""
_REMEMBERED = 256

_CHILD = """
import json, sys
sys.path[:] = json.loads(sys.stdin.readline())
from llguidance import LLMatcher, LLTokenizer

class Bytes:
    is_tokenizer_wrapper, bos_token_id, eos_token_id = True, None, 256
    tokens = [*(bytes([i]) for i in range(256)), b"\\0end"]
    special_token_ids = [256]

    def __call__(self, text):
        return list(text.encode())

tokenizer = LLTokenizer(Bytes())
try:
    import resource
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(sys.argv[1]) + int(used.ru_utime + used.ru_stime)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
except ImportError:
    pass
matcher = LLMatcher(tokenizer, sys.stdin.read(), log_level=0)
if not matcher.is_error():
    matcher.compute_bitmask()
print("read")
"""
_outcomes: dict[bytes, bool] = {}


def read_in_time(grammar: str) -> bool:
    """Whether llguidance finishes with this text, with or without an error.

    True if no child process can be started. Ctrl-C ends the child and this call.
    """
    if len(grammar) <= TRIED_FROM or getattr(sys, "frozen", False) or not sys.executable:
        return True
    key = hashlib.sha256(grammar.encode()).digest()
    outcome = _outcomes.get(key)
    if outcome is None:
        if len(_outcomes) >= _REMEMBERED:
            _outcomes.clear()
        outcome = _outcomes[key] = _tried(grammar)
    return outcome


def _tried(grammar: str) -> bool:
    text = f"{json.dumps([path for path in sys.path if isinstance(path, str)])}\n{grammar}"
    command = [sys.executable, "-c", _CHILD, str(LIMIT_S)]
    try:
        child = subprocess.run(
            command,
            input=text,
            encoding="utf-8",
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    except OSError:
        return True
    return "read" in child.stdout or child.returncode > 0  # below 0: a signal ended it
