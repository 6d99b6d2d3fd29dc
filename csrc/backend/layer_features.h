// What a model may need of a device besides the layers of the Llama family. A device says which
// features it has (WeightStore::has), and a model that needs another one is refused when it is
// loaded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace onward {

enum class LayerFeature : uint8_t {
  layer_norm,
  norm_after,
  embedding_norm,
  residual_scale,
  embedding_scale,
  learned_positions,
  logit_scale,
  logit_softcap,
  activation,
  plain_mlp,
  clamped_mlp,
  parallel_residual,
  attention_softcap,
  sink_logits,
  alibi,
  clipped_qkv,
  query_temperature,
  output_gate,
  layer_qk_norm,
  chunked_attention,
  value_heads,
  layer_heads,
  experts,
  latent_attention,
  shared_kv,
  layer_inputs,
  layer_scales,
  routed_experts,
  sum_norms,
  other_embedding,
  head_layer,
  value_scale,
};

// The names of the features, for messages and documents.
constexpr std::array kLayerFeatureNames = {
    "LayerNorm",
    "norms after the blocks",
    "a norm of the embedding",
    "a residual multiplier",
    "an embedding multiplier",
    "learned positions",
    "a logit multiplier",
    "soft-capped logits",
    "an activation other than SiLU",
    "an MLP without a gate",
    "a clamped MLP",
    "parallel attention and MLP",
    "soft-capped attention",
    "sink logits",
    "ALiBi",
    "clipped queries and keys",
    "a temperature by position",
    "gated attention",
    "norms of queries and keys other than RMSNorm by head",
    "chunked attention",
    "value heads of another size",
    "layers with other heads",
    "experts",
    "latent attention",
    "layers that share keys and values",
    "inputs of single layers",
    "scales of layers",
    "experts beside an MLP, or with a router norm or scales of their own",
    "norms of the residual stream, or none before the head",
    "an embedding of another width",
    "a layer before the head",
    "a factor of values",
};
constexpr size_t kLayerFeatures = kLayerFeatureNames.size();
static_assert(kLayerFeatures == static_cast<size_t>(LayerFeature::value_scale) + 1);

constexpr const char* feature_name(LayerFeature feature) {
  return kLayerFeatureNames[static_cast<size_t>(feature)];
}

}  // namespace onward
