"""``onward compare``: the report as table, markdown, JSON and page, and the exit codes.

Two saved results with synthetic logits, so that every figure is known. No model is loaded.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from builders.compare_sides import FIRST, SECOND, VOCAB, rounds
from onward.cli import main
from onward.lab.compare.result_file import Saved, save
from onward.lab.compare.side import Footprint, Text

SVG = "{http://www.w3.org/2000/svg}"
TEXTS = (Text((1, 2, 3), (0,) * 12), Text((4,) * 40, (0,) * 12))


class Pair:
    """A and B on disk; ``flip`` makes B choose another first token in text 2."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        random = np.random.default_rng(5)
        self.a = [random.standard_normal((12, VOCAB)).astype(np.float32) for _ in TEXTS]
        for rows in self.a:
            rows[:, 0], rows[:, 1] = 12, 9
        self.random = random

    def write(self, noise: float = 0.006, flip: float | None = None) -> tuple[str, str]:
        """``flip``: A's margin at the position where B prefers token 1."""
        if flip is not None:
            self.a[1][4, 1] = np.float32(12 - flip)
        b = [
            (a + noise * a.std() * self.random.standard_normal(a.shape)).astype(np.float32)
            for a in self.a
        ]
        if flip is not None:
            b[1][4, :2] = 12, 12.001
        paths = str(self.folder / "a.npz"), str(self.folder / "b.npz")
        foot = Footprint(2.0, 4 << 20, 5 << 20), Footprint(1.0, 2 << 20, None)
        save(Saved(FIRST, foot[0], TEXTS, rounds(100, 0.5), tuple(self.a)), paths[0])
        save(Saved(SECOND, foot[1], TEXTS, rounds(150, None), tuple(b)), paths[1])
        return paths


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def reported(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(["compare", *arguments]) == code
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_json(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(reported(capsys, *pair.write(flip=0.001), "--json"))
    assert found["judgement"]["verdict"] == "coin flip"
    (flip,) = found["judgement"]["divergences"]
    assert (flip["text"], flip["written"], flip["position"]) == (1, 4, 44)
    assert flip["coin_flip"] and flip["margin_a"] == pytest.approx(0.001, rel=1e-2)
    assert found["agreement"]["top1"] == pytest.approx(23 / 24)
    assert found["agreement"]["tokens"] == 24
    assert found["ratios"] == [
        {"depth": 0, "prefill": None, "decode": 1.5},
        {"depth": 64, "prefill": 1.5, "decode": 1.5},
        {"depth": 512, "prefill": 1.5, "decode": 1.5},
    ]
    line = found["a"]["speed"][1]
    assert line["prefill_tokens_per_s"] == {
        "median": 1000,
        "least": pytest.approx(900),
        "most": pytest.approx(1100),
    }
    differing = {row["what"]: (row["a"], row["b"]) for row in found["differences"]}
    assert differing == {
        "core": ("aa", "bb"),
        "processor": ("<One> & only", "Other"),
        "dtype": ("f32", "bf16"),
        "weight_dtypes": ("f32", "bf16"),
        "kv_dtype": ("f32", "bf16"),
    }
    assert found["failed"] == []


def test_table(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    out = reported(capsys, *pair.write(flip=0.001))
    assert re.search(r"^  processor +<One> & only +Other$", out, re.MULTILINE)
    assert re.search(r"^  load, s +2\.000 +1\.000 +0\.500$", out, re.MULTILINE)
    assert re.search(r"^  process grew by +5 MiB +- +-$", out, re.MULTILINE)
    assert re.search(
        r"^  prefill 64 +1000 \(900\.0 to 1100\) +1500 \(1350 to 1650\) +1\.500 +50% +- +- +-$",
        out,
        re.MULTILINE,
    )
    assert re.search(r"^  decode after 512 .* 1\.500 +- +- +50% +-$", out, re.MULTILINE)
    assert re.search(r"^  2 +5 +44 +id 0 +id 1 +0\.001 .* coin flip$", out, re.MULTILINE)
    result, cost, fault = out.splitlines()[:3]
    assert result == "result"
    assert cost == (
        "  b.npz (cpu:bf16) picks the same token as a.npz (cpu:f32) in 95.8 % of 24 places; "
        "perplexity unchanged; decodes 1.50 times as fast; its weights take 0.50 times the memory."
    )
    assert re.fullmatch(
        r"  No fault is suspected: the noise of 0\.006\d in the worst text is within 3 times the "
        r"0\.0087 that these dtypes are expected to make; 1 of 2 texts part at a coin flip, where "
        r"A's margin is at most 0\.08\d times the noise \(5 are allowed\)\.",
        fault,
    )


def test_markdown(pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
    lines = reported(capsys, *pair.write(), "--format", "md").splitlines()
    assert [line for line in lines if line.startswith("## ")] == [
        "## Result",
        "## Sides",
        "## Load and memory",
        "## Speed",
        "## Agreement on the tokens of A",
    ]
    for begin, line in enumerate(lines):
        if line.startswith("| ---"):
            assert lines[begin - 1].count("|") == line.count("|") == lines[begin + 1].count("|")
    bullets = [line for line in lines if line.startswith("- ")]
    assert bullets[0].startswith(
        "- b.npz (cpu:bf16) picks the same token as a.npz (cpu:f32) in all"
    )
    assert bullets[1].startswith("- No fault is suspected: ")


class TestPage:
    def page(self, pair: Pair, capsys: pytest.CaptureFixture[str], **options: Any) -> str:
        return reported(capsys, *pair.write(**options), "--format", "html")

    def test_it_is_well_formed_and_has_the_plots(
        self, pair: Pair, capsys: pytest.CaptureFixture[str]
    ) -> None:
        root = ElementTree.fromstring(self.page(pair, capsys).split("\n", 1)[1])
        titles = [
            text.text
            for picture in root.iter(f"{SVG}svg")
            for text in picture.iter(f"{SVG}text")
            if text.get("font-weight") == "bold"
        ]
        assert titles == [
            "prefill, tokens/s",
            "decode, tokens/s",
            "relative noise of the logits",
            "KL, nats: largest first",
        ]
        assert len(list(root.iter("table"))) == 4
        assert "<One> & only" in {cell.text for cell in root.iter("td")}

    def test_it_has_no_external_files(self, pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
        page = self.page(pair, capsys, flip=0.001)
        assert set(re.findall(r"https?://[^\"\s]+", page)) == {"http://www.w3.org/2000/svg"}
        for reference in ("src=", "href=", "url(", "@import", "<script", "<link", "<iframe"):
            assert reference not in page

    def test_the_page_is_written_in_addition_to_the_report(
        self, pair: Pair, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
        paths = pair.write()
        page = reported(capsys, *paths, "--format", "html")
        report = reported(capsys, *paths, "--html", str(tmp_path / "p.html"))
        assert report.startswith("result\n")
        assert (tmp_path / "p.html").read_text(encoding="utf-8") == page

    def test_identical_sides_have_no_chart_of_noise(
        self, pair: Pair, capsys: pytest.CaptureFixture[str]
    ) -> None:
        a, _ = pair.write()
        page = reported(capsys, a, a, "--format", "html")
        assert "B, a.npz (cpu:f32) computes the same bits as A, a.npz (cpu:f32)" in page
        assert page.count("<svg xmlns") == 2

    def test_a_side_has_one_colour_and_its_name(
        self, pair: Pair, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """B is faster here. The curve that ends higher must not get the colour of A."""
        root = ElementTree.fromstring(self.page(pair, capsys).split("\n", 1)[1])
        pictures = [picture for picture in root.iter(f"{SVG}svg")]
        for picture in pictures[:2]:
            colours = {text.text: text.get("fill") for text in picture.iter(f"{SVG}text")}
            assert colours["a.npz (cpu:f32)"] == "#1b4f72"
            assert colours["b.npz (cpu:bf16)"] == "#a04000"
        legend = [square.get("fill") for square in root.iter("rect")]
        assert legend == ["#1b4f72", "#a04000"]

    def test_a_dark_page_changes_every_colour(
        self, pair: Pair, capsys: pytest.CaptureFixture[str]
    ) -> None:
        page = self.page(pair, capsys)
        style = page[: page.index("</style>")]
        used = set(re.findall(r'(?:fill|stroke)="([^"]+)"', page[len(style) :])) - {"none"}
        assert "prefers-color-scheme: dark" in style and len(used) >= 6
        assert [c for c in used if f'[fill="{c}"]' not in style] == []


class TestExitCodes:
    def test_a_suspected_fault(self, pair: Pair, capsys: pytest.CaptureFixture[str]) -> None:
        out = reported(capsys, *pair.write(noise=0.1), code=1)
        assert (
            "A FAULT IS SUSPECTED: text " in out
            and "times the 0.0087 measured for these dtypes" in out
        )

    def test_a_clear_choice_that_flips_is_a_suspected_fault(
        self, pair: Pair, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = reported(capsys, *pair.write(flip=3), code=1)
        assert "far above the noise" in out

    @pytest.mark.parametrize(
        ("conditions", "failed"),
        [
            ("top1<0.99,kl>10,decode_ratio<1", ["top1<0.99: is 0.958333"]),
            ("decode_ratio>1.4, prefill_ratio>=1.5", ["decode_ratio>1.4", "prefill_ratio>=1.5"]),
            ("load_ratio>=0.5,weight_ratio<=0.5", ["load_ratio>=0.5", "weight_ratio<=0.5"]),
            ("top1<0.95,perplexity_ratio>1.5,kl_max>5,noise>1", []),
        ],
    )
    def test_conditions(
        self, pair: Pair, conditions: str, failed: list[str], capsys: pytest.CaptureFixture[str]
    ) -> None:
        paths = pair.write(flip=0.001)
        arguments = (*paths, "--fail-on", conditions)
        found = json.loads(reported(capsys, *arguments, "--json", code=3 if failed else 0))
        assert len(found["failed"]) == len(failed)
        for text, begin in zip(found["failed"], failed, strict=True):
            assert text.startswith(begin)
        if failed:
            assert f"failed on {failed[0]}" in reported(capsys, *arguments, code=3)

    def test_a_fault_has_priority_over_a_condition(
        self, pair: Pair, capsys: pytest.CaptureFixture[str]
    ) -> None:
        reported(capsys, *pair.write(noise=0.1), "--fail-on", "noise>0.01", code=1)

    def test_a_condition_on_an_unmeasured_figure_is_an_error(
        self, pair: Pair, capsys: pytest.CaptureFixture[str]
    ) -> None:
        a, b = pair.write()
        from onward.lab.compare.result_file import load

        save(replace(load(b), rounds=()), b)
        assert main(["compare", a, b, "--fail-on", "decode_ratio<1"]) == 2
        assert "a figure that was not measured" in capsys.readouterr().err
