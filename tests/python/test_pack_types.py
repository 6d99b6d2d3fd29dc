"""Packs whose metadata has values of wrong types with a correct checksum: an error of this package,
from loading to the first answer.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import onward
from builders.packs import Parts, parts_of, put_together, tiny_pack
from onward.errors import Error, PackError

WRONG: dict[str, Any] = {
    "null": None,
    "true": True,
    "negative": -1,
    "large": 10**18,
    "beyond 64 bits": 10**25,
    "float": 1.5,
    "tiny float": 1e-300,
    "empty text": "",
    "text": "x",
    "zero byte": "\0",
    "lone surrogate": "\ud800",
    "empty list": [],
    "list": [[], {}, None, "x", -1],
    "list of null": [None],
    "list of texts": ["x", "x"],
    "empty object": {},
    "object": {"content": None, "x": []},
    "object of objects": {"": {"": {"": 1}}},
}
RAW = ("", "null", "[]", "7", '"x"', "{", "NaN", "{} {}", "\ufeff{}", '{"a": NaN}', "[" * 5000)
"""Texts of entries that should hold an object."""
OBJECTS = ("spec", "dtypes", "vocabulary", "checksums", "tokenizer_config", "config")
MORE_OBJECTS = (*OBJECTS, "generation_config", "chat_templates", "tokenizer.json")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """A pack, all its texts in the metadata."""
    found = parts_of(tiny_pack(tmp_path_factory.mktemp("good")))
    found.metadata["chat_templates"] = json.dumps({"default": "{{ 1 }}", "other": "{{ 2 }}"})
    return found


def test_the_unchanged_pack_answers(parts: Parts, tmp_path: Path) -> None:
    assert outcome(tmp_path, copy.deepcopy(parts)) == "answered"
    assert set(MORE_OBJECTS) <= set(parts.metadata)


def outcome(folder: Path, parts: Parts) -> str:
    """ "answered", or the name of the error. Every other exception fails the test."""
    path = folder / "m.onward"
    path.write_bytes(put_together(parts))
    try:
        with onward.LLM(path, threads=1) as llm:
            llm.chat("hi", max_new_tokens=2)
            llm.generate("a", max_new_tokens=2, temperature=1.0, seed=1)
            llm.tokenize("a")
            llm.session().send("hi", max_new_tokens=1)
    except Error as failure:
        assert str(failure).isprintable() and 0 < len(str(failure)) < 1500
        return type(failure).__name__
    return "answered"


def places(value: object, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value in an object: in inner objects to the first four, in lists to the
    first."""
    yield at
    if isinstance(value, dict):
        for key in list(value)[: 4 if at else 16]:
            yield from places(value[key], (*at, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*at, 0))


def put(value: Any, at: tuple[Any, ...], wrong: object) -> Any:
    """The value with ``wrong`` at a place of it."""
    if not at:
        return wrong
    changed = copy.copy(value)
    changed[at[0]] = put(value[at[0]], at[1:], wrong) if at[1:] else wrong
    return changed


@pytest.mark.parametrize("key", MORE_OBJECTS)
@pytest.mark.filterwarnings("ignore")
def test_each_value_of_each_wrong_type(parts: Parts, tmp_path: Path, key: str) -> None:
    good = parts.reported(key)
    refused = 0
    for at in [*places(good), ("another",)]:
        for wrong in WRONG.values():
            changed = copy.deepcopy(parts)
            changed.metadata[key] = json.dumps(put(good, at, wrong))
            refused += outcome(tmp_path, changed) != "answered"
    assert refused >= len(WRONG) - 3  # in place of the whole object, at least


@pytest.mark.parametrize("key", MORE_OBJECTS)
@pytest.mark.parametrize("text", RAW)
def test_a_text_that_is_not_an_object_is_an_error(
    parts: Parts, tmp_path: Path, key: str, text: str
) -> None:
    changed = copy.deepcopy(parts)
    changed.metadata[key] = text
    assert outcome(tmp_path, changed) != "answered"


@pytest.mark.parametrize("key", [*MORE_OBJECTS, "name", "chat_template", "layout", "onward"])
@pytest.mark.filterwarnings("ignore")
def test_missing_or_unusual_entries_are_errors(parts: Parts, tmp_path: Path, key: str) -> None:
    changed = copy.deepcopy(parts)
    del changed.metadata[key]
    outcome(tmp_path, changed)
    for text in ("", "\0", "x" * 10_000, "{{ 1 }}", "../../x", "\U0001f600"):
        changed.metadata[key] = text
        outcome(tmp_path, changed)


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("special_tokens", []),
        ("special_tokens", {"bos_token": 1}),
        ("add_bos_token", 1),
        ("add_bos_token", "true"),
        ("eos_token_ids", 300),
        ("eos_token_ids", ["300"]),
        ("eos_token_ids", [True]),
        ("eos_token_ids", [-1]),
        ("config", []),
    ],
)
def test_the_tokenizers_fields(parts: Parts, tmp_path: Path, field: str, wrong: Any) -> None:
    changed = copy.deepcopy(parts)
    changed.tell("tokenizer_config", lambda reported: reported.update({field: wrong}))
    (tmp_path / "m.onward").write_bytes(put_together(changed))
    with pytest.raises(PackError, match=rf"^m\.onward: tokenizer_config\.{field} is .*, expected"):
        onward.LLM(tmp_path / "m.onward")
