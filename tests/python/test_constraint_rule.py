"""The rule of a constrained request: its end, special tokens, many outputs at once, and its
scores.
"""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest

from builders.constrained import (
    SCHEMAS,
    allowed_after,
    constraint_of,
    draw,
    ids_of,
    made,
    rows_of,
)
from builders.tiny_tokenizers import MARK
from onward.errors import Error, InvalidArgument
from onward.options.grammar import Grammar
from onward.text import constraints
from onward.text.constraints import Constraint
from onward.text.tokenizer.token_table import TokenTable

pytest.importorskip("llguidance")


class TestStopTokens:
    def test_stop_tokens_are_allowed_only_after_a_complete_output(self):
        tokenizer, stop = made("byte level")
        rule = constraint_of(tokenizer, regex="ab?").rule([], [stop, 3, 10**6])
        a, b = tokenizer.encode("a")[0], tokenizer.encode("b")[0]
        ab = tokenizer.token_to_id("ab")
        rows = rows_of(tokenizer)
        assert allowed_after(rule, rows, []) == {a, ab}
        assert not rule.ends(ids_of([], [a]))
        assert allowed_after(rule, rows, [], [a]) == {b, stop, 3}
        assert rule.ends(ids_of([], [a, b])) and rule.ends(ids_of([], [ab]))
        assert rule.ends(ids_of([], [a, stop])) and rule.ends(ids_of([], [a, 3]))
        assert allowed_after(rule, rows, [], [a, b]) == {stop, 3}

    def test_an_ordinary_stop_token_does_not_count_as_text(self):
        tokenizer, _ = made("byte level")
        newline = tokenizer.encode("\n")[0]
        rule = constraint_of(tokenizer, regex=r"a(\n|b)*c").rule([], [newline])
        a, c = tokenizer.encode("a")[0], tokenizer.encode("c")[0]
        assert newline not in allowed_after(rule, rows_of(tokenizer), [], [a])
        assert allowed_after(rule, rows_of(tokenizer), [], [a, c]) == {newline}

    def test_a_rule_without_stop_tokens(self):
        tokenizer, _ = made("byte level")
        rule = constraint_of(tokenizer, choices=["a", "ac"]).rule([], [])
        a, c = tokenizer.encode("ac")
        assert allowed_after(rule, rows_of(tokenizer), [], [a]) == {c}
        assert rule.ends(ids_of([], [a, c]))

    def test_stop_tokens_in_the_prompt_do_not_end_the_output(self):
        tokenizer, stop = made("byte level")
        rule = constraint_of(tokenizer, regex="ab?").rule([5, stop], [stop])
        assert not rule.ends(ids_of([5, stop], []))
        assert not rule.ends(ids_of([5, stop], tokenizer.encode("a")))

    def test_an_output_ends_if_the_vocabulary_cannot_continue_it(self):
        """After "no" the expression could continue, but this model has no token for that."""
        tokenizer, stop = made("words")
        rule = constraint_of(tokenizer, regex="no(pe)?").rule([stop], [stop])
        (no,) = tokenizer.encode("no")
        assert rule.ends(ids_of([stop], [no]))

    def test_a_dead_end_allows_nothing(self):
        tokenizer, stop = made("words")
        rule = constraint_of(tokenizer, regex="nope|yes").rule([stop], [stop])
        no, yes = tokenizer.encode("no yes")
        for _ in range(2):
            assert not rule.ends(ids_of([stop], [no]))
            assert allowed_after(rule, rows_of(tokenizer), [stop], [no]) == set()
        assert rule.ends(ids_of([stop], [yes]))


