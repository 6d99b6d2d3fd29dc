"""Every argument of ``LLM`` with values of every kind: it is accepted, or an error of this package
names the argument. The arguments come from the signature, so a new argument is tested, too.
"""

from __future__ import annotations

import inspect
import math
import pickle
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onward
from builders.hostile_values import NESTED
from builders.seeded_folder import write_seeded
from onward import LLM
from onward.errors import ArgumentTypeError, InvalidArgument, ModelNotFound


class Strange:
    """Raises an error for its truth value, length, text and comparisons."""

    def _fail(self, *arguments: object) -> Any:
        raise ZeroDivisionError("asked")

    __bool__ = __len__ = __repr__ = __str__ = __eq__ = __index__ = __int__ = __float__ = _fail
    __iter__ = __contains__ = __format__ = _fail
    __hash__ = object.__hash__


class PathOfBytes:
    def __fspath__(self) -> bytes:
        return b"somewhere"


WRONG: dict[str, Any] = {
    "list": ["f32", "f16"],
    "empty list": [],
    "list of one": ["f32"],
    "empty tuple": (),
    "tuple of one": ("f32",),
    "tuple of numbers": (1, 2),
    "tuple of lists": ([], []),
    "dict": {"f32": 1},
    "empty dict": {},
    "set": {"f32"},
    "array": np.array([1, 2]),
    "array of floats": np.array([0.5, math.nan]),
    "array of truth values": np.array([True, False]),
    "array of texts": np.array(["f32", "f16"]),
    "array of one text": np.array(["f32"]),
    "array of objects": np.array([None, {}], object),
    "empty array": np.array([]),
    "2-d array": np.zeros((2, 2)),
    "structured array": np.zeros(2, [("a", "<f4")]),
    "dtype": np.dtype("f4"),
    "bytes": b"f32",
    "bytearray": bytearray(b"f32"),
    "memoryview": memoryview(b"f32"),
    "float": 1.5,
    "NaN": math.nan,
    "numpy's NaN": np.float32(math.nan),
    "infinity": math.inf,
    "complex": 1j,
    "Decimal": Decimal("1.5"),
    "Fraction": Fraction(3, 2),
    "negative": -1,
    "negative of numpy": np.int64(-1),
    "too large": 10**30,
    "of many digits": 10**5000,
    "empty text": "",
    "a zero byte": "a\0b",
    "a lone surrogate": "\udcff",
    "long text": "x" * 100_000,
    "object": object(),
    "class": int,
    "function": len,
    "module": math,
    "generator": (item for item in ()),
    "path of bytes": PathOfBytes(),
    "strange": Strange(),
    "exception": ValueError("x"),
    "deep list": NESTED[0],
    "deep dict": NESTED[1],
    "itself": NESTED[2],
}
REFUSED = (InvalidArgument, ArgumentTypeError)
ARGUMENTS = [name for name in inspect.signature(LLM.__init__).parameters if name != "self"]
TAKEN: dict[str, tuple[str, ...]] = {"packed_cache": ("a lone surrogate", "long text")}
"""Texts that the file system may accept as the name of a folder. If not, there is a warning."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("arguments") / "m"
    return write_seeded(path, num_layers=1, hidden_size=32, intermediate_size=32, vocab_size=32)


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_wrong_value_is_an_error_that_names_the_argument(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    if kind in TAKEN.get(name, ()):
        return
    monkeypatch.chdir(tmp_path)
    arguments = {"model": folder, "dtype": "f32", "threads": 1, name: WRONG[kind]}
    with pytest.raises((*REFUSED, ModelNotFound)) as caught:
        LLM(**arguments)
    text = str(caught.value)
    if not (isinstance(caught.value, ModelNotFound) and isinstance(WRONG[kind], str)):
        assert text.startswith(f"{name}: ")
    assert text.isprintable() and len(text) < 1000
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ARGUMENTS)
def test_none_is_accepted_if_it_is_the_default(folder: Path, name: str) -> None:
    arguments: dict[str, Any] = {"model": folder, "dtype": "f32", "threads": 1}
    if inspect.signature(LLM.__init__).parameters[name].default is None:
        LLM(**arguments if name == "model" else {**arguments, name: None}).close()
        return
    with pytest.raises(ArgumentTypeError, match=f"^{name}: "):
        LLM(**{**arguments, name: None})


@pytest.mark.parametrize("value", [np.int64(3), np.array(3), np.uint8(3)], ids=repr)
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, parameter in inspect.signature(LLM.__init__).parameters.items()
        if str(parameter.annotation).startswith("int")
    ],
)
def test_numpy_integers_are_accepted(folder: Path, name: str, value: Any) -> None:
    more = {"kv_cache_bytes": 1 << 20}
    LLM(folder, dtype="f32", **{**more, name: value if name not in more else 1 << 20}).close()


def test_a_wrong_draft_model_is_found_before_the_model_loads(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*arguments: object) -> Any:
        raise AssertionError("loaded")

    monkeypatch.setattr("onward.llm.load_with_cache", load)
    for value in (7, b"x", "no such model"):
        with pytest.raises((*REFUSED, ModelNotFound)):
            LLM(folder, draft_model=value)


@pytest.mark.parametrize("kind", WRONG)
def test_the_revision_of_a_model_of_the_hub(kind: str) -> None:
    if kind == "long text":
        return  # a name that would be requested from the hub
    with pytest.raises(REFUSED, match=r"^revision: "):
        LLM("user/repo", revision=WRONG[kind])


def test_an_unknown_argument() -> None:
    with pytest.raises(TypeError, match="atention_window"):
        LLM("m", atention_window=4)  # type: ignore[call-arg]


def test_the_engine_is_usable_after_each_error(folder: Path) -> None:
    with onward.LLM(folder, dtype="f32") as llm:
        expected = llm.logits([1, 2]).tobytes()
        for name in ARGUMENTS[1:]:
            with pytest.raises(REFUSED):
                LLM(folder, **{name: {}})  # type: ignore[arg-type]
        assert llm.logits([1, 2]).tobytes() == expected


def test_the_test_values_match_their_names() -> None:
    with pytest.raises(ZeroDivisionError):
        bool(WRONG["strange"])
    with pytest.raises(ValueError, match="ambiguous"):
        bool(WRONG["array"] == WRONG["array"])
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(WRONG["generator"])
