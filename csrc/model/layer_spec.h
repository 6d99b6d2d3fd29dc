// The parts of a decoder layer as data: norms, attention, MLP, experts and residuals. The default
// of each field describes a layer of the Llama family.
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
inline constexpr double kMaxHeadDim = 576;
inline constexpr double kMaxValueDim = 512;
inline constexpr double kMaxContext = int64_t{1} << 48;
inline constexpr double kMaxFloat = 3.4028234663852886e38;
inline constexpr double kMaxExperts = 4096;

// Rotary positions (Su et al. 2021), half-split pairs over the whole head. A pair of frequency 0 is
// left as it is.
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

// The norms of a model: before and after the blocks of a layer, and before the head.
struct NormSpec {
  std::string kind = "rms";  // RMSNorm, or "layer": LayerNorm
  bool bias = false;         // layer norms only
  bool before = true;        // the input of each block
  bool after = false;        // the output of each block, before it is added to the residual stream
  bool embedding = false;    // the embedded tokens
  bool sums = false;         // the residual stream after each addition (the first Transformer)
  bool final = true;         // the input of the head

  static constexpr auto fields() {
    return std::tuple(choice("kind", &NormSpec::kind, "rms layer"),
                      optional("bias", &NormSpec::bias), optional("before", &NormSpec::before),
                      optional("after", &NormSpec::after),
                      optional("embedding", &NormSpec::embedding),
                      optional("sums", &NormSpec::sums), optional("final", &NormSpec::final));
  }
};

// Attention, besides the numbers of heads and the windows (DecoderSpec).
struct AttentionSpec {
  float scale = 0.0f;        // of scores; 0: 1 / sqrt(head_dim)
  float softcap = 0.0f;      // score = softcap * tanh(score / softcap); 0: none
  float clip = 0.0f;         // q, k and v are limited to [-clip, clip]; 0: not
  bool sink_logits = false;  // one more logit for each head, without a value (gpt-oss)
  // The output is multiplied by the sigmoid of a projection of the input, which has a number for
  // each value or for each head.
  std::string output_gate = "none";
  std::vector<float> alibi_slopes;    // (num_heads), or empty (ALiBi, Press et al. 2022)
  std::string qk_norm_kind = "rms";   // of qk_norm
  std::string qk_norm_over = "head";  // each head with one weight; "heads": each head with its own
                                      // weight; "all": all heads together
  bool qk_norm_bias = false;
  bool qk_norm_after_rope = false;
  bool qk_norm_rotated = false;  // only in layers with rotation
  bool v_norm = false;           // RMSNorm over each head of v, without a weight
  float value_scale = 1.0f;
  bool inverse_layer_scale = false;  // scores of layer i are divided by i + 1
  // Queries at position p are multiplied by 1 + beta * log(1 + floor((p + shift) / length)):
  // the temperature of Llama 4 and Ministral 3. beta 0: not.
  float temperature_beta = 0.0f;
  float temperature_length = 1.0f;
  int64_t temperature_shift = 0;
  bool temperature_unrotated = false;  // only in layers without rotation

  static constexpr auto fields() {
    return std::tuple(
        optional("scale", &AttentionSpec::scale, {0, kMaxFloat}),
        optional("softcap", &AttentionSpec::softcap, {0, kMaxFloat}),
        optional("clip", &AttentionSpec::clip, {0, kMaxFloat}),
        optional("sink_logits", &AttentionSpec::sink_logits),
        choice("output_gate", &AttentionSpec::output_gate, "none values heads"),
        optional("alibi_slopes", &AttentionSpec::alibi_slopes, {-kMaxFloat, kMaxFloat}),
        choice("qk_norm_kind", &AttentionSpec::qk_norm_kind, "rms layer"),
        choice("qk_norm_over", &AttentionSpec::qk_norm_over, "head heads all"),
        optional("qk_norm_bias", &AttentionSpec::qk_norm_bias),
        optional("qk_norm_after_rope", &AttentionSpec::qk_norm_after_rope),
        optional("qk_norm_rotated", &AttentionSpec::qk_norm_rotated),
        optional("v_norm", &AttentionSpec::v_norm),
        optional("value_scale", &AttentionSpec::value_scale, {-kMaxFloat, kMaxFloat}),
        optional("inverse_layer_scale", &AttentionSpec::inverse_layer_scale),
        optional("temperature_beta", &AttentionSpec::temperature_beta, {0, kMaxFloat}),
        optional("temperature_length", &AttentionSpec::temperature_length, {1, kMaxFloat}),
        optional("temperature_shift", &AttentionSpec::temperature_shift, {0, 1}),
        optional("temperature_unrotated", &AttentionSpec::temperature_unrotated));
  }
};

