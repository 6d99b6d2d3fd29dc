"""The process of child.py: runs one engine and answers requests, which are lines of JSON.

    python -m engines.serve '{"engine": ..., "weights": ..., ...}'   (in the folder above)

It first prints its description and then answers each line with a line. It reads only standard
input, so it sleeps while other engines are measured. It runs in the environment of the engine and
imports only the standard library, the engine and numpy.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engines.contest import Absent, Contestant, Request
from engines.source_model import SourceModel


def convert(source: SourceModel, engine: str, weights: str) -> None:
    """Write the files that the engine loads, if they do not exist."""
    if engine == "llama.cpp":
        from engines import llama_cpp

        llama_cpp.converted(source, weights)
    elif engine == "CTranslate2":
        from engines import ctranslate2

        ctranslate2.converted(source)
    elif engine == "OpenVINO":
        from engines import openvino

        openvino.converted(source, weights)
    else:
        from engines.hf_folder import hf_folder

        hf_folder(source)


def load(
    source: SourceModel, engine: str, weights: str, threads: int, context: int
) -> tuple[Contestant, str]:
    """The engine with its model, and its description of its instruction set."""
    if engine == "onward":
        from engines.hf_folder import hf_folder
        from engines.onward_calls import Onward
        from onward import _core

        return Onward(hf_folder(source), weights, threads), _core.kernels.selected()
    if engine == "llama.cpp":
        from engines import llama_cpp

        return llama_cpp.LlamaCpp(source, weights, threads, context), llama_cpp.instructions()
    if engine == "CTranslate2":
        from engines import ctranslate2

        if weights not in ctranslate2.compute_types():
            raise Absent(f"the processor or the package has no {weights}")
        # The package does not report its instruction set; it chooses it at run time.
        return ctranslate2.CTranslate2(source, weights, threads), "its own choice"
    if engine == "transformers":
        from engines import transformers

        return transformers.Transformers(source, weights, threads), transformers.instructions()
    from engines import openvino

    return openvino.OpenVino(source, weights, threads), openvino.instructions()


def requests_of(lists: list[tuple[list[int], int]]) -> list[Request]:
    return [Request(tuple(prompt), new_tokens) for prompt, new_tokens in lists]


def answer(contestant: Contestant, asked: dict[str, Any]) -> dict[str, Any]:
    """Answer one command: ``follow`` takes one request, ``prepare`` and ``run`` take many."""
    requests = requests_of(asked["requests"])
    if asked["do"] == "follow":
        return asdict(contestant.follow(requests[0]))
    if asked["do"] == "prepare":
        return {"way": contestant.prepare(requests, time.perf_counter)}
    started = time.perf_counter()
    outputs = contestant.run(requests)
    return {"seconds": time.perf_counter() - started, "counts": [len(tokens) for tokens in outputs]}


def main() -> None:
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # libraries may write to stdout

    def say(content: dict[str, Any]) -> None:
        print(json.dumps(content), file=out, flush=True)

    order = json.loads(sys.argv[1])
    source = SourceModel(Path(order["source"]), Path(order["work"]))
    try:
        if order["do"] == "convert":
            convert(source, order["engine"], order["weights"])
            say({})
            return
        contestant, instructions = load(
            source, order["engine"], order["weights"], order["threads"], order["context"]
        )
        say(
            {
                "setting": contestant.setting,
                "instructions": instructions,
                "serial": contestant.serial,
            }
        )
        for line in sys.stdin:
            say(answer(contestant, json.loads(line)))
        contestant.close()
    except Absent as reason:
        say({"failed": str(reason)})
    except Exception as failure:
        say({"failed": f"{type(failure).__name__}: {failure}".splitlines()[0]})
        raise


if __name__ == "__main__":
    main()
