#include "model/layer_features.h"

namespace onward {

std::vector<LayerFeature> features_of(const DecoderSpec& spec) {
  const AttentionSpec& attention = spec.attention;
  const bool other_qk_norm =
      spec.qk_norm && (attention.qk_norm_kind != "rms" || attention.qk_norm_over != "head" ||
                       attention.qk_norm_after_rope || attention.qk_norm_rotated);
  std::vector<LayerFeature> features;
  const auto add = [&](bool needed, LayerFeature feature) {
    if (needed) features.push_back(feature);
  };
  using enum LayerFeature;
  add(spec.norms.kind == "layer", layer_norm);
  add(spec.norms.after, norm_after);
  add(spec.norms.embedding, embedding_norm);
  add(spec.residual_scale != 1.0f, residual_scale);
  add(spec.embedding_scale != 1.0f, embedding_scale);
  add(spec.learned_positions > 0, learned_positions);
  add(spec.logit_scale != 1.0f, logit_scale);
  add(spec.logit_softcap != 0.0f, logit_softcap);
  add(spec.mlp.activation != "silu", activation);
  add(!spec.mlp.gated, plain_mlp);
  add(spec.mlp.limit != 0.0f || spec.mlp.up_shift != 0.0f, clamped_mlp);
  add(spec.residual != "sequential", parallel_residual);
  add(attention.softcap != 0.0f, attention_softcap);
  add(attention.sink_logits, sink_logits);
  add(!attention.alibi_slopes.empty(), alibi);
  add(attention.clip != 0.0f, clipped_qkv);
  add(attention.temperature_beta != 0.0f, query_temperature);
  add(attention.output_gate != "none", output_gate);
  bool chunked = false, other_values = false, other_heads = false;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    chunked = chunked || spec.chunk(layer) > 0;
    other_values = other_values || spec.value_dim_of(layer) != spec.head_dim_of(layer);
    other_heads = other_heads || spec.heads_of(layer) != spec.num_heads ||
                  spec.kv_heads_of(layer) != spec.num_kv_heads ||
                  spec.head_dim_of(layer) != spec.head_dim;
  }
  add(chunked, chunked_attention);
  add(other_values, value_heads);
  add(other_heads, layer_heads);
  add(other_qk_norm || attention.v_norm, layer_qk_norm);
  add(spec.experts.count > 0, experts);
  add(spec.latent.kv_rank > 0, latent_attention);
  bool shared = false;
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) shared = shared || !spec.has_kv(layer);
  add(shared, shared_kv);
  add(spec.layer_inputs.size > 0, layer_inputs);
  add(spec.layer_scales, layer_scales);
  add(spec.norms.sums || !spec.norms.final, sum_norms);
  add(spec.embedding.size > 0, other_embedding);
  add(spec.head.size > 0, head_layer);
  add(attention.value_scale != 1.0f, value_scale);
  add(spec.experts.scales || spec.experts.router_norm || spec.experts.router_scale != 1.0f ||
          spec.experts.beside_mlp,
      routed_experts);
  return features;
}

}  // namespace onward
