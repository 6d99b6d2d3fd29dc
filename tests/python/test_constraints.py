"""Constrained output: with any logits the text follows the grammar, and every mask is exact.

There is no engine here: tokens are drawn from seeded random logits. ``text_of`` defines the text of
an output.
"""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from builders.constrained import (
    ANY,
    SCHEMAS,
    SPELLS_ALL,
    SPELLS_SOME,
    allowed_after,
    constraint_of,
    draw,
    ids_of,
    made,
    prompts_of,
    rows_of,
)
from builders.tiny_tokenizers import BYTES, MARK, text_of
from onward.errors import InvalidArgument
from onward.text.tokenizer.tokenizer import Tokenizer

pytest.importorskip("llguidance")
jsonschema = pytest.importorskip("jsonschema")


class TestObedience:
    @pytest.mark.parametrize("name", SCHEMAS)
    @pytest.mark.parametrize("kind", SPELLS_ALL)
    def test_json_schema(self, kind, name):
        tokenizer, stop = made(kind)
        constraint = constraint_of(tokenizer, json_schema=SCHEMAS[name])
        for prompt in prompts_of(tokenizer, stop):
            for seed in range(2):
                output = draw(constraint, rows_of(tokenizer), prompt, [stop], seed)
                text = text_of(tokenizer, prompt, output, True)
                jsonschema.validate(json.loads(text), SCHEMAS[name])
                assert tokenizer.special_ids.isdisjoint(output)

    def test_every_form_of_a_schema(self):
        tokenizer, stop = made("byte level")
        for schema in ({"type": "boolean"}, '{"type": "boolean"}'):
            output = draw(
                constraint_of(tokenizer, json_schema=schema), rows_of(tokenizer), [], [stop], 1
            )
            assert tokenizer.decode(output) in ("true", "false")
        for schema in (True, {}, "true"):
            rule = constraint_of(tokenizer, json_schema=schema).rule([], [stop])
            openings = {i for b in b'{["-0123456789tfn' for i in tokenizer.encode(chr(b))}
            assert openings <= allowed_after(rule, rows_of(tokenizer), [])

    def test_json_has_no_endless_white_space(self):
        tokenizer, stop = made("byte level")
        rule = constraint_of(tokenizer, json_schema={"type": "array"}).rule([], [stop])
        space = tokenizer.encode(" ")
        bracket = tokenizer.encode("[")
        assert space[0] in allowed_after(rule, rows_of(tokenizer), [], bracket)
        assert space[0] not in allowed_after(rule, rows_of(tokenizer), [], bracket + space)

    def test_a_schema_may_choose_its_white_space(self):
        tokenizer, stop = made("byte level")
        schema = {"type": "array", "x-guidance": {"whitespace_flexible": False}}
        rule = constraint_of(tokenizer, json_schema=schema).rule([], [stop])
        allowed = allowed_after(rule, rows_of(tokenizer), [], tokenizer.encode("["))
        assert allowed.isdisjoint(tokenizer.encode(" \n\t"))

    @pytest.mark.parametrize(
        "regex",
        [
            r"[a-z]{2,5}@[a-z]{1,4}\.(com|org)",
            r"^\d{4}-\d{2}/\d{2}$",
            r"(日本|é|🦙){1,3}",
            r"a?b{0,3}",
            "x\ny|\\/\\\\d|\t",
            r" {1,3}[ab]",
            r"[^\x00-\x7f]{2}",
            r"(?i:ab|cd)[\d\s]",
        ],
    )
    @pytest.mark.parametrize("kind", SPELLS_ALL)
    def test_regex(self, kind, regex):
        tokenizer, stop = made(kind)
        constraint = constraint_of(tokenizer, regex=regex)
        for prompt in prompts_of(tokenizer, stop):
            for seed in range(2):
                output = draw(constraint, rows_of(tokenizer), prompt, [stop], seed)
                assert re.fullmatch(regex, text_of(tokenizer, prompt, output, True))

    @pytest.mark.parametrize(
        ("kind", "regex"),
        [
            ("words", r"( ?(yes|no)){3}"),
            ("words", r" ?(maybe not|no)( yes)?"),
            ("metaspace", r"[a-z ]{1,9}"),
            ("metaspace", r" ?hello( hello)*"),
            ("wordpiece", r"(hello|[a-c日]| ){4,5}"),
        ],
    )
    def test_regex_with_vocabularies_that_cannot_spell_every_text(self, kind, regex):
        tokenizer, stop = made(kind)
        constraint = constraint_of(tokenizer, regex=regex)
        drawn = 0
        for prompt in prompts_of(tokenizer, stop):
            for seed in range(10):
                try:
                    output = draw(constraint, rows_of(tokenizer), prompt, [stop], seed)
                except AssertionError:  # the engine would report that the text cannot continue
                    continue
                drawn += 1
                assert re.fullmatch(regex, text_of(tokenizer, prompt, output, True))
        assert drawn >= 10

    def test_lark(self):
        tokenizer, stop = made("byte level")
        grammar = 'start: sum\nsum: term ("+" term)~0..3\nterm: /[0-9]{1,2}/ | "(" sum ")"'
        constraint = constraint_of(tokenizer, grammar=grammar)
        for seed in range(40):
            text = tokenizer.decode(draw(constraint, rows_of(tokenizer), [], [stop], seed, 100000))
            assert re.fullmatch(r"[0-9+()]+", text)
            eval(re.sub(r"\b0+(?=\d)", "", text))


