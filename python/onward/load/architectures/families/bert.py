"""BERT and ERNIE with ``is_decoder``, and what models of their kind have in common: norms of the
sums, a dense layer before the head, and embedded token types."""

from __future__ import annotations

from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, activation, decoder_spec
from onward.load.architectures.names import Names, Stored, names
from onward.load.architectures.rope import MAX_POSITIONS
from onward.spec import DecoderSpec, HeadSpec, MlpSpec, NormSpec

SUMS = NormSpec("layer", bias=True, before=False, sums=True, final=False, embedding=True)
"""The norms of such models: of the embedding, and of the residual stream after each addition."""
TOKEN_TYPES = ("embeddings.token_type_embeddings.weight",)
"""A text has the first type alone. Its row is added to the positions."""
# Of other heads, and constants that old files hold.
_UNUSED = (
    *(".pooler.dense.weight", ".pooler.dense.bias", ".pooler.weight", ".pooler.bias"),
    *(".position_ids", ".token_type_ids", "encoder.embed_positions.weight"),
    *("cls.seq_relationship.weight", "cls.seq_relationship.bias"),
    *("cls.predictions.bias", "lm_head.bias"),
)
_POOLER_FIELDS = (
    *("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"),
    *("pooler_size_per_head", "pooler_type"),
)
BERT_HEAD: dict[str, Any] = {
    "head": "cls.predictions.decoder",
    "head_bias": ("cls.predictions.decoder", "cls.predictions"),
    "head_dense": "cls.predictions.transform.dense",
    "head_norm": "cls.predictions.transform.LayerNorm",
}
ROBERTA_HEAD: dict[str, Any] = {
    "head": "lm_head.decoder",
    "head_bias": ("lm_head.decoder", "lm_head"),
    "head_dense": "lm_head.dense",
    "head_norm": "lm_head.layer_norm",
}


def bert_names(*model: str, first_position: int = 0, **roles: Any) -> Names:
    """The names of such a model, with ``first_position`` rows of positions that are not read."""
    common: dict[str, Any] = {
        "embed": "embeddings.word_embeddings",
        "embed_norm": "embeddings.LayerNorm",
        "positions": Stored(
            "embeddings.position_embeddings", first_row=first_position, added=TOKEN_TYPES
        ),
        "q": "attention.self.query",
        "k": "attention.self.key",
        "v": "attention.self.value",
        "o": "attention.output.dense",
        "attention_post_norm": "attention.output.LayerNorm",
        "up": "intermediate.dense",
        "down": "output.dense",
        "mlp_post_norm": "output.LayerNorm",
    }
    return names(model=(*model, ""), layer="encoder.layer.{i}.", ignored=_UNUSED, **common | roles)


TENSORS = bert_names("bert.", "ernie.", **BERT_HEAD)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The dense layer before the head has the activation of the MLP."""
    config.ignore("task_type_vocab_size")
    if config.flag("use_task_id", False):
        raise config.wrong("use_task_id", "false: embedded tasks are not supported")
    return read_bert(config, "bert")


def read_bert(
    config: ConfigReader,
    architecture: str,
    *,
    default_context: int = 512,
    default_eps: float = 1e-12,
    default_activation: str = "gelu",
    first_position: int = 0,
    head_activation: str = "",
    head_size: int | None = None,
    **fields: Any,
) -> DecoderSpec:
    """The spec of such a model.

    Args:
        first_position: the row of the first position.
        head_activation: of the dense layer before the head; empty: as the MLP.
        head_size: of that layer, 0 if there is none; None: hidden_size.
        fields: more fields of the spec.
    """
    if not config.flag("is_decoder", False):
        raise config.wrong("is_decoder", "true: in an encoder, a token sees the text after it")
    config.text("position_embedding_type", ("absolute",), "absolute")
    config.ignore("type_vocab_size", *_POOLER_FIELDS)
    act = activation(config, default_activation)
    size = config.integer("hidden_size", 1, MAX_WIDTH) if head_size is None else head_size
    low = first_position + 1
    rows = config.integer("max_position_embeddings", low, MAX_POSITIONS, default_context)
    head = HeadSpec(size, head_activation or act, bias=True, norm=True) if size else HeadSpec()
    defaults: dict[str, Any] = {
        "rotates": False,
        "norms": SUMS,
        "learned_positions": rows - first_position,
        "max_context": rows - first_position,
        "qkv_bias": True,
        "default_tied": True,
    }
    return decoder_spec(
        config,
        architecture,
        default_context=default_context,
        default_eps=default_eps,
        eps_field="layer_norm_eps",
        output_bias=True,
        mlp_bias=True,
        mlp=MlpSpec(act, gated=False),
        head=head,
        head_bias=True,
        **(defaults | fields),
    )
