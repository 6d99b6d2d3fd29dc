"""The CUDA library from nvcc on a machine without a GPU: it compiles for all its architectures, no
kernel spills, it exports one symbol, and it opens and reports why there is no device.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from builders import cuda_build
from builders.cuda_build import Kernel

REASON = cuda_build.why_not()
RunPython = Callable[..., subprocess.CompletedProcess[str]]
SAID = """
[1/2] Building CUDA object real/CMakeFiles/onward_cuda.dir/__/rows.cu.o
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z3oneIiEvPf' for 'sm_90'
ptxas info    : Function properties for _Z3oneIiEvPf
    8 bytes stack frame, 4 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 96 registers, used 1 barriers, 8 bytes cumulative stack size, 4 bytes smem
ptxas info    : Compile time = 2195.812 ms
ptxas info    : Compiling entry function '_ZN6onward4cuda3twoEv' for 'sm_80'
ptxas info    : Function properties for _ZN6onward4cuda3twoEv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers
"""


@dataclass(frozen=True)
class Built:
    file: Path
    kernels: list[Kernel]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Only for Hopper, because each other architecture takes the same time again."""
    if REASON:
        pytest.skip(REASON)
    return Built(*cuda_build.build(tmp_path_factory.mktemp("sm_90"), "90-real"))


def assert_sound(kernels: list[Kernel], capsys: pytest.CaptureFixture[str]) -> None:
    """Prints the table in any case."""
    with capsys.disabled():
        print("\n" + cuda_build.table(kernels))
    assert len(kernels) >= 15
    assert [k for k in kernels if k.spilled_bytes] == []
    assert all(0 < kernel.registers <= 255 for kernel in kernels)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_kernel_spills(built: Built, capsys: pytest.CaptureFixture[str]) -> None:
    assert_sound(built.kernels, capsys)
    assert {kernel.architecture for kernel in built.kernels} == {"sm_90"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_exports_one_symbol(built: Built) -> None:
    said = subprocess.run(
        ["nm", "-D", "--defined-only", built.file], capture_output=True, text=True, check=True
    )
    assert [line.split()[-1] for line in said.stdout.splitlines()] == ["onward_device_library"]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_opens_without_a_toolkit_or_a_driver(built: Built) -> None:
    """The library contains the runtime, which looks for the driver itself."""
    said = subprocess.run(["readelf", "-d", built.file], capture_output=True, text=True, check=True)
    needed = [line for line in said.stdout.splitlines() if "NEEDED" in line]
    assert any("libonward.so" in line for line in needed)
    assert not [line for line in needed if "cuda" in line.replace("libonward_cuda", "")]
    assert "$ORIGIN" in said.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_without_a_gpu_the_reason_is_reported(built: Built, run_python: RunPython) -> None:
    """The device of the processor works. On a machine with a GPU, the GPU is not hidden."""
    done = run_python(
        "import onward\n"
        "from onward.errors import DeviceError\n"
        "found = [d for d in onward.devices() if d.name.startswith('cuda:')]\n"
        "assert [d.name for d in onward.devices()][0] == 'cpu', onward.devices()\n"
        "assert [d.name for d in found] == ['cuda:0'], onward.devices()\n"
        "assert not found[0].ready and 'no GPU can be used' in found[0].why_not, found\n"
        "try:\n"
        "    onward.LLM('no such model', device='cuda')\n"
        "except DeviceError as error:\n"
        "    print(error)\n",
        ONWARD_CUDA_LIBRARY=str(built.file),
        CUDA_VISIBLE_DEVICES="-1",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("device: cuda:0: no GPU can be used: ")
    assert "driver" in done.stdout


def test_the_report_of_ptxas_is_read() -> None:
    if REASON:
        pytest.skip(REASON)
    one, two = cuda_build.kernels(SAID)
    assert one == Kernel("one<int>", "sm_90", 96, 20, 8, 4)
    assert two == Kernel("two", "sm_80", 32, 0, 0, 0)
    assert "one<int>" in cuda_build.table([one, two])


@pytest.mark.slow
@pytest.mark.skipif(bool(REASON), reason=REASON)
@pytest.mark.timeout(1800)
def test_all_architectures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, kernels = cuda_build.build(tmp_path, "")
    assert_sound(kernels, capsys)
    assert {"sm_80", "sm_90"} <= {kernel.architecture for kernel in kernels}
