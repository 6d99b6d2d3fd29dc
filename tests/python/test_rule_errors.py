"""Errors in a caller's rule end only its own request.

The rules are logits_processor and stopping_criteria. test_rules.py tests rules without errors.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from builders.rules import at_rest, nothing, only, write_row
from closed_form import chain, write_table
from onward.errors import Error, InvalidArgument


@pytest.fixture
def llm(tmp_path, open_llm):
    return open_llm(write_row(tmp_path / "row"))


@pytest.fixture(params=["logits_processor", "stopping_criteria"])
def kind(request):
    return request.param


class Mine(Exception):
    def __init__(self, left: int, right: int) -> None:
        super().__init__(left, right)
        self.total = left + right


class MineToo(Error):
    def __init__(self, left: int, right: int) -> None:
        super().__init__(f"{left}, {right}")


class TestErrors:
    @pytest.mark.parametrize(
        "error",
        [
            ValueError("wrong"),
            KeyError("key"),
            Mine(1, 2),
            MineToo(1, 2),
            KeyboardInterrupt(),
            SystemExit(3),
            GeneratorExit(),
            MemoryError(),
        ],
        ids=lambda error: type(error).__name__,
    )
    @pytest.mark.parametrize("way", ["generate", "batch", "stream", "samples", "beams", "later"])
    def test_an_exception_of_a_rule_reaches_the_caller_unchanged(self, llm, kind, way, error):
        def rule(token_ids, scores=None):
            if way != "later" or len(token_ids) == 4:
                raise error

        with pytest.raises(type(error)) as caught:
            match way:
                case "batch":
                    llm.generate([[0], [1]], max_new_tokens=9, **{kind: rule})
                case "stream":
                    list(llm.stream([0], max_new_tokens=9, **{kind: rule}))
                case "samples":
                    llm.generate([0], temperature=1.0, num_return_sequences=3, **{kind: rule})
                case "beams":
                    llm.generate([0], num_beams=3, **{kind: rule})
                case _:
                    llm.generate([0], max_new_tokens=9, **{kind: rule})
        assert caught.value is error
        assert at_rest(llm)
        assert llm.generate([0], max_new_tokens=3).token_ids == (1, 1, 1)

    def test_ctrl_c_inside_a_rule_ends_the_call(self, llm, kind):
        def rule(token_ids, scores=None):
            if len(token_ids) == 3:
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            llm.generate([0], max_new_tokens=9, **{kind: rule})
        assert at_rest(llm)
        assert llm.generate([0], max_new_tokens=3).token_ids == (1, 1, 1)

    def test_the_traceback_leads_into_the_rule(self, llm, kind):
        def divide(token_ids, scores=None):
            return 1 / 0

        with pytest.raises(ZeroDivisionError) as caught:
            llm.generate([0], **{kind: divide})
        assert caught.traceback[-1].name == "divide"

    def test_stop_iteration_does_not_end_a_stream_quietly(self, llm, kind):
        """As in a generator (PEP 479)."""

        def exhausted(token_ids, scores=None):
            next(iter(()))

        for call in (
            lambda: list(llm.stream([0], **{kind: exhausted})),
            lambda: llm.generate([0], **{kind: exhausted}),
            lambda: asyncio.run(llm.agenerate([0], **{kind: exhausted})),
        ):
            with pytest.raises(RuntimeError, match="prompt: a rule raised StopIteration"):
                call()
        assert at_rest(llm)

    def test_an_exception_of_a_rule_reaches_the_awaiting_task(self, llm, kind):
        def rule(token_ids, scores=None):
            raise Mine(3, 4)

        async def run():
            with pytest.raises(Mine):
                await llm.agenerate([0], **{kind: rule})
            with pytest.raises(Mine):
                async for _ in llm.astream([0], **{kind: rule}):
                    pass

        asyncio.run(run())
        assert at_rest(llm)

    def test_other_callers_in_the_same_steps_are_not_affected(self, tmp_path, open_llm, kind):
        """Half of 8 threads fail, each with its own exception. Any thread may run the step, and the
        exception goes to the caller of the rule."""
        llm = open_llm(write_table(tmp_path / "loop", chain(8, {3: 4, 4: 5, 5: 3})))
        together = threading.Barrier(8)

        def work(index: int) -> object:
            def rule(token_ids, scores=None):
                if index % 2 and len(token_ids) == 2 + index:
                    raise Mine(index, 0)

            reported = []
            for _ in range(5):
                together.wait()
                try:
                    result = llm.generate([3], max_new_tokens=30, **{kind: rule})
                    reported.append(result.token_ids == (4, 5, 3) * 10)
                except Mine as error:
                    reported.append(error.total == index)
            return all(reported)

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(8)))
        assert at_rest(llm)

    def test_a_failing_stream_does_not_affect_another(self, llm, kind):
        def rule(token_ids, scores=None):
            if len(token_ids) == 3:
                raise Mine(1, 1)

        healthy = llm.stream([0], max_new_tokens=5)
        failing = llm.stream([0], max_new_tokens=5, **{kind: rule})
        assert next(healthy) == "b"
        with pytest.raises(Mine):
            list(failing)
        assert "".join(healthy) == "bbbb"
        assert at_rest(llm)

    @pytest.mark.parametrize("returned", [np.zeros(7), np.zeros((1, 8)), 3.0, [1.0] * 9, "scores"])
    def test_scores_of_another_shape(self, llm, returned):
        with pytest.raises(InvalidArgument, match="logits_processor: returned an object of shape"):
            llm.generate([0], logits_processor=lambda ids, scores: returned)
        assert at_rest(llm)

    def test_scores_reshaped_in_place(self, llm):
        def reshape(token_ids, scores):
            scores.shape = (2, 4)

        with pytest.raises(InvalidArgument, match="changed the shape of the scores"):
            llm.generate([0], logits_processor=reshape)
        assert at_rest(llm)

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_scores_that_are_nan_are_an_error(self, llm, value):
        def spoil(token_ids, scores):
            if token_ids[0] == 1:
                scores[4] = value

        with pytest.raises(
            InvalidArgument, match=r"prompt\[1\]: logits_processor: left .*(nan|inf) for token 4"
        ):
            llm.generate([[0], [1]], logits_processor=[nothing, spoil])
        assert at_rest(llm)

    def test_all_tokens_banned(self, llm):
        with pytest.raises(InvalidArgument, match="every token is masked"):
            llm.generate([0], logits_processor=only())
        assert at_rest(llm)

    def test_a_result_without_a_truth_value_is_an_error(self, llm):
        with pytest.raises(ValueError, match="truth value of an array"):
            llm.generate([0], stopping_criteria=lambda ids: np.array([1, 2]))
        assert at_rest(llm)

    def test_wrong_arguments_are_the_rules_own_type_error(self, llm, kind):
        with pytest.raises(TypeError, match="positional argument"):
            llm.generate([0], **{kind: lambda: None})
        assert at_rest(llm)

    @pytest.mark.parametrize(
        "call",
        [
            lambda llm: llm.generate([0], max_new_tokens=1),
            lambda llm: next(llm.stream([0])),
            lambda llm: llm.logits([0]),
            lambda llm: llm.stats(),
        ],
        ids=["generate", "stream", "logits", "stats"],
    )
    @pytest.mark.timeout(60)
    def test_a_rule_that_calls_its_own_model_is_an_error_not_a_deadlock(self, llm, kind, call):
        def rule(token_ids, scores=None):
            call(llm)

        with pytest.raises(Error, match=r"engine: called by .*expected that step to end first"):
            llm.generate([0], **{kind: rule})
        assert at_rest(llm)
        assert llm.generate([0], max_new_tokens=2).token_ids == (1, 1)

    def test_a_rule_may_call_another_model(self, llm, tmp_path, open_llm, kind):
        other = open_llm(write_table(tmp_path / "other", chain(8, {3: 4})))

        def rule(token_ids, scores=None):
            assert other.generate([3], max_new_tokens=1).token_ids == (4,)

        assert llm.generate([0], max_new_tokens=2, **{kind: rule}).token_ids == (1, 1)

    @pytest.mark.parametrize("value", [3, "rule", [3], {"a": 1}, [nothing, None]])
    def test_values_that_are_not_functions_are_refused(self, llm, kind, value):
        with pytest.raises(TypeError, match=rf"^{kind}: .*expected a function or a list of"):
            llm.generate([0], **{kind: value})
