"""Writes docs/families.md from the families, the core and the fixtures of the tests.

    python scripts/families_doc.py [--check]

Needs the built package. ``--check`` changes nothing and returns 1 if the document is out of date.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from onward import _core
from onward.load import architectures
from onward.load.architectures.model_types import FAMILIES, MULTIMODAL
from onward.spec import to_fields

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "families.md"
FIXTURES = ROOT / "tests" / "fixtures" / "families"
FOLDER = Path(architectures.__file__).parent / "families"

HEAD = """# Families of models

`scripts/families_doc.py` writes this document. A model is loaded by the `model_type` of its
`config.json`. Other types are refused by name, and so is a field of a config that may change the
arithmetic and is not known.

Each type is compared with transformers 5.24 in float32, with random weights:
`scripts/check_families.py` compares the logits of a prompt in one prefill and token by token (1e-5
of their range), 24 greedy tokens and 4 beams; the tests compare with stored values
(`tests/fixtures/families/<type>.json`).

- **layers**: the features of the type's tiny model that layers of Llama do not have. A CUDA device
  computes none of these yet, and refuses such a model when it is loaded.
- **GGUF**: whether GGUF files of the type are read ([files.md](files.md)).
- **coded cache**: whether `kv_dtype` may be `int8` or fewer bits. Such a cache needs keys and
  values of equal size, 32 to 256 numbers.
"""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    model_type: str
    summary: str
    features: list[str]
    fixture: bool
    coded: bool
    gguf: bool


def summary_of(family: str) -> str:
    """The docstring of the file of a family, in one line."""
    text = ast.get_docstring(ast.parse((FOLDER / f"{family}.py").read_text("utf-8"))) or ""
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


def row_of(model_type: str) -> Row:
    """What the fixture of a type says about its layers."""
    text_type = MULTIMODAL.get(model_type, model_type)
    family = FAMILIES.get(text_type, text_type)
    path = FIXTURES / f"{model_type}.json"
    if not path.exists():
        return Row(model_type, summary_of(family), [], False, True, False)
    config = json.loads(path.read_text("utf-8"))["config"]
    spec = architectures.read_spec(config)
    same = all(
        spec.value_dim_of(layer) == spec.head_dim_of(layer) for layer in range(spec.num_layers)
    )
    module = importlib.import_module(f"{architectures.__name__}.families.{family}")
    gguf = hasattr(module, "GGUF")
    features = _core.layer_features(_core.DecoderSpec(to_fields(spec)))
    return Row(model_type, summary_of(family), features, True, same, gguf)


def document() -> str:
    """The text of docs/families.md."""
    types = sorted({*architectures.families(), *(path.stem for path in FIXTURES.glob("*.json"))})
    rows = [row_of(model_type) for model_type in types]
    lines = [HEAD, f"{len(rows)} types:", "", "| type | models | layers | GGUF | coded cache |"]
    lines.append("|---|---|---|---|---|")
    for row in rows:
        layers = ", ".join(row.features) or ("as Llama" if row.fixture else "not compared")
        coded, gguf = ("yes" if works else "no" for works in (row.coded, row.gguf))
        lines.append(f"| `{row.model_type}` | {row.summary} | {layers} | {gguf} | {coded} |")
    outer = ", ".join(f"`{name}`" for name in sorted(MULTIMODAL))
    lines += [
        "",
        f"Multimodal files of these types run as text models; images are not read: {outer}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, and change nothing")
    text = document()
    if parser.parse_args().check:
        if DOCUMENT.read_text("utf-8") == text:
            return 0
        print("docs/families.md is out of date: run scripts/families_doc.py", file=sys.stderr)
        return 1
    DOCUMENT.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
