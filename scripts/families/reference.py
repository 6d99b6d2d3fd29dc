"""Makes a tiny random model with transformers and computes its logits and tokens in float32."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForImageTextToText

from families.configs import (
    CHANGES,
    FIRST_POSITIONS,
    TEXT_OF,
    UNLIKELY,
    VISION_CONFIGS,
    VOCABULARY,
    changes_of,
)

NEW_TOKENS, BEAMS = 24, 4
PERTURBATION = 0.05
"""Added to every parameter, so that a bias or norm that is left out shows."""


@dataclass(frozen=True)
class Reference:
    """What transformers computes from a folder."""

    prompt: list[int]
    logits: NDArray[np.float32]
    """(prompt, vocabulary)"""
    greedy: list[int]
    beams: list[int]


def make_config(model_type: str, changes: dict[str, Any]) -> Any:
    """The config of a type with the sizes that its class knows; of a multimodal type, its text
    model has these sizes."""
    kind = CONFIG_MAPPING[model_type]
    if model_type in VISION_CONFIGS:
        text_type = kind().text_config.model_type
        return multimodal_config(model_type, text_type, {**changes_of(model_type), **changes})
    values = {**changes_of(model_type), **changes}
    known = set(inspect.signature(kind.__init__).parameters) | set(
        getattr(kind, "attribute_map", ())
    )
    for base in kind.__mro__:
        known |= set(getattr(base, "__annotations__", ()))
    return kind(**{name: value for name, value in values.items() if name in known})


def multimodal_config(outer: str, text_type: str, changes: dict[str, Any]) -> Any:
    """The config of a multimodal type whose text model is of ``text_type``."""
    text = make_config(text_type, changes).to_dict()
    return CONFIG_MAPPING[outer](text_config=text, **VISION_CONFIGS[outer])


def make_model(model_type: str, folder: Path, seed: int, changes: dict[str, Any]) -> Any:
    """Writes a model with random, perturbed parameters; returns it."""
    torch.manual_seed(seed)
    if model_type in TEXT_OF:
        outer = TEXT_OF[model_type]
        own = {**CHANGES.get(outer, {}), **CHANGES.get(model_type, {}), **changes}
        config = multimodal_config(outer, model_type, own)
    else:
        config = make_config(model_type, changes)
    pictures = config.model_type in VISION_CONFIGS
    build = AutoModelForImageTextToText if pictures else AutoModelForCausalLM
    model = build.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, tensor in [*_learned(model), *_saved_buffers(model)]:
            tensor += PERTURBATION * torch.randn(tensor.shape)
            if name.endswith("experts.gate_up_proj"):
                tensor *= 2
        if model_type in UNLIKELY:
            name, token, bias = UNLIKELY[model_type]
            model.get_parameter(name)[token] = bias
    model.save_pretrained(folder)
    return model


def load_model(folder: Path, like: Any) -> Any:
    """The model of a folder, of the same class as another one."""
    return (
        type(like).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    )


def _learned(model: Any) -> list[tuple[str, torch.Tensor]]:
    """Parameters except for sinusoidal positions, some of which are parameters, too."""
    return [(name, values) for name, values in model.named_parameters() if values.requires_grad]


def _saved_buffers(model: Any) -> list[tuple[str, torch.Tensor]]:
    """Buffers that the checkpoint holds, such as the correction of a router."""
    saved = model.state_dict()
    return [
        (name, buffer)
        for name, buffer in model.named_buffers()
        if name in saved and buffer.is_floating_point()
    ]


@torch.no_grad()
def compute(model: Any, prompt_tokens: int, seed: int) -> Reference:
    """The logits of a prompt, the greedy tokens after it, and the best of four beams."""
    prompt = np.random.default_rng(seed).integers(3, VOCABULARY, prompt_tokens).tolist()
    ids = torch.tensor([prompt])
    logits = model(ids, use_cache=False).logits[0].float().numpy()
    greedy: list[int] = []
    for _ in range(NEW_TOKENS):
        whole = torch.tensor([prompt + greedy])
        greedy.append(int(model(whole, use_cache=False).logits[0, -1].argmax()))
    # Neither ends nor forces an end token, as onward does not here.
    model.generation_config.eos_token_id = None
    model.generation_config.forced_eos_token_id = None
    first = FIRST_POSITIONS.get(model.config.model_type)
    positions = None if first is None else torch.arange(first, first + prompt_tokens)[None]
    found = model.generate(
        ids,
        **({} if positions is None else {"position_ids": positions}),
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NEW_TOKENS,
        num_beams=BEAMS,
        do_sample=False,
        use_cache=False,
    )
    return Reference(prompt, logits, greedy, found[0, len(prompt) :].tolist())
