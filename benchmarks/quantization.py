"""The distance of quantised files from their source: KL divergence, top-1 agreement, perplexity.

All files read the same tokens in the same windows and compute in float32, where the engine
dequantises exactly. So the figures show only the rounding of the weights. ``onward quantize`` does
not calibrate on these texts.

    python benchmarks/quantization.py FILE... [--reference MODEL] [--text FILE...] [--tokens N]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from agreement import Agreement

import onward

ROOT = Path(__file__).parent.parent
DEFAULT_TEXTS = [ROOT / "LICENSE", ROOT / "docs" / "generation.md"]
WINDOW_TOKENS = 512


def windows(ids: list[int], tokens: int) -> list[list[int]]:
    """Ranges of one token more than a window; the last token is only a next token."""
    starts = range(0, min(tokens, len(ids) - 1), WINDOW_TOKENS)
    return [ids[begin : begin + WINDOW_TOKENS + 1] for begin in starts]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE", help="quantised models")
    parser.add_argument("--reference", default=None, help="their source; default: SmolLM2")
    parser.add_argument("--text", type=Path, nargs="+", default=DEFAULT_TEXTS)
    parser.add_argument("--tokens", type=int, default=4096, help="of each text at most")
    arguments = parser.parse_args()
    print("| file | tokens | KL mean | KL 99.9 % | top-1 | perplexity | of the source |")
    print("|---|---|---|---|---|---|---|", flush=True)
    with onward.LLM(arguments.reference, dtype="f32") as reference:
        texts = [
            windows(reference.tokenize(path.read_text(encoding="utf-8")), arguments.tokens)
            for path in arguments.text
        ]
        stretches = [stretch for text in texts for stretch in text]
        for file in arguments.files:
            agreement, source = Agreement(), Agreement()
            with onward.LLM(file, dtype="f32") as quantised:
                for count, ids in enumerate(stretches):
                    print(f"\r{file}: {count} of {len(stretches)}", end="", file=sys.stderr)
                    expected, found = (m.logits(ids[:-1]) for m in (reference, quantised))
                    agreement.add(expected, found, np.array(ids[1:]))
                    source.add(expected, expected, np.array(ids[1:]))
            print("\r\x1b[K", end="", file=sys.stderr)
            figures = agreement.figures()
            cells = [
                Path(file).name,
                f"{figures['tokens']}",
                f"{figures['kl_mean']:.4f}",
                f"{figures['kl_p99_9']:.3f}",
                f"{figures['top1_agreement']:.1%}",
                f"{figures['perplexity']:.2f}",
                f"{source.figures()['perplexity']:.2f}",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