CHOICES = [
    ["yes", "no"],
    ["a", "ab", "abc", "b"],
    ["hello", "hell", " hello", "he"],
    [" a", "  a", "a a"],
    ["a.b", "a*b", "(a", "a|b", "[a]", "a\\d", "/a/", "{a}", "^a$", "a\nb", "a\x00", "a-b#&~ c"],
    ["日本", "日", "é", "🦙a"],
    ["<|end|>", "<tool>", "</s>", "<|im_end|>", "<"],
    ["no yes", "no", "maybe"],
]


class TestExactMasks:
    @pytest.mark.parametrize("choices", CHOICES, ids=" ".join)
    @pytest.mark.parametrize("kind", [kind for kind in ANY if kind != "smollm2"])
    def test_choices(self, kind, choices):
        """By the definition: an allowed token keeps the text a prefix of a choice."""
        tokenizer, stop = made(kind)
        try:
            constraint = constraint_of(tokenizer, choices=choices)
        except InvalidArgument:
            assert kind in SPELLS_SOME
            return
        rng = np.random.default_rng(1)
        for prompt in prompts_of(tokenizer, stop):
            for _ in range(1 + (len(prompt) == 0)):
                rule, output = constraint.rule(prompt, [stop]), list[int]()
                while True:
                    allowed = allowed_after(rule, rows_of(tokenizer), prompt, output)
                    assert allowed == _by_definition(tokenizer, prompt, output, choices, stop)
                    if not allowed - {stop}:
                        break
                    output.append(int(rng.choice(sorted(allowed - {stop}))))
                    text = text_of(tokenizer, prompt, output, True)
                    longer = any(c != text and c.startswith(text) for c in choices)
                    assert rule.ends(ids_of(prompt, output)) <= (text in choices)
                    if text in choices and not longer:
                        assert rule.ends(ids_of(prompt, output))

    def test_the_default_models_choices(self):
        tokenizer, stop = made("smollm2")
        choices = ["yes", "yesterday", "no", "<|im_end|>", "日本"]
        constraint = constraint_of(tokenizer, choices=choices)
        found = set()
        for seed in range(60):
            output = draw(constraint, rows_of(tokenizer), [1], [stop], seed)
            assert tokenizer.special_ids.isdisjoint(output)
            found.add(tokenizer.decode(output))
        assert found == set(choices)

    @pytest.mark.parametrize("kind", ["byte level", "sentencepiece", "smollm2"])
    def test_any_text_allows_every_token_except_the_special_ones(self, kind):
        tokenizer, stop = made(kind)
        rule = constraint_of(tokenizer, regex=r"(?s:.*)").rule([], [])
        allowed = allowed_after(rule, rows_of(tokenizer), [], tokenizer.encode("a", False))
        left_out = set(range(tokenizer.vocab_size)) - allowed
        # beside these, only bytes that begin no character
        assert left_out >= tokenizer.special_ids
        others = left_out - tokenizer.special_ids - {tokenizer.token_to_id("<tool>")}
        assert all("\ufffd" in tokenizer.decode([i]) for i in others)
        assert stop in left_out
        assert max(allowed) < tokenizer.vocab_size  # no row without a token


def _by_definition(
    tokenizer: Tokenizer, prompt: list[int], output: list[int], choices: list[str], stop: int
) -> set[int]:
    def fits(token: int) -> bool:
        if not _has_text(tokenizer, token):
            return False
        ids = [*output, token]
        text = text_of(tokenizer, prompt, ids, True)
        new = text != text_of(tokenizer, prompt, output, True) or "\ufffd" in text
        if "\ufffd" not in text:
            return new and any(choice.startswith(text) for choice in choices)
        data = b"".join(_bytes(tokenizer, i) for i in ids)
        return any(choice.encode().startswith(data) for choice in choices)

    fitting = {token for token in range(tokenizer.vocab_size) if fits(token)}
    return fitting | ({stop} if text_of(tokenizer, prompt, output, True) in choices else set())


def _has_text(tokenizer: Tokenizer, token: int) -> bool:
    spelling = tokenizer.id_to_token(token)
    added = tokenizer.backend.get_added_tokens_decoder()
    mark = token in added and added[token].content.startswith("<")
    return spelling is not None and token not in tokenizer.special_ids and not mark


def _bytes(tokenizer: Tokenizer, token: int) -> bytes:
    """Of a token in a text that is cut inside a character: a byte or more, or whole text."""
    spelling = tokenizer.id_to_token(token) or ""
    if spelling in BYTES:
        return bytes([BYTES.index(spelling)])
    if "ByteFallback" in str(tokenizer.backend.decoder):
        return spelling.replace(MARK, " ").encode()
    return tokenizer.decoding.piece(token)
