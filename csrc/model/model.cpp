#include "model/model.h"

#include <utility>

#include "base/error.h"

namespace onward {

namespace {

InvalidArgument wrong_dtype(const char* of_what, DType found, const std::string& expected) {
  return InvalidArgument(std::string("dtype of ") + of_what + ": found " + dtype_name(found) +
                         ", expected " + expected);
}

void check_matrix_dtype(DType dtype) {
  if (!is_matrix_dtype(dtype)) {
    throw wrong_dtype("a matrix", dtype, matrix_dtype_names());
  }
}

}  // namespace

ModelBuilder::ModelBuilder(DecoderSpec spec, DType cache_dtype, std::unique_ptr<WeightStore> store)
    : model_(std::make_shared<Model>()) {
  spec.validate();
  if (cache_dtype != DType::f32 && cache_dtype != DType::f16 && cache_dtype != DType::bf16) {
    throw wrong_dtype("the cache", cache_dtype, "f32, f16 or bf16");
  }
  Model& model = *model_;
  model.spec = std::move(spec);
  model.cache_dtype = cache_dtype;
  model.store = std::move(store);
  const DecoderSpec& s = model.spec;
  slots_["embed"] = {&model.embed, nullptr, {{s.vocab_size, s.hidden_size}}};
  if (!s.tied_head) slots_["head"] = {&model.head, nullptr, {{s.vocab_size, s.hidden_size}}};
  slots_["norm"] = {nullptr, &model.norm, {{1, s.hidden_size}}};
  model.layers.resize(static_cast<size_t>(s.num_layers));
  for (int64_t layer = 0; layer < s.num_layers; ++layer) declare_layer(layer);
}

void ModelBuilder::declare_layer(int64_t layer) {
  const DecoderSpec& s = model_->spec;
  LayerWeights& weights = model_->layers[static_cast<size_t>(layer)];
  const std::string prefix = "layers." + std::to_string(layer) + ".";
  const int64_t q_size = s.heads_of(layer) * s.head_dim_of(layer);
  const int64_t k_size = s.kv_heads_of(layer) * s.head_dim_of(layer);
  const int64_t v_size = s.kv_heads_of(layer) * s.value_dim_of(layer);
  const int64_t out_size = s.heads_of(layer) * s.value_dim_of(layer);
  const auto matrix = [&](const char* name, Matrix& m, std::vector<PartShape> shapes) {
    slots_[prefix + name] = {&m, nullptr, std::move(shapes)};
  };
  const auto vector = [&](const char* name, Vector& v, std::vector<int64_t> sizes) {
    Slot slot{nullptr, &v, {}};
    for (const int64_t size : sizes) slot.shapes.push_back({1, size});
    slots_[prefix + name] = std::move(slot);
  };
  vector("attention_norm", weights.attention_norm, {s.hidden_size});
  matrix("qkv", weights.qkv,
         {{q_size, s.hidden_size}, {k_size, s.hidden_size}, {v_size, s.hidden_size}});
  matrix("o", weights.o, {{s.hidden_size, out_size}});
  vector("mlp_norm", weights.mlp_norm, {s.hidden_size});
  matrix("gate_up", weights.gate_up,
         {{s.intermediate_size, s.hidden_size}, {s.intermediate_size, s.hidden_size}});
  matrix("down", weights.down, {{s.hidden_size, s.intermediate_size}});
  if (s.qkv_bias) vector("qkv_bias", weights.qkv_bias, {q_size, k_size, v_size});
  if (s.output_bias) vector("o_bias", weights.o_bias, {s.hidden_size});
  if (s.mlp_bias) {
    vector("gate_up_bias", weights.gate_up_bias, {s.intermediate_size, s.intermediate_size});
    vector("down_bias", weights.down_bias, {s.hidden_size});
  }
  if (s.qk_norm) {
    vector("q_norm", weights.q_norm, {s.head_dim_of(layer)});
    vector("k_norm", weights.k_norm, {s.head_dim_of(layer)});
  }
}

ModelBuilder::Slot& ModelBuilder::open_slot(const std::string& name) {
  const auto found = slots_.find(name);
  if (found == slots_.end()) {
    throw WeightError("weights: '" + name + "' is not a weight of this model");
  }
  Slot& slot = found->second;
  if (slot.filled) throw WeightError("weights: '" + name + "' was given twice");
  return slot;
}

void ModelBuilder::add(const std::string& name, const std::vector<TensorSource>& parts,
                       DType dtype) {
  Slot& slot = open_slot(name);
  if (parts.size() != slot.shapes.size()) {
    throw WeightError("weights: '" + name + "' has " + std::to_string(parts.size()) +
                      " parts, expected " + std::to_string(slot.shapes.size()));
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto [rows, columns] = slot.shapes[i];
    if (parts[i].rows != rows || parts[i].columns != columns) {
      throw WeightError("weights: part " + std::to_string(i) + " of '" + name + "' has shape (" +
                        std::to_string(parts[i].rows) + ", " + std::to_string(parts[i].columns) +
                        "), expected (" + std::to_string(rows) + ", " + std::to_string(columns) +
                        ")");
    }
  }
  if (slot.matrix) {
    check_matrix_dtype(dtype);
    try {
      *slot.matrix = model_->store->pack_matrix(parts, dtype);
    } catch (const WeightError& error) {
      throw WeightError("weights: '" + name + "' " + error.what());
    }
  } else {
    *slot.vector = model_->store->pack_vector(parts);
  }
  slot.filled = true;
}

void ModelBuilder::add_packed(const std::string& name, const PackedBytes& source, DType dtype) {
  Slot& slot = open_slot(name);
  if (slot.matrix) check_matrix_dtype(dtype);
  try {
    if (slot.matrix) {
      *slot.matrix = model_->store->take_matrix(slot.shapes, dtype, source);
    } else {
      *slot.vector = model_->store->take_vector(slot.shapes, source);
    }
  } catch (const WeightError& error) {
    throw WeightError("weights: '" + name + "': " + error.what());
  }
  slot.filled = true;
}

std::shared_ptr<const Model> ModelBuilder::finish() {
  if (!model_) throw WeightError("weights: the builder was finished before, expected a new one");
  std::string missing;
  for (const auto& [name, slot] : slots_) {
    if (!slot.filled) missing += (missing.empty() ? "" : ", ") + name;
  }
  if (!missing.empty()) throw WeightError("weights: missing " + missing);
  for (const auto& [name, slot] : slots_) {
    model_->weights.push_back(
        {name, slot.matrix ? *slot.matrix : Matrix{}, slot.vector ? *slot.vector : Vector{}});
  }
  if (model_->spec.tied_head) model_->head = model_->embed;
  slots_.clear();  // a second add or finish finds no slot
  return std::exchange(model_, nullptr);
}

}  // namespace onward
