"""The C++ headers agree with Python: a program that uses them (cpp_interface.cpp) gets the same
results.

It is compiled with the headers of the source tree and linked with the library of the package, with
the address sanitizer, because many tests are about lifetimes.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import onward
from builders.packs import tiny_pack
from onward import _core

HERE = Path(__file__).parent
INCLUDE = Path(__file__).parents[2] / "csrc" / "include"
LIB = Path(_core.__file__).parent / "lib"
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
PROMPT = [5, 17, 200]

Run = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_pack(tmp_path_factory.mktemp("pack"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Run:
    """Lines that a case of the program prints."""
    program = tmp_path_factory.mktemp("program") / "cpp_interface"
    flags = ["-std=c++17", "-g", "-pthread", *WARNINGS, "-fsanitize=address,undefined"]
    link = [f"-I{INCLUDE}", f"-L{LIB}", "-lonward", f"-Wl,-rpath,{LIB}"]
    compiler = os.environ.get("CXX", "c++")
    command = [compiler, *flags, str(HERE / "cpp_interface.cpp"), "-o", str(program), *link]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

    def run_(case: str) -> list[str]:
        done = subprocess.run(
            [str(program), str(model), case],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split("\n")[:-1]

    return run_


@pytest.fixture(scope="module")
def llm(model: Path) -> onward.LLM:
    return onward.LLM(model, threads=2)


def outputs(lines: list[str]) -> list[list[int]]:
    """Tokens by sequence, of `SEQUENCE TOKEN` lines."""
    found: dict[int, list[int]] = {}
    for line in lines:
        sequence, token = map(int, line.split(" "))
        found.setdefault(sequence, []).append(token)
    return [found[i] for i in sorted(found)]


def test_the_facts_of_a_model(run: Run, llm: onward.LLM) -> None:
    numbers, eos, name, tokenizer = run("info")
    bos = llm.tokenizer.bos_token_id
    assert numbers == f"{llm.spec.vocab_size} {llm.context} {bos}"
    assert {int(word) for word in eos.split()} >= {300, 301}
    assert name == llm.name
    assert '"<|begin|>"' in tokenizer


def test_every_kind_of_sampling_option_arrives(run: Run, llm: onward.LLM) -> None:
    result = llm.generate(
        PROMPT,
        max_new_tokens=12,
        temperature=1,
        top_k=50,
        seed=11,
        sampling_order="vllm",
        logit_bias={7: 2.5},
        suppress_tokens=[1, 2],
        num_return_sequences=2,
    )
    assert outputs(run("sampled")) == [list(s.token_ids) for s in result.sequences]


def test_a_list_of_allowed_tokens(run: Run, llm: onward.LLM) -> None:
    result = llm.generate(PROMPT, max_new_tokens=6, temperature=0, allowed_token_ids=[33, 44])
    assert outputs(run("allowed")) == [list(result.token_ids)]


def test_beams(run: Run, llm: onward.LLM) -> None:
    result = llm.generate(
        PROMPT, max_new_tokens=6, num_beams=3, num_return_sequences=2, temperature=0
    )
    assert outputs(run("beams")) == [list(s.token_ids) for s in result.sequences]


def test_log_probabilities(run: Run, llm: onward.LLM) -> None:
    result = llm.generate(PROMPT, max_new_tokens=3, temperature=0, logprobs=2)
    lines = [line.split(" ") for line in run("logprobs")]
    assert [int(line[0]) for line in lines] == list(result.token_ids)
    assert [int(line[2]) for line in lines] == [2, 2, 2]
    assert [line[3] for line in lines] == [line[0] for line in lines]  # greedy: the most likely
    reported = [float(line[1]) for line in lines]
    scored = llm.score([*PROMPT, *result.token_ids]).log_probabilities[-3:]
    np.testing.assert_allclose(reported, scored, rtol=1e-6)


def test_rules_see_the_prompt_and_the_output(run: Run) -> None:
    assert outputs(run("rules")) == [[103, 104, 105, 106]]


def test_an_exception_in_a_rule_ends_only_its_request(run: Run) -> None:
    assert run("throwing") == ["2 3"]


def test_a_trace_receives_every_step(run: Run) -> None:
    assert run("trace") == ["6"]


def test_scores_and_logits_equal_python(run: Run, llm: onward.LLM) -> None:
    values = np.array([float(line) for line in run("values")])
    np.testing.assert_array_equal(values[:2], llm.score(PROMPT).log_probabilities)
    np.testing.assert_array_equal(values[2:].astype(np.float32), llm.logits(PROMPT).ravel())


def test_an_interrupted_step_loses_nothing(run: Run, llm: onward.LLM) -> None:
    result = llm.generate(PROMPT, max_new_tokens=5, temperature=0)
    assert outputs(run("interrupted")) == [list(result.token_ids)]


@pytest.mark.parametrize("case", ["lifetimes", "closed"])
def test_a_case_without_python_passes(run: Run, case: str) -> None:
    """The program checks each line itself."""
    assert run(case) == []


def test_threads_share_one_engine(run: Run) -> None:
    assert run("threads") == ["40 200 200"]


def test_handles_of_one_engine_have_their_own_events(run: Run, llm: onward.LLM) -> None:
    results = llm.generate([PROMPT, [9]], max_new_tokens=6, temperature=0)
    assert outputs(run("shared")) == [list(result.token_ids) for result in results]
