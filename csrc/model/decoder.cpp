#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace onward {
namespace {

Routing routing_of(const ExpertsSpec& experts) {
  Routing routing;
  routing.experts = experts.count;
  routing.chosen = experts.chosen;
  routing.sigmoid = experts.scores == "sigmoid";
  routing.sparse_mixer = experts.scores == "sparse_mixer";
  routing.jitter = experts.jitter;
  routing.normalise = experts.normalise;
  routing.scale = experts.scale;
  routing.groups = experts.groups;
  routing.chosen_groups = experts.chosen_groups;
  routing.top2 = experts.group_score == "top2";
  return routing;
}

AttendLayerArgs attend_args(const DecoderSpec& spec, int64_t layer) {
  const double head_dim = static_cast<double>(spec.head_dim_of(layer));
  AttendLayerArgs attend;
  attend.num_heads = spec.heads_of(layer);
  attend.layer = layer;
  attend.softcap = spec.attention.softcap;
  const float divisor = spec.attention.inverse_layer_scale ? static_cast<float>(layer + 1) : 1.0f;
  attend.scale = spec.attention.scale != 0 ? spec.attention.scale
                                           : static_cast<float>(1.0 / std::sqrt(head_dim));
  attend.scale /= divisor;
  return attend;
}

Activation parse_activation(const std::string& name) {
  const auto* found = std::find(kActivationNames, kActivationNames + kActivations, name);
  return static_cast<Activation>(found - kActivationNames);  // the spec is validated
}

}  // namespace

Decoder::Decoder(std::shared_ptr<const Model> model, Backend& backend, const CacheFormat& format)
    : model_(std::move(model)), backend_(backend), layout_(make_cache_layout(*model_, format)) {
  const DecoderSpec& spec = model_->spec;
  for (const CacheLayout::Group& group : layout_.groups) {
    if (group.sink_tokens > 0) sink_reach_ = group.window + group.sink_tokens - 1;
  }
  std::vector<RopeSpec> ropes = {spec.rope};
  ropes.insert(ropes.end(), spec.other_ropes.begin(), spec.other_ropes.end());
  RopeSpec still;  // no pair rotates; as long as the largest head needs
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const bool rotates = spec.rope_of(layer) != DecoderSpec::kNoRope;
    const auto pairs = static_cast<size_t>(spec.pairs_of(layer));
    still.inv_freq.resize(std::max(still.inv_freq.size(), pairs));
    rope_of_.push_back(rotates ? static_cast<size_t>(spec.rope_of(layer)) : ropes.size());
  }
  if (std::count(rope_of_.begin(), rope_of_.end(), ropes.size()) > 0) ropes.push_back(still);
  activations_ = std::make_unique<Activations>(backend, *model_, std::move(ropes), sink_reach_ > 0);
  if (spec.head.size > 0 && spec.head.activation != "none") {
    head_gate_ = {parse_activation(spec.head.activation), false, 0, 0};
  }
  gate_ = {parse_activation(spec.mlp.activation), spec.mlp.gated, spec.mlp.limit,
           spec.mlp.up_shift};
}

Decoder::~Decoder() = default;

void Decoder::forward(const StepBatch& batch, const Poll& poll) {
  const int64_t rows = static_cast<int64_t>(batch.token_ids.size());
  logits_rows_ = static_cast<int64_t>(batch.logits_rows.size());
  Activations& a = *activations_;
  a.reserve(rows, logits_rows_);

  upload_inputs(batch);
  backend_.begin_step(layout_, batch.slices, batch.encodings);
  backend_.run_step({this, a.moves, rows, logits_rows_}, [&] {
    embed(rows);
    for (int64_t index = 0; index < model_->spec.num_layers; ++index) {
      layer(index, rows, !batch.encodings.empty(), poll);
    }
    poll();
    if (logits_rows_ > 0) head(logits_rows_);
  });
}

void Decoder::read_logits(int64_t first, int64_t rows, float* logits) const {
  const int64_t vocab_size = model_->spec.vocab_size;
  for (int64_t row = 0; row < rows; ++row) {
    backend_.download(logits + row * vocab_size,
                      activations_->logits + (first + row) * model_->head.outputs,
                      static_cast<size_t>(vocab_size) * sizeof(float));
  }
}

