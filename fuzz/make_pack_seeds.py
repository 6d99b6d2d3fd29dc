"""Writes the seeds of pack_fuzzer into a folder: packs of tiny models in several dtypes, and
variants with a changed header or a text as a tensor.

    PYTHONPATH=tests python fuzz/make_pack_seeds.py FOLDER
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from builders.checkpoints import write_folder
from builders.packs import Parts, pack, parts_of, put_together
from builders.seeded_folder import write_seeded


def variants(path: Path) -> list[bytes]:
    """The pack, and variants that random mutations would hardly produce."""
    made = [path.read_bytes()]
    for change in (
        lambda parts: parts.header.pop("__metadata__"),
        lambda parts: parts.metadata.update(layout="3"),
        lambda parts: parts.tell("spec", lambda spec: spec.update(num_layers=3)),
        lambda parts: parts.tell("spec", lambda spec: spec.update(windows=[8])),
        lambda parts: parts.header.update({"padding.x": parts.header.pop("norm")}),
        with_text,
    ):
        parts: Parts = parts_of(path)
        change(parts)
        made.append(put_together(parts))
    return made


def with_text(parts: Parts) -> None:
    """Store a text as a tensor. Real ones are too long for a seed."""
    data = b"a text \xc3\xa9".ljust(64)
    end = len(parts.data)
    parts.header["text.chat_template"] = {
        "dtype": "U8",
        "shape": [len(data)],
        "data_offsets": [end, end + len(data)],
    }
    parts.data += data


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        model = write_seeded(
            place / "m", num_layers=1, vocab_size=16, hidden_size=32, intermediate_size=32
        )
        packs = []
        for dtype in ("f32", "f16", "bf16", "int8", "int4"):
            packs.append(place / f"{dtype}.onward")
            pack(model, packs[-1], dtype=dtype)
        packs.append(place / "tied.onward")
        pack(write_folder(place / "tied"), packs[-1], dtype="int8")
        for i, path in enumerate(packs):
            for k, seed in enumerate(variants(path)):
                # The last byte selects the options (fuzz/pack_fuzzer.cpp).
                (folder / f"{i}-{k}").write_bytes(seed + bytes([k % 4]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
