"""VaultGemma: Gemma 2 without norms after the blocks."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.gemma2 import gemma2_spec
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, NormSpec

TENSORS = names(norm_plus=1.0, mlp_norm="pre_feedforward_layernorm")


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Soft-caps and windows are Gemma 2's."""
    return gemma2_spec(config, "vaultgemma", norms=NormSpec())
