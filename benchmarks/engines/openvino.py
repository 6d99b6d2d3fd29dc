"""OpenVINO GenAI: the model that optimum-intel exports, in ``LLMPipeline``.

Except for the settings below, the defaults of the library are measured: with 8- or 4-bit weights it
also quantises activations, and it keeps its cache in 8 bits.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engines.contest import Absent, OneByOne, Request, Stopwatch, Timed
from engines.hf_folder import hf_folder
from engines.source_model import SourceModel

INSTALL = "pip install openvino-genai optimum-intel nncf"
GROUP_SIZE = 64  # of 4-bit weights; the usual 128 does not divide every model's rows
PRECISIONS = {"f32": "f32", "bf16": "bf16"}
"""The dtype of the other arithmetic, if it is set; otherwise the library chooses."""


class OpenVino(OneByOne):
    """One exported model: "f32", "bf16", "int8" or "int4"."""

    def __init__(self, source: SourceModel, weights: str, threads: int) -> None:
        genai, _ = _packages()
        settings: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads}
        if weights in PRECISIONS:
            settings["INFERENCE_PRECISION_HINT"] = PRECISIONS[weights]
        if weights == "f32":  # otherwise its cache would not be float32
            settings["KV_CACHE_PRECISION"] = "f32"
        self._pipeline = genai.LLMPipeline(str(converted(source, weights)), "CPU", **settings)
        self._settings = genai.GenerationConfig(ignore_eos=True, do_sample=False)
        self.name = f"OpenVINO {weights}"
        self.setting = f"openvino-genai {genai.__version__}, {weights}"
        if weights == "int4":
            self.setting += f", groups of {GROUP_SIZE}"

    def follow(self, request: Request) -> Timed:
        genai, openvino = _packages()
        watch = Stopwatch()

        class Streamer(genai.StreamerBase):  # type: ignore[misc]
            def write(self, tokens: Any) -> Any:
                for token in [tokens] if isinstance(tokens, int) else tokens:
                    watch.note(token)
                return genai.StreamingStatus.RUNNING

            def end(self) -> None:
                """There is nothing to free."""

        import numpy as np

        ids = openvino.Tensor(np.array([request.prompt], np.int64))
        self._settings.max_new_tokens = request.new_tokens
        self._pipeline.generate(ids, self._settings, Streamer())
        return watch.timed()

    def close(self) -> None:
        del self._pipeline


def instructions() -> str:
    """The dtypes that it computes with on this CPU."""
    return " ".join(_packages()[1].Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))


def converted(source: SourceModel, weights: str) -> Path:
    """The exported folder; "f32" and "bf16" are computed from one."""
    kind = "f32" if weights in PRECISIONS else weights
    return source.converted(f"openvino-{kind}", lambda folder: _export(source, folder, kind))


def _export(source: SourceModel, folder: Path, weights: str) -> None:
    try:
        from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig
    except ImportError:
        raise Absent(INSTALL) from None
    quantisation = None
    if weights == "int8":
        quantisation = OVWeightQuantizationConfig(bits=8)
    if weights == "int4":
        quantisation = OVWeightQuantizationConfig(bits=4, group_size=GROUP_SIZE)
    model = OVModelForCausalLM.from_pretrained(
        hf_folder(source),
        export=True,
        load_in_8bit=False if quantisation is None else None,
        quantization_config=quantisation,
        compile=False,
    )
    model.save_pretrained(folder)


def _packages() -> tuple[Any, Any]:
    try:
        import openvino
        import openvino_genai
    except ImportError:
        raise Absent(INSTALL) from None
    return openvino_genai, openvino
