"""Compares onward with other engines, one request at a time: same weights, prompts and threads.

Each engine runs in its own process and environment. The script creates the environments under
``--work`` and keeps them (it builds llama.cpp there, which takes minutes). All engines get the same
requests in turns, round after round, while the others sleep. On a shared machine absolute figures
change, so each ratio is taken within a round, and its spread over the rounds is shown. Prompts are
token ids; outputs are greedy and have a fixed length. If an engine fails, its name and the reason
are printed.

    python benchmarks/peers.py [--work DIR] [--models smollm2 llama-3.2-1b] [--weights f32 bf16]
    python benchmarks/peers.py --models llama-3.2-1b --prefill --decode 0 --depth 8192 --rounds 3
    python benchmarks/peers.py --isa avx2 -o md --plot peers.svg

smollm2 is the default model, dequantised; another name is a published shape with random weights.
engines/lineup.py lists the weights of each engine. Needs ``pip install gguf``.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from contextlib import ExitStack
from math import prod
from pathlib import Path

from engines import figures
from engines.chart import chart
from engines.child import Child
from engines.contest import Absent
from engines.environments import ENVIRONMENTS, ensure
from engines.lineup import ISAS, OF_ISA, PEERS, PRECISIONS, WEIGHTS, Entry, heats, lineup
from engines.rounds import Case, Reading, Rules, measure, say
from engines.source_model import SourceModel
from engines.synthetic_gguf import NAMES, synthetic_gguf

import onward
from onward import _core
from onward.load.hub import find_model
from onward.machine.memory import memory_bytes

WORK = Path(__file__).parent / ".peers"
DEFAULT_MODEL = "smollm2"
SHORT_PROMPT = 16
CONTEXT_STEP = 256


class Contest:
    """The settings of all models and precisions, and the notes that are printed at the end."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._work: Path = arguments.work.resolve()
        self.absent: dict[str, str] = {}
        """The reason for missing figures, by engine or by engine and weights."""
        self.settings: dict[str, str] = {}
        self._pythons = {"": Path(sys.executable)}

    def make_environments(self) -> None:
        """The environments of the other engines, as far as they can be created."""
        wanted = OF_ISA[self._arguments.isa]
        for peer in self._arguments.peers:
            if peer not in wanted:
                self.absent[peer] = f"is not held back to {self._arguments.isa} here"
                continue
            say(f"{peer}: environment {wanted[peer]}")
            try:
                self._pythons[wanted[peer]] = ensure(ENVIRONMENTS[wanted[peer]], self._work)
            except Absent as reason:
                self._failed(peer, str(reason))

    def compete(self, model: str) -> list[Reading]:
        """All precisions of one model."""
        if model == DEFAULT_MODEL:
            path = find_model(None).path
        else:
            say(f"{model}: random weights of that shape")
            path = synthetic_gguf(model, self._work)
        source = SourceModel(path, self._work / "models")
        parameters = sum(prod(tensor.shape.tolist()) for tensor in source.reader.tensors)
        limit = int(source.metadata("llama.context_length"))
        cases = [case for case in self._cases() if case.context <= limit]
        for case in self._cases():
            if case not in cases:
                say(f"{model}: {case}: left out, the model's context is {limit}")
        vocab_size = len(source.metadata("tokenizer.ggml.tokens"))
        rules = Rules(self._arguments.rounds, self._arguments.patience, vocab_size)
        readings: list[Reading] = []
        for precision in self._arguments.weights:
            own, peers = lineup(precision, self._arguments.peers, self._arguments.isa)
            peers = [peer for peer in peers if peer.environment in self._pythons]
            ready = [entry for entry in [own, *peers] if self._converted(entry, source, model)]
            if own not in ready:
                continue
            available = memory_bytes()["available"] or sys.maxsize
            for heat, group in enumerate(heats(own, ready[1:], parameters, available)):
                readings += self._heat([own, *group], source, cases, rules, heat, model)
        return readings

    def _cases(self) -> list[Case]:
        arguments = self._arguments
        cases = [Case(prompt=tokens, new=1) for tokens in arguments.prefill]
        if arguments.decode:
            cases.append(Case(prompt=SHORT_PROMPT, new=arguments.decode + 1))
        tokens = (arguments.decode or 64) + 1
        cases += [Case(prompt=depth, new=tokens) for depth in arguments.depth]
        return cases + [Case(crowd=count) for count in arguments.crowd]

    def _heat(
        self,
        entries: list[Entry],
        source: SourceModel,
        cases: list[Case],
        rules: Rules,
        heat: int,
        model: str,
    ) -> list[Reading]:
        """onward and a group of engines that fit in memory."""
        context = max(case.context for case in cases)
        context = -(-context // CONTEXT_STEP) * CONTEXT_STEP
        children: dict[Entry, Child] = {}
        crowds: set[Entry] = set()
        with ExitStack() as stack:
            for entry in entries:
                say(f"{model}: {entry.name}: loading")
                try:
                    child = stack.enter_context(
                        self._child(entry, source, {"do": "serve", "context": context})
                    )
                except Absent as reason:
                    self._failed(f"{entry.name}, {model}", str(reason))
                    continue
                children[entry] = child
                if not child.said["serial"]:
                    crowds.add(entry)
                said = f"{child.said['setting']}; instructions: {child.said['instructions']}"
                self.settings[entry.name] = said
            return measure(
                children,
                crowds,
                cases,
                rules,
                heat,
                lambda entry, reason: self._failed(f"{entry.name}, {model}", reason),
            )

    def _converted(self, entry: Entry, source: SourceModel, model: str) -> bool:
        """Whether the files that the engine loads exist; a separate process writes them."""
        say(f"{model}: {entry.name}: weights")
        try:
            with self._child(entry, source, {"do": "convert"}):
                return True
        except Absent as reason:
            self._failed(f"{entry.name}, {model}", str(reason))
            return False

    def _child(self, entry: Entry, source: SourceModel, order: dict[str, object]) -> Child:
        order = {
            **order,
            "source": str(source.path),
            "work": str(self._work / "models"),
            "engine": entry.engine,
            "weights": entry.weights,
            "threads": self._arguments.threads,
        }
        log = self._work / "logs" / f"{entry.name.replace(' ', '-')}-{order['do']}.log"
        variables = {
            "PYTHONFAULTHANDLER": "1",  # a crash writes its stack to the log
            "OMP_NUM_THREADS": str(self._arguments.threads),
            # The onward that runs this script. The other engines use only their environments.
            "PYTHONPATH": str(Path(onward.__file__).parent.parent) if entry.is_onward else "",
        }
        return Child(self._pythons[entry.environment], order, {**variables, **entry.variables}, log)

    def _failed(self, who: str, reason: str) -> None:
        say(f"WITHOUT {who}: {reason}")
        self.absent[who] = reason


def processor() -> str:
    """The name that the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    fields = [line.partition(":") for line in lines]
    names = [value.strip() for key, _, value in fields if key.strip() == "model name"]
    return names[0] if names else platform.processor()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [DEFAULT_MODEL, *NAMES]
    parser.add_argument("--models", nargs="+", default=[DEFAULT_MODEL], choices=names)
    parser.add_argument("--weights", nargs="+", default=list(PRECISIONS), choices=PRECISIONS)
    parser.add_argument("--peers", nargs="+", default=list(WEIGHTS), choices=PEERS)
    parser.add_argument("--isa", default="native", choices=ISAS, help="instructions of all engines")
    parser.add_argument("--threads", type=int, default=_core.default_threads())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prefill", type=int, nargs="*", default=[512], help="tokens of a prompt")
    parser.add_argument("--decode", type=int, default=64, help="tokens after a short prompt")
    parser.add_argument(
        "--depth", type=int, nargs="*", default=[], help="decode after this many tokens"
    )
    parser.add_argument(
        "--crowd", type=int, nargs="*", default=[], help="number of requests at once"
    )
    parser.add_argument("--patience", type=float, default=0.0, help="seconds to wait for quiet")
    parser.add_argument("--work", type=Path, default=WORK, help="environments and weights")
    parser.add_argument("-o", "--output", default="text", choices=["text", "md", "json"])
    parser.add_argument("--plot", type=Path, help="an SVG file to write")
    arguments = parser.parse_args()

    contest = Contest(arguments)
    contest.make_environments()
    lines: list[figures.Line] = []
    for model in arguments.models:
        lines += figures.summarise(model, contest.compete(model))
    if arguments.plot is not None:
        arguments.plot.write_text(chart(lines), encoding="utf-8")
    setting = {
        "machine": f"{processor()}, {os.cpu_count()} processors, {platform.machine()}",
        "threads": arguments.threads,
        "rounds": arguments.rounds,
        "isa": arguments.isa,
        "engines": contest.settings,
        "absent": contest.absent,
    }
    if arguments.output == "json":
        print(figures.as_json(setting, lines))
        return
    print(f"{setting['machine']}; {arguments.threads} threads, rounds: {arguments.rounds}\n")
    print(figures.table(lines, arguments.output))
    print()
    for name, text in contest.settings.items():
        print(f"- {name}: {text}")
    for name, text in contest.absent.items():
        print(f"- without {name}: {text}")


if __name__ == "__main__":
    main()
