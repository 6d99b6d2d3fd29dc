"""Regular expressions of a tokenizer.json that take very long, each with a text that shows it.

Run as a program with an empty folder, the limit in seconds, and places ("all", or "one" for each
pattern): prints a line of JSON with the outcome of each bomb.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

RUN = "a" * 3000
HARMLESS = r"(a?){30}a{30}"  # slow in other engines, not in Oniguruma
BOMBS = {
    r"(a+)+$": "a" * 40 + "b",
    r"(a|a)*b?$": "a" * 40 + "c",
    r"(a|aa)+$": "a" * 60 + "b",
    r"(.*)*[xy]$": "a" * 40 + "xa",
    r"([a-z]+)*[=:]$": "a" * 40 + "=a",
    r"\s*\s*\s*[xy]$": " " * 3000 + "xa",
    HARMLESS: "a" * 30,
    r"(a|b|ab)*[cd]$": "ab" * 60 + "ce",
    r"(?=(a+)+[bc]$)a": "a" * 40 + "bd",
    r"(?<!b)((a+)(a+))+[bc]$": "a" * 40 + "bd",
    r"(a+)(a+)(\1|\2)+[bc]$": "a" * 400 + "bd",
    r"(?:(?:a*)*|b)*[bc]$": "a" * 40 + "bd",
    r"([a-c]|[b-d]|[ab])+[;,]$": "b" * 60 + ";b",
    r"\w*\w*\w*[!?]$": RUN + "!a",
    r"(?=(\d{3})+(?!\d))": "1" * 60_000,
    r"\s+$": " " * 60_000 + "x",
}


def _sequence(key: str, step: dict[str, Any]) -> dict[str, Any]:
    """The step, nested twice."""
    return {"type": "Sequence", key: [{"type": "Sequence", key: [step]}]}


def _split(pattern: str) -> dict[str, Any]:
    found = {"Regex": pattern}
    return {"type": "Split", "pattern": found, "behavior": "Isolated", "invert": False}


def _replace(pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": "-"}


def _in_added_token(pattern: str, text: str) -> dict[str, Any]:
    flags = dict.fromkeys(("lstrip", "rstrip", "single_word", "special"), False)
    tokens = [{"content": text[:i] + text[-4000:], **flags} for i in range(20)]
    added = [{"id": 200 + i, "normalized": True, **token} for i, token in enumerate(tokens)]
    return {"normalizer": _replace(pattern), "added_tokens": added}


PLACES: dict[str, Any] = {
    "split": lambda pattern, text: {"pre_tokenizer": _split(pattern)},
    "replace": lambda pattern, text: {"normalizer": _replace(pattern)},
    "nested split": lambda p, text: {"pre_tokenizer": _sequence("pretokenizers", _split(p))},
    "nested replace": lambda p, text: {"normalizer": _sequence("normalizers", _replace(p))},
    "decoder": lambda p, text: {
        "decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, _replace(p)]}
    },
    "added token": _in_added_token,
}


def state_of(parts: dict[str, Any]) -> dict[str, Any]:
    """A tokenizer.json whose tokens are the ASCII characters."""
    vocab = {chr(i): i for i in range(128)}
    return {"version": "1.0", **parts, "model": {"type": "BPE", "vocab": vocab, "merges": []}}


def _try(state: dict[str, Any], text: str, decodes: bool) -> str:
    from onward.errors import TokenizerError
    from onward.text.tokenizer.tokenizer import Tokenizer

    try:
        tokenizer = Tokenizer.from_text(json.dumps(state), where="tokenizer.json")
        if decodes:
            tokenizer.decode([ord(letter) for letter in text])
        else:
            tokenizer.encode(text)
    except TokenizerError as error:
        return str(error)
    return "done"


def main(limit: float, places: str) -> None:
    from onward.text.tokenizer import trial as text_trial

    text_trial.LIMIT_S = limit
    steps, ended = 0, False

    def count() -> None:
        nonlocal steps
        while not ended:
            time.sleep(0.002)
            steps += 1

    threading.Thread(target=count, daemon=True).start()
    found = []
    for number, (pattern, text) in enumerate(BOMBS.items()):
        names = list(PLACES) if places == "all" else [list(PLACES)[number % len(PLACES)]]
        for place in names:
            state = state_of(PLACES[place](pattern, text))
            before, own = steps, time.process_time()
            outcome = _try(state, text, place == "decoder")
            found.append([place, pattern, outcome, time.process_time() - own, steps - before])
    ended = True
    print(json.dumps(found))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    main(float(sys.argv[1]), sys.argv[2])