std::vector<RowChoice> Decoder::sample(const std::vector<RowSampling>& rows) const {
  return backend_.sample_rows(activations_->logits, model_->head.outputs, model_->spec.vocab_size,
                              rows);
}

void Decoder::upload_inputs(const StepBatch& batch) {
  const auto upload = [&](auto* device, const auto& values) {
    if (!values.empty()) backend_.upload(device, values.data(), values.size() * sizeof(*device));
  };
  upload(activations_->token_ids, batch.token_ids);
  upload(activations_->logits_index, batch.logits_rows);
  activations_->upload_angles(batch.slices, sink_reach_);
  activations_->upload_q_scales(batch.slices);
  if (model_->positions.empty()) return;
  std::vector<int32_t> positions;
  for (const SequenceSlice& slice : batch.slices) {
    for (int64_t token = 0; token < slice.tokens; ++token) {
      positions.push_back(static_cast<int32_t>(slice.first_position + token));
    }
  }
  upload(activations_->positions, positions);
}

LinearInput Decoder::normed(const float* x, const NormWeights& norm, int64_t size) const {
  const DecoderSpec& spec = model_->spec;
  return {x, {norm.weight, spec.norm_eps, size, spec.norms.kind == "layer", norm.bias}};
}

LinearInput Decoder::normed(const float* x, const NormWeights& norm) const {
  return normed(x, norm, model_->spec.hidden_size);
}

HeadNorm Decoder::head_norm(const NormWeights& norm) const {
  const AttentionSpec& spec = model_->spec.attention;
  HeadNorm made;
  made.weight = norm.weight;
  made.bias = norm.bias;
  made.layer = spec.qk_norm_kind == "layer";
  made.over = spec.qk_norm_over == "all"     ? HeadNorm::Over::all
              : spec.qk_norm_over == "heads" ? HeadNorm::Over::heads
                                             : HeadNorm::Over::head;
  made.after_rotation = spec.qk_norm_after_rope;
  return made;
}

void Decoder::embed(int64_t rows) {
  const EmbeddingSpec& spec = model_->spec.embedding;
  Activations& a = *activations_;
  float* embedded = spec.size > 0 ? a.embedded : a.x;
  const auto add_positions = [&](float* y) {
    if (!model_->positions.empty()) {
      backend_.embed(model_->positions, a.positions, rows, 1.0f, true, y);
    }
  };
  backend_.embed(model_->embed, a.token_ids, rows, model_->spec.embedding_scale, false, embedded);
  if (!spec.wide_positions) add_positions(embedded);
  if (model_->spec.norms.embedding) {
    backend_.normalise(normed(embedded, model_->embed_norm, model_->spec.embedding_size()), rows,
                       embedded);
  }
  if (spec.size > 0) {
    backend_.linear(model_->embedding_projection, model_->embedding_projection_bias,
                    {embedded, Norm{}}, rows, false, a.x);
  }
  if (spec.wide_positions) add_positions(a.x);
  if (model_->spec.layer_inputs.size > 0) embed_layer_inputs(rows);
}

void Decoder::embed_layer_inputs(int64_t rows) {
  const LayerInputSpec& spec = model_->spec.layer_inputs;
  const Matrix& projection = model_->layer_projection;
  Activations& a = *activations_;
  const int64_t width = projection.outputs, layers = model_->spec.num_layers;
  Norm norm = normed(a.x, model_->layer_projection_norm).norm;
  norm.size = spec.size;
  backend_.linear(projection, Vector{}, {a.x, Norm{}}, rows, false, a.layer_inputs);
  backend_.cap_rows(a.layer_inputs, rows, width, spec.projection_scale, 0.0f);
  backend_.normalise({a.layer_inputs, norm}, rows * layers, a.layer_inputs);
  backend_.embed(model_->layer_embed, a.token_ids, rows, spec.embedding_scale, true,
                 a.layer_inputs);
  backend_.cap_rows(a.layer_inputs, rows, width, spec.scale, 0.0f);
}

