"""Opens thousands of damaged files of some formats and reports every outcome that is not clean.

It runs as a program in a process of its own, because a bad read ends in a signal:
``python file_fuzz.py KIND,KIND SECONDS SEED [FILES]``. The outcome of every file must be success or
onward.Error, in about a second, without the memory growing. Each kind ends after SECONDS, or after
FILES files, and prints a line: [kind, opened, refused, seconds of the slowest, kilobytes that the
process grew by].
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from builders.fuzz_texts import TEXTS
from builders.fuzz_weights import WEIGHTS
from onward.errors import Error

KINDS = {**WEIGHTS, **TEXTS}
LONGEST_MESSAGE = 2000


def fuzz(kind: str, seconds: float, seed: int, files: int) -> None:
    folder = Path(tempfile.mkdtemp())
    target = KINDS[kind](folder)
    good = target.file.read_bytes()
    target.outcome()
    source = random.Random(seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    opened = refused = 0
    slowest = 0.0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end and opened + refused < files:
        target.file.unlink()  # a new file, because a mapped file must not be shortened
        target.file.write_bytes(target.change(good, source))
        start = time.perf_counter()
        try:
            target.outcome()
            opened += 1
        except Error as error:
            refused += 1
            if len(str(error)) > LONGEST_MESSAGE:
                raise SystemExit(f"message of {len(str(error))} characters: {error}") from None
        except BaseException:
            kept = shutil.copy(target.file, Path(tempfile.gettempdir()) / f"file-fuzz-{kind}")
            print(f"not a clean outcome; the file is {kept}", file=sys.stderr)
            raise
        slowest = max(slowest, time.perf_counter() - start)
    shutil.rmtree(folder)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(json.dumps([kind, opened, refused, slowest, grown]), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name in sys.argv[1].split(","):
        fuzz(name, float(sys.argv[2]), int(sys.argv[3]), int([*sys.argv, 10**9][4]))