// The MLP, and each expert: down(act(gate) * (up + up_shift)), or down(act(up)) if not gated.
struct MlpSpec {
  std::string activation = "silu";  // a name of backend/activation.h
  bool gated = true;
  float limit = 0.0f;  // clamps gate from above and up from both sides (gpt-oss); 0: not
  float up_shift = 0.0f;

  static constexpr auto fields() {
    return std::tuple(choice("activation", &MlpSpec::activation,
                             "silu gelu gelu_tanh quick_gelu relu relu2 sigmoid xielu"),
                      optional("gated", &MlpSpec::gated),
                      optional("limit", &MlpSpec::limit, {0, kMaxFloat}),
                      optional("up_shift", &MlpSpec::up_shift, {-kMaxFloat, kMaxFloat}));
  }
};

// Experts (Shazeer et al. 2017) in place of the MLP of some layers. A router scores all experts for
// each token, and the best ones run.
struct ExpertsSpec {
  int64_t count = 0;  // 0: no layer has experts
  int64_t chosen = 0;
  int64_t intermediate_size = 0;
  std::string scores = "softmax";  // of the router's logits (backend/routing.h)
  float jitter = 0.0f;             // of the sparse mixer
  bool router_bias = false;        // of the logits
  bool correction = false;         // a value for each expert that counts in the choice alone
  bool normalise = false;          // the weights of the chosen experts are divided by their sum
  float scale = 1.0f;              // times each weight
  // The experts lie in groups of equal size. Only the best `chosen_groups` groups take part in the
  // choice. The score of a group is its best score, or the sum of its best two ("top2").
  int64_t groups = 1;
  int64_t chosen_groups = 1;
  std::string group_score = "max";
  bool weighted_input = false;  // the weight multiplies the expert's input (Llama 4)
  bool bias = false;            // of the experts' matrices
  int64_t shared_size = 0;      // intermediate size of an expert that always runs; 0: none
  bool shared_gate = false;     // its output times sigmoid of a projection of the input
  bool scales = false;          // a factor for the weight of each expert
  bool router_norm = false;     // the router reads the residual stream through a norm of its own
  float router_scale = 1.0f;    // of the router's logits
  // Layers with experts have an MLP as well. Both read the stream, each through its own norm, and
  // the sum of their normalised outputs is the output of the block (Gemma 4).
  bool beside_mlp = false;

  static constexpr auto fields() {
    return std::tuple(optional("count", &ExpertsSpec::count, {0, kMaxExperts}),
                      optional("chosen", &ExpertsSpec::chosen, {0, kMaxExperts}),
                      optional("intermediate_size", &ExpertsSpec::intermediate_size, {0, kMaxSize}),
                      choice("scores", &ExpertsSpec::scores, "softmax sigmoid sparse_mixer"),
                      optional("jitter", &ExpertsSpec::jitter, {0, 1}),
                      optional("router_bias", &ExpertsSpec::router_bias),
                      optional("correction", &ExpertsSpec::correction),
                      optional("normalise", &ExpertsSpec::normalise),
                      optional("scale", &ExpertsSpec::scale, {-kMaxFloat, kMaxFloat}),
                      optional("groups", &ExpertsSpec::groups, {1, kMaxExperts}),
                      optional("chosen_groups", &ExpertsSpec::chosen_groups, {1, kMaxExperts}),
                      choice("group_score", &ExpertsSpec::group_score, "max top2"),
                      optional("weighted_input", &ExpertsSpec::weighted_input),
                      optional("bias", &ExpertsSpec::bias),
                      optional("shared_size", &ExpertsSpec::shared_size, {0, kMaxSize}),
                      optional("shared_gate", &ExpertsSpec::shared_gate),
                      optional("scales", &ExpertsSpec::scales),
                      optional("router_norm", &ExpertsSpec::router_norm),
                      optional("router_scale", &ExpertsSpec::router_scale, {-kMaxFloat, kMaxFloat}),
                      optional("beside_mlp", &ExpertsSpec::beside_mlp));
  }
};