void Decoder::layer(int64_t index, int64_t rows, bool encodes, const Poll& poll) {
  const LayerWeights& w = model_->layers[static_cast<size_t>(index)];
  Activations& a = *activations_;
  const bool parallel = model_->spec.residual != "sequential";

  poll();
  attention(index, rows, encodes, poll);  // a.x -> a.attended
  poll();
  if (!parallel) add_block(w.o, w.o_bias, a.attended, w.attention_post_norm, rows);

  poll();
  const bool one_norm = model_->spec.residual == "parallel";
  const LinearInput input = normed(a.x, one_norm ? w.attention_norm : w.mlp_norm);
  const bool has_experts = model_->spec.has_experts(index);
  if (!has_experts || model_->spec.experts.beside_mlp) {
    backend_.activated_linear(w.gate_up, w.gate_up_bias, input, rows, gate_,
                              w.activation_parameters.data, a.gated);
  }
  if (has_experts) experts(index, rows, input, poll);  // a.x, a.gated -> a.block
  poll();
  if (parallel) add_block(w.o, w.o_bias, a.attended, w.attention_post_norm, rows);
  if (has_experts) {
    add_rows_of_block(w.mlp_post_norm, rows);
  } else {
    add_block(w.down, w.down_bias, a.gated, w.mlp_post_norm, rows);
  }
  if (model_->spec.layer_inputs.size > 0) add_layer_input(index, rows);
  if (!w.layer_scale.empty()) {
    backend_.multiply_rows(w.layer_scale.data, 0, rows, w.layer_scale.size, a.x);
  }
}

void Decoder::add_layer_input(int64_t index, int64_t rows) {
  const LayerWeights& w = model_->layers[static_cast<size_t>(index)];
  const int64_t size = model_->spec.layer_inputs.size;
  Activations& a = *activations_;
  Gate plain = gate_;
  plain.gated = false;
  backend_.activated_linear(w.input_gate, Vector{}, {a.x, Norm{}}, rows, plain,
                            w.activation_parameters.data, a.layer_input);
  backend_.multiply_rows(a.layer_inputs + index * size, model_->layer_projection.outputs, rows,
                         size, a.layer_input);
  backend_.linear(w.input_projection, Vector{}, {a.layer_input, Norm{}}, rows, false, a.block);
  backend_.add_rows(normed(a.block, w.input_post_norm), rows, 1.0f, a.x);
}

void Decoder::experts(int64_t index, int64_t rows, const LinearInput& input, const Poll& poll) {
  const LayerWeights& w = model_->layers[static_cast<size_t>(index)];
  Activations& a = *activations_;
  ExpertsArgs args;
  args.input = input;
  if (!w.experts_norm.weight.empty()) args.input = normed(a.x, w.experts_norm);
  if (!w.router_norm.weight.empty()) args.router_input = normed(a.x, w.router_norm);
  args.router = &w.router;
  args.router_scale = model_->spec.experts.router_scale;
  args.router_bias = w.router_bias;
  args.correction = w.router_correction;
  args.scales = w.expert_scales;
  args.routing = routing_of(model_->spec.experts);
  args.weighted_input = model_->spec.experts.weighted_input;
  args.up = &w.experts_up;
  args.up_bias = w.experts_up_bias;
  args.gate = gate_;
  args.activation_parameters = w.activation_parameters.data;
  args.down = &w.experts_down;
  args.down_bias = w.experts_down_bias;
  args.y = a.block;
  backend_.experts(args, rows);
  if (model_->spec.experts.beside_mlp) {
    backend_.linear(w.down, w.down_bias, {a.gated, Norm{}}, rows, false, a.inner_block);
    backend_.normalise(normed(a.block, w.experts_post_norm), rows, a.block);
    backend_.add_rows(normed(a.inner_block, w.inner_norm), rows, 1.0f, a.block);
  }
  if (w.shared_down.empty()) return;

  poll();
  backend_.activated_linear(w.shared_gate_up, Vector{}, input, rows, gate_,
                            w.activation_parameters.data, a.gated);
  if (!w.shared_gate.empty()) {
    backend_.linear(w.shared_gate, Vector{}, input, rows, false, a.gates);
    backend_.gate_rows(a.gates, w.shared_gate.outputs, 1, rows, w.shared_down.inputs,
                       w.shared_down.inputs, a.gated);
  }
  backend_.linear(w.shared_down, Vector{}, {a.gated, Norm{}}, rows, true, a.block);
}

