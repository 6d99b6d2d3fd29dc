"""The host never dereferences a device pointer.

On a GPU this would end the process; on the CPU it would not be noticed. So the test build can make
the device memory inaccessible to the host. All tests run in a child process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from builders.cuda_host import needs_cuda_host

pytestmark = needs_cuda_host()
TESTS = Path(__file__).parents[1]
EVERYTHING = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import onward
from builders.core_engine import Shape, complete, guessing, new_engine, random_prompt, seeded_model
from onward import _core

models = Path(sys.argv[1]) / "fixtures" / "models"
for dtype in ("f32", "bf16", "int8", "int4"):
    with onward.LLM(models / "qwen3-window", device="cuda-host", dtype=dtype) as llm:
        llm.generate([[1, 2, 3], [4, 5]], max_new_tokens=6, temperature=0.8, top_p=0.9)
        llm.generate([1, 2, 3], max_new_tokens=4, logprobs=3, top_k=5, typical_p=0.9)
        llm.generate([1, 2, 3], max_new_tokens=4, num_beams=3)
        llm.score([1, 2, 3, 4])
shape = Shape(head_dim=32, num_layers=1)
model = seeded_model("bf16", shape, device="cuda-host")
coded = _core.Engine(
    model,
    threads=2,
    prefill_chunk_tokens=64,
    kv_keys="turbo4",
    kv_values="int8",
    kv_window_tokens=16,
)
prompt = random_prompt(100)
complete(coded, [prompt, prompt[:50]], max_new_tokens=8)
blocks = coded.store_prefix(prompt)
coded.forget_prefixes()
coded.restore_prefix(prompt, blocks)
guesser = new_engine(model, draft=seeded_model("f32", shape, device="cuda-host"))
complete(guesser, [prompt], max_new_tokens=8, speculation=guessing(draft=3))
assert model.packed()
print("untouched")
"""


READS = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
from builders.core_engine import seeded_model

model = seeded_model("f32", device="cuda-host")
for line in open("/proc/self/maps"):
    begin, end = (int(part, 16) for part in line.split()[0].split("-"))
    if end - begin == 1 << 38:  # all device memory is one mapping while none of it is open
        print("apart", flush=True)
        ctypes.string_at(begin, 4)
print("open")
"""


def run(code: str, apart: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, str(TESTS)],
        env={**os.environ, "ONWARD_CUDA_HOST_APART": apart},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_host_never_touches_device_memory() -> None:
    done = run(EVERYTHING, "1")
    assert (done.returncode, done.stdout) == (0, "untouched\n"), done.stderr[-2000:]


def test_an_access_to_device_memory_would_be_found() -> None:
    done = run(READS, "1")
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "apart\n"), done.stderr[-2000:]
    done = run(READS, "0")
    assert (done.returncode, done.stdout) == (0, "open\n"), done.stderr[-2000:]
