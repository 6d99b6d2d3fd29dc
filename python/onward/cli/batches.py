"""onward generate --jsonl: read a file of prompts and write a row of results for each, in order.

Many rows run at a time and share the engine's steps. The output of a row is the same as if it ran
alone. A row that fails becomes a row with an error, and the others continue. Output is written row
by row, so that an interrupted run can be resumed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from onward.cli.row_files import Row, RowReader, RowWriter, read_done
from onward.cli.streams import decoded
from onward.errors import InvalidArgument
from onward.machine.progress import ProgressBar
from onward.message_text import labels, literal
from onward.options.chat import CHAT_KEYWORDS

if TYPE_CHECKING:
    from onward.calls.result import Result
    from onward.llm import LLM

IN_FLIGHT = 64
UNWRITTEN = 4 * IN_FLIGHT
"""Rows that are read and not yet written, so that later rows can run beside a slow one."""
_Rows: TypeAlias = "asyncio.Queue[asyncio.Task[Any] | None]"
_PROMPTS = ("prompt", "messages", "token_ids")


@dataclass
class Tally:
    """The counts of a run so far."""

    rows: int = 0
    failed: int = 0
    tokens: int = 0
    started: float = field(default_factory=time.monotonic)

    def rates(self) -> str:
        seconds = max(time.monotonic() - self.started, 1e-3)
        return (
            f"{self.rows} rows, {self.rows / seconds:.1f} rows/s, {self.tokens / seconds:.0f} tok/s"
        )


def run(
    llm: LLM,
    source: str,
    target: str | None,
    options: dict[str, Any],
    *,
    resume: bool,
    whole: bool,
    verbose: bool,
) -> int:
    """Read rows from ``source`` ("-": stdin), write results to ``target`` (None: stdout).

    ``whole``: each row of output has all fields that ``--json`` prints, and its index and id.
    ``verbose``: the rates are a line on stderr at the end. Returns the exit code: 1 if a row failed
    in this run or in a run that it resumes.
    """
    done = read_done(target) if resume and target is not None else {}
    earlier_failures = sum(row.failed for row in done.values())
    tally = Tally()
    with RowReader(source) as reader, RowWriter(target) as writer:
        batch = _Batch(llm, reader, writer, options, done, tally, whole)
        try:
            asyncio.run(batch.run())
        except (KeyboardInterrupt, SystemExit):
            hint = "" if target is None else "; the same command with --resume continues"
            print(f"onward: stopped after {tally.rows} rows{hint}", file=sys.stderr)
            raise
    if verbose:
        print(f"onward: {tally.rates()}", file=sys.stderr)
    if failed := tally.failed + earlier_failures:
        total = tally.rows + len(done)
        print(
            f"onward: {failed} of {total} rows failed, each has its error in the output",
            file=sys.stderr,
        )
    return 1 if failed else 0


@dataclass
class _Batch:
    """A run over a file."""

    llm: LLM
    reader: RowReader
    writer: RowWriter
    options: dict[str, Any]
    done: dict[int, Row]
    tally: Tally
    whole: bool

    async def run(self) -> None:
        """Run rows, and write each row as soon as it and all rows before it are finished."""
        rows: _Rows = asyncio.Queue(UNWRITTEN)
        reading = asyncio.create_task(self._read(rows))
        with ProgressBar("rows") as progress:
            try:
                while (row := await rows.get()) is not None:
                    self._write(await row, progress)
                await reading
            finally:
                waiting = [reading]
                while not rows.empty():
                    if (row := rows.get_nowait()) is not None:
                        waiting.append(row)
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)

    async def _read(self, rows: _Rows) -> None:
        """Put a task into the queue for each row, and None at the end."""
        places = asyncio.Semaphore(IN_FLIGHT)
        try:
            async for index, line in self._lines():
                await rows.put(asyncio.create_task(self._row(index, line, places)))
        finally:
            await rows.put(None)

    async def _lines(self) -> AsyncIterator[tuple[int, bytes | None]]:
        """The rows that are not done, with their indices. A row that is too long is None."""
        index = 0
        async for line in self.reader.lines():
            if line is not None and not line.strip():
                continue
            earlier = self.done.get(index)
            if earlier is None:
                yield index, line
            else:
                _check_same(index, line, earlier)
            index += 1

    async def _row(
        self, index: int, line: bytes | None, places: asyncio.Semaphore
    ) -> dict[str, Any]:
        """The row of output for a row of input."""
        head: dict[str, Any] = {"index": index}
        try:
            row = _parsed(line)
            if "id" in row:
                head["id"] = row.pop("id")
            async with places:
                result = await self._result(row)
        except Exception as error:  # an error of one row does not end the others
            message = " ".join((str(error) or "no further words").split())
            return {**head, "error": {"type": type(error).__name__, "message": message}}
        self.tally.tokens += result.usage.completion_tokens
        return {**head, **_shown(result, self.whole)}

    async def _result(self, row: dict[str, Any]) -> Result:
        kinds = [name for name in _PROMPTS if name in row]
        if len(kinds) != 1:
            found = " and ".join(kinds) or labels(row) or "nothing"
            raise InvalidArgument(f"row: has {found}, expected one of {', '.join(_PROMPTS)}")
        prompt = row.pop(kinds[0])
        if kinds == ["messages"]:
            template = {name: row.pop(name) for name in list(row) if name in CHAT_KEYWORDS}
            prompt = await asyncio.to_thread(self.llm.chat_token_ids, prompt, **template)
        elif not isinstance(prompt, str if kinds == ["prompt"] else list):
            expected = "text" if kinds == ["prompt"] else "a list of token ids"
            raise InvalidArgument(f"{kinds[0]}: is {literal(prompt)}, expected {expected}")
        result: Result = await self.llm.agenerate(prompt, **{**self.options, **row})
        return result

    def _write(self, row: dict[str, Any], progress: ProgressBar) -> None:
        self.writer.write(json.dumps(row) + "\n")
        self.tally.rows += 1
        self.tally.failed += "error" in row
        progress(*self.reader.share(), self.tally.rates())


def _parsed(line: bytes | None) -> dict[str, Any]:
    if line is None:
        raise InvalidArgument(f"row: is longer than {RowReader.LIMIT >> 20} MiB")
    try:
        row = json.loads(decoded(line, "row"))
    except (ValueError, RecursionError) as failure:
        if isinstance(failure, InvalidArgument):
            raise
        raise InvalidArgument(f"row: is not valid JSON: {failure}") from None
    if not isinstance(row, dict):
        raise InvalidArgument(f"row: is {literal(row)}, expected an object")
    return row


def _check_same(index: int, line: bytes | None, earlier: Row) -> None:
    """Raise InvalidArgument if the output of a row belongs to another input."""
    try:
        row_id = _parsed(line).get("id")
    except InvalidArgument:
        return
    if literal(row_id) != earlier.id:
        raise InvalidArgument(
            f"resume: row {index} of the output has the id {earlier.id}, and the row of the "
            "input has "
            f"{literal(row_id)}, expected the output of this input"
        )


def _shown(result: Result, whole: bool) -> dict[str, Any]:
    """The fields of a result in a row of output."""
    fields = result.to_dict()
    if whole:
        return fields
    names = ["text", "finish_reason", "stop_reason", "usage"]
    names += ["sequences"] if len(result.sequences) > 1 else []
    names += [name for name in ("logprobs", "prompt_logprobs") if fields[name] is not None]
    return {name: fields[name] for name in names}
