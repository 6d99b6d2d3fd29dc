"""How far a run-time dtype is from float32: KL divergence, top-1 agreement, perplexity.

Both read the same text with the same tokens (teacher forcing), so each position compares two
distributions over the same next token.

    python benchmarks/numerics.py [--model MODEL] [--text FILE] [--tokens 2048]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import onward

DEFAULT_TEXT = Path(__file__).parent.parent / "LICENSE"


def log_probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """(tokens, vocab) -> (tokens, vocab), in float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def compare(
    reference: NDArray[np.float32], other: NDArray[np.float32], next_ids: NDArray[np.int64]
) -> dict[str, float]:
    """Agreement of two runs over the same tokens; logits are (tokens, vocab)."""
    divergences, same, losses = [], 0, [0.0, 0.0]
    for begin in range(0, len(next_ids), 64):  # a vocabulary of float64 is large
        rows = slice(begin, min(begin + 64, len(next_ids)))
        p, q = log_probabilities(reference[rows]), log_probabilities(other[rows])
        divergences.append((np.exp(p) * (p - q)).sum(axis=-1))
        same += int((p.argmax(axis=-1) == q.argmax(axis=-1)).sum())
        chosen = next_ids[rows, None]
        for index, log_p in enumerate((p, q)):
            losses[index] -= float(np.take_along_axis(log_p, chosen, axis=-1).sum())
    divergence = np.concatenate(divergences)
    count = len(next_ids)
    return {
        "tokens": count,
        "kl_mean": float(divergence.mean()),
        "kl_p99_9": float(np.quantile(divergence, 0.999)),
        "top1_agreement": same / count,
        "perplexity_f32": float(np.exp(losses[0] / count)),
        "perplexity": float(np.exp(losses[1] / count)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default=None, help="folder, .gguf or hub id; default: SmolLM2")
    parser.add_argument("--text", type=Path, default=DEFAULT_TEXT, help="default: the LICENSE")
    parser.add_argument("--tokens", type=int, default=2048)
    arguments = parser.parse_args()
    logits = {}
    for dtype in ("f32", "bf16"):
        print(f"computing {dtype} ...", file=sys.stderr)
        with onward.LLM(arguments.model, dtype=dtype) as llm:
            ids = llm.tokenize(arguments.text.read_text(encoding="utf-8"))[: arguments.tokens + 1]
            logits[dtype] = llm.logits(ids[:-1])
    print(json.dumps(compare(logits["f32"], logits["bf16"], np.array(ids[1:])), indent=2))


if __name__ == "__main__":
    main()