void Decoder::attention(int64_t index, int64_t rows, bool encodes, const Poll& poll) {
  const DecoderSpec& spec = model_->spec;
  const LayerWeights& w = model_->layers[static_cast<size_t>(index)];
  Activations& a = *activations_;
  const Angles& angles = a.angles[rope_of_[static_cast<size_t>(index)]];
  const LinearInput input = normed(a.x, w.attention_norm);
  const bool latent = spec.latent.kv_rank > 0;

  RotateArgs rotate = latent ? project_latent(index, rows, input) : project_qkv(index, rows, input);
  rotate.cosines = angles.cosines;
  rotate.sines = angles.sines;
  rotate.clip = spec.attention.clip;
  const bool rotated = spec.rope_of(index) != DecoderSpec::kNoRope;
  if (spec.attention.qk_norm_rotated && !rotated) rotate.q_norm = rotate.k_norm = HeadNorm{};
  rotate.v_scale = spec.attention.value_scale;
  rotate.v_norm = spec.attention.v_norm;
  if (!spec.attention.temperature_unrotated || !rotated) rotate.q_scales = a.q_scales;
  rotate.num_heads = spec.heads_of(index);
  rotate.layer = index;
  backend_.rotate_and_append(rotate);
  if (encodes && spec.has_kv(index)) backend_.encode(index);

  AttendLayerArgs attend = attend_args(spec, index);
  attend.q = rotate.q;
  attend.q_stride = rotate.q_stride;
  attend.out = latent ? a.attended_latent : a.attended;
  const int64_t group = layout_.group_of[static_cast<size_t>(index)];
  if (layout_.groups[static_cast<size_t>(group)].sink_tokens > 0) {
    attend.sink_cosines = angles.sink_cosines;
    attend.sink_sines = angles.sink_sines;
  }
  attend.alibi_slopes = model_->alibi_slopes;
  attend.sink_logits = w.sink_logits;
  poll();
  backend_.attend(attend);
  if (latent) {
    HeadLinearArgs values;
    values.weight = &w.v_up;
    values.heads = spec.heads_of(index);
    values.inputs = spec.latent.kv_rank;
    values.outputs = spec.latent.value_dim;
    values.x = a.attended_latent;
    values.x_stride = activation_stride(values.heads * values.inputs);
    values.y = a.attended;
    values.y_stride = w.o.inputs;
    backend_.head_linear(values, rows);
  }
  if (w.attention_gate.empty()) return;
  backend_.linear(w.attention_gate, Vector{}, input, rows, false, a.gates);
  const int64_t heads = spec.heads_of(index);
  const int64_t width = heads * (latent ? spec.latent.value_dim : spec.value_dim_of(index));
  backend_.gate_rows(a.gates, w.attention_gate.outputs,
                     spec.attention.output_gate == "heads" ? heads : width, rows, width, w.o.inputs,
                     a.attended);
}

RotateArgs Decoder::project_qkv(int64_t index, int64_t rows, const LinearInput& input) {
  const LayerWeights& w = model_->layers[static_cast<size_t>(index)];
  Activations& a = *activations_;
  backend_.linear(w.qkv, w.qkv_bias, input, rows, false, a.qkv);
  RotateArgs rotate;
  rotate.q = a.qkv;
  rotate.q_stride = rotate.kv_stride = w.qkv.outputs;
  if (model_->spec.has_kv(index)) {
    rotate.k = a.qkv + w.qkv.offsets[1];
    rotate.v = a.qkv + w.qkv.offsets[2];
  }
  rotate.q_norm = head_norm(w.q_norm);
  rotate.k_norm = head_norm(w.k_norm);
  rotate.norm_eps = model_->spec.norm_eps;
  return rotate;
}