class TestSpecialTokens:
    def test_text_that_looks_like_a_special_token_is_spelled(self):
        for kind in ("byte level", "gguf byte level", "smollm2"):
            tokenizer, stop = made(kind)
            mark = tokenizer.id_to_token(stop)
            constraint = constraint_of(tokenizer, json_schema={"const": mark})
            output = draw(constraint, rows_of(tokenizer), [], [stop], 3)
            assert json.loads(tokenizer.decode(output)) == mark
            assert tokenizer.special_ids.isdisjoint(output)

    def test_a_regex_never_allows_a_special_token(self):
        tokenizer, _ = made("byte level")
        with pytest.raises(InvalidArgument, match="UTF-8"):
            constraint_of(tokenizer, regex=r"(?-u:\xFF)<\|end\|>")
        lark = 'start: /(?s-u:.)*/\n%llguidance {"allow_invalid_utf8": true}'
        with pytest.raises(InvalidArgument, match="UTF-8"):
            constraint_of(tokenizer, grammar=lark)

    def test_lark_can_name_special_tokens(self):
        tokenizer, stop = made("byte level")
        tool = tokenizer.token_to_id("<tool>")
        rule = constraint_of(tokenizer, grammar='start: <tool> "a" <|end|> "b"').rule([], [3])
        a, b = tokenizer.encode("ac")[0], tokenizer.encode("b")[0]
        rows = rows_of(tokenizer)
        assert allowed_after(rule, rows, []) == {tool}
        assert allowed_after(rule, rows, [], [tool, a]) == {tokenizer.token_to_id("<|end|>")}
        assert rule.ends(ids_of([], [tool, a, tokenizer.token_to_id("<|end|>"), b]))
        assert stop != tool

    def test_shown_special_tokens_of_the_prompt_are_text(self):
        tokenizer, stop = made("sentencepiece")
        constraint = constraint_of(tokenizer, choices=["hello"])
        hello = tokenizer.token_to_id("hello")
        marked = tokenizer.token_to_id(MARK + "hello")
        hidden = constraint.rule([1], [stop], skip_special_tokens=True)
        shown = constraint.rule([1], [stop], skip_special_tokens=False)
        assert {hello, marked} <= allowed_after(hidden, rows_of(tokenizer), [1])
        assert marked not in allowed_after(shown, rows_of(tokenizer), [1])
        assert hello in allowed_after(shown, rows_of(tokenizer), [1])


