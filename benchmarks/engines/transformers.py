"""transformers on PyTorch: one request after another through ``generate``."""

from __future__ import annotations

from typing import Any

from engines.contest import Absent, OneByOne, Request, Stopwatch, Timed
from engines.hf_folder import hf_folder
from engines.source_model import SourceModel

INSTALL = "pip install transformers torch"


class Transformers(OneByOne):
    """The model of a Hugging Face folder, "float32" or "bfloat16"."""

    def __init__(self, source: SourceModel, weights: str, threads: int) -> None:
        transformers, self._torch = _packages()
        self._torch.set_num_threads(threads)
        self._model = transformers.AutoModelForCausalLM.from_pretrained(
            hf_folder(source), dtype=getattr(self._torch, weights)
        )
        self._model.eval()
        self._model.generation_config.eos_token_id = None  # so that no token ends the output
        self._model.generation_config.pad_token_id = 0
        self.name = f"transformers {weights}"
        self.setting = (
            f"transformers {transformers.__version__}, torch {self._torch.__version__}, {weights}, "
            f"attention {self._model.config._attn_implementation}"
        )

    def follow(self, request: Request) -> Timed:
        torch = self._torch
        watch = _Watch()
        with torch.inference_mode():
            ids = torch.tensor([request.prompt])
            self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=request.new_tokens,
                do_sample=False,
                streamer=watch,
            )
        return watch.timed()

    def close(self) -> None:
        del self._model


class _Watch(Stopwatch):
    """A streamer for ``generate`` that records times; its first call has the prompt."""

    _is_prompt = True

    def put(self, ids: Any) -> None:
        if not self._is_prompt:
            self.note(int(ids.reshape(-1)[0]))
        self._is_prompt = False

    def end(self) -> None:
        """There is nothing to free."""


def instructions() -> str:
    """The instruction set of PyTorch's own kernels; oneDNN chooses its own."""
    return str(_packages()[1].backends.cpu.get_cpu_capability())


def _packages() -> tuple[Any, Any]:
    try:
        import torch
        import transformers
    except ImportError:
        raise Absent(INSTALL) from None
    return transformers, torch
