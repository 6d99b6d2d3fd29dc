// What differs between decoder families, as data: the sizes of a model, and the parts of its layers
// (layer_spec.h). The families in Python write one from a config (onward/spec.py).
//
// A new field is a member with its default and a line in fields(), here, and a field of the class
// in onward/spec.py. A pack that was written before the field existed opens with the default.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "model/layer_spec.h"

namespace onward {

struct DecoderSpec {
  static constexpr int64_t kNoRope = -1;

  std::string architecture;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  float norm_eps = 0;
  int64_t max_context = 0;  // tokens of prompt and output together
  RopeSpec rope;
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;  // RMSNorm over each head of q and k before the rotation
  bool tied_head = false;
  std::vector<int64_t> windows;  // per layer, 0: all keys; empty: all keys everywhere
  // Per layer: 0: rope, 1, 2, ...: other_ropes, -1: no rotation; empty: rope everywhere.
  std::vector<int64_t> layer_ropes;
  std::vector<RopeSpec> other_ropes;
  NormSpec norms;
  AttentionSpec attention;
  MlpSpec mlp;
  ExpertsSpec experts;
  LatentSpec latent;
  std::vector<int64_t> layer_experts;  // per layer, 1: experts in place of the MLP
  // Per layer, the length of the chunks of positions; a token sees keys of its own chunk (Llama 4).
  // 0 or empty: all.
  std::vector<int64_t> chunks;
  // Per layer; 0 or empty: num_heads, num_kv_heads, head_dim.
  std::vector<int64_t> layer_heads;
  std::vector<int64_t> layer_kv_heads;
  std::vector<int64_t> layer_head_dims;
  int64_t value_dim = 0;  // of a head's values; 0: the head_dim of the layer
  std::vector<int64_t> layer_intermediate_sizes;  // per layer; 0 or empty: intermediate_size
  // Per layer, 0 or empty: it has keys and values; i + 1: it sees the keys and values of layer i.
  std::vector<int64_t> kv_sources;
  LayerInputSpec layer_inputs;
  EmbeddingSpec embedding;
  HeadSpec head;
  bool layer_scales = false;  // the stream is multiplied by a vector after each layer
  // "sequential": the MLP reads the stream after attention. "parallel": both read the stream
  // before, through one norm. "parallel_norms": the same, each through its own norm.
  std::string residual = "sequential";
  float residual_scale = 1.0f;    // of each block's output
  float embedding_scale = 1.0f;   // of the embedded tokens
  int64_t learned_positions = 0;  // rows of a matrix that is added to the embedded tokens; 0: none
  float logit_scale = 1.0f;
  float logit_softcap = 0.0f;  // logit = softcap * tanh(logit / softcap); 0: none
  bool head_bias = false;

