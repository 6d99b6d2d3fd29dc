"""StableLM 2, 3B and 12B: layer norms, partial rotation, and with fields parallel blocks and a norm
for each head of q and k."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import activation, decoder_spec
from onward.load.architectures.gguf.family import QKV_BIAS, gguf, layer_norm
from onward.load.architectures.names import Stored, names
from onward.spec import AttentionSpec, DecoderSpec, MlpSpec, NormSpec

TENSORS = names(
    q_norm=Stored(joined=("self_attn.q_layernorm.norms.{e}.weight",)),
    k_norm=Stored(joined=("self_attn.k_layernorm.norms.{e}.weight",)),
)
GGUF = gguf(
    TENSORS,
    eps=layer_norm("layer_norm_eps"),
    # Converters write true where the config has no such field. The tensors are right.
    optional={"use_parallel_residual": "use_parallel_residual"},
    from_tensors={
        "use_qkv_bias": QKV_BIAS,
        "qk_layernorm": ("attn_q_norm.weight",),
        "sequential": ("ffn_norm.weight",),
    },
    partial=True,
    complete=lambda config: {
        "use_parallel_residual": not config["sequential"],
        "sequential": None,
    },
    q_norm=Stored("attn_q_norm", by_head=True),
    k_norm=Stored("attn_k_norm", by_head=True),
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The norms of the blocks have a bias. The norms of q and k have none."""
    parallel = config.flag("use_parallel_residual", False)
    return decoder_spec(
        config,
        "stablelm",
        default_context=4096,
        default_eps=1e-5,
        eps_field="layer_norm_eps",
        default_rotated=0.25,
        qkv_bias=config.flag("use_qkv_bias", False),
        qk_norm=config.flag("qk_layernorm", False),
        mlp=MlpSpec(activation(config, "silu")),
        norms=NormSpec("layer", bias=True),
        attention=AttentionSpec(qk_norm_kind="layer", qk_norm_over="heads"),
        residual="parallel" if parallel else "sequential",
    )
