// What differs between decoder families, as data: pre-norm blocks with RMSNorm, rotary positions,
// grouped-query attention and SwiGLU. The Python side writes one from a config (onward/spec.py).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace onward {

struct RopeSpec {
  std::vector<float> inv_freq;    // (head_dim / 2), already scaled
  float attention_factor = 1.0f;  // multiplies cos and sin (yarn)
  double theta = 10000.0;         // used by dynamic scaling only
  double dynamic_factor = 0.0;    // 0: no dynamic scaling
  int64_t dynamic_original_context = 0;
};

struct DecoderSpec {
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
  bool qk_norm = false;
  bool tied_head = false;
  std::vector<int64_t> windows;  // per layer, 0: all keys; empty: all keys everywhere

  int64_t window(int64_t layer) const { return windows.empty() ? 0 : windows[layer]; }
  // InvalidArgument naming the first field that cannot be; called before memory is taken.
  void validate() const;
};

}  // namespace onward
