// A decoder's weights, packed for one device, and the builder that takes them one by one under
// their canonical names:
//
//   embed (vocab, hidden)   positions (learned_positions, hidden)   embed_norm (hidden)
//   norm (hidden)           head (vocab, hidden), absent when tied  head_bias (vocab)
// where the embedding has another width, `embed`, `positions` and `embed_norm` have it (positions
// not with wide_positions):
//   embedding_projection (hidden, width), embedding_projection_bias (hidden)
// with a layer before the head, whose inputs are of its size:
//   head_dense (size, hidden), head_dense_bias (size), head_norm (size)
//   layers.{i}.attention_norm (hidden)
//   layers.{i}.qkv      parts q (heads * head_dim, hidden), k, v (kv_heads * head_dim, hidden);
//                       q alone in a layer without keys and values of its own
//   layers.{i}.qkv_bias parts q, k, v           layers.{i}.q_norm, k_norm (AttentionSpec)
//   layers.{i}.attention_gate (heads * value_dim, hidden), or (heads, hidden)
//   layers.{i}.sink_logits (heads)
//   layers.{i}.o (hidden, heads * head_dim)     layers.{i}.o_bias (hidden)
//   layers.{i}.attention_post_norm (hidden)
//   layers.{i}.mlp_norm (hidden)
//   layers.{i}.gate_up  parts gate, up (intermediate, hidden); `up` with one part if the MLP is not
//                       gated                   layers.{i}.gate_up_bias, up_bias
//   layers.{i}.down (hidden, intermediate)      layers.{i}.down_bias (hidden)
//   layers.{i}.mlp_post_norm (hidden)
// in place of gate_up and down, in layers with experts, where `inner` is their intermediate size:
//   layers.{i}.router (experts, hidden)         layers.{i}.router_bias, router_correction (experts)
//   layers.{i}.experts_gate_up  parts gate 0, up 0, gate 1, ... (inner, hidden), or `experts_up`
//                       with parts up 0, up 1, ...; each with its bias
//   layers.{i}.experts_down  parts (hidden, inner)      layers.{i}.experts_down_bias
//   layers.{i}.shared_gate_up, shared_down (of shared_size)     layers.{i}.shared_gate (1, hidden)
//   layers.{i}.expert_scales (experts)          layers.{i}.router_norm (hidden)
//   layers.{i}.inner_norm, experts_norm, experts_post_norm (hidden): of the MLP's output, the
//                       experts' input and their output, where they stand beside an MLP
// with latent attention, in place of k and v; `value` is LatentSpec::value_dim:
//   layers.{i}.q_a (q_rank, hidden)             layers.{i}.q_a_bias   layers.{i}.q_a_norm (q_rank)
//   layers.{i}.q_b (heads * (nope_dim + rope_dim), q_rank); with q_rank 0 `qkv` has these rows
//   layers.{i}.kv_a (kv_rank + rope_dim, hidden)  layers.{i}.kv_a_bias  layers.{i}.kv_a_norm
//   (kv_rank) layers.{i}.k_up     a part (kv_rank, nope_dim) for each head layers.{i}.v_up     a
//   part (value, kv_rank) for each head layers.{i}.o (hidden, heads * value)
// with inputs of single layers:
//   layer_embed (vocab, layers * size)          layer_projection (layers * size, hidden)
//   layer_projection_norm (size)                layers.{i}.input_gate (size, hidden)
//   layers.{i}.input_projection (hidden, size)  layers.{i}.input_post_norm (hidden)
// layers.{i}.layer_scale (hidden)
//
// A spec says which of them a model has. A norm has its bias under its own name and "_bias".
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/decoder_spec.h"