// Latent attention (MLA, DeepSeek-V2 2024): keys and values of all heads are products of one short
// vector, the latent. The cache holds one head: the latent followed by a rotated part as its key,
// and the latent as its value. Queries are multiplied by the key matrices of their heads, and the
// outputs by the value matrices. So head_dim is kv_rank + rope_dim, value_dim kv_rank, and
// num_kv_heads 1.
struct LatentSpec {
  int64_t kv_rank = 0;    // 0: no latent attention
  int64_t q_rank = 0;     // 0: q is one product
  int64_t nope_dim = 0;   // values of a query head without rotation, before its key matrix
  int64_t rope_dim = 0;   // values of a head that rotate
  int64_t value_dim = 0;  // of a head, after its value matrix
  float norm_eps = 0.0f;  // of the norms of the latents; 0: as of the other norms

  static constexpr auto fields() {
    return std::tuple(optional("kv_rank", &LatentSpec::kv_rank, {0, kMaxValueDim}),
                      optional("q_rank", &LatentSpec::q_rank, {0, kMaxSize}),
                      optional("nope_dim", &LatentSpec::nope_dim, {0, kMaxHeadDim}),
                      optional("rope_dim", &LatentSpec::rope_dim, {0, kMaxHeadDim}),
                      optional("value_dim", &LatentSpec::value_dim, {0, kMaxValueDim}),
                      optional("norm_eps", &LatentSpec::norm_eps, {0, kMaxFloat}));
  }
};

// The embedding, where its rows are narrower than the residual stream: a product widens them.
struct EmbeddingSpec {
  int64_t size = 0;  // 0: hidden_size
  bool bias = false;
  bool wide_positions = false;  // learned positions are added after the product

  static constexpr auto fields() {
    return std::tuple(optional("size", &EmbeddingSpec::size, {0, kMaxSize}),
                      optional("bias", &EmbeddingSpec::bias),
                      optional("wide_positions", &EmbeddingSpec::wide_positions));
  }
};

// A layer between the decoder and the head: norm(act(dense(x))) (BERT).
struct HeadSpec {
  int64_t size = 0;  // of its outputs; 0: there is no such layer
  std::string activation = "none";
  bool bias = false;
  bool norm = false;

  static constexpr auto fields() {
    return std::tuple(optional("size", &HeadSpec::size, {0, kMaxSize}),
                      choice("activation", &HeadSpec::activation,
                             "none silu gelu gelu_tanh quick_gelu relu relu2 sigmoid"),
                      optional("bias", &HeadSpec::bias), optional("norm", &HeadSpec::norm));
  }
};

// Inputs of single layers (Gemma 3n and 4). Each token has a row for each layer: a part of a second
// embedding, plus a normalised projection of the embedded token. A layer ends with a block that
// multiplies it by act(gate(stream)), and adds a normalised product of that to the stream.
struct LayerInputSpec {
  int64_t size = 0;  // values of a row; 0: none
  float embedding_scale = 1.0f;
  float projection_scale = 1.0f;  // before the norm
  float scale = 1.0f;             // of the sum

  static constexpr auto fields() {
    return std::tuple(
        optional("size", &LayerInputSpec::size, {0, kMaxSize}),
        optional("embedding_scale", &LayerInputSpec::embedding_scale, {-kMaxFloat, kMaxFloat}),
        optional("projection_scale", &LayerInputSpec::projection_scale, {-kMaxFloat, kMaxFloat}),
        optional("scale", &LayerInputSpec::scale, {-kMaxFloat, kMaxFloat}));
  }
};

}  // namespace onward
