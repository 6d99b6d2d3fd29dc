#include "model/decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace onward {
namespace {

// Radians a token: pairs that rotate faster than this complete a turn inside the averaging window,
// so their mean carries no information. 1/100 to 1/2000 measured nearly as well (docs/numerics.md).
constexpr float kSlowestUncentred = 1.0f / 500;
constexpr int64_t kSmallestCodedHead = 32, kLargestCodedHead = 256;

// What a layer sees and the sizes of its kv heads, without a number of layers. streamed: the window
// of the engine, which sinks go with; 0: none. A layer with a chunk or a smaller window of its own
// keeps it, because it never sees the first tokens of a long text.
CacheLayout::Group layer_group(const DecoderSpec& spec, int64_t layer, int64_t streamed) {
  CacheLayout::Group group;
  group.num_kv_heads = spec.kv_heads_of(layer);
  group.head_dim = spec.head_dim_of(layer);
  group.value_dim = spec.value_dim_of(layer);
  group.window = spec.window(layer);
  group.chunk_tokens = spec.chunk(layer);
  const bool reaches = group.window == 0 || group.window > streamed;
  if (streamed > 0 && group.chunk_tokens == 0 && reaches) {
    group.window = streamed;
    group.sink_tokens = CacheFormat::kSinkTokens;
  }
  return group;
}

void check_coded_heads(const CacheLayout::Group& group) {
  if (group.head_dim < kSmallestCodedHead || group.head_dim > kLargestCodedHead) {
    throw InvalidArgument("kv_dtype: this model's heads are of " + std::to_string(group.head_dim) +
                          " values, expected 32 to 256 for a coded cache");
  }
  if (group.value_dim != group.head_dim) {
    throw InvalidArgument("kv_dtype: this model has keys of " + std::to_string(group.head_dim) +
                          " numbers and values of " + std::to_string(group.value_dim) +
                          ", expected equal sizes for a coded cache; use f32, f16 or bf16");
  }
}

Routing routing_of(const ExpertsSpec& experts) {
  return {
      experts.count, experts.chosen, experts.scores == "sigmoid", experts.normalise,
      experts.scale, experts.groups, experts.chosen_groups,       experts.group_score == "top2"};
}

Activation parse_activation(const std::string& name) {
  const auto* found = std::find(kActivationNames, kActivationNames + kActivations, name);
  return static_cast<Activation>(found - kActivationNames);  // the spec is validated
}

}  // namespace

CacheLayout make_cache_layout(const Model& model, const CacheFormat& format) {
  const DecoderSpec& spec = model.spec;
  CacheLayout layout;
  layout.dtype = model.cache_dtype;
  layout.key_codec = format.keys;
  layout.value_codec = format.values;
  layout.exact_first = format.exact_first || !layout.coded();
  layout.window_blocks = layout.blocks_for(format.window_tokens);
  const std::vector<float>& turns = spec.rope.inv_freq;
  const auto fast = [](float frequency) { return frequency >= kSlowestUncentred; };
  layout.first_centred_pair = turns.rend() - std::find_if(turns.rbegin(), turns.rend(), fast);
  const int64_t streamed = format.attention_window;
  if (streamed > 0 && spec.rope.dynamic_factor != 0) {
    throw InvalidArgument(
        "attention_window: this model's rotary positions are scaled by the length of the text, "
        "expected positions that do not depend on it");
  }
  if (streamed > 0 && !layout.exact_first) {
    throw InvalidArgument(
        "kv_sinks: is off, expected on with attention_window, which needs the first tokens");
  }
  for (int64_t layer = 0; layer < spec.num_layers; ++layer) {
    const CacheLayout::Group own = layer_group(spec, layer, streamed);
    if (layout.coded()) check_coded_heads(own);
    const auto same = [&](const CacheLayout::Group& group) { return group.same_shape(own); };
    auto group = std::find_if(layout.groups.begin(), layout.groups.end(), same);
    if (group == layout.groups.end()) group = layout.groups.insert(layout.groups.end(), own);
    layout.group_of.push_back(group - layout.groups.begin());
    layout.place_of.push_back(group->layers++);
  }
  return layout;
}

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
    const auto half = static_cast<size_t>(spec.head_dim_of(layer) / 2);
    still.inv_freq.resize(std::max(still.inv_freq.size(), half));
    rope_of_.push_back(rotates ? static_cast<size_t>(spec.rope_of(layer)) : ropes.size());
  }
  if (std::count(rope_of_.begin(), rope_of_.end(), ropes.size()) > 0) ropes.push_back(still);
  activations_ = std::make_unique<Activations>(backend, *model_, std::move(ropes), sink_reach_ > 0);
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

