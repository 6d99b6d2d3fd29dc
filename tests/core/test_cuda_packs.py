"""Packs for a device: made for "cuda-host" and opened there by Python and through the C
interface.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from builders.c_interface import CError, CModel, call, struct
from builders.cuda_host import needs_cuda_host
from builders.packs import tiny_pack
from onward import LLM
from onward.errors import PackError

pytestmark = needs_cuda_host()
PROMPT = [1, 2, 3]


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {
        device: tiny_pack(tmp_path_factory.mktemp(device), device=device, dtype="int8")
        for device in ("cpu", "cuda-host")
    }


def opened(path: Path, device: str | None) -> CModel:
    value = ctypes.c_void_p()
    given = {} if device is None else {"device": device.encode()}
    options = struct("model_options", **given)
    call("onward_model_open", str(path).encode(), ctypes.byref(options), ctypes.byref(value))
    assert value.value is not None
    return CModel(value.value)


def test_python_and_c_give_the_tokens_of_the_processor(packs: dict[str, Path]) -> None:
    tokens = {}
    for device, path in packs.items():
        with LLM(path, device=device, threads=1, kv_dtype="f32") as llm:
            assert llm.device == device
            tokens[device] = llm.generate(PROMPT, max_new_tokens=20).token_ids
        with opened(path, device) as model, model.engine(threads=1) as engine:
            (found,) = engine.complete(PROMPT, max_new_tokens=20)
            assert len(found) == 20
    assert tokens["cpu"] == tokens["cuda-host"]


def test_a_pack_for_another_device_is_refused_with_the_next_step(packs: dict[str, Path]) -> None:
    reported = (
        r"has layout 2 .*, expected layout 1002, that of cuda-host: .* --device cuda-host --force"
    )
    with pytest.raises(PackError, match=reported):
        LLM(packs["cpu"], device="cuda-host")
    with pytest.raises(PackError, match=r"has layout 1002 .*, expected layout 2: .* --force"):
        LLM(packs["cuda-host"])
    with pytest.raises(CError, match="ONWARD_PACK_ERROR.*" + reported):
        opened(packs["cpu"], "cuda-host")


@pytest.mark.parametrize(
    ("device", "status", "reported"),
    [
        ("gpu", "ONWARD_INVALID_ARGUMENT", "device: is 'gpu', expected"),
        ("", "ONWARD_INVALID_ARGUMENT", "device: is '', expected"),
        ("cuda:99", "ONWARD_DEVICE_ERROR", "device: cuda:99: "),
    ],
)
def test_an_absent_device_is_an_error(
    packs: dict[str, Path], device: str, status: str, reported: str
) -> None:
    with pytest.raises(CError) as caught:
        opened(packs["cpu"], device)
    assert (caught.value.status, reported in str(caught.value)) == (status, True)


def test_the_default_device_is_the_processor(packs: dict[str, Path]) -> None:
    with opened(packs["cpu"], None) as model, model.engine(threads=1) as engine:
        assert len(engine.complete(PROMPT, max_new_tokens=4)[0]) == 4
