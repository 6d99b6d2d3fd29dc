// What differs between decoder families, as data: pre-norm blocks with RMSNorm, rotary positions,
// grouped-query attention and SwiGLU. Python's families write one from a config (onward/spec.py).
//
// A new field is a member with its default and a line in fields(), here, and a field of the class
// in onward/spec.py. A pack that was written before the field existed opens with the default.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "model/spec_fields.h"

namespace onward {

// Far above any published model; keeps every product of two sizes inside 64 bits.
inline constexpr double kMaxSize = int64_t{1} << 28;
inline constexpr double kMaxLayers = 4096;
inline constexpr double kMaxHeads = 65536;
inline constexpr double kMaxHeadDim = 512;
inline constexpr double kMaxContext = int64_t{1} << 48;
inline constexpr double kMaxFloat = 3.4028234663852886e38;

// Rotary positions (Su et al. 2021), half-split pairs over the whole head.
struct RopeSpec {
  std::vector<float> inv_freq;    // (head_dim / 2), already scaled
  float attention_factor = 1.0f;  // multiplies cos and sin (yarn)
  double theta = 10000.0;         // used by dynamic scaling only
  double dynamic_factor = 0.0;    // 0: no dynamic scaling
  int64_t dynamic_original_context = 0;

  static constexpr auto fields() {
    return std::tuple(
        required("inv_freq", &RopeSpec::inv_freq, {-kMaxFloat, kMaxFloat}),
        optional("attention_factor", &RopeSpec::attention_factor, {-kMaxFloat, kMaxFloat}),
        optional("theta", &RopeSpec::theta, {-kMaxFloat, kMaxFloat}),
        optional("dynamic_factor", &RopeSpec::dynamic_factor, {0, kMaxFloat}),
        optional("dynamic_original_context", &RopeSpec::dynamic_original_context,
                 {0, kMaxContext}));
  }
};

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
  std::vector<int64_t> windows;      // per layer, 0: all keys; empty: all keys everywhere
  std::vector<int64_t> layer_ropes;  // per layer, 0: rope, -1: no rotation; empty: rope everywhere

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
        by_layer("layer_ropes", &DecoderSpec::layer_ropes, {kNoRope, 0}));
  }

  int64_t window(int64_t layer) const {
    return windows.empty() ? 0 : windows[static_cast<size_t>(layer)];
  }
  bool rotates(int64_t layer) const {
    return layer_ropes.empty() || layer_ropes[static_cast<size_t>(layer)] != kNoRope;
  }
  // InvalidArgument that names the first field with a wrong value. Call it before taking memory.
  void validate() const;
};

}  // namespace onward
