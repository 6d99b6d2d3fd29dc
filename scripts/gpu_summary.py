"""Summarises the results of gpu_check.sh: writes results.json and summary.md into their folder.

python scripts/gpu_summary.py FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    if len(sys.argv) != 2:
        print((__doc__ or "").strip(), file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    results = gathered(folder)
    (folder / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    text = summary(results)
    (folder / "summary.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def gathered(folder: Path) -> dict[str, Any]:
    steps = []
    for line in (folder / "steps.tsv").read_text(encoding="utf-8").splitlines():
        name, status, seconds = line.split("\t")
        said = [t for t in (folder / f"{name}.log",) if t.is_file()]
        lines = said[0].read_text(encoding="utf-8", errors="replace").split("\n") if said else []
        last = next((line for line in reversed(lines) if line.strip()), "")
        json_text = last.lstrip().startswith(("{", "}"))
        text = "" if json_text else last.strip()
        steps.append({"name": name, "status": status, "seconds": int(seconds), "said": text})
    benches = {
        path.stem.removeprefix("bench-"): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("bench-*.json"))
    }
    return {"steps": steps, "doctor": read_json(folder / "doctor.log"), "bench": benches}


def read_json(path: Path) -> Any:
    """None if the step did not finish."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def summary(results: dict[str, Any]) -> str:
    lines = ["# GPU check", ""]
    doctor = results["doctor"]
    if doctor is not None:
        lines += [f"onward {doctor['onward']} ({doctor['build']}), {doctor['system']}", ""]
        for name, device in doctor["devices"].items():
            state = "ready" if device["ready"] else device["why_not"]
            lines.append(f"- {name}: {', '.join(filter(None, [device['description'], state]))}")
        for name, figures in doctor.get("measured_devices", {}).items():
            rates = ", ".join(f"{what} {value:,.0f}" for what, value in figures.items())
            lines.append(f"- {name} at most: {rates}")
    lines += ["", "| step | ended | seconds | said |", "|---|---|---:|---|"]
    for step in results["steps"]:
        ended = {"0": "well", "124": "out of time"}.get(step["status"], step["status"])
        said = step["said"].replace("|", "/")[:160]
        lines.append(f"| {step['name']} | {ended} | {step['seconds']} | {said} |")
    if results["bench"]:
        lines += [
            "",
            "Decode compared with the copy bandwidth, prefill with the matrix rate, both measured "
            "before and after each repetition; medians.",
            "",
            "| model | weights | | tokens/s | GB/s | of copy | GFLOP/s | of peak | logits |",
            "|---|---|---|---:|---:|---:|---:|---:|---|",
        ]
    for report in results["bench"].values():
        for line in report["lines"]:
            what = f"{line['what']} {line['tokens']:,}"
            if line["batch"] > 1:
                what += f", {line['batch']} sequences"
            lines.append(
                f"| {report['model']} | {report['dtype']} | {what} | {line['tokens_per_s']:,.1f} "
                f"| {line['gigabytes_per_s']:,.1f} | {line['read_share']:.1%} "
                f"| {line['gigaflops']:,.1f} | {line['arithmetic_share']:.1%} "
                f"| {line['logits_hash']} |"
            )
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