namespace onward {

// Empty where the model has no such weight.
struct NormWeights {
  Vector weight, bias;
};

struct LayerWeights {
  NormWeights attention_norm, attention_post_norm;
  Matrix qkv;
  Vector qkv_bias;
  NormWeights q_norm, k_norm;
  Vector sink_logits;
  Matrix attention_gate;
  // Of latent attention.
  Matrix q_a, q_b, kv_a, k_up, v_up;
  Vector q_a_bias, kv_a_bias;
  NormWeights q_a_norm, kv_a_norm;
  Matrix o;
  Vector o_bias;
  NormWeights mlp_norm, mlp_post_norm;
  Matrix gate_up;
  Vector gate_up_bias;
  Vector activation_parameters;  // xielu
  Matrix down;
  Vector down_bias;
  // In place of gate_up and down, in layers with experts.
  Matrix router;
  Vector router_bias, router_correction;
  Matrix experts_up;
  Vector experts_up_bias;
  Matrix experts_down;
  Vector experts_down_bias;
  Matrix shared_gate_up, shared_down;
  Matrix shared_gate;
  Vector expert_scales;
  NormWeights router_norm;
  NormWeights inner_norm, experts_norm, experts_post_norm;
  // The layer's own input.
  Matrix input_gate, input_projection;
  NormWeights input_post_norm;
  Vector layer_scale;
};

// A weight under its canonical name, as a matrix or as a vector.
struct NamedWeight {
  std::string name;
  Matrix matrix;
  Vector vector;
};

struct Model {
  DecoderSpec spec;
  DType cache_dtype = DType::f32;
  Matrix embed;
  Matrix positions;  // learned positions
  Matrix embedding_projection;
  Vector embedding_projection_bias;
  NormWeights embed_norm;
  Matrix layer_embed, layer_projection;  // inputs of single layers
  NormWeights layer_projection_norm;
  NormWeights norm;
  Matrix head_dense;
  Vector head_dense_bias;
  NormWeights head_norm;
  Matrix head;  // the embedding's own memory when tied
  Vector head_bias;
  Vector alibi_slopes;  // (num_heads), of the spec
  std::vector<LayerWeights> layers;
  std::vector<NamedWeight> weights;  // all of the above, each once
  std::unique_ptr<WeightStore> store;
};

class ModelBuilder {
 public:
  // InvalidArgument for a wrong spec, and for a cache dtype other than f32, f16 and bf16.
  ModelBuilder(DecoderSpec spec, DType cache_dtype, std::unique_ptr<WeightStore> store);

  // Packs one canonical weight, a matrix in `dtype`, a vector in f32. WeightError for an unknown or
  // repeated name, a wrong number of parts or a wrong shape; InvalidArgument for a dtype that no
  // matrix has. The sources are not needed afterwards.
  void add(const std::string& name, const std::vector<TensorSource>& parts, DType dtype);
  // Takes the bytes of one canonical weight that a store of the same layout packed in the same
  // dtype (WeightStore::packed). Errors as of `add`; WeightError for a wrong number of bytes.
  void add_packed(const std::string& name, const PackedBytes& source, DType dtype);
  // The model. WeightError that lists the missing weights.
  std::shared_ptr<const Model> finish();

 private:
  struct Slot {
    Matrix* matrix = nullptr;  // exactly one of the two is set
    Vector* vector = nullptr;
    std::vector<PartShape> shapes;
    bool filled = false;
  };
  void declare_matrix(const std::string& name, Matrix& matrix, std::vector<PartShape> shapes);
  void declare_vector(const std::string& name, Vector& vector, const std::vector<int64_t>& sizes);
  void declare_norm(const std::string& name, NormWeights& norm, int64_t size, bool bias);
  void declare_head();
  void declare_layer(int64_t layer);
  void declare_attention(const std::string& here, int64_t layer, LayerWeights& weights);
  void declare_latent(const std::string& here, int64_t layer, LayerWeights& weights);
  void declare_mlp(const std::string& here, int64_t inner, LayerWeights& weights);
  void declare_experts(const std::string& here, LayerWeights& weights);
  Slot& open_slot(const std::string& name);

  std::shared_ptr<Model> model_;
  std::map<std::string, Slot> slots_;
};

}  // namespace onward
