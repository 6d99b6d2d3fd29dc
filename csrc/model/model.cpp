#include "model/model.h"

#include <utility>

#include "base/error.h"
#include "model/layer_features.h"

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
  for (const LayerFeature feature : features_of(spec)) {
    if (store->has(feature)) continue;
    throw InvalidArgument("model: " + spec.architecture + " has " + feature_name(feature) +
                          ", which the device " + store->device() + " cannot compute yet");
  }
  Model& model = *model_;
  model.spec = std::move(spec);
  model.cache_dtype = cache_dtype;
  model.store = std::move(store);
  const DecoderSpec& s = model.spec;
  const int64_t width = s.embedding_size();
  declare_matrix("embed", model.embed, {{s.vocab_size, width}});
  if (s.learned_positions > 0) {
    const int64_t columns = s.embedding.wide_positions ? s.hidden_size : width;
    declare_matrix("positions", model.positions, {{s.learned_positions, columns}});
  }
  if (s.norms.embedding) declare_norm("embed_norm", model.embed_norm, width, s.norms.bias);
  if (s.embedding.size > 0) {
    declare_matrix("embedding_projection", model.embedding_projection, {{s.hidden_size, width}});
    if (s.embedding.bias) {
      declare_vector("embedding_projection_bias", model.embedding_projection_bias, {s.hidden_size});
    }
  }
  if (const int64_t size = s.layer_inputs.size; size > 0) {
    declare_matrix("layer_embed", model.layer_embed, {{s.vocab_size, s.num_layers * size}});
    declare_matrix("layer_projection", model.layer_projection,
                   {{s.num_layers * size, s.hidden_size}});
    declare_norm("layer_projection_norm", model.layer_projection_norm, size, s.norms.bias);
  }
  declare_head();
  const std::vector<float>& slopes = s.attention.alibi_slopes;
  if (!slopes.empty()) {
    TensorSource source;
    source.data = slopes.data();
    source.bytes = slopes.size() * sizeof(float);
    source.rows = 1;
    source.columns = static_cast<int64_t>(slopes.size());
    model.alibi_slopes = model.store->pack_vector({source});
  }
  model.layers.resize(static_cast<size_t>(s.num_layers));
  for (int64_t layer = 0; layer < s.num_layers; ++layer) declare_layer(layer);
}

void ModelBuilder::declare_matrix(const std::string& name, Matrix& matrix,
                                  std::vector<PartShape> shapes) {
  slots_[name] = {&matrix, nullptr, std::move(shapes)};
}

void ModelBuilder::declare_vector(const std::string& name, Vector& vector,
                                  const std::vector<int64_t>& sizes) {
  Slot slot{nullptr, &vector, {}};
  for (const int64_t size : sizes) slot.shapes.push_back({1, size});
  slots_[name] = std::move(slot);
}

void ModelBuilder::declare_norm(const std::string& name, NormWeights& norm, int64_t size,
                                bool bias) {
  declare_vector(name, norm.weight, {size});
  if (bias) declare_vector(name + "_bias", norm.bias, {size});
}

void ModelBuilder::declare_head() {
  Model& model = *model_;
  const DecoderSpec& s = model.spec;
  if (s.norms.final) declare_norm("norm", model.norm, s.hidden_size, s.norms.bias);
  if (const int64_t size = s.head.size; size > 0) {
    declare_matrix("head_dense", model.head_dense, {{size, s.hidden_size}});
    if (s.head.bias) declare_vector("head_dense_bias", model.head_dense_bias, {size});
    if (s.head.norm) declare_norm("head_norm", model.head_norm, size, s.norms.bias);
  }
  if (!s.tied_head) declare_matrix("head", model.head, {{s.vocab_size, s.head_inputs()}});
  if (s.head_bias) declare_vector("head_bias", model.head_bias, {s.vocab_size});
}