  static constexpr auto fields() {
    return std::tuple(
        required("architecture", &DecoderSpec::architecture),
        required("vocab_size", &DecoderSpec::vocab_size, {1, kMaxSize}),
        required("hidden_size", &DecoderSpec::hidden_size, {1, kMaxSize}),
        required("intermediate_size", &DecoderSpec::intermediate_size, {1, kMaxSize}),
        required("num_layers", &DecoderSpec::num_layers, {1, kMaxLayers}),
        required("num_heads", &DecoderSpec::num_heads, {1, kMaxHeads}),
        required("num_kv_heads", &DecoderSpec::num_kv_heads, {1, kMaxHeads}),
        required("head_dim", &DecoderSpec::head_dim, {2, kMaxHeadDim}),
        required("norm_eps", &DecoderSpec::norm_eps, {0, kMaxFloat}),
        required("max_context", &DecoderSpec::max_context, {1, kMaxContext}),
        required("rope", &DecoderSpec::rope), optional("qkv_bias", &DecoderSpec::qkv_bias),
        optional("output_bias", &DecoderSpec::output_bias),
        optional("mlp_bias", &DecoderSpec::mlp_bias), optional("qk_norm", &DecoderSpec::qk_norm),
        optional("tied_head", &DecoderSpec::tied_head),
        by_layer("windows", &DecoderSpec::windows, {0, kMaxContext}),
        by_layer("layer_ropes", &DecoderSpec::layer_ropes, {kNoRope, kMaxLayers}),
        optional("other_ropes", &DecoderSpec::other_ropes), optional("norms", &DecoderSpec::norms),
        optional("attention", &DecoderSpec::attention), optional("mlp", &DecoderSpec::mlp),
        optional("experts", &DecoderSpec::experts), optional("latent", &DecoderSpec::latent),
        by_layer("layer_experts", &DecoderSpec::layer_experts, {0, 1}),
        by_layer("chunks", &DecoderSpec::chunks, {0, kMaxContext}),
        by_layer("layer_heads", &DecoderSpec::layer_heads, {0, kMaxHeads}),
        by_layer("layer_kv_heads", &DecoderSpec::layer_kv_heads, {0, kMaxHeads}),
        by_layer("layer_head_dims", &DecoderSpec::layer_head_dims, {0, kMaxHeadDim}),
        optional("value_dim", &DecoderSpec::value_dim, {0, kMaxValueDim}),
        by_layer("layer_intermediate_sizes", &DecoderSpec::layer_intermediate_sizes, {0, kMaxSize}),
        by_layer("kv_sources", &DecoderSpec::kv_sources, {0, kMaxLayers}),
        optional("layer_inputs", &DecoderSpec::layer_inputs),
        optional("embedding", &DecoderSpec::embedding), optional("head", &DecoderSpec::head),
        optional("layer_scales", &DecoderSpec::layer_scales),
        choice("residual", &DecoderSpec::residual, "sequential parallel parallel_norms"),
        optional("residual_scale", &DecoderSpec::residual_scale, {-kMaxFloat, kMaxFloat}),
        optional("embedding_scale", &DecoderSpec::embedding_scale, {-kMaxFloat, kMaxFloat}),
        optional("learned_positions", &DecoderSpec::learned_positions, {0, kMaxSize}),
        optional("logit_scale", &DecoderSpec::logit_scale, {-kMaxFloat, kMaxFloat}),
        optional("logit_softcap", &DecoderSpec::logit_softcap, {0, kMaxFloat}),
        optional("head_bias", &DecoderSpec::head_bias));
  }

  int64_t window(int64_t layer) const { return at_layer(windows, layer, 0); }
  int64_t chunk(int64_t layer) const { return at_layer(chunks, layer, 0); }
  int64_t heads_of(int64_t layer) const { return at_layer(layer_heads, layer, num_heads); }
  int64_t kv_heads_of(int64_t layer) const { return at_layer(layer_kv_heads, layer, num_kv_heads); }
  int64_t head_dim_of(int64_t layer) const { return at_layer(layer_head_dims, layer, head_dim); }
  int64_t value_dim_of(int64_t layer) const { return value_dim ? value_dim : head_dim_of(layer); }
  int64_t intermediate_size_of(int64_t layer) const {
    return at_layer(layer_intermediate_sizes, layer, intermediate_size);
  }
  // The layer whose keys and values a layer sees.
  int64_t kv_source_of(int64_t layer) const { return at_layer(kv_sources, layer, layer + 1) - 1; }
  bool has_kv(int64_t layer) const { return kv_source_of(layer) == layer; }
  // The first value of a head that rotates, and the number of pairs that do.
  int64_t rotated_from() const { return latent.kv_rank; }
  int64_t pairs_of(int64_t layer) const { return (head_dim_of(layer) - rotated_from()) / 2; }
  // kNoRope, 0 for rope, or i + 1 for other_ropes[i].
  int64_t rope_of(int64_t layer) const {
    return layer_ropes.empty() ? 0 : layer_ropes[static_cast<size_t>(layer)];
  }
  bool has_experts(int64_t layer) const {
    return !layer_experts.empty() && layer_experts[static_cast<size_t>(layer)] != 0;
  }
  // Whether a block's output is changed before it is added to the residual stream.
  int64_t embedding_size() const { return embedding.size ? embedding.size : hidden_size; }
  int64_t head_inputs() const { return head.size ? head.size : hidden_size; }
  bool adds_blocks() const { return norms.after || residual_scale != 1.0f; }
  // InvalidArgument that names the first field with a wrong value. Call it before taking memory.
  void validate() const;

 private:
  void check_layers() const;
  void check_kv_source(int64_t layer) const;
  // The value of a layer, or `other` where it is 0 or the list is empty.
  static int64_t at_layer(const std::vector<int64_t>& values, int64_t layer, int64_t other) {
    const int64_t own = values.empty() ? 0 : values[static_cast<size_t>(layer)];
    return own != 0 ? own : other;
  }
};

}  // namespace onward
