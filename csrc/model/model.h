// A decoder's weights, packed for one device, and the builder that takes them one by one under
// their canonical names. Knows no file format and no family's own names.
//
//   embed (vocab, hidden)   head (vocab, hidden), absent when tied   norm (hidden)
//   layers.{i}.attention_norm (hidden)
//   layers.{i}.qkv      parts q (heads * head_dim, hidden), k, v (kv_heads * head_dim, hidden)
//   layers.{i}.qkv_bias parts q, k, v           layers.{i}.q_norm, k_norm (head_dim)
//   layers.{i}.o (hidden, heads * head_dim)     layers.{i}.o_bias (hidden)
//   layers.{i}.mlp_norm (hidden)
//   layers.{i}.gate_up  parts gate, up (intermediate, hidden)   layers.{i}.gate_up_bias
//   layers.{i}.down (hidden, intermediate)      layers.{i}.down_bias (hidden)
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "model/decoder_spec.h"

namespace onward {

struct LayerWeights {
  Vector attention_norm;
  Matrix qkv;
  Vector qkv_bias;
  Vector q_norm, k_norm;
  Matrix o;
  Vector o_bias;
  Vector mlp_norm;
  Matrix gate_up;
  Vector gate_up_bias;
  Matrix down;
  Vector down_bias;
};

struct Model {
  DecoderSpec spec;
  DType cache_dtype = DType::f32;
  Matrix embed;
  Matrix head;  // the embedding's own memory when tied
  Vector norm;
  std::vector<LayerWeights> layers;
  std::unique_ptr<WeightStore> store;
};

class ModelBuilder {
 public:
  // InvalidArgument when the spec cannot be, or the cache does not come in that dtype (f32, f16,
  // bf16).
  ModelBuilder(DecoderSpec spec, DType cache_dtype, std::unique_ptr<WeightStore> store);

  // Packs one canonical weight; dtype: of a matrix (vectors are f32). WeightError for an unknown or
  // repeated name, a wrong number of parts or a wrong shape, InvalidArgument for a dtype that a
  // matrix does not come in; the sources are not needed any more afterwards.
  void add(const std::string& name, const std::vector<TensorSource>& parts, DType dtype);
  // WeightError that lists what is missing.
  std::shared_ptr<const Model> finish();

 private:
  struct Slot {
    Matrix* matrix = nullptr;  // one of the two
    Vector* vector = nullptr;
    std::vector<std::pair<int64_t, int64_t>> shapes;  // (rows, columns) of each part
    bool filled = false;
  };
  void declare_layer(int64_t layer);

  std::shared_ptr<Model> model_;
  std::map<std::string, Slot> slots_;
};

}  // namespace onward