void ModelBuilder::declare_layer(int64_t layer) {
  const DecoderSpec& s = model_->spec;
  LayerWeights& weights = model_->layers[static_cast<size_t>(layer)];
  const std::string here = "layers." + std::to_string(layer) + ".";
  const int64_t hidden = s.hidden_size, heads = s.heads_of(layer);
  const bool latent = s.latent.kv_rank > 0;
  const int64_t value_dim = latent ? s.latent.value_dim : s.value_dim_of(layer);

  if (s.norms.before) {
    declare_norm(here + "attention_norm", weights.attention_norm, hidden, s.norms.bias);
  }
  if (latent) {
    declare_latent(here, layer, weights);
  } else {
    declare_attention(here, layer, weights);
  }
  if (s.attention.sink_logits) {
    declare_vector(here + "sink_logits", weights.sink_logits, {heads});
  }
  if (s.attention.output_gate != "none") {
    const int64_t gates = s.attention.output_gate == "heads" ? heads : heads * value_dim;
    declare_matrix(here + "attention_gate", weights.attention_gate, {{gates, hidden}});
  }
  declare_matrix(here + "o", weights.o, {{hidden, heads * value_dim}});
  if (s.output_bias) declare_vector(here + "o_bias", weights.o_bias, {hidden});
  if (s.norms.after || s.norms.sums) {
    declare_norm(here + "attention_post_norm", weights.attention_post_norm, hidden, s.norms.bias);
    declare_norm(here + "mlp_post_norm", weights.mlp_post_norm, hidden, s.norms.bias);
  }

  if (s.norms.before && s.residual != "parallel") {
    declare_norm(here + "mlp_norm", weights.mlp_norm, hidden, s.norms.bias);
  }
  if (s.has_experts(layer)) declare_experts(here, weights);
  if (!s.has_experts(layer) || s.experts.beside_mlp) {
    declare_mlp(here, s.intermediate_size_of(layer), weights);
  }
  if (s.mlp.activation == "xielu") {
    declare_vector(here + "activation_parameters", weights.activation_parameters, {4});
  }
  if (const int64_t size = s.layer_inputs.size; size > 0) {
    declare_matrix(here + "input_gate", weights.input_gate, {{size, hidden}});
    declare_matrix(here + "input_projection", weights.input_projection, {{hidden, size}});
    declare_norm(here + "input_post_norm", weights.input_post_norm, hidden, s.norms.bias);
  }
  if (s.layer_scales) declare_vector(here + "layer_scale", weights.layer_scale, {hidden});
}

void ModelBuilder::declare_attention(const std::string& here, int64_t layer,
                                     LayerWeights& weights) {
  const DecoderSpec& s = model_->spec;
  const int64_t hidden = s.hidden_size, kv_heads = s.kv_heads_of(layer);
  const int64_t head_dim = s.head_dim_of(layer);
  const int64_t q_size = s.heads_of(layer) * head_dim, k_size = kv_heads * head_dim;
  const bool has_kv = s.has_kv(layer);
  std::vector<int64_t> sizes = {q_size};
  if (has_kv) sizes.insert(sizes.end(), {k_size, kv_heads * s.value_dim_of(layer)});
  std::vector<PartShape> parts;
  for (const int64_t size : sizes) parts.push_back({size, hidden});
  declare_matrix(here + "qkv", weights.qkv, parts);
  if (s.qkv_bias) declare_vector(here + "qkv_bias", weights.qkv_bias, sizes);
  if (!s.qk_norm) return;
  const bool one = s.attention.qk_norm_over == "head";  // one weight for all heads
  const bool bias = s.attention.qk_norm_bias;
  declare_norm(here + "q_norm", weights.q_norm, one ? head_dim : q_size, bias);
  if (has_kv) declare_norm(here + "k_norm", weights.k_norm, one ? head_dim : k_size, bias);
}