RotateArgs Decoder::project_latent(int64_t index, int64_t rows, const LinearInput& input) {
  const LatentSpec& spec = model_->spec.latent;
  const LayerWeights& w = model_->layers[static_cast<size_t>(index)];
  Activations& a = *activations_;
  const float eps = spec.norm_eps != 0 ? spec.norm_eps : model_->spec.norm_eps;
  if (spec.q_rank > 0) {
    backend_.linear(w.q_a, w.q_a_bias, input, rows, false, a.q_latent);
    const LinearInput latent = {a.q_latent, {w.q_a_norm.weight, eps, spec.q_rank, false, Vector{}}};
    backend_.linear(w.q_b, Vector{}, latent, rows, false, a.q_heads);
  } else {
    backend_.linear(w.qkv, Vector{}, input, rows, false, a.q_heads);
  }
  backend_.linear(w.kv_a, w.kv_a_bias, input, rows, false, a.kv_latent);

  HeadLinearArgs keys;
  keys.weight = &w.k_up;
  keys.heads = model_->spec.heads_of(index);
  keys.inputs = spec.nope_dim;
  keys.outputs = spec.kv_rank;
  keys.copied = spec.rope_dim;
  keys.x = a.q_heads;
  keys.x_stride = activation_stride(keys.heads * (spec.nope_dim + spec.rope_dim));
  keys.y = a.queries;
  keys.y_stride = activation_stride(keys.heads * (spec.kv_rank + spec.rope_dim));
  backend_.head_linear(keys, rows);

  RotateArgs rotate;
  rotate.q = a.queries;
  rotate.q_stride = keys.y_stride;
  rotate.k = rotate.v = a.kv_latent;
  rotate.kv_stride = w.kv_a.outputs;
  rotate.rotated_from = spec.kv_rank;
  rotate.k_norm.weight = w.kv_a_norm.weight;
  rotate.k_norm.size = spec.kv_rank;
  rotate.norm_eps = eps;
  return rotate;
}

void Decoder::add_block(const Matrix& weight, const Vector& bias, const float* input,
                        const NormWeights& norm, int64_t rows) {
  Activations& a = *activations_;
  const LinearInput rows_of_input = {input, Norm{}};
  if (!model_->spec.adds_blocks()) {
    backend_.linear(weight, bias, rows_of_input, rows, true, a.x);
    if (model_->spec.norms.sums) backend_.normalise(normed(a.x, norm), rows, a.x);
    return;
  }
  backend_.linear(weight, bias, rows_of_input, rows, false, a.block);
  add_rows_of_block(norm, rows);
}

void Decoder::add_rows_of_block(const NormWeights& norm, int64_t rows) {
  const bool sums = model_->spec.norms.sums;
  Activations& a = *activations_;
  backend_.add_rows(normed(a.block, sums ? NormWeights{} : norm), rows, model_->spec.residual_scale,
                    a.x);
  if (sums) backend_.normalise(normed(a.x, norm), rows, a.x);
}

void Decoder::head(int64_t rows) {
  const DecoderSpec& spec = model_->spec;
  const Matrix& weight = model_->head;
  Activations& a = *activations_;
  backend_.gather_rows(a.x, a.logits_index, rows, activation_stride(spec.hidden_size), a.last);
  LinearInput input = normed(a.last, model_->norm);
  if (spec.head.size > 0) {
    const Matrix& dense = model_->head_dense;
    if (spec.head.activation == "none") {
      backend_.linear(dense, model_->head_dense_bias, input, rows, false, a.head_rows);
    } else {
      backend_.activated_linear(dense, model_->head_dense_bias, input, rows, head_gate_, nullptr,
                                a.head_rows);
    }
    input = normed(a.head_rows, model_->head_norm, spec.head.size);
  }
  backend_.linear(weight, model_->head_bias, input, rows, false, a.logits);
  if (spec.logit_scale != 1.0f || spec.logit_softcap != 0.0f) {
    backend_.cap_rows(a.logits, rows, weight.outputs, spec.logit_scale, spec.logit_softcap);
  }
}

}  // namespace onward
