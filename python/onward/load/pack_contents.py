"""The metadata of a pack: how it is written and read.

csrc/pack/format.h describes the format. The core has read and checked spec, dtypes and vocabulary
before anything here is called.
"""

from __future__ import annotations

import dataclasses
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from onward.errors import PackError
from onward.files.json_file import parse_json_object
from onward.load.weights.dtypes import HEAD_DTYPES, PACKED_DTYPES, WeightDtypes
from onward.message_text import shown
from onward.options.kv_dtypes import FLOATS
from onward.spec import DecoderSpec, from_fields, to_fields
from onward.text.template.template import ChatTemplate
from onward.text.tokenizer.tokenizer import Tokenizer

FORMAT = "onward pack"
VERSION = 1
TEXT_PREFIX = "text."
TEXTS = (
    "tokenizer.json",
    "tokenizer_config",
    "chat_template",
    "chat_templates",
    "config",
    "generation_config",
)
"""Entries that may be stored as a tensor instead of in the metadata."""
Texts = Mapping[str, str]


def written(value: object) -> str:
    """As JSON."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def spec_text(spec: DecoderSpec) -> str:
    return written(to_fields(spec))


def dtypes_text(dtypes: WeightDtypes) -> str:
    return written({**dataclasses.asdict(dtypes), "matrices": dict(dtypes.matrices)})


def vocabulary_text(tokenizer: Tokenizer | None, eos_token_ids: Sequence[int], size: int) -> str:
    """For programs without a tokenizer: the ids of BOS, padding and EOS."""

    def known(token: int | None) -> int | None:
        return token if token is not None and 0 <= token < size else None

    bos = tokenizer.bos_token_id if tokenizer else None
    pad = (
        tokenizer.token_to_id(tokenizer.special_tokens.get("pad_token", "")) if tokenizer else None
    )
    return written(
        {
            "bos_token_id": known(bos),
            "pad_token_id": known(pad),
            "eos_token_ids": [token for token in eos_token_ids if known(token) is not None],
        }
    )


def tokenizer_texts(tokenizer: Tokenizer | None) -> dict[str, str]:
    """tokenizer.json with the present state of the tokenizer, and the settings that it lacks."""
    if tokenizer is None:
        return {}
    return {
        "tokenizer.json": tokenizer.backend.to_str(),
        "tokenizer_config": written(
            {
                "special_tokens": tokenizer.special_tokens,
                "add_bos_token": tokenizer.add_bos,
                "eos_token_ids": tokenizer.eos_token_ids,
                "config": tokenizer.config,
            }
        ),
    }


def template_texts(template: ChatTemplate | None) -> dict[str, str]:
    """The default template as text, and all templates if there are others."""
    sources = dict(template.sources) if template else {}
    texts = {"chat_template": sources["default"]} if "default" in sources else {}
    if set(sources) - {"default"}:
        texts["chat_templates"] = json.dumps(sources)  # in their order
    return texts


def read_spec(texts: Texts) -> DecoderSpec:
    return from_fields(_object(texts, "spec"))


def read_dtypes(texts: Texts) -> WeightDtypes:
    """The dtypes of the weights.

    Raises:
        PackError: the entry names no dtypes, or none for the embedding.
    """
    stated = _object(texts, "dtypes")
    matrices = stated.get("matrices")
    if (
        stated.keys() != {field.name for field in dataclasses.fields(WeightDtypes)}
        or stated["name"] not in HEAD_DTYPES
        or stated["cache"] not in FLOATS
        or not isinstance(matrices, dict)
        or "embed" not in matrices
        or not all(isinstance(name, str) and name in PACKED_DTYPES for name in matrices.values())
    ):
        raise PackError(
            f"pack: dtypes is {shown(stated)}, expected a name, a dtype of each matrix, the "
            "embedding among them, and the cache's"
        )
    return WeightDtypes(**stated)


def read_config(texts: Texts, key: str) -> dict[str, Any]:
    """config or generation_config; empty if the pack has none."""
    return _object(texts, key) if key in texts else {}


def read_tokenizer(texts: Texts, where: str) -> Tokenizer | None:
    """None if the model was packed without a tokenizer."""
    if "tokenizer.json" not in texts:
        return None
    stated = _object(texts, "tokenizer_config")
    special, ids = stated.get("special_tokens", {}), stated.get("eos_token_ids", [])
    checks = {
        "special_tokens": isinstance(special, dict) and all(map(_is_text, special.values())),
        "add_bos_token": isinstance(stated.get("add_bos_token"), (bool, type(None))),
        "eos_token_ids": isinstance(ids, list) and all(type(i) is int and i >= 0 for i in ids),
        "config": isinstance(stated.get("config", {}), dict),
    }
    for key, fits in checks.items():
        if not fits:
            found = shown(stated.get(key))
            raise PackError(f"{where}: tokenizer_config.{key} is {found}, expected another type")
    return Tokenizer.from_text(
        texts["tokenizer.json"],
        special_tokens=special,
        add_bos=stated.get("add_bos_token"),
        more_eos_ids=ids,
        config=stated.get("config"),
        where=where,
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def of_template(texts: Texts) -> dict[str, str]:
    """The arguments for ``read_template``."""
    return {key: text for key, text in texts.items() if key.startswith("chat_template")}


def read_template(texts: Texts, tokenizer: Tokenizer, where: str) -> ChatTemplate:
    sources = {"default": texts["chat_template"]} if "chat_template" in texts else {}
    if "chat_templates" in texts:
        sources = _object(texts, "chat_templates")
    absent = f"{where}: the model was packed without a chat template; generate() works without one"
    return ChatTemplate(sources, tokenizer.special_tokens, absent)


def metadata_checksum(metadata: Texts) -> str:
    """Hash of all keys and values except its own."""
    total = 0
    for key in sorted(metadata):
        if key != "checksum":
            total = zlib.crc32(f"{key}\0{metadata[key]}\0".encode(), total)
    return checksum_text(total)


def checksum_text(total: int) -> str:
    return f"{total:08x}"


def _object(texts: Texts, key: str) -> dict[str, Any]:
    """An object in the metadata. The metadata has a checksum, so only a wrongly made pack fails."""
    if key not in texts:
        raise PackError(f"pack: the metadata has no {key!r}")
    return parse_json_object(texts[key].encode(), f"pack: {key}", error=PackError)
