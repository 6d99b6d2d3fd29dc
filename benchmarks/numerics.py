"""How far a run-time dtype is from float32: KL divergence, top-1 agreement, perplexity.

Both read the same text with the same tokens (teacher forcing), so each position compares two
distributions over the same next token.

    python benchmarks/numerics.py [--model MODEL] [--text FILE] [--tokens 2048]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import onward

DEFAULT_TEXT = Path(__file__).parent.parent / "LICENSE"


@dataclass(frozen=True)
class Agreement:
    """Two runs at each of some tokens (tokens): natural logarithms throughout."""

    divergence: NDArray[np.float64]
    """Kullback-Leibler, of the other from the reference."""
    same: NDArray[np.bool_]
    """Whether the likeliest next token is the same."""
    reference_loss: NDArray[np.float64]
    """Of the token that does come next."""
    loss: NDArray[np.float64]


def log_probabilities(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """(tokens, vocab) -> (tokens, vocab), in float64."""
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def compare(
    reference: NDArray[np.float32], other: NDArray[np.float32], next_ids: NDArray[np.int64]
) -> Agreement:
    """Two runs over the same tokens; logits are (tokens, vocab)."""
    parts = []
    for begin in range(0, len(next_ids), 64):  # a vocabulary of float64 is large
        rows = slice(begin, min(begin + 64, len(next_ids)))
        p, q = log_probabilities(reference[rows]), log_probabilities(other[rows])
        chosen = next_ids[rows, None]
        parts.append(
            Agreement(
                (np.exp(p) * (p - q)).sum(axis=-1),
                p.argmax(axis=-1) == q.argmax(axis=-1),
                -np.take_along_axis(p, chosen, axis=-1)[:, 0],
                -np.take_along_axis(q, chosen, axis=-1)[:, 0],
            )
        )
    return joined(parts)


def joined(parts: Sequence[Agreement]) -> Agreement:
    """The tokens of all."""
    return Agreement(
        np.concatenate([part.divergence for part in parts]),
        np.concatenate([part.same for part in parts]),
        np.concatenate([part.reference_loss for part in parts]),
        np.concatenate([part.loss for part in parts]),
    )


def summary(agreement: Agreement) -> dict[str, float]:
    """Means, and the divergence that one token in a thousand exceeds."""
    return {
        "tokens": len(agreement.same),
        "kl_mean": float(agreement.divergence.mean()),
        "kl_p99_9": float(np.quantile(agreement.divergence, 0.999)),
        "top1_agreement": float(agreement.same.mean()),
        "perplexity_f32": float(np.exp(agreement.reference_loss.mean())),
        "perplexity": float(np.exp(agreement.loss.mean())),
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
    print(json.dumps(summary(compare(logits["f32"], logits["bf16"], np.array(ids[1:]))), indent=2))


if __name__ == "__main__":
    main()
