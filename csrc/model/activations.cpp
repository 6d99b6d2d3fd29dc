#include "model/activations.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/rope.h"

namespace onward {

Activations::Activations(Backend& backend, const Model& model, std::vector<RopeSpec> ropes,
                         bool sinks)
    : angles(ropes.size()),
      backend_(backend),
      model_(model),
      ropes_(std::move(ropes)),
      sinks_(sinks) {}

Activations::~Activations() {
  for (float* buffer : {x, embedded, qkv, q_latent, kv_latent, q_heads, queries, attended_latent,
                        q_scales, attended, gated, gates, block, inner_block, layer_inputs,
                        layer_input, last, head_rows, logits}) {
    backend_.release(buffer);
  }
  for (const Angles& table : angles) {
    for (float* buffer : {table.cosines, table.sines, table.sink_cosines, table.sink_sines}) {
      backend_.release(buffer);
    }
  }
  backend_.release(token_ids);
  backend_.release(positions);
  backend_.release(logits_index);
}

template <typename T>
void Activations::grow(T*& buffer, int64_t values) {
  backend_.release(buffer);
  buffer = nullptr;
  buffer = static_cast<T*>(backend_.allocate(static_cast<size_t>(values) * sizeof(T)));
}

void Activations::reserve(int64_t rows, int64_t logits_rows) {
  if (rows > capacity_rows_) {
    const DecoderSpec& spec = model_.spec;
    int64_t qkv_width = 0, attended_width = 0, gated_width = 0, gates_width = 0;
    for (const LayerWeights& layer : model_.layers) {
      qkv_width = std::max(qkv_width, layer.qkv.outputs);
      attended_width = std::max(attended_width, layer.o.inputs);
      gated_width = std::max({gated_width, layer.down.inputs, layer.shared_down.inputs});
      gates_width =
          std::max({gates_width, layer.shared_gate.outputs, layer.attention_gate.outputs});
    }
    capacity_rows_ = 0;
    grow(token_ids, rows);
    if (!model_.positions.empty()) grow(positions, rows);
    const int64_t hidden = activation_stride(spec.hidden_size);
    grow(x, rows * hidden);
    if (spec.embedding.size > 0) grow(embedded, rows * model_.embed.inputs);
    if (qkv_width > 0) grow(qkv, rows * qkv_width);
    if (spec.latent.kv_rank > 0) reserve_latent(rows);
    if (spec.attention.temperature_beta != 0) grow(q_scales, rows);
    grow(attended, rows * attended_width);
    grow(gated, rows * gated_width);
    if (gates_width > 0) grow(gates, rows * gates_width);
    if (spec.adds_blocks() || spec.experts.count > 0 || spec.layer_inputs.size > 0) {
      grow(block, rows * hidden);
    }
    if (spec.experts.beside_mlp) grow(inner_block, rows * hidden);
    if (spec.layer_inputs.size > 0) {
      grow(layer_inputs, rows * model_.layer_projection.outputs);
      grow(layer_input, rows * spec.layer_inputs.size);
    }
    for (size_t i = 0; i < ropes_.size(); ++i) {
      const auto values = rows * static_cast<int64_t>(ropes_[i].inv_freq.size());
      grow(angles[i].cosines, values);
      grow(angles[i].sines, values);
      if (!sinks_) continue;
      grow(angles[i].sink_cosines, values);
      grow(angles[i].sink_sines, values);
    }
    capacity_rows_ = rows;
    ++moves;
  }
  if (logits_rows > capacity_logits_rows_) {
    capacity_logits_rows_ = 0;
    grow(logits_index, logits_rows);
    grow(last, logits_rows * activation_stride(model_.spec.hidden_size));
    if (model_.spec.head.size > 0) grow(head_rows, logits_rows * model_.head.inputs);
    grow(logits, logits_rows * model_.head.outputs);
    capacity_logits_rows_ = logits_rows;
    ++moves;
  }
}

void Activations::reserve_latent(int64_t rows) {
  const LatentSpec& latent = model_.spec.latent;
  int64_t heads = 0;
  for (int64_t layer = 0; layer < model_.spec.num_layers; ++layer) {
    heads = std::max(heads, model_.spec.heads_of(layer));
  }
  if (latent.q_rank > 0) grow(q_latent, rows * activation_stride(latent.q_rank));
  grow(q_heads, rows * activation_stride(heads * (latent.nope_dim + latent.rope_dim)));
  grow(kv_latent, rows * activation_stride(latent.kv_rank + latent.rope_dim));
  grow(queries, rows * activation_stride(heads * model_.spec.head_dim));
  grow(attended_latent, rows * activation_stride(heads * latent.kv_rank));
}

void Activations::upload_angles(const std::vector<SequenceSlice>& slices, int64_t sink_reach) {
  const auto upload = [&](float* device, const std::vector<float>& values) {
    if (!values.empty()) backend_.upload(device, values.data(), values.size() * sizeof(float));
  };
  for (size_t i = 0; i < ropes_.size(); ++i) {
    std::vector<float> cosines, sines, sink_cosines, sink_sines;  // (rows, head_dim / 2)
    for (const SequenceSlice& slice : slices) {
      for (int64_t token = 0; token < slice.tokens; ++token) {
        const int64_t position = slice.first_position + token;
        append_rope(ropes_[i], position, cosines, sines);
        if (!sinks_) continue;
        append_turn(ropes_[i], position, std::min(position, sink_reach), sink_cosines, sink_sines);
      }
    }
    upload(angles[i].cosines, cosines);
    upload(angles[i].sines, sines);
    upload(angles[i].sink_cosines, sink_cosines);
    upload(angles[i].sink_sines, sink_sines);
  }
}

void Activations::upload_q_scales(const std::vector<SequenceSlice>& slices) {
  if (q_scales == nullptr) return;
  const AttentionSpec& spec = model_.spec.attention;
  std::vector<float> scales;
  for (const SequenceSlice& slice : slices) {
    for (int64_t token = 0; token < slice.tokens; ++token) {
      const double position =
          static_cast<double>(slice.first_position + token + spec.temperature_shift);
      const double steps = std::floor(position / spec.temperature_length);
      scales.push_back(static_cast<float>(1.0 + spec.temperature_beta * std::log(1.0 + steps)));
    }
  }
  backend_.upload(q_scales, scales.data(), scales.size() * sizeof(float));
}

}  // namespace onward