void ModelBuilder::declare_latent(const std::string& here, int64_t layer, LayerWeights& weights) {
  const DecoderSpec& s = model_->spec;
  const LatentSpec& latent = s.latent;
  const int64_t hidden = s.hidden_size, heads = s.heads_of(layer);
  const int64_t q_size = heads * (latent.nope_dim + latent.rope_dim);
  const int64_t kv_size = latent.kv_rank + latent.rope_dim;
  if (latent.q_rank > 0) {
    declare_matrix(here + "q_a", weights.q_a, {{latent.q_rank, hidden}});
    if (s.qkv_bias) declare_vector(here + "q_a_bias", weights.q_a_bias, {latent.q_rank});
    declare_norm(here + "q_a_norm", weights.q_a_norm, latent.q_rank, false);
    declare_matrix(here + "q_b", weights.q_b, {{q_size, latent.q_rank}});
  } else {
    declare_matrix(here + "qkv", weights.qkv, {{q_size, hidden}});
  }
  declare_matrix(here + "kv_a", weights.kv_a, {{kv_size, hidden}});
  if (s.qkv_bias) declare_vector(here + "kv_a_bias", weights.kv_a_bias, {kv_size});
  declare_norm(here + "kv_a_norm", weights.kv_a_norm, latent.kv_rank, false);
  const auto count = static_cast<size_t>(heads);
  declare_matrix(here + "k_up", weights.k_up,
                 std::vector<PartShape>(count, {latent.kv_rank, latent.nope_dim}));
  declare_matrix(here + "v_up", weights.v_up,
                 std::vector<PartShape>(count, {latent.value_dim, latent.kv_rank}));
}

void ModelBuilder::declare_mlp(const std::string& here, int64_t inner, LayerWeights& weights) {
  const DecoderSpec& s = model_->spec;
  const int64_t hidden = s.hidden_size;
  const size_t parts = s.mlp.gated ? 2 : 1;
  const std::string up = here + (s.mlp.gated ? "gate_up" : "up");
  declare_matrix(up, weights.gate_up, std::vector<PartShape>(parts, {inner, hidden}));
  declare_matrix(here + "down", weights.down, {{hidden, inner}});
  if (!s.mlp_bias) return;
  declare_vector(up + "_bias", weights.gate_up_bias, std::vector<int64_t>(parts, inner));
  declare_vector(here + "down_bias", weights.down_bias, {hidden});
}

void ModelBuilder::declare_experts(const std::string& here, LayerWeights& weights) {
  const DecoderSpec& s = model_->spec;
  const ExpertsSpec& e = s.experts;
  const int64_t hidden = s.hidden_size, inner = e.intermediate_size;
  const size_t count = static_cast<size_t>(e.count), parts = s.mlp.gated ? 2 : 1;
  declare_matrix(here + "router", weights.router, {{e.count, hidden}});
  if (e.router_bias) declare_vector(here + "router_bias", weights.router_bias, {e.count});
  if (e.correction) {
    declare_vector(here + "router_correction", weights.router_correction, {e.count});
  }
  const std::string up = here + (s.mlp.gated ? "experts_gate_up" : "experts_up");
  declare_matrix(up, weights.experts_up, std::vector<PartShape>(count * parts, {inner, hidden}));
  declare_matrix(here + "experts_down", weights.experts_down,
                 std::vector<PartShape>(count, {hidden, inner}));
  if (e.bias) {
    declare_vector(up + "_bias", weights.experts_up_bias,
                   std::vector<int64_t>(count * parts, inner));
    declare_vector(here + "experts_down_bias", weights.experts_down_bias,
                   std::vector<int64_t>(count, hidden));
  }
  if (e.scales) declare_vector(here + "expert_scales", weights.expert_scales, {e.count});
  if (e.router_norm) declare_norm(here + "router_norm", weights.router_norm, hidden, s.norms.bias);
  if (e.beside_mlp) {
    declare_norm(here + "inner_norm", weights.inner_norm, hidden, s.norms.bias);
    declare_norm(here + "experts_norm", weights.experts_norm, hidden, s.norms.bias);
    declare_norm(here + "experts_post_norm", weights.experts_post_norm, hidden, s.norms.bias);
  }
  if (e.shared_size == 0) return;
  declare_matrix(here + (s.mlp.gated ? "shared_gate_up" : "shared_up"), weights.shared_gate_up,
                 std::vector<PartShape>(parts, {e.shared_size, hidden}));
  declare_matrix(here + "shared_down", weights.shared_down, {{hidden, e.shared_size}});
  if (e.shared_gate) declare_matrix(here + "shared_gate", weights.shared_gate, {{1, hidden}});
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