class TestManyOutputs:
    @pytest.mark.parametrize(("states", "spacing"), [(1, 16), (3, 2), (12, 16), (200, 4)])
    @pytest.mark.parametrize("kind", ["byte level", "sentencepiece"])
    def test_any_order_gives_the_masks_of_a_fresh_replay(self, kind, states, spacing, monkeypatch):
        monkeypatch.setattr(constraints, "STATES", states)
        monkeypatch.setattr(constraints, "_SPACING", spacing)
        tokenizer, stop = made(kind)
        rows, prompt = rows_of(tokenizer), [stop]
        schema = SCHEMAS["nested"]
        constraint = constraint_of(tokenizer, json_schema=schema)
        rng = np.random.default_rng(states)
        # A tree of outputs: each continues a random beginning of an earlier one.
        outputs: list[list[int]] = [[]]
        expected: dict[tuple[int, ...], tuple[set[int], bool]] = {}
        for _ in range(120):
            output = list(outputs[rng.integers(len(outputs))])
            del output[rng.integers(len(output) + 1) :]
            for _ in range(int(rng.integers(1, 12))):
                allowed = allowed_after(constraint.rule(prompt, [stop]), rows, prompt, output) - {
                    stop
                }
                if not allowed:
                    break
                output.append(int(rng.choice(sorted(allowed))))
            fresh = constraint.rule(prompt, [stop])
            ends = constraint.rule(prompt, [stop]).ends(ids_of(prompt, output))
            expected[tuple(output)] = allowed_after(fresh, rows, prompt, output), ends
            outputs.append(output)
        assert len(expected) > 60
        rule = constraint.rule(prompt, [stop])
        keys = list(expected)
        for turn in range(600):
            output = list(keys[rng.integers(len(keys))])
            allowed, ends = expected[tuple(output)]
            if turn % 3:
                assert allowed_after(rule, rows, prompt, output) == allowed
            else:
                assert rule.ends(ids_of(prompt, output)) == ends
            assert len(rule._states) <= states

    def test_beams_in_turn(self):
        """Two outputs with a common prefix, then guesses that are rejected in one of them."""
        tokenizer, stop = made("byte level")
        constraint = constraint_of(tokenizer, regex="a(b{30}|c{30})")
        rule = constraint.rule([], [stop])
        a, b, c = tokenizer.encode("acbcc")[0], *tokenizer.encode("b"), *tokenizer.encode("c")
        rows = rows_of(tokenizer)
        left, right = [a, b], [a, c]
        for _ in range(28):
            assert b in allowed_after(rule, rows, [], left)
            assert allowed_after(rule, rows, [], right) == {c}
            left, right = [*left, b], [*right, c]
        assert allowed_after(rule, rows, [], right[:5]) == {c}
        assert not rule.ends(ids_of([], right))
        assert rule.ends(ids_of([], [*right, c]))
        assert not rule.ends(ids_of([], right))
        assert rule.ends(ids_of([], [*left, b]))

    def test_every_one_of_many_outputs_has_a_state(self):
        tokenizer, stop = made("byte level")
        constraint = constraint_of(tokenizer, regex="[a-z]{0,9}")
        letters = tokenizer.encode("acdefghijklmnopqrstuvwxyz")
        rule = constraint.rule([], [stop], outputs=25)
        for step in range(1, 6):
            for letter in letters:
                rule.ends(ids_of([], [letter] * step))
            kept = [np.frombuffer(key, dtype=np.int32).tolist() for key in rule._states]
            assert [[letter] * step for letter in letters] == kept[-25:]
            assert len(kept) <= constraints.STATES + 48

    def test_a_step_computes_one_mask(self, monkeypatch):
        tokenizer, stop = made("byte level")
        rule = constraint_of(tokenizer, regex="[ab]*").rule([], [stop])
        masks = 0
        mask = TokenTable.mask

        def counted(table: TokenTable, matcher: Any) -> Any:
            nonlocal masks
            masks += 1
            return mask(table, matcher)

        monkeypatch.setattr(TokenTable, "mask", counted)
        output: list[int] = []
        for step in range(20):
            assert stop in allowed_after(rule, rows_of(tokenizer), [], output)
            assert masks == step + 1
            output += tokenizer.encode("a")
            assert not rule.ends(ids_of([], output))

    def test_a_forbidden_token_is_an_error_and_not_an_end(self):
        tokenizer, stop = made("byte level")
        rule = constraint_of(tokenizer, choices=["ac"]).rule([], [stop])
        a, c = tokenizer.encode("ac")
        with pytest.raises(Error, match=r"choices: .*may not be there"):
            rule.ends(ids_of([], [c]))
        with pytest.raises(Error, match="may not be there"):
            rule.process(ids_of([], [a, a]), np.zeros(rows_of(tokenizer), np.float32))
        assert allowed_after(rule, rows_of(tokenizer), [], [a]) == {c}

    def test_threads(self):
        tokenizer, stop = made("byte level")
        constraint = constraint_of(tokenizer, json_schema=SCHEMAS["nested"])
        rows = rows_of(tokenizer)
        alone = [draw(constraint, rows, [], [stop], seed) for seed in range(16)]
        together: dict[int, list[int]] = {}

        def work(first: int) -> None:
            for seed in range(first, 16, 4):
                again = constraint_of(tokenizer, json_schema=SCHEMAS["nested"])
                together[seed] = draw(again, rows, [], [stop], seed)

        threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [together[seed] for seed in range(16)] == alone


class TestScores:
    def test_scores_are_only_lowered(self):
        tokenizer, stop = made("byte level")
        rule = constraint_of(tokenizer, choices=["a", "c"]).rule([], [stop])
        a, c = tokenizer.encode("ac")
        scores = np.random.default_rng(0).standard_normal(rows_of(tokenizer), dtype=np.float32)
        scores[c] = -np.inf
        before = scores.copy()
        rule.process(ids_of([], []), scores)
        assert scores[a] == before[a]
        assert np.isneginf(np.delete(scores, a)).all()

    def test_rows_without_tokens_are_banned_and_tokens_without_rows_are_ignored(self):
        tokenizer, stop = made("gguf byte level")
        for rows in (98, 99, 1000):
            grammar = Grammar.of(regex="[a-z]+")
            assert grammar is not None
            rule = Constraint(grammar, tokenizer, rows).rule([], [stop])
            allowed = allowed_after(rule, rows, [], tokenizer.encode("a"))
            assert {i for i in allowed if i < 256} == {
                i for i in range(ord("a"), ord("z") + 1) if i < rows
            }
            assert (stop in allowed) == (stop < rows)
            assert max(allowed) < min(rows, tokenizer.vocab_size)
