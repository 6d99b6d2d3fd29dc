"""The list of devices, and the reasons for missing devices."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import onward
from onward import _core
from onward.cli import doctor, main
from onward.errors import DeviceError, InvalidArgument

MODEL = Path(__file__).parents[1] / "fixtures" / "models" / "llama-default"
RunPython = Callable[..., subprocess.CompletedProcess[str]]
READY_GPU = any(d.ready for d in onward.devices() if d.name.startswith("cuda:"))
without_gpu = pytest.mark.skipif(READY_GPU, reason="this machine has a GPU")


def test_the_processor_comes_first_and_is_ready() -> None:
    cpu = onward.devices()[0]
    assert (cpu.name, cpu.ready, cpu.why_not) == ("cpu", True, "")
    assert cpu.description == _core.kernels.selected()
    with pytest.raises(dataclasses.FrozenInstanceError):
        cpu.name = "other"  # type: ignore[misc]


def test_a_gpu_is_ready_or_has_a_reason() -> None:
    gpus = [device for device in onward.devices() if device.name.startswith("cuda")]
    assert gpus
    for device in gpus:
        assert isinstance(device, onward.Device)
        assert device.ready == (device.why_not == "")
        assert device.description or device.why_not


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpu", "device: is"),
        ("", "device: is"),
        ("cuda:", "device: is"),
        ("cuda:x", "device: is"),
        ("cuda:-1", "device: is"),
        ("CPU", "device: is"),
    ],
)
def test_an_unknown_device_is_an_error(name: str, expected: str) -> None:
    with pytest.raises(InvalidArgument, match=expected):
        onward.LLM(MODEL, device=name)


@without_gpu
def test_without_a_gpu_the_error_gives_the_reason() -> None:
    """The reason of onward.devices(), which names the package to install or to build."""
    (reported,) = (d.why_not for d in onward.devices() if d.name in ("cuda", "cuda:0"))
    with pytest.raises(DeviceError, match=r"^device: cuda:0: ") as raised:
        onward.LLM(MODEL, device="cuda")
    assert reported in str(raised.value)
    assert any(word in reported for word in ("ONWARD_CUDA=ON", "driver"))
    assert isinstance(raised.value, RuntimeError)


def test_the_processor_works_after_a_failed_device() -> None:
    with pytest.raises((DeviceError, InvalidArgument)):
        onward.LLM(MODEL, device="cuda:9999")
    with onward.LLM(MODEL, device="cpu", dtype="f32") as llm:
        assert llm.device == "cpu"
        assert len(llm.generate([1, 2, 3], max_new_tokens=4).token_ids) == 4


@pytest.mark.parametrize("damage", ["absent", "no library", "another library"])
def test_a_file_that_is_not_a_device_library(
    damage: str, tmp_path: Path, run_python: RunPython
) -> None:
    """Only that device is unavailable, and the reason is reported."""
    library = tmp_path / "libonward_cuda.so"
    if damage == "no library":
        library.write_bytes(b"no library at all")
    elif damage == "another library":
        library = Path(_core.__file__)  # it opens, and exports no such function
    done = run_python(
        "import onward, sys\n"
        "cpu, cuda = onward.devices()[:2]\n"
        "assert cpu.ready and cuda.name == 'cuda' and not cuda.ready, onward.devices()\n"
        "print(cuda.why_not)\n",
        ONWARD_CUDA_LIBRARY=str(library),
    )
    assert (done.returncode, done.stderr) == (0, "")
    expected = {
        "absent": "has no CUDA",
        "no library": library.name,
        "another library": "exports no",
    }
    assert expected[damage] in done.stdout


def test_importing_the_package_opens_no_device(run_python: RunPython) -> None:
    """The libraries are opened when a device is first asked for."""
    done = run_python(
        "import onward\n"
        "with open('/proc/self/maps') as maps:\n"
        "    assert 'libonward_cuda' not in maps.read()\n"
        "from onward import LLM\n"
        "with open('/proc/self/maps') as maps:\n"
        "    assert 'libonward_cuda' not in maps.read()\n"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_doctor_lists_each_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)["devices"]
    assert list(reported) == [device.name for device in onward.devices()]
    for device in onward.devices():
        assert reported[device.name] == {
            "description": device.description,
            "ready": device.ready,
            "why_not": device.why_not,
        }
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    for device in onward.devices():
        assert f"device {device.name}" in out
        assert device.why_not in out


def test_doctor_measures_ready_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PROBE_S", 0.01)
    report = doctor.examine(measure=True)
    ready = {d.name for d in onward.devices() if d.ready and d.name != "cpu"}
    assert set(report["measured_devices"]) == ready
    for figures in report["measured_devices"].values():
        assert set(figures) == set(doctor.DEVICE_PROBES)
        assert all(value > 0 for value in figures.values())
    assert "measured" in report
    assert "measured" in report and "read GB/s" in doctor.summary(report)


def test_the_cache_is_bounded_by_the_memory_of_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of the host, which may be larger, is not the limit."""
    assert _core.device_free_bytes("cpu") is None, "the processor's is the host's"
    free = 50 << 20
    monkeypatch.setattr(_core, "device_free_bytes", lambda device: free)
    with onward.LLM(MODEL) as llm:
        assert free // 2 < llm.stats()["cache_bytes_limit"] < free
    with onward.LLM(MODEL, kv_cache_bytes=1 << 20) as llm:
        assert llm.stats()["cache_bytes_limit"] == 1 << 20
