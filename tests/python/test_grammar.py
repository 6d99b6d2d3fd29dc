"""Grammars: legal ones, errors for unusable ones, and the token table of a model."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest
from tokenizers import decoders

from builders.constrained import (
    constraint_of,
    made,
)
from builders.tiny_tokenizers import byte_level, sentencepiece
from onward.errors import ArgumentTypeError, Error, InvalidArgument, MissingExtra
from onward.options.grammar import Grammar
from onward.text.tokenizer.token_table import table_of
from onward.text.tokenizer.tokenizer import Tokenizer

pytest.importorskip("llguidance")


class TestTables:
    def test_a_table_is_made_once_and_freed(self):
        tokenizer = Tokenizer(byte_level())
        assert table_of(tokenizer, 300) is table_of(tokenizer, 300)
        assert table_of(tokenizer, 300) is not table_of(tokenizer, 301)
        constraint_of(tokenizer, regex="a")
        gone = weakref.ref(tokenizer)
        del tokenizer
        gc.collect()
        assert gone() is None

    @pytest.mark.parametrize("decoder", [decoders.BPEDecoder("a"), decoders.CTC()])
    def test_decoders_that_look_ahead_are_refused(self, decoder):
        tokenizer = Tokenizer(sentencepiece(decoder))
        with pytest.raises(Error, match=r"tokenizer: its decoder is (BPEDecoder|CTC)"):
            constraint_of(tokenizer, regex="a")


class TestErrors:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"regex": "(a"}, "regex: llguidance cannot use it: unclosed group"),
            ({"regex": "(?=a)b"}, "regex: .*look-around"),
            ({"regex": "a\\"}, "regex: ends in a backslash, expected"),
            ({"regex": ""}, "regex: is empty, expected"),
            ({"regex": r"[^\s\S]"}, "regex: no token of this model can begin"),
            ({"regex": "\ud800"}, r"regex: holds a lone surrogate \(U\+D800\)"),
            ({"choices": []}, "choices: is empty"),
            ({"choices": ["a", ""]}, "choices: holds an empty string"),
            ({"grammar": "start: foo"}, 'grammar: .*unknown name: "foo"'),
            ({"grammar": 'other: "a"'}, "grammar: .*no start rule"),
            ({"grammar": "start: <|nope|>"}, "grammar: .*unknown special token"),
            ({"grammar": '{"grammars": []}'}, "grammar: llguidance cannot use it"),
            ({"json_schema": "{"}, "json_schema: is not valid JSON"),
            ({"json_schema": "[1]"}, "json_schema: is .*, expected a JSON object"),
            ({"json_schema": "[" * 100000}, "json_schema: is not valid JSON"),
            ({"json_schema": False}, "json_schema: .*schema is false"),
            ({"json_schema": {"type": "bogus"}}, "json_schema: .*Invalid type: bogus"),
            ({"json_schema": {"const": float("nan")}}, "json_schema: cannot be written as JSON"),
            ({"json_schema": {"$ref": "http://localhost/x"}}, "json_schema: .*localhost"),
            ({"json_schema": {"not": {}}}, r"json_schema: .*not"),
            ({"json_schema": {}, "regex": "a"}, "regex: is given together with json_schema"),
            ({"choices": ["a"], "grammar": "a"}, "grammar: is given together with choices"),
        ],
    )
    def test_values(self, options, message):
        tokenizer, _ = made("byte level")
        with pytest.raises(InvalidArgument, match=message) as caught:
            constraint_of(tokenizer, **options)
        assert len(str(caught.value)) < 300
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"regex": 3}, r"regex: is 3 \(int\), expected a regular expression"),
            ({"grammar": b"a"}, r"grammar: is b'a' \(bytes\), expected a Lark grammar"),
            ({"choices": "yes"}, r"choices: is 'yes' \(str\), expected a list of strings"),
            ({"choices": ["a", 1]}, r"choices: .*expected a list of strings"),
            ({"choices": {"a"}}, r"choices: .*expected a list of strings"),
            ({"json_schema": [1]}, r"json_schema: is \[1\] \(list\), expected a dict"),
            ({"json_schema": {"enum": {1}}}, "json_schema: cannot be written as JSON"),
        ],
    )
    def test_types(self, options, message):
        with pytest.raises(ArgumentTypeError, match=message):
            Grammar.of(**options)

    def test_an_empty_grammar_is_refused(self):
        assert Grammar.of() is None

    def test_without_llguidance_the_error_names_the_package(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "llguidance", None)
        tokenizer = Tokenizer(byte_level())
        with pytest.raises(MissingExtra, match=r"pip install 'llguidance>=1\.9'"):
            constraint_of(tokenizer, regex="a")