LinearInput Decoder::normed(const float* x, const NormWeights& norm) const {
  const DecoderSpec& spec = model_->spec;
  return {x, {norm.weight, spec.norm_eps, spec.hidden_size, spec.norms.kind == "layer", norm.bias}};
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
  Activations& a = *activations_;
  backend_.embed(model_->embed, a.token_ids, rows, model_->spec.embedding_scale, false, a.x);
  if (!model_->positions.empty()) {
    backend_.embed(model_->positions, a.positions, rows, 1.0f, true, a.x);
  }
  if (model_->spec.norms.embedding) {
    backend_.normalise(normed(a.x, model_->embed_norm), rows, a.x);
  }
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
  if (has_experts) {
    experts(index, rows, input, poll);  // a.x -> a.block
  } else {
    backend_.activated_linear(w.gate_up, w.gate_up_bias, input, rows, gate_,
                              w.activation_parameters.data, a.gated);
  }
  poll();
  if (parallel) add_block(w.o, w.o_bias, a.attended, w.attention_post_norm, rows);
  if (has_experts) {
    backend_.add_rows(normed(a.block, w.mlp_post_norm), rows, model_->spec.residual_scale, a.x);
  } else {
    add_block(w.down, w.down_bias, a.gated, w.mlp_post_norm, rows);
  }
}

void Decoder::experts(int64_t index, int64_t rows, const LinearInput& input, const Poll& poll) {
  const LayerWeights& w = model_->layers[static_cast<size_t>(index)];
  Activations& a = *activations_;
  ExpertsArgs args;
  args.input = input;
  args.router = &w.router;
  args.router_bias = w.router_bias;
  args.correction = w.router_correction;
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

  backend_.linear(w.qkv, w.qkv_bias, normed(a.x, w.attention_norm), rows, false, a.qkv);

  RotateArgs rotate;
  rotate.qkv = a.qkv;
  rotate.qkv_stride = w.qkv.outputs;
  rotate.k_offset = w.qkv.offsets[1];
  rotate.v_offset = w.qkv.offsets[2];
  rotate.cosines = angles.cosines;
  rotate.sines = angles.sines;
  rotate.clip = spec.attention.clip;
  rotate.q_norm = head_norm(w.q_norm);
  rotate.k_norm = head_norm(w.k_norm);
  rotate.v_norm = spec.attention.v_norm;
  rotate.norm_eps = spec.norm_eps;
  const bool rotated = spec.rope_of(index) != DecoderSpec::kNoRope;
  if (!spec.attention.temperature_unrotated || !rotated) rotate.q_scales = a.q_scales;
  rotate.num_heads = spec.heads_of(index);
  rotate.layer = index;
  backend_.rotate_and_append(rotate);
  if (encodes) backend_.encode(index);

  AttendLayerArgs attend;
  attend.qkv = a.qkv;
  attend.qkv_stride = w.qkv.outputs;
  attend.out = a.attended;
  attend.num_heads = spec.heads_of(index);
  attend.layer = index;
  const int64_t group = layout_.group_of[static_cast<size_t>(index)];
  if (layout_.groups[static_cast<size_t>(group)].sink_tokens > 0) {
    attend.sink_cosines = angles.sink_cosines;
    attend.sink_sines = angles.sink_sines;
  }
  attend.softcap = spec.attention.softcap;
  attend.alibi_slopes = model_->alibi_slopes;
  attend.sink_logits = w.sink_logits;
  attend.scale = spec.attention.scale != 0
                     ? spec.attention.scale
                     : static_cast<float>(1.0 / std::sqrt(static_cast<double>(spec.head_dim_of(index))));
  poll();
  backend_.attend(attend);
}

void Decoder::add_block(const Matrix& weight, const Vector& bias, const float* input,
                        const NormWeights& norm, int64_t rows) {
  Activations& a = *activations_;
  const LinearInput rows_of_input = {input, Norm{}};
  if (!model_->spec.adds_blocks()) {
    return backend_.linear(weight, bias, rows_of_input, rows, true, a.x);
  }
  backend_.linear(weight, bias, rows_of_input, rows, false, a.block);
  backend_.add_rows(normed(a.block, norm), rows, model_->spec.residual_scale, a.x);
}

void Decoder::head(int64_t rows) {
  const DecoderSpec& spec = model_->spec;
  const Matrix& weight = model_->head;
  Activations& a = *activations_;
  backend_.gather_rows(a.x, a.logits_index, rows, weight.inputs, a.last);
  backend_.linear(weight, model_->head_bias, normed(a.last, model_->norm), rows, false, a.logits);
  if (spec.logit_scale != 1.0f || spec.logit_softcap != 0.0f) {
    backend_.cap_rows(a.logits, rows, weight.outputs, spec.logit_scale, spec.logit_softcap);
  }
}

}  // namespace onward
