// A decoder's weights, packed for one device, and the builder that takes them one by one under
// their canonical names:
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
  Matrix head;  // the embedding's own memory when tied
  Vector norm;
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
  // Takes the bytes of one canonical weight that a store of the same layout packed in the same dtype
  // (WeightStore::packed). Errors as of `add`; WeightError for a wrong number of bytes.
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
  void declare_layer(int64_t layer);
  Slot& open_slot(const std::string& name);

  std::shared_ptr<Model> model_;
  std::map<std::string, Slot> slots_;
};

}  // namespace onward
